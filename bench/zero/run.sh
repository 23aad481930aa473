#!/bin/bash
# A step of a language model of 7.4 million parameters under ZeRO-2 and ZeRO-3, ours beside PyTorch's
# FSDP2 over Gloo, two processes, one thread each, turn and turn about. STEPS and ROUNDS may be set.
set -euo pipefail
cd "$(dirname "$0")/../.."
ninja -C build/release zero_bench >/dev/null
steps=${STEPS:-20} rounds=${ROUNDS:-3}

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

figures=$(for ((round = 0; round < rounds; ++round)); do
  for sharding in 2 3; do
    OMP_NUM_THREADS=1 build/release/bin/zero_bench "$sharding" 2 "$steps" "$(free_port)"
    OMP_NUM_THREADS=1 .venv/bin/torchrun --nproc-per-node 2 --master-addr 127.0.0.1 \
      --master-port "$(free_port)" bench/zero/peer_fsdp2.py "$sharding" "$steps" 2>/dev/null
  done
done)
printf '%s\n' "$figures"
# The least median of the rounds: what a busy machine disturbs least.
printf '%s\n' "$figures" | awk '
  { key = $1 " " $2; if (!(key in step) || $4 < step[key]) step[key] = $4; memory[key] = $6 }
  END {
    for (s = 2; s <= 3; ++s) {
      printf "RATIO zero%d_step_vs_fsdp2 %.2f 1.0\n", s, step["fsdp2 zero" s] / step["ours zero" s]
      printf "RATIO zero%d_memory_vs_fsdp2 %.2f 1.0\n", s, memory["fsdp2 zero" s] / memory["ours zero" s]
    }
  }'
