#!/bin/bash
# What `make install` does beside building. Also as root in the folder of a user: `sudo make
# install` leaves nothing there that this user could not change.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  cat <<'USAGE'
usage: scripts/install.sh prepare PREFIX         says what to do if you may not write there; as root
                                                 installs the packages that building needs
       scripts/install.sh as-owner COMMAND...    runs a command as the owner of this folder
       scripts/install.sh copy BUILD PREFIX      installs what is built in BUILD
USAGE
}

# The folder, or the first one above it that is there, must be one in which you may write.
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
  echo "or choose a folder of yours:" >&2
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
  rm -f "$1/install_manifest.txt"  # Of another user, it would be in the way.
  cmake --install "$1" --prefix "$2"
  rm -f "$1/install_manifest.txt"
}

case ${1:-} in
  prepare) prepare "${2:?PREFIX}" ;;
  as-owner) shift; as_owner "$@" ;;
  copy) copy "${2:?BUILD}" "${3:?PREFIX}" ;;
  *) usage >&2; exit 2 ;;
esac
