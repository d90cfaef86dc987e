"""Two network namespaces with an address each, joined by a link that loses one packet of a hundred.

The kernel of this machine may have no such link (netem). Then the test runs in a QEMU guest, whose
kernel has (tests/rdma/run_in_guest.py); and where there can be none, over a link with a short queue,
which loses what finds no room.
"""
import os
import pathlib
import subprocess
import sys
import time

SKIPPED = 77
ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("MKERNEL_BUILD_DIR", ROOT / "build"))
NAMES = [f"mkernel-{os.getpid()}-{rank}" for rank in range(2)]
LINKS = [f"mk{os.getpid()}r{rank}" for rank in range(2)]
ADDRESSES = ["10.213.57.1", "10.213.57.2"]
NETEM = ["netem", "delay", "200us", "loss", "1%"]
SHORT_QUEUE = ["tbf", "rate", "100mbit", "burst", "5kb", "limit", "20kb"]


def run(*command):
    """Runs a command; what it says in case of an error."""
    done = subprocess.run(command, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"{' '.join(command)}: {done.stderr.strip()}"


def inside(rank, *command):
    return ["ip", "netns", "exec", NAMES[rank], *command]


def set_up():
    """Makes the namespaces and the link. Why that cannot be, or nothing."""
    steps = [["ip", "netns", "add", name] for name in NAMES]
    steps.append(["ip", "link", "add", LINKS[0], "netns", NAMES[0], "type", "veth",
                  "peer", "name", LINKS[1], "netns", NAMES[1]])
    for rank in range(2):
        steps += [inside(rank, "ip", "address", "add", f"{ADDRESSES[rank]}/24", "dev", LINKS[rank]),
                  inside(rank, "ip", "link", "set", LINKS[rank], "up"),
                  inside(rank, "ip", "link", "set", "lo", "up")]
    for step in steps:
        if error := run(*step):
            return error
    return await_links()


def await_links():
    """A link that was just set up is of no use until the kernel has noticed its carrier. Why it never
    was, or nothing."""
    deadline = time.monotonic() + 20
    for rank, link in enumerate(LINKS):
        while run(*inside(rank, "grep", "-q", "up", f"/sys/class/net/{link}/operstate")):
            if time.monotonic() > deadline:
                return f"link {link} did not come up within 20 s"
            time.sleep(0.05)
    return ""


def set_link(state):
    """Plugs the link in ("up") or out ("down")."""
    run(*inside(1, "ip", "link", "set", LINKS[1], state))


def lose_packets(kind):
    """Both ways. Why that cannot be, or nothing."""
    errors = [run(*inside(rank, "tc", "qdisc", "add", "dev", LINKS[rank], "root", *kind))
              for rank in range(2)]
    return "".join(errors)


def tear_down():
    for name in NAMES:
        run("ip", "netns", "delete", name)  # with it the link


def run_in_guest(script):
    """The test's exit status in a guest; SKIPPED if there can be none."""
    return subprocess.run([ROOT / "tests/rdma/run_in_guest.py", "--timeout", "400", "--env",
                           f"MKERNEL_BUILD_DIR={BUILD}", "--", sys.executable, script],
                          check=False).returncode


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(SKIPPED)


def main(script, test):
    """Runs test() on the lossy link: true if all was well."""
    try:
        if error := set_up():
            skip(error)
        kind = NETEM
        if lose_packets(kind):
            tear_down()
            code = SKIPPED if "GUEST_RANK" in os.environ else run_in_guest(script)
            if code != SKIPPED:
                sys.exit(code)
            kind = SHORT_QUEUE
            if error := set_up() or lose_packets(kind):
                skip(error)
        print("link with", *kind, flush=True)
        good = test()
        subprocess.run(inside(0, "tc", "-s", "qdisc", "show", "dev", LINKS[0]), check=False)
        sys.exit(0 if good else 1)
    except FileNotFoundError as error:
        skip(f"no {error.filename}")
    finally:
        tear_down()
