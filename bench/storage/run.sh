#!/bin/bash
# Object storage beside nginx, boto3, the AWS CLI and curl; see measure.py --help.
# YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
ninja -C "$build" yard delay_proxy http_load >/dev/null
exec .venv/bin/python bench/storage/measure.py --bin "$build/bin" "$@"
