#!/bin/bash
# Several hosts on Ethernet, simulated on one machine: each is a network namespace.
#
# Host I of the set PREFIX is the namespace PREFIX-hI. It has one veth per rail (gw0, gw1, ...). The
# other end is a port of a Linux bridge, the switch, in the separate namespace PREFIX-swR. So no
# interface appears outside these namespaces, sets with different prefixes are isolated, and the
# machine's own network is unaffected. Both directions of every link are shaped with tbf: the host's
# end shapes what the host sends, the switch's end what it receives.
set -euo pipefail

usage() {
  cat <<'USAGE'
usage: hosts.sh PREFIX up N RATE [NICS] [options]  create the set; an old one of that name goes
       hosts.sh PREFIX down                        end what runs in the set, and remove it
       hosts.sh PREFIX show                        addresses, queues and drops
       hosts.sh PREFIX rate RATE [I [RAIL]] [options]
                                                   shape the existing links anew: all, or those of
                                                   host I ("all" for all hosts), or one rail of it;
                                                   with --only, one direction
       hosts.sh PREFIX cut I [RAIL]                take host I's cables out (of one rail)
       hosts.sh PREFIX uncut I [RAIL]              put them back
       hosts.sh PREFIX run I COMMAND...            run a command on host I

  PREFIX  the set's name: a letter, then up to 11 letters and digits, all lower case
  N       number of hosts, 1..64
  RATE    tc's rate of each link and direction, like 2.5gbit or 100mbit; "none": not shaped
  NICS    links per host, 1..8 (default 1): rail R is interface gwR, address 10.77.R.(I+1)/24
options:
  --mtu BYTES       of every link                          (default 1500)
  --burst BYTES     tbf's bucket                           (default 128 Ki below 2gbit, else 256 Ki)
  --limit BYTES     the switch ports' queues               (default 512 Ki, or 3 ms at RATE if more)
  --hostlimit SIZE  the queue where a host sends           (default 4mb)
  --cc NAME         TCP congestion control of the hosts    (default cubic)
  --only DIRECTION  of "rate": sends or receives, as the hosts see it

Hosts resolve each other by namespace name, and their host name is that name.

RATE counts Ethernet headers but neither preamble, gap nor checksum (24 bytes a packet), so that the
best goodput is 95.6 % of it at MTU 1500; for the 94.1 % of a real wire give 0.984 times the rate.
(tc's stab cannot add the 24 bytes: with segmentation offload it would hide the headers instead.)
After a pause the bucket lets --burst bytes pass unshaped: a lone message of about that size looks
faster than the wire, so measure back to back.
USAGE
}

wrong() { echo "hosts.sh: $*" >&2; exit 2; }

# --- the set ---

namespaces() { ip netns list | awk '{print $1}' | grep -E "^$PREFIX-(h|sw)[0-9]+\$" || true; }

# All processes in these namespaces were started there by the user of this set.
down() {
  local namespace pids
  for namespace in $(namespaces); do
    pids=$(ip netns pids "$namespace")
    [[ -z $pids ]] || kill -KILL $pids 2>/dev/null || true
    ip netns del "$namespace"
    rm -rf "/etc/netns/$namespace"
  done
}

add_switch() {  # RAIL
  local namespace=$PREFIX-sw$1
  ip netns add "$namespace"
  ip -n "$namespace" link set lo up
  ip -n "$namespace" link add br0 type bridge stp_state 0 forward_delay 0
  ip -n "$namespace" link set br0 mtu "$MTU" up
}

add_host() {  # HOST
  local namespace=$PREFIX-h$1 i
  ip netns add "$namespace"
  ip -n "$namespace" link set lo up
  # With two rails, an interface must answer ARP only for its own address.
  ip netns exec "$namespace" sh -c 'cd /proc/sys/net && echo 1 >ipv4/conf/all/arp_ignore &&
    echo 2 >ipv4/conf/all/arp_announce
    [ ! -e ipv6 ] || echo 1 >ipv6/conf/all/disable_ipv6'
  mkdir -p "/etc/netns/$namespace"  # ip netns exec shows this file as /etc/hosts
  {
    echo "127.0.0.1 localhost"
    for ((i = 0; i < N; i++)); do echo "10.77.0.$((i + 1)) $PREFIX-h$i"; done
  } >"/etc/netns/$namespace/hosts"
}

add_link() {  # HOST RAIL
  local host=$PREFIX-h$1 switch=$PREFIX-sw$2 address=10.77.$2.$(($1 + 1))
  ip link add "gw$2" mtu "$MTU" netns "$host" type veth peer name "p$1" mtu "$MTU" netns "$switch"
  ip -n "$switch" link set "p$1" master br0 up
  ip -n "$host" addr add "$address/24" dev "gw$2"
  ip -n "$host" link set "gw$2" up
  if [[ $RATE != none ]]; then
    steer "$host" "gw$2"
    steer "$switch" "p$1"
  fi
  # The machine's default may be bbr, which halves the throughput of such links. Set per route,
  # because a namespace cannot make a "restricted" algorithm its default.
  ip -n "$host" route change "10.77.$2.0/24" dev "gw$2" src "$address" congctl "$CC"
}

check_reachable() {
  local i status
  for ((i = 1; i < N; i++)); do
    status=0  # Nothing listens there: an immediate refusal shows that the host is reachable.
    ip netns exec "$PREFIX-h0" timeout 3 bash -c "</dev/tcp/10.77.0.$((i + 1))/9" 2>/dev/null ||
      status=$?
    ((status != 124)) || { echo "hosts.sh: host $i does not answer" >&2; return 1; }
  done
}

up() {  # N RATE [NICS]
  N=${1:?N} RATE=${2:?RATE} NICS=${3:-1}
  ((N >= 1 && N <= 64 && NICS >= 1 && NICS <= 8)) || wrong "1..64 hosts, 1..8 links each"
  ((EUID == 0)) || wrong "network namespaces need root"
  [[ $RATE == none ]] || mbit "$RATE" >/dev/null
  down
  trap 'echo "hosts.sh: failed, removing the set" >&2; down' ERR
  local host rail
  for ((rail = 0; rail < NICS; rail++)); do add_switch "$rail"; done
  for ((host = 0; host < N; host++)); do
    add_host "$host"
    for ((rail = 0; rail < NICS; rail++)); do add_link "$host" "$rail"; done
  done
  reshape "$RATE"
  check_reachable
  trap - ERR
  echo "$PREFIX: $N hosts with $NICS links each at $RATE, MTU $MTU, $CC"
}

# --- the links ---

mbit() {  # tc's rate -> whole Mb/s
  case ${1,,} in
    *[0-9]gbit) awk -v rate="${1%gbit}" 'BEGIN { printf "%d", rate * 1000 }' ;;
    *[0-9]mbit) awk -v rate="${1%mbit}" 'BEGIN { printf "%d", rate }' ;;
    *) wrong "a rate is like 2.5gbit or 100mbit, not $1" ;;
  esac
}

