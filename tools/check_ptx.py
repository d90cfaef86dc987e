#!/usr/bin/env python3
"""Compiles a .cu to PTX and checks which instructions it becomes.

The .cu says what it expects, one regular expression a line:
  // expect: REGEX     some line of the PTX matches
  // forbid: REGEX     no line of the PTX matches
That is how scope and order are tested (a release that the CPU must see is st.release.sys): neither
the host machine nor ThreadSanitizer can see them.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

EXPECTATION = re.compile(r"//\s*(expect|forbid):\s*(\S.*?)\s*$", re.MULTILINE)


def compile_to_ptx(nvcc, source):
    root = pathlib.Path(__file__).resolve().parent.parent
    with tempfile.NamedTemporaryFile(suffix=".ptx") as ptx:
        subprocess.run([nvcc, "-std=c++20", "-O3", "-DNDEBUG", "-arch=compute_90a", "--ptx",
                        "--expt-relaxed-constexpr", f"-I{root}/src", f"-I{root}/include",
                        source, "-o", ptx.name], check=True)
        return pathlib.Path(ptx.name).read_text()


def check(ptx, expectations):
    """What is wrong, one line each; expectations are (kind, regex)."""
    errors = []
    for kind, regex in expectations:
        found = re.search(regex, ptx, re.MULTILINE)
        if kind == "expect" and not found:
            errors.append(f"expected, but not found: {regex}")
        if kind == "forbid" and found:
            errors.append(f"forbidden, but found: {regex}: {found[0]}")
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("source", type=pathlib.Path)
    args = parser.parse_args()
    expectations = EXPECTATION.findall(args.source.read_text())
    if not any(kind == "expect" for kind, _ in expectations):
        print(f"{args.source} expects nothing")
        return 1
    ptx = compile_to_ptx(args.nvcc, args.source)
    errors = check(ptx, expectations)
    if errors:
        print(ptx, *errors, sep="\n")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
