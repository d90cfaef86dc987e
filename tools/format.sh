#!/usr/bin/env bash
# Formats all C++ and CUDA sources; with --check only tells which are not formatted.
set -euo pipefail
cd "$(dirname "$0")/.."

# One version, since the next one formats a little differently.
command -v clang-format-14 >/dev/null || { echo "skipped: no clang-format-14"; exit 77; }

[[ ${1-} == --check ]] && mode=(--dry-run -Werror) || mode=(-i)
find include src apps tests -regex '.*\.\(h\|cuh\|cc\|cu\)' -print0 |
  xargs -0 --no-run-if-empty clang-format-14 "${mode[@]}"
