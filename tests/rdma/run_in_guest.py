#!/usr/bin/env python3
"""run_in_guest.py [options] -- COMMAND...: runs a command where there are RDMA devices.

A throw-away QEMU guest boots a Debian kernel that has Soft-RoCE (rdma_rxe) and runs the command on
the files of this machine, which it sees read-only below an overlay in its memory. What the command
prints, and its exit status, come back. Nothing is installed into this machine but Debian packages,
and no network device of it is touched.

One guest has two devices, rxe0 and rxe1, on the two ends of a virtual wire. Two guests have one
each, rxe0, and are joined by a virtual wire; the command runs in both. The command finds
  GUEST_RANK, GUEST_RANKS   0 of 1, or 0 and 1 of 2
  GUEST_DEVICES             rxe0,rxe1, or rxe0
  GUEST_ADDRESS, GUEST_PEER IP addresses of this guest and of the other one
  GUEST_WIRE                network interface of rxe0, e.g. for: tc qdisc add dev $GUEST_WIRE ...
Exit status: the command's, of two guests the first that is not 0; 77 if there can be no guest here
("skipped: why"); 124 if the time was up; 125 if a guest died.
"""
import argparse
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import guest_image

SKIPPED, TIME_IS_UP, DIED = 77, 124, 125


def has_kvm():
    """A /dev/kvm without the processor's help is slower than QEMU's own translation."""
    flags = pathlib.Path("/proc/cpuinfo").read_text()
    return os.access("/dev/kvm", os.R_OK | os.W_OK) and (" vmx" in flags or " svm" in flags)


def die_with_parent():
    """A guest must not outlive this script, however that ends."""
    import ctypes
    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class Guest:
    """One running guest; its folder is where both sides write."""

    def __init__(self, image, folder, rank, args):
        self.folder = folder / str(rank)
        self.folder.mkdir()
        self.prefix = f"[{rank}] " if args.guests > 1 else ""
        self.positions = {"stdout": 0, "stderr": 0}
        (self.folder / "command").write_text(
            "".join(f"export {shlex.quote(e)}\n" for e in args.env)
            + f"cd {shlex.quote(os.getcwd())}\nexec {shlex.join(args.command)}\n")
        (self.folder / "setting").write_text(
            f"rank={rank}\nranks={args.guests}\nlimit={args.timeout}\n")
        shutil.copy(pathlib.Path(__file__).with_name("guest_setup.sh"), self.folder / "setup")
        for name in self.positions:
            (self.folder / name).touch()
        self.qemu = subprocess.Popen(
            self.command_line(image, folder, rank, args), stdin=subprocess.DEVNULL,
            stdout=(self.folder / "qemu.log").open("wb"), stderr=subprocess.STDOUT,
            preexec_fn=die_with_parent)

    def command_line(self, image, folder, rank, args):
        accelerator = ["-accel", "kvm", "-cpu", "host"] if has_kvm() else \
            ["-accel", "tcg,thread=multi", "-cpu", "max,la57=off"]

        def share(tag, path, options):
            return ["-fsdev", f"local,id={tag},path={path},security_model=none,{options}",
                    "-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]

        line = ["qemu-system-x86_64", *accelerator, "-machine", "q35,usb=off,smbus=off,hpet=off",
                "-smp", str(args.cpus), "-m", args.memory, "-nodefaults", "-no-user-config",
                "-display", "none", "-no-reboot", "-kernel", image.kernel, "-initrd", image.initrd,
                "-append", "console=ttyS0 quiet panic=-1 reboot=t mitigations=off tsc=reliable "
                           "cryptomgr.notests random.trust_cpu=on",
                "-serial", f"file:{self.folder}/console", "-device", "virtio-rng-pci",
                *share("files", "/", "readonly=on,multidevs=remap"),
                *share("control", self.folder, "multidevs=remap")]
        if args.guests > 1:
            line += ["-netdev", f"dgram,id=wire,local.type=unix,local.path={folder}/wire{rank},"
                                f"remote.type=unix,remote.path={folder}/wire{1 - rank}",
                     "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{rank + 1},"
                                "host_mtu=4500,romfile="]
        return [str(word) for word in line]

    def forward(self):
        """Passes on what the command has printed since the last time."""
        for name, stream in (("stdout", sys.stdout), ("stderr", sys.stderr)):
            with (self.folder / name).open("rb") as f:
                f.seek(self.positions[name])
                text = f.read()
            if not self.status() and self.prefix:  # whole lines, since two guests share them
                text = text[:text.rfind(b"\n") + 1]
            self.positions[name] += len(text)
            for line in text.splitlines(keepends=True) if self.prefix else [text]:
                stream.buffer.write(self.prefix.encode() + line if line else line)
            stream.flush()

    def status(self):
        """The command's exit status as text; empty while it runs."""
        path = self.folder / "status"
        return path.read_text().strip() if path.exists() else ""

    def report(self, why):
        print(f"run_in_guest: {why}; the end of its console:", file=sys.stderr)
        for name in ("console", "qemu.log"):
            path = self.folder / name
            if path.exists():
                sys.stderr.write("".join(path.read_text(errors="replace").splitlines(True)[-15:]))

    def end(self):
        self.qemu.kill()
        self.qemu.wait()


def await_all(guests, timeout):
    deadline = time.monotonic() + timeout
    while not all(guest.status() for guest in guests):
        for guest in guests:
            guest.forward()
            if guest.qemu.poll() is not None and not guest.status():
                guest.report("a guest died")
                return DIED
        if time.monotonic() > deadline:
            guests[0].report(f"not done after {timeout} s")
            return TIME_IS_UP
        time.sleep(0.05)
    for guest in guests:
        guest.forward()
    return next((status for g in guests if (status := int(g.status())) != 0), 0)


def parse(argv):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--guests", type=int, choices=(1, 2), default=1)
    parser.add_argument("--cpus", type=int, default=os.cpu_count(), help="of each guest")
    parser.add_argument("--memory", default="2G")
    parser.add_argument("--timeout", type=int, default=180, help="seconds, with booting")
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("--prepare", action="store_true", help="only make the guest's image")
    parser.add_argument("command", nargs="*")
    return parser.parse_args(argv)


def main():
    args = parse(sys.argv[1:])
    try:
        image = guest_image.prepare()
    except guest_image.NotPossible as why:
        print(f"skipped: {why}")
        return SKIPPED
    if args.prepare or not args.command:
        return 0
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(128 + number))
    with tempfile.TemporaryDirectory(prefix="guest.") as folder:
        guests = []
        try:
            for rank in range(args.guests):
                guests.append(Guest(image, pathlib.Path(folder), rank, args))
            return await_all(guests, args.timeout)
        finally:
            for guest in guests:
                guest.end()


if __name__ == "__main__":
    sys.exit(main())
