#!/bin/bash
# A state of 500 MB: saved on 1 and 2 ranks, loaded on other numbers, beside one memcpy of it, torch's
# DCP, safetensors and plain reading. ROUNDS: how often each is done. CHECKPOINT_FOLDER: on which disk.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
ninja -C "$build" checkpoint_bench >/dev/null
work=$(mktemp -d "${CHECKPOINT_FOLDER:-${TMPDIR:-/tmp}}/checkpoint-bench-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/ours" "$work/peer"
figures=$("$(find "$build" -name checkpoint_bench -type f -perm -u+x | head -1)" "$work/ours" "${ROUNDS:-5}")
rm -rf "$work/ours"
peer=$(.venv/bin/python bench/checkpoint/peer.py "$work/peer" "${ROUNDS:-5}" 2>/dev/null)
echo "checkpoint: 125 tensors f32 [1000, 1000], 500 MB; seconds:"
printf '%s\n%s\n' "$figures" "$peer"
printf '%s\n%s\n' "$figures" "$peer" | awk '
  function median(line,   v, n, i, j, t) {
    n = split(line, v, " ")
    for (i = 2; i <= n; i++) for (j = i; j > 1 && v[j] < v[j - 1]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return v[int((n + 1) / 2)]
  }
  { name = $1; $1 = ""; m[name] = median($0) }
  END {
    printf "RATIO ckpt_blocked_vs_memcpy_1rank %.2f 1.3 (no more than)\n", m["blocked_1rank"] / m["memcpy_1rank"]
    printf "RATIO ckpt_blocked_vs_memcpy_2ranks %.2f 1.3 (no more than)\n", m["blocked_2rank"] / m["memcpy_2rank"]
    printf "RATIO ckpt_blocked_vs_dcp %.2f 3\n", m["dcp_blocked"] / m["blocked_1rank"]
    printf "RATIO ckpt_save_vs_safetensors_1rank %.2f 1\n", m["safetensors_save"] / m["save_1rank"]
    printf "RATIO ckpt_save_vs_safetensors_2ranks %.2f 1\n", m["safetensors_save"] / m["save_2rank"]
    printf "RATIO ckpt_load_1rank_vs_read %.2f 0.8\n", m["read"] / m["load_1rank"]
    printf "RATIO ckpt_load_3ranks_vs_read %.2f 0.8\n", m["read"] / m["load_3ranks"]
  }'
