#!/usr/bin/env python3
"""libfabric over tcp between two network namespaces: an interface and an address for each rank, and a
link that loses packets."""
import os
import subprocess

import namespaces as net

PROGRAM = net.BUILD / "bin" / "network_exchange"
PORT = "18515"


def exchange(staging):
    """Two ranks, each in its namespace. Whether both were content."""
    ranks = [subprocess.Popen(net.inside(rank, PROGRAM, str(rank), net.ADDRESSES[rank],
                                         net.ADDRESSES[0], PORT, staging))
             for rank in range(2)]
    try:
        codes = [rank.wait(timeout=150) for rank in ranks]
    except subprocess.TimeoutExpired:
        codes = ["timeout"]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if net.SKIPPED in codes:
        net.skip("no libfabric")
    print(f"exchange, staging {staging}: {codes}", flush=True)
    return codes == [0, 0]


def conform():
    """The conformance suite, with the ranks in turn in one and the other namespace."""
    places = [word for rank in range(2) for word in (net.NAMES[rank], net.ADDRESSES[rank])]
    environment = dict(os.environ, MKERNEL_TEST_NAMESPACES=" ".join(places))
    suite = subprocess.run([net.BUILD / "bin" / "transport_tests", "--gtest_brief=1",
                            "--gtest_filter=*Conformance*Namespaces"],
                           env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    print(suite.stdout, flush=True)
    return suite.returncode == 0 and "[  PASSED  ] 22 tests" in suite.stdout


def test():
    return all([conform(), exchange("auto"), exchange("always")])


if __name__ == "__main__":
    net.main(__file__, test)
