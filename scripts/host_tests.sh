#!/bin/bash
# usage: scripts/host_tests.sh: prints the option of CMake by which the tests between network hosts
# are run, or left out where they cannot run; the latter it also says on stderr.
set -euo pipefail

if (($(id -u) == 0)) || sudo -n true 2>/dev/null; then
  echo "-DGRADWIRE_HOST_TESTS=ON"
  exit
fi
echo "make test: leaving out the tests between network hosts (hosts.*): they make network" \
  "namespaces, which needs root or a sudo that asks for no password. All others run." >&2
echo "-DGRADWIRE_HOST_TESTS=OFF"
