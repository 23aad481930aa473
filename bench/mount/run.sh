#!/bin/bash
# The mount beside s3fs, rclone and curl; see measure_mount.py --help.
# YARD_BUILD_DIR: another build than build/release.
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${YARD_BUILD_DIR:-build/release}
ninja -C "$build" yard delay_proxy >/dev/null
exec .venv/bin/python bench/mount/measure_mount.py --bin "$build/bin" "$@"
