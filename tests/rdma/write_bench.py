#!/usr/bin/env python3
"""write_bench.py [--pairs N] [--json FILE]: chunks over verbs beside ib_write_bw, in one guest.

Both send the same chunks over the same two devices in turn, with as many in flight and the same
MTU; rdma_rank also writes a flag behind each chunk. Soft-RoCE's speed says nothing of a NIC's; the
ratio says what the endpoint costs beside a loop that does nothing else. No test runs this.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MKERNEL_BUILD_DIR", ROOT / "build"))

SCRIPT = """
cd /sys/class/infiniband/rxe0/ports/1
gid=$(grep -l ^0000:0000:0000:0000:0000:ffff: gids/* | head -1)
theirs="-x ${gid##*/} -s %(bytes)d -n %(chunks)d -t %(depth)d -m %(mtu)d -F"
ours="chunk_bytes=%(bytes)d chunks=%(chunks)d depth=$((2 * %(depth)d)) mtu=%(mtu)d timeout=17"
for ((i = 0; i < %(pairs)d; ++i)); do
  ib_write_bw $theirs -d rxe1 >/dev/null &
  sleep 1
  echo "theirs: $(ib_write_bw $theirs -d rxe0 $GUEST_ADDRESS | grep '^ *%(bytes)d ')"
  wait
  %(rank)s bench 1 $GUEST_PEER rxe1 $ours &
  sleep 1
  echo "ours: $(%(rank)s bench 0 $GUEST_PEER rxe0 $ours)"
  wait
done
"""


def measure(args):
    """{"theirs": [bytes per second], "ours": [...]}"""
    script = SCRIPT % {**vars(args), "rank": BUILD / "bin/rdma_rank"}
    guest = subprocess.run([ROOT / "tests/rdma/run_in_guest.py", "--timeout", str(args.timeout),
                            "--", "bash", "-c", script], stdout=subprocess.PIPE, text=True)
    print(guest.stdout, end="")
    if guest.returncode != 0:
        sys.exit(guest.returncode)
    # ib_write_bw prints size, iterations, peak, average, and its MB are 2**20 bytes.
    theirs = re.findall(r"^theirs: +\d+ +\d+ +[\d.]+ +([\d.]+)", guest.stdout, re.MULTILINE)
    ours = re.findall(r"^ours: ([\d.]+) MB/s", guest.stdout, re.MULTILINE)
    return {"theirs": [float(x) * 2**20 for x in theirs], "ours": [float(x) * 1e6 for x in ours]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--bytes", type=int, default=256 << 10)
    parser.add_argument("--chunks", type=int, default=150)
    parser.add_argument("--depth", type=int, default=16, help="chunks in flight")
    parser.add_argument("--mtu", type=int, default=4096)
    parser.add_argument("--timeout", type=int, default=580)
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    speeds = measure(args)
    if not all(len(list_) == args.pairs for list_ in speeds.values()):
        sys.exit(f"write_bench: not all runs gave a result: {speeds}")
    medians = {who: statistics.median(list_) for who, list_ in speeds.items()}
    print(f"median of {args.pairs}, {args.bytes} bytes, {args.depth} in flight, MTU {args.mtu}: "
          f"ib_write_bw {medians['theirs'] / 1e6:.2f} MB/s, verbs {medians['ours'] / 1e6:.2f} MB/s, "
          f"ratio {medians['ours'] / medians['theirs']:.3f}")
    if args.json:
        options = {k: v for k, v in vars(args).items() if k != "json"}
        args.json.write_text(json.dumps({"options": options, "bytes_per_second": speeds}, indent=1))


if __name__ == "__main__":
    main()
