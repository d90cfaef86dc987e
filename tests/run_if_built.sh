#!/bin/sh
# Runs a test executable of another build tree, or says that the tree has not been built.
[ -x "$1" ] || { echo "skipped: no ${1%/bin/*}; 'make build-all' builds it"; exit 77; }
exec "$@"
