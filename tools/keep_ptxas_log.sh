#!/bin/sh
# Compiler launcher: runs nvcc and keeps its messages in OBJECT.ptxas, where check_registers.py
# reads them. Only what is no register report is shown.
next=
for arg in "$@"; do
  [ "$next" ] && object=$arg
  [ "$arg" = -o ] && next=1 || next=
done
"$@" 2>"$object.ptxas"
status=$?
grep -Ev '^ptxas info|bytes stack frame' "$object.ptxas" >&2
exit $status
