"""The kernel and the first file system of the guests of run_in_guest.py.

The kernel is taken from Debian's package, which is unpacked and not installed, into a cache folder
(MKERNEL_GUEST_CACHE, else /var/cache/mkernel-guest). The first file system holds busybox and the
modules that a guest needs, in the order in which they must be loaded.
"""
import collections
import fcntl
import hashlib
import lzma
import os
import pathlib
import re
import shutil
import struct
import subprocess

PACKAGES = ["qemu-system-x86", "busybox-static", "rdma-core", "ibverbs-providers", "iproute2"]
# Preferred in this order: Soft-RoCE of 6.1 sends packets again that were not lost.
KERNELS = ["linux-image-6.12-amd64", "linux-image-amd64"]
MODULES = ["virtio_pci", "virtio_net", "9pnet_virtio", "9p", "overlay", "veth", "sch_netem",
           "crc32_generic", "crc32c_generic", "ib_uverbs", "rdma_rxe"]

Image = collections.namedtuple("Image", "kernel initrd")


class NotPossible(Exception):
    """Why this machine can have no guest."""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


def apt(*arguments, cwd=None):
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    return run("apt-get", "-qq", "-o", "DPkg::Lock::Timeout=120", *arguments, env=environment,
               cwd=cwd)


def apt_with_lists(*arguments, cwd=None):
    """Tries again with new package lists, which may be empty or old. Returns the last result."""
    result = apt(*arguments, cwd=cwd)
    if result.returncode != 0:
        apt("update")
        result = apt(*arguments, cwd=cwd)
    return result


def last_line(result):
    return (result.stderr.strip().splitlines() or ["no reason given"])[-1]


def install_packages():
    def is_missing(package):
        return run("dpkg-query", "-W", "-f", "${db:Status-Status}", package).stdout != "installed"

    missing = [p for p in PACKAGES if is_missing(p)]
    if not missing:
        return
    result = apt_with_lists("install", "-y", "--no-install-recommends", *missing)
    if result.returncode != 0:
        raise NotPossible(f"cannot install {' '.join(missing)}: {last_line(result)}")


def find_kernel_package():
    """The package of a kernel version that one of KERNELS stands for."""
    for attempt in range(2):
        for name in KERNELS:
            depends = run("apt-cache", "depends", name).stdout
            if m := re.search(r"Depends: (linux-image-\d\S*-amd64)$", depends, re.MULTILINE):
                return m[1]
        if attempt == 0:
            apt("update")
    raise NotPossible("apt knows no " + " or ".join(KERNELS))


def unpack_kernel(folder):
    """Fetches a kernel into the folder: vmlinuz and modules/*.ko."""
    package = find_kernel_package()
    download = folder / "download"
    shutil.rmtree(folder, ignore_errors=True)
    download.mkdir(parents=True)
    result = apt_with_lists("download", package, cwd=download)
    packages = list(download.glob("*.deb"))
    if not packages:
        raise NotPossible(f"cannot download {package}: {last_line(result)}")
    result = run("dpkg-deb", "-x", packages[0], download / "root")
    if result.returncode != 0:
        raise NotPossible(f"cannot unpack {package}: {last_line(result)}")
    write_kernel(next((download / "root/boot").glob("vmlinuz-*")).read_bytes(), folder / "vmlinuz")
    (folder / "modules").mkdir()
    for name, data in modules_in_order(download / "root"):
        (folder / "modules" / name).write_bytes(data)
    shutil.rmtree(download)


def write_kernel(image, path):
    """Without its packing, if that is xz: a guest that is emulated unpacks it in seconds."""
    sectors = image[0x1f1] or 4
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[(sectors + 1) * 512 + offset:][:length]
    try:
        unpacked = lzma.LZMADecompressor().decompress(payload)
        image = unpacked if unpacked.startswith(b"\x7fELF") else image
    except lzma.LZMAError:
        pass
    path.write_bytes(image)


def modules_in_order(root):
    """(file name, contents) of MODULES and what they need, each behind what it needs."""
    paths = {p.name.split(".")[0].replace("-", "_"): p
             for p in (root / "lib/modules").rglob("*.ko*")}
    done, result = set(), []

    def add(name):
        if name in done or name not in paths:  # what is no file is part of the kernel
            return
        done.add(name)
        data = paths[name].read_bytes()
        if paths[name].suffix == ".xz":
            data = lzma.decompress(data)
        for needed in re.search(rb"\0depends=([^\0]*)\0", data)[1].decode().split(","):
            add(needed.replace("-", "_"))
        result.append((f"{len(result):02}-{name}.ko", data))

    for name in MODULES:
        add(name)
    if "rdma_rxe" not in done:
        raise NotPossible("the kernel has no rdma_rxe")
    return result


def archive(entries):
    """A cpio archive (newc) of (path, mode, contents)."""
    result = bytearray()

    def pad():
        result.extend(bytes(-len(result) % 4))

    for i, (path, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        name = path.encode() + b"\0"
        fields = [i, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name), 0]
        result.extend(b"070701" + b"".join(b"%08x" % f for f in fields) + name)
        pad()
        result.extend(data)
        pad()
    return bytes(result)


def write_initrd(folder, path, init):
    directory, program, plain = 0o040755, 0o100755, 0o100644
    entries = [(d, directory, b"") for d in ("bin", "dev", "proc", "sys", "modules", "files",
                                             "memory", "root")]
    entries.append(("bin/busybox", program, pathlib.Path(shutil.which("busybox")).read_bytes()))
    entries.append(("init", program, init))
    entries += [(f"modules/{m.name}", plain, m.read_bytes())
                for m in sorted((folder / "modules").iterdir())]
    path.write_bytes(archive(entries))


def prepare():
    """Makes what is missing, and returns the Image. Raises NotPossible."""
    if not shutil.which("apt-get"):
        raise NotPossible("no apt-get, which the guest's kernel comes with")
    if os.geteuid() != 0:
        raise NotPossible("root is needed to share files with a guest")
    cache = pathlib.Path(os.environ.get("MKERNEL_GUEST_CACHE", "/var/cache/mkernel-guest"))
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # one preparation at a time
        install_packages()
        done = cache / "kernel/done"
        if not done.exists():
            unpack_kernel(cache / "kernel")
            done.touch()
        init = pathlib.Path(__file__).with_name("guest_init.sh").read_bytes()
        initrd = cache / f"initrd-{hashlib.sha256(init).hexdigest()[:12]}"
        if not initrd.exists():
            write_initrd(cache / "kernel", initrd.with_suffix(".new"), init)
            initrd.with_suffix(".new").rename(initrd)
    return Image(cache / "kernel/vmlinuz", initrd)
