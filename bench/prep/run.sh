#!/bin/bash
# yard prep beside Pillow, imagehash and webdataset's ShardWriter in as many processes as cores: read,
# SHA-256, decode, pHash, pack. Ours also keeps queue and ledger, measures sharpness, entropy and colour,
# writes an index and syncs to the disk, and counts from the start of its process; the peer from when
# its imports are done.
# SAMPLES, ROUNDS: pictures, and how often each side runs, in turn.
# YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
samples=${SAMPLES:-1200} rounds=${ROUNDS:-3}
build=${YARD_BUILD_DIR:-build/release}
pictures=build/bench-pictures corpus=build/bench-prep/corpus-$samples work=build/bench-prep/work
if [[ ! -d $pictures ]]; then
  rm -rf "$pictures.part"
  .venv/bin/python bench/pictures/make_jpegs.py "$pictures.part"
  mv "$pictures.part" "$pictures"
fi
if [[ ! -d $corpus ]]; then
  rm -rf "$corpus.part"
  mkdir -p build/bench-prep
  .venv/bin/python bench/prep/make_corpus.py "$pictures/small" "$corpus.part" "$samples"
  mv "$corpus.part" "$corpus"
fi
peers=${PREP_PEERS:-build/bench-prep-peers}
if [[ -z ${PREP_PEERS:-} ]] && ! cmp -s bench/prep/requirements.txt "$peers/requirements.txt"; then
  rm -rf "$peers"
  python3 -m venv "$peers"
  "$peers/bin/pip" install --quiet -r bench/prep/requirements.txt
  cp bench/prep/requirements.txt "$peers/"
fi

# "seconds CPU-seconds"
ours() {
  rm -rf "$work"
  mkdir -p "$work"
  cat >"$work/spec.yaml" <<SPEC
name: bench
source: $PWD/$corpus
output: $PWD/$work/out
state: $PWD/$work/state
shard_size: 64MiB
SPEC
  local TIMEFORMAT='%R %U %S'
  { time "$build/bin/yard" prep run "$work/spec.yaml" --json >"$work/report.json" 2>"$work/log"; } 2>&1 |
    awk '{ print $1, $2 + $3 }'
  grep -q "\"packed\":$samples," "$work/report.json" || { cat "$work/report.json" "$work/log" >&2; return 1; }
}
theirs() {
  rm -rf "$work"
  mkdir -p "$work"
  "$peers/bin/python" bench/prep/peer_prep.py "$corpus" "$work/out" | cut -d' ' -f2,3
}

echo "prep: $samples photographs of 400-640 px, $(nproc) cores: seconds and CPU seconds"
: >build/bench-prep/ours
: >build/bench-prep/theirs
for ((round = 0; round < rounds; ++round)); do
  ours | tee -a build/bench-prep/ours | sed 's/^/ours    /'
  theirs | tee -a build/bench-prep/theirs | sed 's/^/python  /'
done
median() { cut -d' ' -f"$2" "build/bench-prep/$1" | sort -n | sed -n "$(((rounds + 1) / 2))p"; }
report() {
  awk -v name="$1" -v wall="$(median "$1" 1)" -v cpu="$(median "$1" 2)" -v n="$samples" \
    'BEGIN { printf "%s: %.0f objects/s, %.2f CPU seconds per 1,000 pictures\n", name, n / wall, 1000 * cpu / n }'
}
report ours
report theirs
ratio() { awk -v a="$2" -v b="$3" -v name="$1" -v goal="$4" 'BEGIN { printf "RATIO %s %.2f %s\n", name, b / a, goal }'; }
ratio prep_vs_python "$(median ours 1)" "$(median theirs 1)" 4
ratio prep_cpu_vs_python "$(median ours 2)" "$(median theirs 2)" 4
rm -rf "$work"
