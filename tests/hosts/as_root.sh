#!/bin/bash
# Runs a test between network hosts, with the variables that it goes by: as root, or as a user
# through sudo, if that asks for no password.
set -euo pipefail
if ((EUID == 0)); then exec "$@"; fi
exec sudo -n env GRADWIRE_BIN="$GRADWIRE_BIN" PYTHONDONTWRITEBYTECODE=1 "$@"
