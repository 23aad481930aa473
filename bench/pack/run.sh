#!/bin/bash
# yard shards pack beside webdataset's ShardWriter and GNU tar: samples of jpg + txt + json.
# SAMPLES, ROUNDS: the size of the corpus and how often each side runs, in turn.
# YARD_BUILD_DIR: another build than build/release. WORK_DIR: where the shards go.
set -euo pipefail
cd "$(dirname "$0")/../.."
samples=${SAMPLES:-4000} rounds=${ROUNDS:-5}
corpus=build/bench-pack-$samples
if [[ ! -d $corpus/pictures ]]; then
  rm -rf "$corpus"
  .venv/bin/python bench/pack/make_files.py "$corpus/making" "$samples"
  mv "$corpus/making" "$corpus/pictures"
fi
work=${WORK_DIR:-$corpus}
echo "pack: $samples samples of jpg + txt + json, $(du -sh "$corpus/pictures" | cut -f1):"
.venv/bin/python bench/pack/measure.py "$corpus/pictures" "$work" "$rounds"
