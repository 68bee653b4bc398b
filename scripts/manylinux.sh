#!/usr/bin/env bash
# Builds the wheels in the image manylinux_2_28, whose glibc is that of PyTorch's wheels, for its
# CPython 3.10 to 3.13. The image has compilers, but no third-party libraries: all are built.
# usage: scripts/manylinux.sh [RELEASE...]   (of PyTorch, as for scripts/wheel.sh)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec docker run --rm -v "$PWD:/gradwire" -w /gradwire quay.io/pypa/manylinux_2_28_x86_64 bash -c '
  set -euo pipefail
  dnf install -y nasm perl-core zlib-devel
  pythons=(/opt/python/cp31[0-3]-cp31[0-3]/bin/python)
  "${pythons[1]}" -m venv .venv
  .venv/bin/python -m pip install cmake ninja
  export PATH=$PWD/.venv/bin:$PATH GRADWIRE_LIBRARIES=all GRADWIRE_PYTHONS="${pythons[*]}"
  scripts/wheel.sh "$@"' wheel "$@"
