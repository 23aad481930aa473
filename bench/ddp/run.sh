#!/bin/bash
# What gradients cost a DDP step over our backend and over Gloo. Arguments go to measure.py.
set -euo pipefail
cd "$(dirname "$0")/../.."
exec .venv/bin/python bench/ddp/measure.py "$@"
