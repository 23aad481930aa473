#!/bin/bash
# The first batch of a loader that goes on in a data set of 10^9 samples, beside a fresh start.
# ROUNDS: how often each is done, in turn. YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
ninja -C "$build" resume_bench >/dev/null
figures=$("$(find "$build" -name resume_bench -type f -perm -u+x | head -1)" 1000000000 10000000 "${ROUNDS:-5}" 2>/dev/null)
echo "resume: 10^9 samples in 10^5 shards, simulated; ms to the first batch, at the start and at sample 10^7:"
echo "$figures"
median() { sed -n "s/^$1 //p" <<<"$figures" | tr ' ' '\n' | sort -n | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }
awk -v resumed="$(median resumed)" -v fresh="$(median fresh)" 'BEGIN { printf "RATIO resume_vs_fresh %.2f 1.1 (no more than)\n", resumed / fresh }'
