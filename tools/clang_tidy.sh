#!/usr/bin/env bash
# clang_tidy.sh BUILD_DIR [-j N]: checks the host sources of the library and the application, and
# through them the headers. Kernels are left to nvcc, tests to g++.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v run-clang-tidy-14 >/dev/null || { echo "skipped: no run-clang-tidy-14"; exit 77; }

# Without the command of each file and the count of what was suppressed in system headers.
run-clang-tidy-14 -quiet -p "$@" "^$PWD/(src|apps)/.*\.cc\$" 2>&1 |
  sed -E '/clang-tidy-14 --|warnings? generated/d'
