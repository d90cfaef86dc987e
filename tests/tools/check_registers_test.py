#!/usr/bin/env python3
"""The register check reads ptxas and finds what is over budget, or has none."""
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
from check_registers import check, read_budget

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4gemmILi128EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z4gemmILi128EEvPf
    0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 168 registers, used 17 barriers, 12 bytes cumulative stack size
ptxas info    : Compile time = 84.711 ms
ptxas info    : Compiling entry function '_Z4copyPf' for 'sm_90a'
ptxas info    : Function properties for _Z4copyPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers
"""


class CheckRegisters(unittest.TestCase):
    def errors(self, budget, log=LOG):
        return check({"a.o": log}, read_budget(budget))[1]

    def test_within_budget(self):
        table, errors = check({"a.o": LOG}, read_budget("# c\ngemm<.*128> 168 12\n^copy 40 0\n"))
        self.assertEqual(errors, [])
        self.assertEqual(len(table), 2)
        self.assertIn("168 registers    12 bytes spilled  void gemm<128>(float*)", table[0])

    def test_over_budget(self):
        self.assertIn("168 registers, budget 167", self.errors("gemm 167 12\ncopy 32 0\n")[0])
        self.assertIn("12 bytes spilled, budget 11", self.errors("gemm 168 11\ncopy 32 0\n")[0])

    def test_budget_and_kernels_belong_together(self):
        self.assertIn("no budget for copy", self.errors("gemm 168 12\n")[0])
        self.assertIn("no kernel matches", self.errors(". 168 12\nlost 1 0\n")[0])

    def test_serialised_wgmma(self):
        log = LOG + "ptxas info : (C7510) Potential Performance Loss: wgmma.mma_async ... f\n"
        self.assertIn("wgmma", self.errors(". 168 12\n", log)[0])


if __name__ == "__main__":
    unittest.main()
