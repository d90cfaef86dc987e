#!/usr/bin/env python3
"""Verbs on real devices: Soft-RoCE in guests (run_in_guest.py).

What they cannot show: SRD, memory of GPUs, and speed. Skipped where there can be no guest.
"""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MKERNEL_BUILD_DIR", ROOT / "build"))
GUEST = ROOT / "tests/rdma/run_in_guest.py"
SKIPPED = 77

# A packet that is lost, or late because a guest stood still, is sent again after half a second.
PATIENT = "timeout=17"

UNDER_LOSS = ":".join(f"*{claim}/System*" for claim in (
    "DataIsThereBeforeItsSignal", "TenThousandWritesArriveAndCompleteExactlyOnceEach",
    "EveryRankHearsFromEveryOther"))

ONE_GUEST = f"""
set -e
export MKERNEL_TEST_VERBS=$GUEST_DEVICES
{BUILD}/bin/transport_tests --gtest_brief=1 --gtest_filter='*System*'

{BUILD}/bin/rdma_rank check 1 $GUEST_PEER rxe1 {PATIENT} &
{BUILD}/bin/rdma_rank check 0 $GUEST_PEER rxe0 {PATIENT}
wait $!

{BUILD}/bin/mkernel info
{BUILD}/bin/mkernel check ag-gemm --device host --m 300 --n 70 --k 90 --nodes 2 --gpus 2 \\
  --iters 200 --transport verbs

# Both ways lose one packet of a hundred.
tc qdisc add dev wire0 root netem loss 1%
tc qdisc add dev wire1 root netem loss 1%
{BUILD}/bin/transport_tests --gtest_brief=1 --gtest_filter='{UNDER_LOSS}'
echo 'packets lost and sent again:'
rdma statistic show link rxe0/1 | grep -oE '(out_of_seq_request|rcvd_seq_err|completer_retry_err) [0-9]+'
"""

TWO_GUESTS = f"""
host=$GUEST_ADDRESS
[[ $GUEST_RANK == 1 ]] || host=$GUEST_PEER
exec {BUILD}/bin/rdma_rank check $GUEST_RANK $host rxe0 {PATIENT} chunks=64
"""


def run(script, *options):
    """Runs a script in guests; its output goes to ours. Returns output and exit status."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh", dir=BUILD) as f:
        f.write(script)
        f.flush()
        guest = subprocess.run([GUEST, *options, "--", "bash", f.name], stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True, timeout=600)
    print(guest.stdout, flush=True)
    return guest.stdout, guest.returncode


class RdmaTest(unittest.TestCase):
    def test_one_guest_with_two_devices(self):
        output, status = run(ONE_GUEST, "--timeout", "240")
        self.assertEqual(status, 0)
        self.assertEqual(output.count("[  PASSED  ]"), 2)
        self.assertIn("all checks passed", output)
        self.assertIn("right: worst error", output)

    def test_two_guests(self):
        output, status = run(TWO_GUESTS, "--guests", "2", "--cpus", "1", "--timeout", "150")
        self.assertEqual(status, 0)
        self.assertIn("all checks passed", output)
        self.assertIn("transport retry counter exceeded", output)


def main():
    prepared = subprocess.run([GUEST, "--prepare"], stdout=subprocess.PIPE, text=True)
    if prepared.returncode == SKIPPED:
        print(prepared.stdout, end="")
        return SKIPPED
    unittest.main()


if __name__ == "__main__":
    sys.exit(main())
