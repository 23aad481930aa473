#!/bin/bash
# SIGKILL of a rank to the Error on every other: 4 ranks on 2 hosts, RUNS (100) times.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
ninja -C "$build" peer_death >/dev/null
"$(find "$build" -name peer_death -type f -perm -u+x | head -1)" "${RUNS:-100}" | sort -k3 -n | awk '
  { last[NR] = $3 }
  END {
    printf "peer_death: until the last rank knew, ms: median %.2f, worst of %d %.2f\n", last[int((NR + 1) / 2)], NR, last[NR]
    printf "RATIO peer_death_worst_of_100_ms %.2f 1\n", 100 / last[NR]
  }'
