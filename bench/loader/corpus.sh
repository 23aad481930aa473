#!/bin/bash
# corpus.sh BUILD_DIR SAMPLES: makes, once, photographs of 400-640 px and shards of them; prints where.
set -euo pipefail
cd "$(dirname "$0")/../.."
corpus=build/bench-loader-$2
if [[ ! -d $corpus/shards ]]; then
  rm -rf "$corpus"
  .venv/bin/python bench/loader/make_corpus.py "$corpus/pictures" "$2"
  "$1/bin/yard" shards pack "$corpus/pictures" "$corpus/packing" --size 64MiB >&2
  mv "$corpus/packing" "$corpus/shards"
fi
echo "$corpus"
