#!/bin/bash
# Jobs of `yard serve` and `yard run` beside plain torchrun and moto's server: submit to the first line of
# the user's code on two hosts, SIGKILL of a rank to the next training step, requests/s of
# DescribeTrainingJob, and what the daemon costs with 100 running jobs.
# PARTS: of "start death describe many" (default: all). ROUNDS: how often each side runs, in turn.
# JOBS: how many run at once for "many". YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
export YARD_BIN_DIR=$PWD/${YARD_BUILD_DIR:-build/release}/bin
for part in ${PARTS:-start death describe many}; do
  .venv/bin/python "bench/jobs/$part.py" --rounds "${ROUNDS:-5}" --jobs "${JOBS:-100}"
done
