#!/bin/bash
# Runs the set-up, all of `make test`, or the wheel, in a new minimal root of this machine's
# distribution. The root has only make, git, sudo, ca-certificates and their dependencies, so that a
# package that scripts/setup.sh fails to install is missing there. It uses this machine's package
# sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: scripts/bare.sh setup    in the root, as a user with sudo: scripts/setup.sh build demo test,
                                the configuration of everything, and a build of the program without
                                libtorch
       scripts/bare.sh test     as a user with sudo make test and sudo make install, then as root
                                make test (an hour on two cores)
       scripts/bare.sh test-user | test-root    one half of it
       scripts/bare.sh wheel [RELEASE...]
                                installs the wheel in dist/ with each of these releases of PyTorch
                                (default: 2.13.0) in a root that has only Python, and runs a job of
                                two ranks; GRADWIRE_BARE_SUITE=trixie takes another suite

Requires root (or passwordless sudo) and mmdebstrap, which it installs. The root is made in
$GRADWIRE_BARE_FOLDER (by default /var/tmp), takes 5 GB, and is removed at the end.
USAGE
}

fail() { printf 'bare: %s\n' "$@" >&2; exit 1; }
say() { printf 'bare: %s\n' "$*"; }

# Variables that pip, npm and TLS use on this machine.
readonly certificates='[A-Z_]*CA_?(BUNDLE|CERTS|INFO)[A-Z_]*|SSL_CERT_[A-Z]*'
readonly passed="^(PIP_[A-Z_]*|$certificates|.*_proxy|.*_PROXY)="

make_root() {  # ROOT PACKAGES
  local suite
  if [[ -n ${GRADWIRE_BARE_SUITE:-} ]]; then
    mmdebstrap --quiet --variant=minbase --include="$2" "$GRADWIRE_BARE_SUITE" "$1" \
      http://deb.debian.org/debian
    return
  fi
  suite=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")
  [[ -n $suite ]] || fail "/etc/os-release names no VERSION_CODENAME: this is not Debian or Ubuntu"
  # Only the distribution's sources: packages of others must not hide missing ones.
  local list
  list=$(grep -lrE '^(deb |URIs:).*(debian|ubuntu)\.(org|com)' /etc/apt/sources.list \
    /etc/apt/sources.list.d 2>/dev/null || true)
  [[ -n $list ]] || fail "no file of /etc/apt names a mirror of Debian or Ubuntu"
  mmdebstrap --quiet --variant=minbase --include="$2" "$suite" "$1" $list
}

# Merges all of pip's configuration files and variables into one file, and mounts the package
# folders that it names. An index (PATH/simple) has its files next to it.
give_pip() {  # ROOT
  local path
  mkdir -p "$1/etc"
  python3 -m pip config list 2>/dev/null |
    sed -nE "s/\\\\n/ /g; s/^(global|install)\.([a-z-]+)='(.*)'$/\2 = \3/p" |
    { echo '[global]'; cat; } >"$1/etc/pip.conf"
  for path in ${PIP_FIND_LINKS:-} $(tr ' =' '\n\n' <"$1/etc/pip.conf" |
      sed -n 's|^file://||; s|/simple/*$||; \|^/|p'); do
    if [[ -f $path ]]; then  # A file of constraints, or of certificates.
      mkdir -p "$1${path%/*}"
      cp "$path" "$1$path"
    elif [[ -d $path ]]; then
      mkdir -p "$1$path"
      mount --bind -o ro "$path" "$1$path"
    fi
  done
}

give_certificates() {  # ROOT
  [[ ! -f /etc/ssl/certs/ca-certificates.crt ]] ||
    cp /etc/ssl/certs/ca-certificates.crt "$1/etc/ssl/certs/ca-certificates.crt"
}

give_system() {  # ROOT
  mount -t proc proc "$1/proc"
  mount -t sysfs sysfs "$1/sys"
  mount --rbind /dev "$1/dev"
  mount -t tmpfs tmpfs "$1/run"
  cp -L /etc/resolv.conf /etc/hosts "$1/etc/" 2>/dev/null || true
}

# A clone, plus uncommitted changes.
give_sources() {  # FOLDER
  git clone --quiet --no-local . "$1"
  git ls-files -z -co --exclude-standard --deduplicate |
    while IFS= read -r -d '' file; do [[ ! -f $file || -L $file ]] || printf '%s\0' "$file"; done |
    tar -c --null -T - | tar -x -C "$1"
}

