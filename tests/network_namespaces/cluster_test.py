#!/usr/bin/env python3
"""AllGather+GEMM over libfabric between two network namespaces, each with a rank and an address of
its own: on a link that loses packets, on one that is away for two seconds, and on one that never
comes back."""
import subprocess
import time

import namespaces as net

CHECK = [net.BUILD / "bin" / "mkernel", "check", "ag-gemm", "--device", "host", "--m", "300", "--n",
         "70", "--k", "90", "--nodes", "2", "--gpus", "1", "--transport", "libfabric", "--world",
         "2", "--run-id", "namespaces", "--rendezvous", f"{net.ADDRESSES[0]}:18516"]


def start(*more):
    return [subprocess.Popen(net.inside(rank, *CHECK, "--rank", str(rank), *more),
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for rank in range(2)]


def finish(ranks, limit):
    """(code, stdout, stderr) of each; code is None for one that had to be killed."""
    ended = []
    deadline = time.monotonic() + limit
    for rank in ranks:
        try:
            out, err = rank.communicate(timeout=max(0.1, deadline - time.monotonic()))
            ended.append((rank.returncode, out, err))
        except subprocess.TimeoutExpired:
            rank.kill()
            ended.append((None, *rank.communicate()))
    return ended


def report(name, ended, good):
    print(f"{'ok    ' if good else 'FAILED'} {name}: {[code for code, _, _ in ended]}", flush=True)
    if not good:
        print(*ended, sep="\n")
    return good


def right(ended):
    return all(code == 0 for code, _, _ in ended) and "right: worst error" in ended[0][1]


def test():
    ended = finish(start("--iters", "40"), 120)
    good = report("a link that loses packets", ended, right(ended))

    ranks = start("--iters", "500")
    time.sleep(2)
    net.set_link("down")
    time.sleep(2)
    held_up = all(rank.poll() is None for rank in ranks)
    net.set_link("up")
    ended = finish(ranks, 120)
    good &= report("a link that is away for two seconds", ended, held_up and right(ended))

    ranks = start("--iters", "1000000")
    time.sleep(2)
    net.set_link("down")
    begin = time.monotonic()
    ended = finish(ranks, 90)
    named = all(code == 3 and "rank" in err for code, _, err in ended)
    print(f"       told after {time.monotonic() - begin:.1f} s: {ended[0][2].strip()}")
    good &= report("a link that is away for good ends both ranks", ended, named)
    return good


if __name__ == "__main__":
    net.main(__file__, test)
