#!/usr/bin/env python3
"""Checks who includes whom in src/ and include/, as docs/architecture.md says.

  core <- schedule, command, control <- protocol <- device, host <- operators <- apps
  core <- memory <- network <- proxy (also command) <- operators
  core <- rendezvous <- operators
  memory <- device (what is common to all code that calls the CUDA run time)

A layer includes only what stands to its left, as "layer/file.h". The layers up to protocol know no
CUDA, so that the same code runs on the host machine. Applications and tests may include anything.
"""
import argparse
import pathlib
import re
import sys

SHARED = ["core", "schedule", "command", "control", "protocol"]
MAY_INCLUDE = {
    "core": [],
    "schedule": ["core"],
    "command": ["core"],
    "control": ["core"],
    "protocol": SHARED,
    "device": [*SHARED, "memory"],
    "host": SHARED,
    "memory": ["core"],
    "network": ["core", "memory"],
    "proxy": ["core", "command", "memory", "network"],
    "rendezvous": ["core"],
    "operators": [*SHARED, "device", "host", "memory", "network", "proxy", "rendezvous"],
}
PUBLIC_FOR_ALL = ["status.h", "tensor.h", "options.h", "rendezvous.h"]
CUDA_HEADER = re.compile(r"(cu\w*|nv\w*|cooperative_groups|mma)(/.*|\.h)$")
CUDA_WORD = re.compile(
    r"\b(__global__|__device__|__host__|__shared__|__constant__|__forceinline__|__launch_bounds__"
    r"|__sync\w+|__threadfence\w*|__nanosleep|threadIdx|blockIdx|blockDim|gridDim|asm)\b")
INCLUDE = re.compile(r'\s*#\s*include\s*([<"])([^>"]+)[>"]')
CONDITION = re.compile(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)")
COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*")', re.DOTALL)


def without_comments(text):
    """The text with its comments gone and its lines in place."""
    return COMMENT.sub(lambda m: m.group(1) or "\n" * m.group(0).count("\n"), text)


class CudaRegion:
    """Follows the preprocessor: is this line seen by nvcc alone?"""

    def __init__(self):
        self.branches = []

    def feed(self, line):
        m = CONDITION.match(line)
        if not m:
            return
        directive, condition = m.groups()
        cuda = bool(re.search(r"__CUDACC__|__CUDA_ARCH__", condition))
        negated = directive == "ifndef" or bool(re.search(r"!\s*defined", condition))
        if directive in ("if", "ifdef", "ifndef"):
            # What #else means is known only for a condition that asks about CUDA.
            self.branches.append((cuda and not negated, cuda and negated))
        elif directive == "endif":
            self.branches.pop()
        elif directive == "else":
            _, other = self.branches.pop()
            self.branches.append((other, False))
        else:
            self.branches[-1] = (cuda and not negated, False)

    def inside(self):
        return any(branch for branch, _ in self.branches)


def check_include(layer, path, quote, target, in_cuda):
    """What is wrong with one #include, or None."""
    if target.startswith("mkernel/"):
        if layer != "public" and layer != "operators" and target[8:] not in PUBLIC_FOR_ALL:
            return f"only operators may include <{target}>"
    elif quote == '"':
        other = target.split("/")[0]
        if layer == "public":
            return f'a public header includes "{target}", which is not installed'
        if "/" not in target or other not in MAY_INCLUDE:
            return f'"{target}" should read "layer/file.h"'
        if other != layer and other not in MAY_INCLUDE[layer]:
            return f'{layer} may not include "{target}"'
        if target.endswith(".cuh") and path.suffix in (".h", ".cc"):
            return f'"{target}" is for nvcc, a {path.suffix} file is for g++'
    elif CUDA_HEADER.match(target):
        if layer in SHARED + ["public"] and not (layer == "core" and in_cuda):
            return f"{layer} may not include <{target}>"
    return None


def check_file(layer, path):
    """Yields (line number, what is wrong)."""
    region = CudaRegion()
    for number, line in enumerate(without_comments(path.read_text()).split("\n"), 1):
        region.feed(line)
        if m := INCLUDE.match(line):
            if error := check_include(layer, path, m[1], m[2], region.inside()):
                yield number, error
        elif layer in SHARED and (m := CUDA_WORD.search(line)):
            if not (layer == "core" and region.inside()):
                yield number, f"{layer} may not use {m[0]}"


def check_tree(root):
    """All violations below root, as 'file:line: what'."""
    errors = []
    for path in sorted(p for d in ("include", "src") for p in (root / d).rglob("*")):
        if path.suffix not in (".h", ".cuh", ".cc", ".cu"):
            continue
        name = path.relative_to(root)
        layer = "public" if name.parts[0] == "include" else name.parts[1]
        if layer != "public" and layer not in MAY_INCLUDE:
            errors.append(f"{name}: no such layer: {layer}")
            continue
        if layer in SHARED and path.suffix in (".cuh", ".cu"):
            errors.append(f"{name}: {layer} has no {path.suffix} files")
        errors += [f"{name}:{number}: {what}" for number, what in check_file(layer, path)]
    return errors


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    errors = check_tree(parser.parse_args().root)
    print("\n".join(errors) or "layers: ok")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
