#!/usr/bin/env bash
# Builds third-party libraries as static ones, from Debian's source archives, which are checked by
# hash. Debian's packages have no static ISA-L, and a static xxHash without its run-time dispatch;
# outside Debian none of the libraries may be there.
# usage: scripts/static_libraries.sh FOLDER LIBRARY...
# LIBRARY: isal fmt json cli11 expected xxhash openssl; FOLDER is then one of CMAKE_PREFIX_PATH.
set -euo pipefail
readonly mirror=http://deb.debian.org
folder=$(realpath -m "$1")
readonly folder
shift
jobs=$(nproc)
readonly jobs

# Sets `archive`.
download() {  # ARCHIVE SHA256
  archive=$folder/source/$(basename "$1")
  mkdir -p "$folder/source"
  if [[ ! -f $archive ]]; then
    curl -fsSL --retry 3 -o "$archive.part" "$mirror/$1"
    mv "$archive.part" "$archive"
  fi
  sha256sum --quiet --check <<<"$2  $archive"
}

# Unpacks a source archive, and enters its folder.
fetch() {  # ARCHIVE SHA256
  local archive
  download "$@"
  local unpacked=$archive.unpacked
  rm -rf "$unpacked"
  mkdir "$unpacked"
  tar -xf "$archive" -C "$unpacked" --strip-components 1
  cd "$unpacked"
}

install_with_cmake() {  # OPTION...
  cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX="$folder" \
    -DCMAKE_INSTALL_LIBDIR=lib "$@"
  cmake --build build
  cmake --install build
}

build_isal() {
  fetch debian/pool/main/libi/libisal/libisal_2.30.0.orig.tar.xz \
    f363f1be3d657d5676cef5253ee2233e60116e2fa9c9de86881185bf81e0e4b8
  make -f Makefile.unx -j "$jobs" lib
  install -D -m 644 bin/isa-l.a "$folder/lib/libisal.a"
  install -D -m 644 -t "$folder/include/isa-l" include/*.h
}

build_fmt() {
  fetch debian/pool/main/f/fmtlib/fmtlib_9.1.0+ds1.orig.tar.gz \
    84ce1c2d0be3a9863935137969dcec6970125caac032f82474640bfc81463583
  install_with_cmake -DFMT_TEST=OFF -DFMT_DOC=OFF
}

build_json() {
  fetch debian/pool/main/n/nlohmann-json3/nlohmann-json3_3.11.2.orig.tar.gz \
    d69f9deb6a75e2580465c6c4c5111b89c4dc2fa94e3a85fcd2ffcd9a143d9273
  install_with_cmake -DJSON_BuildTests=OFF
}

build_cli11() {
  fetch debian/pool/main/c/cli11/cli11_2.1.2+ds.orig.tar.xz \
    8143d20b688e98ccce8e24562d3b68e5f47c12e896c42c7ca8553dbde5bed55d
  install_with_cmake -DCLI11_BUILD_TESTS=OFF -DCLI11_BUILD_EXAMPLES=OFF -DCLI11_BUILD_DOCS=OFF
}

# One header, from Debian's package.
build_expected() {
  download debian/pool/main/t/tl-expected/libexpected-dev_1.0.0~dfsg-3_all.deb \
    f6ff083e016e77fc51a359f6afd6947f496dbb55db47857e31de384177a7fbf1
  rm -rf "$folder/source/expected"
  mkdir "$folder/source/expected"
  cd "$folder/source/expected"
  ar x "$archive"
  tar -xf data.tar.*
  cp -r usr/include usr/share "$folder"
}

build_xxhash() {
  fetch debian/pool/main/x/xxhash/xxhash_0.8.1.orig.tar.gz \
    3bb6b7d6f30c591dd65aaaff1c8b7a5b94d81687998ca9400082c739a690436c
  local sources=(xxhash.c)
  # Chooses vector instructions at run time; the archive of its Makefile, and so Debian's, lacks it.
  [[ $(uname -m) != x86_64 ]] || sources+=(xxh_x86dispatch.c)
  cc -O3 -fPIC -c "${sources[@]}"
  ar rcs libxxhash.a "${sources[@]/%.c/.o}"
  install -D -m 644 libxxhash.a "$folder/lib/libxxhash.a"
  install -D -m 644 -t "$folder/include" xxhash.h xxh3.h xxh_x86dispatch.h
}

build_openssl() {
  fetch debian-security/pool/updates/main/o/openssl/openssl_3.0.19.orig.tar.gz \
    fa5a4143b8aae18be53ef2f3caf29a2e0747430b8bc74d32d88335b94ab63072
  ./config --prefix="$folder" --libdir=lib no-shared no-tests no-apps no-legacy
  make -j "$jobs" build_libs
  make install_dev
}

for library in "$@"; do
  if [[ -e $folder/.$library ]]; then continue; fi
  echo "static libraries: $library"
  log=$folder/source/$library.log
  mkdir -p "$folder/source"
  set +e  # Within `if`, `||` and `&&`, errors of the function would not end it.
  (set -e; "build_$library") >"$log" 2>&1
  failed=$?
  set -e
  if ((failed)); then
    tail -20 "$log" >&2
    exit 1
  fi
  touch "$folder/.$library"
done
