#!/bin/bash
# Our collectives of f32 beside Gloo's and, where mpicc is there (openmpi-bin, libopenmpi-dev), an
# MPI's: 2 and 4 ranks on this host; as root also 2 hosts of 2 ranks, network namespaces joined by a
# veth pair. Ratios of medians, of the best round each. ROUNDS: how often each side runs, in turn.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release} rounds=${ROUNDS:-2}
ninja -C "$build" collectives_bench >/dev/null
ours=$(find "$build" -name collectives_bench -type f -perm -u+x | head -1)
work=$(mktemp -d)
hosts=
clean() {
  [[ -z $hosts ]] || for host in yardbench0 yardbench1; do ip netns del $host 2>/dev/null || true; done
  rm -rf "$work"
}
trap clean EXIT
peers=gloo
if command -v mpicc >/dev/null; then
  mpicc -O2 -o "$work/peer_mpi" bench/collectives/peer_mpi.c
  peers="gloo mpi"
else
  echo "collectives: no mpicc here; without an MPI (apt-get install openmpi-bin libopenmpi-dev)"
fi

inside() {  # SIDE RANKS
  case $1 in
    yard) "$ours" --world "$2" ;;
    gloo) .venv/bin/python bench/collectives/peer_gloo.py --world "$2" ;;
    mpi) OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 mpirun --oversubscribe -np "$2" "$work/peer_mpi" ;;
  esac
}

make_hosts() {
  hosts=made
  for host in yardbench0 yardbench1; do ip netns add $host && ip -n $host link set lo up; done
  ip -n yardbench0 link add veth0 type veth peer name veth1 netns yardbench1
  for i in 0 1; do
    ip -n yardbench$i addr add 10.215.77.$((i + 1))/24 dev veth$i
    ip -n yardbench$i link set veth$i up
  done
}

across() {  # SIDE: 2 ranks on each host
  local arguments="--world 4 --count 2 --master 10.215.77.1 --port $((30000 + RANDOM % 20000))" side=$1 first=
  program="$ours"
  [[ $side == yard ]] || program=".venv/bin/python bench/collectives/peer_gloo.py"
  for i in 0 1; do
    GLOO_SOCKET_IFNAME=veth$i ip netns exec yardbench$i $program $arguments --first $((2 * i)) &
    [[ $i == 1 ]] || first=$!
  done
  wait
}

sent() { ip netns exec yardbench0 cat /sys/class/net/veth0/statistics/tx_bytes; }

for ranks in 2 4; do
  echo "$ranks ranks on this host: side, operation, bytes, memory, median us, least us"
  for ((round = 0; round < rounds; ++round)); do
    for side in yard $peers; do inside $side $ranks 2>/dev/null | sed "s/^/$side /"; done
  done | tee "$work/lines"
  python3 bench/collectives/ratios.py "${ranks}ranks" <"$work/lines"
done
if [[ $(id -u) != 0 ]]; then
  echo "collectives: not root; 2 hosts NOT MEASURED"
  exit 0
fi
make_hosts
echo "2 hosts of 2 ranks, veth: side, operation, bytes, memory, median us, least us"
for ((round = 0; round < rounds; ++round)); do
  for side in yard gloo; do
    before=$(sent)
    across $side 2>/dev/null | sed "s/^/$side /"
    echo "# $side sent $(($(sent) - before)) bytes from host 0 in all" >&2
  done
done | tee "$work/lines"
python3 bench/collectives/ratios.py 2hosts <"$work/lines"
