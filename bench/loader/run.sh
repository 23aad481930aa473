#!/bin/bash
# Our loader beside webdataset + Pillow: 256 px, batches of 32, 2 threads (workers), in one run.
# SAMPLES, ROUNDS: the size of the corpus and how often each side runs, in turn.
# YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
samples=${SAMPLES:-1500} rounds=${ROUNDS:-3}
build=${YARD_BUILD_DIR:-build/release}
corpus=build/bench-loader-$samples
if [[ ! -d $corpus/shards ]]; then
  rm -rf "$corpus"
  .venv/bin/python bench/loader/make_corpus.py "$corpus/pictures" "$samples"
  "$build/bin/yard" shards pack "$corpus/pictures" "$corpus/packing" --size 16MiB
  mv "$corpus/packing" "$corpus/shards"
fi
ninja -C "$build" loader_bench >/dev/null
bench=$(find "$build" -name loader_bench -type f -perm -u+x | head -1)
"$build/bin/yard" shards stats "$corpus/shards"
echo "loader: synthesised pictures of 400-640 px (noise, shapes, grain), samples per second:"
ours=() peer=() draft=()
rate() { "$@" | cut -d' ' -f2; }
for ((round = 0; round < rounds; ++round)); do
  peer+=("$(rate .venv/bin/python bench/loader/peer_webdataset.py "$corpus/shards")")
  ours+=("$(rate "$bench" "$corpus/shards")")
  draft+=("$(rate .venv/bin/python bench/loader/peer_webdataset.py "$corpus/shards" --draft)")
done
echo "ours: ${ours[*]}"
echo "webdataset + Pillow: ${peer[*]}"
echo "webdataset + Pillow with draft mode: ${draft[*]}"
median() { printf '%s\n' "$@" | sort -n | sed -n "$((($# + 1) / 2))p"; }
ratio() { awk -v ours="$(median "${ours[@]}")" -v peer="$1" 'BEGIN { printf "%.2f", ours / peer }'; }
echo "RATIO loader_vs_webdataset $(ratio "$(median "${peer[@]}")") 5"
echo "loader against the draft mode: $(ratio "$(median "${draft[@]}")")"
