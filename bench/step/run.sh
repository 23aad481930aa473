#!/bin/bash
# Our training step beside diffusers + accelerate. Arguments go to measure.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec .venv/bin/python bench/step/measure.py "$@"
