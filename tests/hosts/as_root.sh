#!/bin/bash
# Runs a test between network hosts with its environment variables: as root, or through passwordless
# sudo.
set -euo pipefail
if ((EUID == 0)); then exec "$@"; fi
exec sudo -n env GRADWIRE_BIN="$GRADWIRE_BIN" PYTHONDONTWRITEBYTECODE=1 "$@"
