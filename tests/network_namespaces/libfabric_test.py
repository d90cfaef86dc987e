#!/usr/bin/env python3
"""libfabric over tcp between two network namespaces: an interface and an address for each rank, and a
link that loses packets: one in a hundred, or where the kernel has no netem, what finds no room in a
short queue."""
import os
import pathlib
import subprocess
import sys
import time

PROGRAM = pathlib.Path(os.environ.get("MKERNEL_BUILD_DIR", "build")) / "bin" / "network_exchange"
NAMES = [f"mkernel-{os.getpid()}-{rank}" for rank in range(2)]
LINKS = [f"mk{os.getpid()}r{rank}" for rank in range(2)]
ADDRESSES = ["10.213.57.1", "10.213.57.2"]
PORT = "18515"


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


def run(*command):
    """Runs a command; what it says in case of an error."""
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()}"


def set_up():
    """Makes the namespaces and the link. Why that cannot be, or nothing."""
    steps = [["ip", "netns", "add", name] for name in NAMES]
    steps.append(["ip", "link", "add", LINKS[0], "netns", NAMES[0], "type", "veth",
                  "peer", "name", LINKS[1], "netns", NAMES[1]])
    for name, link, address in zip(NAMES, LINKS, ADDRESSES):
        inside = ["ip", "netns", "exec", name]
        steps += [[*inside, "ip", "address", "add", f"{address}/24", "dev", link],
                  [*inside, "ip", "link", "set", link, "up"],
                  [*inside, "ip", "link", "set", "lo", "up"]]
    for step in steps:
        if error := run(*step):
            return error
    return await_links()


def await_links():
    """A link that was just set up is of no use until the kernel has noticed its carrier. Why it never
    was, or nothing."""
    deadline = time.monotonic() + 20
    for name, link in zip(NAMES, LINKS):
        while run("ip", "netns", "exec", name, "grep", "-q", "up", f"/sys/class/net/{link}/operstate"):
            if time.monotonic() > deadline:
                return f"link {link} did not come up within 20 s"
            time.sleep(0.05)
    return ""


def make_lossy():
    """Which kind of loss the link got."""
    for kind in (["netem", "delay", "200us", "loss", "1%"],
                 ["tbf", "rate", "100mbit", "burst", "5kb", "limit", "20kb"]):
        if not any(run("ip", "netns", "exec", name, "tc", "qdisc", "add", "dev", link, "root", *kind)
                   for name, link in zip(NAMES, LINKS)):
            return "link with " + " ".join(kind)
    return "link without loss: there is neither netem nor tbf"


def exchange(staging):
    """Two ranks, each in its namespace. Whether both were content."""
    ranks = [subprocess.Popen(["ip", "netns", "exec", name, PROGRAM, str(rank), ADDRESSES[rank],
                               ADDRESSES[0], PORT, staging])
             for rank, name in enumerate(NAMES)]
    try:
        codes = [rank.wait(timeout=150) for rank in ranks]
    except subprocess.TimeoutExpired:
        codes = ["timeout"]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    if 77 in codes:
        sys.exit(77)
    print(f"staging {staging}: {codes}")
    return codes == [0, 0]


def main():
    if not PROGRAM.exists():
        skip(f"no {PROGRAM}")
    try:
        if error := set_up():
            skip(error)
        print(make_lossy())
        good = [exchange(staging) for staging in ("auto", "always")]
        subprocess.run(["ip", "netns", "exec", NAMES[0], "tc", "-s", "qdisc", "show", "dev", LINKS[0]],
                       check=False)
    except FileNotFoundError as error:
        skip(f"no {error.filename}")
    finally:
        for name in NAMES:
            run("ip", "netns", "delete", name)  # with it the link
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
