#!/usr/bin/env python3
"""Asserts that the host machine and the GPU kernels instantiate the same role templates.

The names are looked up where a compiler leaves them: in the debug information of the host machine's
launch, and in the line information of the kernel's PTX. A role that one machine replaced by its own
copy would be missing there.
"""
import glob
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("MKERNEL_BUILD_DIR", os.path.join(ROOT, "build"))
# By kernel: a role is a template over a Block or a Team.
KERNELS = {
    "all_gather_gemm_bf16_kn.cu": ["all_gather_gemm", "communicate", "copy_chunk", "feed_tiles",
                                   "leave_launch", "multiply_tiles"],
    "gemm_reduce_bf16_kn.cu": ["copy_result", "deliver_tiles", "feed_tiles", "gemm_reduce",
                               "leave_launch", "multiply_tiles", "spread_results"],
}
ROLES = sorted({role for roles in KERNELS.values() for role in roles})


def templates_on_block():
    """Names of the protocol's templates over a Block or a Team: what KERNELS must list."""
    names = set()
    for header in glob.glob(os.path.join(ROOT, "src", "protocol", "*.h")):
        with open(header) as f:
            names.update(re.findall(r"template <class (?:Block|Team)[^>]*>\nMK_HD \w+ (\w+)\(", f.read()))
    return names


def host_names():
    objects = glob.glob(BUILD + "/**/src/host/launch.cc.o", recursive=True)
    if not objects:
        sys.exit("no object of src/host/launch.cc in " + BUILD)
    with open(objects[0], "rb") as f:
        return set(re.findall(rb"(\w+)<mkernel::Host(?:Block|Team)[,>]", f.read()))


def device_names(nvcc, kernel):
    with tempfile.TemporaryDirectory() as work:
        ptx = os.path.join(work, "kernel.ptx")
        subprocess.run([nvcc, "-std=c++20", "-arch=compute_90a", "-DNDEBUG", "-lineinfo",
                        "--expt-relaxed-constexpr", "-I" + ROOT + "/include", "-I" + ROOT + "/src",
                        "-ptx", ROOT + "/src/device/kernels/" + kernel, "-o", ptx],
                       check=True)
        with open(ptx) as f:
            numbers = re.findall(r"\.b8 ([\d,]+)", f.read())
    text = bytes(int(n) for line in numbers for n in line.split(","))
    # Mangled: <length><name>INS_9CudaBlockI...
    return set(re.findall(rb"\d([a-z_]+)INS_(?:9CudaBlockI|15CudaReduceBlockI|8CudaTeamE)", text))


def main():
    if sorted(templates_on_block()) != ROLES:
        sys.exit(f"roles of the protocol: {templates_on_block()}, expected {ROLES}")
    host = host_names()
    missing = [("host", role) for role in ROLES if role.encode() not in host]
    machines = ["host"]
    nvcc = next((p for p in (os.environ.get("CUDACXX"), "/usr/local/cuda/bin/nvcc")
                 if p and os.path.exists(p)), None)
    for kernel, roles in KERNELS.items() if nvcc else ():
        machines.append(kernel)
        names = device_names(nvcc, kernel)
        missing += [(kernel, role) for role in roles if role.encode() not in names]
    for machine, role in missing:
        print(f"{machine}: does not instantiate {role}")
    print(f"{len(ROLES)} roles looked for on {', '.join(machines)}")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
