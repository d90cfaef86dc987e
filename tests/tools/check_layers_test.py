#!/usr/bin/env python3
"""The layer check finds what it is there to find: each case plants one violation."""
import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))
import check_layers


class CheckLayers(unittest.TestCase):
    def check(self, name, text):
        with tempfile.TemporaryDirectory() as tmp:
            path = pathlib.Path(tmp, name)
            path.parent.mkdir(parents=True)
            path.write_text(text)
            return check_layers.check_tree(pathlib.Path(tmp))

    def assert_caught(self, name, text, message):
        errors = self.check(name, text)
        self.assertEqual(len(errors), 1, errors)
        self.assertIn(message, errors[0])

    def assert_fine(self, name, text):
        self.assertEqual(self.check(name, text), [])

    def test_layers_are_one_way(self):
        self.assert_caught("src/core/a.h", '#include "schedule/b.h"\n', "core may not include")
        self.assert_caught("src/schedule/a.h", '\n#include "command/b.h"', "a.h:2: schedule may not")
        self.assert_caught("src/proxy/a.cc", '#include "host/b.h"\n', "proxy may not include")
        self.assert_caught("src/host/a.cc", '#include "memory/b.h"\n', "host may not include")
        self.assert_caught("src/rendezvous/a.cc", '#include "network/b.h"\n', "rendezvous may not")
        self.assert_fine("src/operators/a.cc", '#include "proxy/b.h"\n#include "host/b.h"\n')
        self.assert_fine("src/operators/a.cc", '#include "rendezvous/b.h"\n')
        self.assert_fine("src/proxy/a.cc", '#include "command/b.h"\n#include "proxy/c.h"\n')

    def test_includes_name_their_layer(self):
        self.assert_caught("src/core/a.h", '#include "b.h"\n', "layer/file.h")
        self.assert_caught("src/core/a.h", '#include "../core/b.h"\n', "layer/file.h")
        self.assert_caught("src/extra/a.h", "", "no such layer")

    def test_public_headers(self):
        self.assert_caught("include/mkernel/a.h", '#include "core/b.h"\n', "not installed")
        self.assert_caught("include/mkernel/a.h", "#include <cuda_runtime.h>\n", "public may not")
        self.assert_caught("src/host/a.h", "#include <mkernel/context.h>\n", "only operators")
        self.assert_fine("src/host/a.h", "#include <mkernel/status.h>\n")
        self.assert_fine("src/rendezvous/a.h", "#include <mkernel/rendezvous.h>\n")
        self.assert_fine("src/operators/a.h", "#include <mkernel/context.h>\n")

    def test_pure_layers_know_no_cuda(self):
        self.assert_caught("src/protocol/a.h", "#include <cuda/atomic>\n", "protocol may not")
        self.assert_caught("src/protocol/a.h", "int i = threadIdx.x;\n", "threadIdx")
        self.assert_caught("src/schedule/a.h", "#ifdef __CUDACC__\n__shared__ int i;\n#endif\n",
                           "__shared__")
        self.assert_caught("src/command/a.cu", "", "no .cu files")
        self.assert_fine("src/protocol/a.h", "// not threadIdx\n/* __shared__ */ int i;\n")
        self.assert_fine("src/memory/a.cc", "#include <cuda_runtime.h>\n")

    def test_core_knows_cuda_under_nvcc_alone(self):
        cuda = "#include <cuda/atomic>\n"
        self.assert_fine("src/core/a.h", f"#if defined(__CUDACC__)\n{cuda}#endif\n")
        self.assert_fine("src/core/a.h", f"#ifndef __CUDA_ARCH__\nint i;\n#else\n{cuda}#endif\n")
        self.assert_caught("src/core/a.h", f"#ifdef __CUDACC__\n#else\n{cuda}#endif\n", "core may not")
        self.assert_caught("src/core/a.h", f"#if !defined(__CUDACC__)\n{cuda}#endif\n", "core may not")
        self.assert_caught("src/core/a.h", f"#if X\n#endif\n{cuda}", "a.h:3: core may not")

    def test_headers_for_nvcc_stay_with_nvcc(self):
        self.assert_caught("src/device/a.h", '#include "device/b.cuh"\n', "for nvcc")
        self.assert_fine("src/device/a.cu", '#include "device/b.cuh"\n')


if __name__ == "__main__":
    unittest.main()
