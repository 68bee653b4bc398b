#!/usr/bin/env bash
# Builds the Python package and gradwire train against releases of PyTorch, each in an environment
# of its own, and runs the Python tests. A release that cannot be installed with its dependencies
# is only compiled against.
# usage: scripts/releases.sh [RELEASE...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly folder=build-releases  # Up to 6 GB for each release.
readonly log=$folder/log
(($#)) || set -- 2.11.0 2.12.1 2.13.0 2.14.1 2.15.0

say() { echo "releases: $*"; }

version_in_setup() { sed -n "s/^readonly $1_version=//p" scripts/setup.sh; }  # NAME

# Other constraints of the user would name another release.
pip_install() {  # PYTHON ARGUMENT...
  PIP_CONSTRAINT=/dev/null "$1" -m pip install --quiet --disable-pip-version-check "${@:2}"
}

# Sets `python`, and `site`, the folder of torch.
install() {  # RELEASE
  local environment=$folder/$1/environment
  python=$environment/bin/python
  site=$folder/$1/headers
  [[ -x $python ]] || ${GRADWIRE_PYTHON:-.venv/bin/python} -m venv "$environment"
  if "$python" -c 'import torch' 2>/dev/null ||
    { pip_install "$python" "torch==$1" numpy safetensors \
        "scikit-build-core==$(version_in_setup scikit_build_core)" \
        "expecttest==$(version_in_setup expecttest)" &&
      "$python" -c 'import torch'; } >>"$log" 2>&1; then
    site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
    return
  fi
  python=
  [[ -d $site/torch ]] ||
    pip_install .venv/bin/python --no-deps --target "$site" "torch==$1" >>"$log" 2>&1
}

build() {  # RELEASE
  cmake -S . -B "$folder/$1/build" -G Ninja -DGRADWIRE_TESTS=OFF \
    -DGRADWIRE_PYTHON="$PWD/${python:-.venv/bin/python}" \
    -DTorch_DIR="$(realpath "$site")/torch/share/cmake/Torch" >>"$log" 2>&1 &&
    cmake --build "$folder/$1/build" --target gradwire_package >>"$log" 2>&1
}

# Runs the programs one after another; prints those that fail.
run_tests() {  # RELEASE
  local built=$PWD/$folder/$1/build program failed=()
  local programs=(tests/python/test_*.py tests/python/pytorch_suite.py)
  # Its hooks are there from 2.15 on.
  [[ $(printf '%s\n' 2.15 "$1" | sort -V | head -1) != 2.15 ]] ||
    programs+=(tests/python/flight_recorder.py)
  for program in "${programs[@]}"; do
    PYTHONPATH=$built/python PYTHONDONTWRITEBYTECODE=1 GRADWIRE_PROGRAM=$built/bin/gradwire \
      GRADWIRE_BUILD=$built GRADWIRE_TEST_LIMIT=900 timeout 1800 "$python" "$program" \
      >>"$log" 2>&1 || failed+=("$(basename "$program")")
  done
  ((!${#failed[@]})) && echo "Python tests passed" || echo "FAILED: ${failed[*]}"
}

mkdir -p "$folder"
: >"$log"
status=0
for release in "$@"; do
  say "PyTorch $release: installing"
  if ! install "$release"; then
    result="cannot be installed"
  elif say "PyTorch $release: compiling" && ! build "$release"; then
    result="DOES NOT COMPILE"
  elif [[ -z $python ]]; then
    result="compiles; it cannot be imported here, so no test ran"
  else
    say "PyTorch $release: testing"
    result="compiles; $(run_tests "$release")"
  fi
  say "PyTorch $release $result"
  [[ $result != *FAILED* && $result != *"DOES NOT"* && $result != cannot* ]] || status=1
done
((!status)) || say "details are in $log"
exit $status
