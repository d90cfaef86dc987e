#!/usr/bin/env python3
"""Ranks that mpirun starts find each other: through mkernel/mpi.h, and by their environment."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MKERNEL_BUILD_DIR", ROOT / "build"))
LIBRARY = BUILD / "libmkernel.a"
RANKS = 4


def environment(**more):
    """Of an mpirun that may run as root, and with more ranks than cores. None takes a name away."""
    names = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
             "OMPI_MCA_rmaps_base_oversubscribe": "1", **more}
    return {k: v for k, v in {**os.environ, **names}.items() if v is not None}


class UnderMpirun(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.directory = tempfile.TemporaryDirectory()
        cls.program = pathlib.Path(cls.directory.name, "rank")
        subprocess.run(
            ["mpicxx", "-std=c++20", "-Wall", "-Wextra", "-Werror", "-DOMPI_SKIP_MPICXX", "-I",
             ROOT / "include", "-I", ROOT / "src",
             pathlib.Path(__file__).parent / "launched/main.cc", LIBRARY, "-lpthread", "-ldl", "-o",
             cls.program], check=True)

    @classmethod
    def tearDownClass(cls):
        cls.directory.cleanup()

    def run_ranks(self, mode, **variables):
        return subprocess.run(["mpirun", "-np", str(RANKS), self.program, mode],
                              env=environment(**variables), capture_output=True, text=True,
                              timeout=120)

    def assert_joined(self, result):
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(line for line in result.stdout.split("\n") if line),
                         [f"ok {rank}/{RANKS}" for rank in range(RANKS)])

    def test_ranks_join_by_mpi(self):
        self.assert_joined(self.run_ranks("mpi"))

    def test_ranks_join_by_their_environment(self):
        self.assert_joined(self.run_ranks("environment"))

    def test_several_hosts_need_an_address(self):
        # What a rank would see if half of the ranks were elsewhere.
        script = 'OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_COMM_WORLD_LOCAL_RANK=0 exec "$0" environment'
        command = ["mpirun", "-np", str(RANKS), "sh", "-c", script, self.program]
        result = subprocess.run(command, env=environment(), capture_output=True, text=True,
                                timeout=120)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("give the address of rank 0", result.stderr)
        command[-2] = command[-2] + ' 127.0.0.1'
        result = subprocess.run(command, env=environment(), capture_output=True, text=True,
                                timeout=120)
        self.assert_joined(result)


if __name__ == "__main__":
    for tool in ("mpicxx", "mpirun"):
        if not shutil.which(tool):
            print(f"skipped: no {tool}")
            sys.exit(77)
    if not LIBRARY.exists():
        print(f"skipped: no {LIBRARY.name} in the build directory")
        sys.exit(77)
    unittest.main()
