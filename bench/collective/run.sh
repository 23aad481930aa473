#!/bin/bash
# Our all-reduce of f32 between two processes beside Gloo's, in one run.
set -euo pipefail
cd "$(dirname "$0")/../.."
ninja -C build/release collective_bench >/dev/null
ours=$(build/release/bin/collective_bench)
peer=$(.venv/bin/python bench/collective/peer_gloo.py)
printf '%s\n%s\n' "$ours" "$peer"
# The medians: name, bytes, memory, median, least.
printf '%s\n%s\n' "$ours" "$peer" | awk '
  $1 == "all_reduce" { ours[$2 " " $3] = $4 }
  $1 == "gloo" { peer[$2] = $4 }
  END {
    for (key in ours) {
      split(key, part, " ")
      goal = part[2] == "shared" ? 4 : 1.5
      printf "RATIO all_reduce_%s_%s %.2f %.1f\n", part[2], part[1], peer[part[1]] / ours[key], goal
    }
  }' | sort
