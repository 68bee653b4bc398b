#!/bin/bash
# usage: scripts/host_tests.sh: prints the CMake option that enables the tests between network
# hosts, or disables them if they cannot run; the latter is also reported on stderr.
set -euo pipefail

if (($(id -u) == 0)) || sudo -n true 2>/dev/null; then
  echo "-DGRADWIRE_HOST_TESTS=ON"
  exit
fi
echo "make test: leaving out the tests between network hosts (hosts.*): they create network" \
  "namespaces, which requires root or passwordless sudo. All other tests run." >&2
echo "-DGRADWIRE_HOST_TESTS=OFF"