# The burst is large because the kernel splits GSO packets larger than it, which halves the rate.
shape() {  # NAMESPACE INTERFACE RATE LIMIT
  if [[ $3 == none ]]; then
    tc -n "$1" qdisc del dev "$2" root 2>/dev/null || true
    return
  fi
  local burst=$BURST limit=$4 rate
  rate=$(mbit "$3")
  [[ -n $burst ]] || burst=$((rate < 2000 ? 131072 : 262144))
  [[ -n $limit ]] || limit=$((rate * 375 > 524288 ? rate * 375 : 524288))
  # Queued packets stay queued: a link that slows down loses none.
  tc -n "$1" qdisc replace dev "$2" root tbf rate "$3" burst "$burst" limit "$limit"
}

# Receive packet steering keeps a flow on one CPU. Without it packets leave tbf out of order, and
# TCP retransmits them.
steer() {  # NAMESPACE INTERFACE
  local all_cpus
  all_cpus=$(printf '%x' $(((1 << $(nproc)) - 1)))
  ip netns exec "$1" sh -c "echo $all_cpus >/sys/class/net/$2/queues/rx-0/rps_cpus"
}

interfaces() {  # NAMESPACE
  ip -n "$1" -o link | awk -F'[ @:]+' '$2 ~ /^(gw|p)[0-9]+$/ { print $2 }'
}

reshape() {  # RATE [HOST|all [RAIL]]
  local namespace interface host=${2:-all} rail=${3:-[0-9]+}
  [[ $host != all ]] || host='[0-9]+'
  [[ -z $ONLY || $ONLY == sends || $ONLY == receives ]] || wrong "--only sends or receives"
  for namespace in $(namespaces); do
    for interface in $(interfaces "$namespace"); do
      case $namespace:$interface in
        *-h*) [[ $ONLY != receives && $namespace:$interface =~ -h$host:gw$rail$ ]] || continue
          shape "$namespace" "$interface" "$1" "$HOSTLIMIT" ;;
        *-sw*) [[ $ONLY != sends && $namespace:$interface =~ -sw$rail:p$host$ ]] || continue
          shape "$namespace" "$interface" "$1" "$LIMIT" ;;
      esac
    done
  done
}

plug() {  # up|down HOST [RAIL]
  local switch switches
  switches=$(namespaces | grep -E -- "-sw${3:-[0-9]+}\$") || wrong "$PREFIX has no rail ${3:-0}"
  for switch in $switches; do ip -n "$switch" link set "p${2:?host}" "$1"; done
}

show() {
  local namespace
  for namespace in $(namespaces | sort -V); do
    echo "== $namespace"
    ip -n "$namespace" -br addr
    tc -n "$namespace" -s qdisc show | grep -A2 tbf || true
  done
}

run() {  # HOST COMMAND...
  local host=$PREFIX-h${1:?host}
  shift
  exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0"; exec "$@"' "$host" "$@"
}

# --- the command line ---

MTU=1500 BURST='' LIMIT='' HOSTLIMIT=4mb CC=cubic ONLY=''
[[ ${1:-} != -h && ${1:-} != --help ]] || { usage; exit 0; }
(($# >= 2)) || { usage >&2; exit 2; }
PREFIX=$1 verb=$2
shift 2
[[ $PREFIX =~ ^[a-z][a-z0-9]{0,11}$ ]] || wrong "a prefix is a letter and up to 11 more"
[[ $verb != run ]] || run "$@"

arguments=()
while (($#)); do
  case $1 in
    --mtu) MTU=${2:?$1}; shift ;;
    --burst) BURST=${2:?$1}; shift ;;
    --limit) LIMIT=${2:?$1}; shift ;;
    --hostlimit) HOSTLIMIT=${2:?$1}; shift ;;
    --cc) CC=${2:?$1}; shift ;;
    --only) ONLY=${2:?$1}; shift ;;
    -*) wrong "unknown option $1 (see --help)" ;;
    *) arguments+=("$1") ;;
  esac
  shift
done
set -- "${arguments[@]}"

case $verb in
  up) up "$@" ;;
  down) down ;;
  show) show ;;
  rate) reshape "${1:?RATE}" "${@:2}" ;;
  cut) plug down "$@" ;;
  uncut) plug up "$@" ;;
  *) wrong "unknown verb $verb (see --help)" ;;
esac
