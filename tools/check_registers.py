#!/usr/bin/env python3
"""Holds every kernel to its budget of registers and spills.

Reads what ptxas said of each object (OBJECT.ptxas, kept by keep_ptxas_log.sh) and the budget file,
whose lines are: regex of the demangled kernel name, maximum of registers, maximum of spilled bytes.
The first line that matches counts. A kernel without a line fails, and so does a line without a
kernel, and a kernel whose wgmma ptxas serialised.
"""
import argparse
import pathlib
import re
import subprocess
import sys

KERNEL = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")
SERIALISED = re.compile(r"Potential Performance Loss.*wgmma")


def demangled(names):
    out = subprocess.run(["c++filt"], input="\n".join(names), text=True, capture_output=True,
                         check=True).stdout
    return out.splitlines()


def read_log(text):
    """[(demangled kernel, registers, spilled bytes)] of one object."""
    names, rows = KERNEL.findall(text), []
    for name, block in zip(demangled(names), KERNEL.split(text)[2::2]):
        # Functions that were not inlined spill too, and are reported with the kernel before them.
        spilled = max((int(n) for pair in SPILLS.findall(block) for n in pair), default=0)
        rows.append((name, int(REGISTERS.search(block)[1]), spilled))
    return rows


def read_budget(text):
    """[(regex, registers, spilled bytes)]"""
    lines = [line.split() for line in text.splitlines() if line.strip() and line[0] != "#"]
    return [(" ".join(words[:-2]), int(words[-2]), int(words[-1])) for words in lines]


def check(logs, budget):
    """(a table of all kernels, all violations) of the logs, {object: text}."""
    table, errors, used = [], [], set()
    for obj, text in logs.items():
        if m := SERIALISED.search(text):
            errors.append(f"{obj}: {m[0]}")
        for name, registers, spilled in read_log(text):
            table.append(f"{registers:4} registers {spilled:5} bytes spilled  {name}")
            line = next((b for b in budget if re.search(b[0], name)), None)
            if line is None:
                errors.append(f"no budget for {name} ({registers} registers, {spilled} bytes)")
                continue
            used.add(line)
            if registers > line[1]:
                errors.append(f"{name}: {registers} registers, budget {line[1]}")
            if spilled > line[2]:
                errors.append(f"{name}: {spilled} bytes spilled, budget {line[2]}")
    errors += [f"no kernel matches the budget of {line[0]}" for line in budget if line not in used]
    return table, errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--budget", type=pathlib.Path, required=True)
    parser.add_argument("objects", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    logs = {obj.name: pathlib.Path(f"{obj}.ptxas").read_text() for obj in args.objects}
    table, errors = check(logs, read_budget(args.budget.read_text()))
    print("\n".join(table + errors))
    if not table:
        errors.append("no kernel found")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
