#!/usr/bin/env bash
# Format and layers. `tools/lint.sh --fix` formats in place instead.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# One pinned version (requirements-test.txt): each release of clang-format sets some lines otherwise.
clang_format=.venv/bin/clang-format
mode=(--dry-run -Werror)
[ "${1:-}" != --fix ] || mode=(-i)

find src apps python tests bench -name '*.h' -print0 -o -name '*.cc' -print0 |
  xargs -0 -r "$clang_format" --style=file "${mode[@]}"
python3 tools/check_layers_test.py --quiet
python3 tools/check_layers.py
echo "lint: format and layers are in order"
