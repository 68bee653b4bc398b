#!/bin/bash
# The steps of `make install` besides building. They also work as root in a user's folder: `sudo
# make install` leaves no files there that this user could not change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: scripts/install.sh prepare PREFIX         checks that you may write to PREFIX; as root also
                                                 installs the packages that building requires
       scripts/install.sh as-owner COMMAND...    runs a command as the owner of this folder
       scripts/install.sh copy BUILD PREFIX      installs the build in BUILD
USAGE
}

# Checks that the folder, or its first existing parent, is writable.
prepare() {  # PREFIX
  may_write "$1"
  if (($(id -u) == 0 && $(stat -c %u .) != 0)); then scripts/setup.sh --packages build; fi
}

may_write() {  # PREFIX
  local folder=$1
  while [[ ! -e $folder ]]; do folder=$(dirname "$folder"); done
  [[ -d $folder && -w $folder ]] && return
  echo "make install: $(id -un) may not write in $folder. Either run" >&2
  echo "    sudo make install PREFIX=$1" >&2
  echo "or choose a folder of your own:" >&2
  echo "    make install PREFIX=$HOME/.local" >&2
  return 1
}

as_owner() {  # COMMAND...
  local owner home
  owner=$(stat -c %u .)
  if (($(id -u) != 0 || owner == 0)); then exec "$@"; fi
  home=$(getent passwd "$owner" | cut -d: -f6)
  exec setpriv --reuid="$owner" --regid="$(stat -c %g .)" --init-groups \
    env HOME="${home:-/}" USER="$(stat -c %U .)" "$@"
}

copy() {  # BUILD PREFIX
  rm -f "$1/install_manifest.txt"  # Another user's would not be writable.
  cmake --install "$1" --prefix "$2"
  rm -f "$1/install_manifest.txt"
}

case ${1:-} in
  prepare) prepare "${2:?PREFIX}" ;;
  as-owner) shift; as_owner "$@" ;;
  copy) copy "${2:?BUILD}" "${3:?PREFIX}" ;;
  *) usage >&2; exit 2 ;;
esac
