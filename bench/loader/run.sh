#!/bin/bash
# Our loader beside webdataset, MosaicML Streaming (MDS), LitData and bare libjpeg-turbo: 256 px,
# batches of 32, 2 threads (workers), in one run.
# SAMPLES, ROUNDS: the size of the corpus and how often each side runs, in turn.
# YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
samples=${SAMPLES:-4000} rounds=${ROUNDS:-3}
build=${YARD_BUILD_DIR:-build/release}
corpus=$(bash bench/loader/corpus.sh "$build" "$samples")
peers=build/bench-loader-peers
if ! cmp -s bench/loader/requirements.txt "$peers/requirements.txt"; then
  rm -rf "$peers"
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet -r bench/loader/requirements.txt
  cp bench/loader/requirements.txt "$peers/"
fi
ninja -C "$build" loader_bench decode_rate yard_python_files >/dev/null
tool() { find "$build" -name "$1" -type f -perm -u+x | head -1; }
"$build/bin/yard" shards stats "$corpus/shards"
echo "loader: photographs of 400-640 px, samples per second:"
declare -A figures
note() { figures[$1]="${figures[$1]:-} $2"; }
ours() { "$(tool loader_bench)" "$corpus/shards" "$@" | tee -a "$corpus/ours.log" | sed -n 's/^rate \([^ ]*\).*/\1/p'; }
webdataset() { "$peers/bin/python" bench/loader/peer_webdataset.py "$corpus/shards" "$@" | cut -d' ' -f2; }
samples() { .venv/bin/python bench/loader/samples_rate.py "$corpus/shards" "$@" | cut -d' ' -f2; }
chunks() { "$peers/bin/python" bench/loader/peer_chunks.py "$1" "$corpus/pictures" "$corpus" "${@:2}" 2>/dev/null | sed -n 's/^peer //p'; }
: >"$corpus/ours.log"
for library in mds litdata; do chunks $library --batches 0; done  # writes the data sets
for ((round = 0; round < rounds; ++round)); do
  note webdataset "$(webdataset)"
  note ours "$(ours)"
  note webdataset_draft "$(webdataset --draft)"
  note ours_full "$(ours --full)"
  note mds "$(chunks mds)"
  note litdata "$(chunks litdata)"
  limits=$("$(tool decode_rate)" "$corpus/pictures" 256 2 3)
  note limit_full "$(sed -n 's/^full //p' <<<"$limits")"
  note limit_scaled "$(sed -n 's/^scaled //p' <<<"$limits")"
  note ours_raw "$(ours --raw --batches 400)"
  note ours_samples "$(samples --batches 400)"
  note litdata_raw "$(chunks litdata --raw --workers 0 --batches 400)"
done
for name in ours ours_full ours_raw ours_samples webdataset webdataset_draft mds litdata litdata_raw limit_full limit_scaled; do
  echo "$name:${figures[$name]}"
done
grep -v '^rate' "$corpus/ours.log" | head -1
sed -n 's/^rate .* memory \(.*\)/\1/p' "$corpus/ours.log" | sort -n | tail -1 | sed 's/^/peak memory of ours, MiB: /'
median() { printf '%s\n' ${figures[$1]} | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
ratio() { awk -v ours="$2" -v peer="$3" -v name="$1" -v goal="$4" 'BEGIN { printf "RATIO %s %.2f %s\n", name, ours / peer, goal }'; }
best_peer=$(printf '%s\n' "$(median webdataset)" "$(median webdataset_draft)" "$(median mds)" "$(median litdata)" | sort -n | tail -1)
ratio loader_vs_webdataset "$(median ours)" "$(median webdataset)" 5
ratio loader_vs_best_peer "$(median ours)" "$best_peer" 4
ratio loader_full_vs_best_peer "$(median ours_full)" "$best_peer" 2
ratio loader_vs_decode_limit "$(median ours)" "$(median limit_scaled)" 0.85
ratio loader_full_vs_decode_limit "$(median ours_full)" "$(median limit_full)" 0.85
ratio loader_raw_vs_litdata "$(median ours_raw)" "$(median litdata_raw)" 1
ratio loader_samples_vs_litdata "$(median ours_samples)" "$(median litdata_raw)" 1
