#!/bin/bash
# One thread's decode + resize + square cut to 256 px beside bare libjpeg-turbo calls, per CPU-second.
# full: decoded at full scale. scaled: both decode at 1/2, 1/4 or 1/8 where the picture allows it.
# YARD_BUILD_DIR: another build than build/release. ROUNDS: how often each side runs, in turn.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release} rounds=${ROUNDS:-8}
corpus=build/bench-pictures
if [[ ! -d $corpus ]]; then
  rm -rf "$corpus.part"
  .venv/bin/python bench/pictures/make_jpegs.py "$corpus.part"
  mv "$corpus.part" "$corpus"
fi
ninja -C "$build" decode_limit >/dev/null
bench=$(find "$build" -name decode_limit -type f -perm -u+x | head -1)
for kind in small large; do
  echo "pictures: $(find "$corpus/$kind" -name '*.jpg' | wc -l) $kind photographs, $(du -sh "$corpus/$kind" | cut -f1), pictures per CPU-second:"
  "$bench" "$corpus/$kind" 256 "$rounds" | tee "$corpus/$kind.log"
  sed -n "s/^\(full\|scaled\): .* share \(.*\)/RATIO pictures_vs_libjpeg_${kind}_\1 \2 0.85/p" "$corpus/$kind.log"
done
