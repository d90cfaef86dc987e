#!/usr/bin/env bash
# clang_tidy.sh BUILD_DIR [-j N]: checks the host sources of the library and the application, and
# through them the headers. Kernels are left to nvcc, tests to g++.
set -euo pipefail
cd "$(dirname "$0")/.."
exec run-clang-tidy-14 -quiet -p "$@" "^$PWD/(src|apps)/.*\.cc\$"
