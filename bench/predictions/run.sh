#!/bin/bash
# What --dry-run and --simulate predict beside what runs then take: steps a second on one and two
# ranks, memory of a rank in each way of sharing the model out.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
exec "$here/../../.venv/bin/python" "$here/measure.py" "$@"
