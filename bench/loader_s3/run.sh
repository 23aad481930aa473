#!/bin/bash
# Our loader over S3 through a link of latency beside itself on the same shards in a folder.
# SAMPLES, ROUNDS: the size of the corpus and how often each side runs, in turn. Other arguments: see
# bench/loader_s3/measure.py. YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
corpus=$(bash bench/loader/corpus.sh "$build" "${SAMPLES:-4000}")
ninja -C "$build" loader_bench delay_proxy >/dev/null
exec .venv/bin/python bench/loader_s3/measure.py --build "$build" --corpus "$corpus" --rounds "${ROUNDS:-3}" "$@"
