#!/bin/bash
# usage: scripts/tidy.sh [BUILD] [JOBS]: runs clang-tidy on the sources that do not need libtorch
# (the others take half a minute each), with the commands of a folder that is configured with
# -DGRADWIRE_UNITY=OFF.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=${1:-build} jobs=${2:-$(nproc)}

[[ -e $build/compile_commands.json ]] || { echo "tidy.sh: configure $build first" >&2; exit 1; }
layers=(base topology schedule net engine bootstrap comm trace report)
find "${layers[@]/#/src/gradwire/}" -name '*.cpp' -print0 |
  xargs -0 -n 4 -P "$jobs" clang-tidy -p "$build" --quiet --extra-arg=-Wno-unknown-warning-option
