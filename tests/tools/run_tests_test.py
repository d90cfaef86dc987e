#!/usr/bin/env python3
"""The count of a test run: what is missing or silent is noticed, what cannot run is explained."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from run_tests import check_counts, not_run, read_expected, read_results

JUNIT = """<testsuite>
<testcase name="unit.A.B" status="run"><system-out>[  PASSED  ] 1 test.</system-out></testcase>
<testcase name="unit.A.C" status="run"><system-out>[  PASSED  ] 1 test.</system-out></testcase>
<testcase name="unit.A.D" status="fail"><system-out>[  PASSED  ] 0 tests.</system-out></testcase>
<testcase name="tsan.unit" status="run"><system-out>[  PASSED  ] 7 tests.</system-out></testcase>
<testcase name="lint.format" status="run"><system-out></system-out></testcase>
<testcase name="gpu.A.B" status="notrun"><system-out>a.cc:7: Skipped
no CUDA device

[  SKIPPED ] A.B</system-out></testcase>
<testcase name="ptx" status="notrun"><system-out>skipped: built without CUDA
</system-out></testcase>
<testcase name="ptx.roles" status="run"><system-out></system-out></testcase>
</testsuite>"""


class RunTests(unittest.TestCase):
    def setUp(self):
        self.results = read_results(JUNIT)

    def short(self, expected):
        return check_counts(self.results, read_expected(expected))[1]

    def test_enough(self):
        self.assertEqual(self.short("# c\nunit 2\ntsan.unit 7\nlint 1\n"), [])

    def test_too_few(self):
        self.assertEqual(self.short("unit 3\n"), ["unit: 2 passed, at least 3 expected"])
        self.assertEqual(len(self.short("tsan.unit 8\n")), 1)
        self.assertEqual(len(self.short("simulation 1\n")), 1)

    def test_what_cannot_run_here_is_explained(self):
        self.assertEqual(self.short("gpu 1\nptx 3\nptx.registers 1\n"), [])
        self.assertEqual(not_run(self.results), ["not run: gpu (1): no CUDA device",
                                                 "not run: ptx (1): built without CUDA"])


if __name__ == "__main__":
    unittest.main()
