#!/usr/bin/env python3
"""run_tests.py BUILD_DIR [ctest arguments]: one ctest run, and what its closing line hides.

Afterwards it counts, by the first words of the tests' names, the GoogleTest cases that passed, holds
them against tests/expected_counts, and says what did not run and why. Exits non-zero if a test
failed or too few ran.
"""
import collections
import pathlib
import re
import subprocess
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent
PASSED = re.compile(r"^\[  PASSED  \] (\d+) test", re.MULTILINE)
# Our scripts and CMake say "skipped: why"; GoogleTest says "file:line: Skipped" and, below it, why.
REASON = re.compile(r"^skipped: (.+)$|: Skipped\n(.+)$", re.MULTILINE)


def read_results(junit):
    """[(name, has passed, cases that passed, why skipped or None)] of a ctest JUnit file."""
    results = []
    for case in xml.etree.ElementTree.fromstring(junit).iter("testcase"):
        output = case.findtext("system-out") or ""
        passed = case.get("status") == "run"
        cases = sum(map(int, PASSED.findall(output))) if PASSED.search(output) else 1
        reason = None
        if case.get("status") == "notrun":
            m = REASON.search(output)
            reason = (m[1] or m[2]).strip() if m else "no reason given"
        results.append((case.get("name"), passed, cases if passed else 0, reason))
    return results


def in_group(name, group):
    return name == group or name.startswith(group + ".")


def check_counts(results, expected):
    """(a line for each group, the groups in which too few cases passed)."""
    lines, short = [], []
    for group, minimum in expected.items():
        members = [r for r in results if in_group(r[0], group)]
        count = sum(cases for _, _, cases, _ in members)
        # Nothing of it can run here, or a skipped test that bears its name speaks for all of it.
        if (members and all(reason for *_, reason in members)
                or any(reason and in_group(group, name) for name, _, _, reason in results)):
            continue
        lines.append(f"{group}: {count} passed, at least {minimum} expected")
        if count < minimum:
            short.append(lines[-1])
    return lines, short


def not_run(results):
    """One line for each group and reason."""
    skipped = collections.Counter((name.split(".")[0], reason) for name, _, _, reason in results
                                  if reason)
    return [f"not run: {group} ({count}): {reason}" for (group, reason), count in skipped.items()]


def read_expected(text):
    lines = (line.split() for line in text.splitlines() if line.strip() and line[0] != "#")
    return {group: int(minimum) for group, minimum in lines}


def main():
    build, *arguments = sys.argv[1:]
    junit = pathlib.Path(build).resolve() / "tests.xml"
    junit.unlink(missing_ok=True)
    status = subprocess.run(["ctest", "--test-dir", build, "--output-on-failure", "--no-tests=error",
                             "--test-output-size-passed", "1000000", "--output-junit", junit,
                             *arguments]).returncode
    results = read_results(junit.read_text())
    lines, short = check_counts(results, read_expected((ROOT / "tests/expected_counts").read_text()))
    print(*lines, *not_run(results), *(f"TOO FEW: {line}" for line in short), sep="\n")
    return 1 if status or short else 0


if __name__ == "__main__":
    sys.exit(main())
