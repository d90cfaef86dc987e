#!/usr/bin/env python3
"""The table of results: complete, losing cases too; stale, wrong and meaningless ones are noticed."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EMPTY = "above\n<!-- results -->\nold\n<!-- /results -->\nbelow\n"
RESULT = {
    "commit": "0123456789ab", "device": "Some GPU", "op": "ag-gemm",
    "args": {"m": 4096, "n": 2048, "k": 8192, "dtype": "bf16", "b_layout": "kn", "gather_a": False,
             "seed": 1, "iters": 20, "timeout_ms": 10000, "blocks": 0, "comm_blocks": 0,
             "chunk_rows": 0, "link_gbs": 0.0, "link_us": 0.0, "link_order": "in-order",
             "link_seed": 1},
    "cluster": {"nodes": 1, "gpus": 2, "ranks": 2, "devices": 2},
    "runs": [{"name": "fused", "median_us": 299.4, "tflops_per_gpu": 459.1},
             {"name": "gemm", "median_us": 200.0, "tflops_per_gpu": 687.2}],
    "plan": "132 blocks, pushed by blocks, own rows in place",
    "right": True,
}


class Results(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        self.readme = self.root / "README.md"
        self.readme.write_text(EMPTY)

    def add(self, path, change=lambda result: None):
        result = copy.deepcopy(RESULT)
        change(result)
        file = self.root / "bench" / "results" / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(result))

    def results(self, *arguments):
        return subprocess.run([sys.executable, ROOT / "tools" / "results.py", *arguments, self.root],
                              capture_output=True, text=True)

    def table(self):
        done = self.results()
        self.assertEqual(done.returncode, 0, done.stderr)
        text = self.readme.read_text()
        self.assertTrue(text.startswith("above\n") and text.endswith("below\n"))
        return [line for line in text.splitlines() if line.startswith("| [")]

    def refused(self, change, reason):
        self.add("a.json", change)
        done = self.results()
        self.assertEqual(done.returncode, 1)
        self.assertIn("a.json", done.stderr)
        self.assertIn(reason, done.stderr)
        self.assertEqual(self.readme.read_text(), EMPTY)

    def test_none_recorded(self):
        self.assertEqual(self.table(), [])
        self.assertIn("No results are recorded.", self.readme.read_text())

    def test_losing_case_is_shown(self):
        self.add("x/1.json")
        self.assertEqual(self.table(), [
            "| [4096 × 2048 × 8192](bench/results/x/1.json) | 1 × 2 | bf16, kn, pushed by blocks | 299 | 200 | 1.50 "
            "| – | 459 | 2 × Some GPU | 0123456789ab |"])

    def test_smaller_cases_come_first(self):
        self.add("1.json")
        self.add("2.json", lambda r: r["args"].update(m=64))
        self.assertEqual([line.split()[1] for line in self.table()], ["[64", "[4096"])

    def test_unusual_settings_are_shown(self):
        self.add("1.json", lambda r: r["args"].update(gather_a=True, comm_blocks=16, link_gbs=25.0))
        self.assertIn("| bf16, kn, pushed by blocks, gather_a, comm_blocks 16, link_gbs 25.0 |", self.table()[0])

    def test_without_baseline(self):
        self.add("1.json", lambda r: r["runs"].pop())
        self.assertIn("| 299 | – | – | – | 459 |", self.table()[0])

    def test_what_is_no_result_is_refused(self):
        self.refused(lambda r: r.update(right=False), "not right")
        self.refused(lambda r: r.update(device="host"), "mean nothing")
        self.refused(lambda r: r.update(runs=[]), "no timed run")
        self.refused(lambda r: r.pop("cluster"), "cluster")

    def test_check_changes_nothing_and_notices_what_is_stale(self):
        self.assertEqual(self.results("--check").returncode, 1)
        self.assertEqual(self.readme.read_text(), EMPTY)
        self.table()
        self.assertEqual(self.results("--check").returncode, 0)
        self.add("1.json")
        self.assertEqual(self.results("--check").returncode, 1)

    def test_markers_must_be_there(self):
        self.readme.write_text("no table here\n")
        self.assertEqual(self.results().returncode, 1)

    def test_this_readme_is_up_to_date(self):
        done = subprocess.run([sys.executable, ROOT / "tools" / "results.py", "--check"],
                              capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
