#!/bin/bash
# Replaces ssh between the hosts of hosts.sh: rsh.sh HOST COMMAND... runs the command, as one string
# passed to a shell, in the namespace named HOST. As with ssh, the environment and the working
# directory are not passed on, and the command runs in its own session. If this process is killed
# the command is not: it sees its standard input and output close.
set -euo pipefail

while [[ ${1:?host} == -* ]]; do shift; done  # Options of ssh, such as MPICH's -x.
host=$1
shift
if [[ ! $host =~ ^[a-z][a-z0-9]*-h[0-9]+$ || ! -e /run/netns/$host ]]; then
  echo "rsh.sh: there is no host $host" >&2
  exit 255
fi
cd /
exec env -i PATH=/usr/local/bin:/usr/bin:/bin HOME=/ SHELL=/bin/sh LANG=C.UTF-8 \
  setsid --wait --fork ip netns exec "$host" unshare --uts \
  sh -c 'hostname "$0"; sh -c "$1"; exit $?' "$host" "$*"