# Runs in a mount namespace, so that its mounts are invisible outside and end with it.
inside() {  # ROOT WHAT [ARGUMENT...]
  local root=$1 what=$2 variables=() entry
  mount --bind "$root" "$root"  # `ip netns exec` requires the root to be a mount.
  give_system "$root"
  give_pip "$root"
  give_certificates "$root"
  chroot "$root" useradd --create-home --shell /bin/bash user
  if [[ $what == wheel ]]; then
    install -D -t "$root/home/user/gradwire" dist/*.whl
  else
    echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root/etc/sudoers.d/user"
    give_sources "$root/home/user/gradwire"
  fi
  for entry in /root "$root/home/user"; do
    [[ ! -f ~/.npmrc ]] || cp ~/.npmrc "${entry/#\/root/$root/root}/.npmrc"
  done
  chroot "$root" chown -R user: /home/user
  while IFS= read -r entry; do variables+=("$entry"); done < <(env | grep -E "$passed" || true)
  in_root() {  # USER COMMAND
    say "as $1: $2"
    chroot "$root" env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LANG=C.UTF-8 HOME="$(chroot "$root" getent passwd "$1" | cut -d: -f6)" "${variables[@]}" \
      setpriv --reuid="$1" --regid="$1" --init-groups \
      bash -euc "cd /home/user/gradwire; ulimit -S -n 1024; $2" </dev/null ||
      fail "command failed in a minimal root, as $1: $2"
  }
  "run_${what//-/_}" "${@:3}"
}

run_setup() {
  in_root user "scripts/setup.sh build demo test"
  in_root user "cmake -S . -B build -G Ninja -DGRADWIRE_TESTS=ON >/dev/null"
  # Not optimized: this only tests that it compiles and links.
  in_root user "cmake -S . -B build-core -G Ninja -DGRADWIRE_TORCH=OFF -DGRADWIRE_TESTS=OFF \
    -DCMAKE_BUILD_TYPE=None >/dev/null"
  in_root user "cmake --build build-core --parallel $(nproc) --target gradwire | tail -1"
  in_root user "build-core/bin/gradwire run -n 2 -- build-core/bin/gradwire schedule ring --verify"
}

run_test_user() {
  in_root user "make test"
  in_root user "sudo make install PREFIX=/opt/gradwire"
  in_root user "found=\$(find . ! -user user); [ -z \"\$found\" ] || { echo \"\$found\"; exit 1; }"
  in_root user "/opt/gradwire/bin/gradwire train examples/fashion_mnist.json -n 2 \
    --set epochs=1 --set data.limit=256 --output /tmp/trained"
}

run_test_root() {
  in_root root "make test"
}

# Constraints of this machine would name another release.
run_wheel() {  # RELEASE...
  local release
  variables+=(PIP_CONSTRAINT=/dev/null PIP_DISABLE_PIP_VERSION_CHECK=1)
  cat >"$root/home/user/gradwire/job.py" <<'JOB'
import gradwire, torch, torch.distributed as dist
dist.init_process_group("gradwire")
total = torch.ones(3)
dist.all_reduce(total)
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))(total).sum().backward()
print("sum", total[0].item(), "with PyTorch", torch.__version__)
dist.destroy_process_group()
JOB
  in_root user "! command -v c++ gcc cmake"
  for release in "${@:-2.13.0}"; do
    in_root user "rm -rf ~/environment; python3 -m venv ~/environment"
    in_root user "~/environment/bin/pip install --quiet torch==$release"
    in_root user "time ~/environment/bin/pip install --quiet ./gradwire-*.whl"
    in_root user "time ~/environment/bin/gradwire run -n 2 job.py"
  done
}

run_test() {
  run_test_user
  run_test_root
}

main() {
  case ${1:-} in
    setup | test | test-user | test-root | wheel) ;;
    *) usage >&2; exit 2 ;;
  esac
  command -v dpkg >/dev/null || fail "a minimal root can only be made on Debian or Ubuntu"
  if (($(id -u) != 0)); then
    sudo -n true 2>/dev/null || fail "a minimal root requires root, or passwordless sudo"
    exec sudo -n --preserve-env "$0" "$@"
  fi
  scripts/setup.sh bare
  root=$(mktemp -d "${GRADWIRE_BARE_FOLDER:-/var/tmp}/gradwire-bare-XXXXXX")
  trap 'rm -rf --one-file-system "$root"' EXIT
  say "making a minimal root in $root"
  local packages=make,git,sudo,ca-certificates
  [[ $1 != wheel ]] || packages=python3,python3-venv,ca-certificates
  make_root "$root" "$packages"
  unshare --mount --pid --fork --kill-child "$0" inside "$root" "$@"
  say "$1 passes in a minimal root"
}

if [[ ${1:-} == inside ]]; then inside "${@:2}"; else main "$@"; fi
