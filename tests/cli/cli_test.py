#!/usr/bin/env python3
"""The command line from outside: exit codes, messages, JSON, and dumps that are verified with
nothing of the application's own: the inputs are made again from the description in
apps/mkernel/generator.h, the product is summed in Python. Needs no numpy; where there is one it
must read the dumps as well.

Usage: cli_test.py [BINARY]   (without: bin/mkernel under $MKERNEL_BUILD_DIR, or under build/)
"""
import json
import math
import os
import re
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    numpy = None

BINARY = ""
NUM_CASES = 97
SIZES = {"--m": "10", "--n": "9", "--k": "16"}
cases, failures = [], []


def case(name, problem):
    """Counts one case; `problem` says what is wrong, or nothing."""
    cases.append(name)
    print(f"{'FAILED' if problem else 'ok    '} {name}{': ' + problem if problem else ''}", flush=True)
    if problem:
        failures.append(name)


def run(*args):
    return subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=120)


def words(options):
    return [word for option in options.items() for word in option]


SMALL = words(SIZES)
HOST = ["--device", "host"]


# --- Exit codes and messages ---

def refused(name, args, code, *mentions):
    """The command must end with `code` and one line on stderr that holds all `mentions`."""
    done = run(*args)
    lines = done.stderr.splitlines()
    problem = ""
    if done.returncode != code:
        problem = f"exit code {done.returncode} instead of {code}: {done.stderr.strip()}"
    elif len(lines) != 1 or not all(word in lines[0] for word in mentions):
        problem = f"stderr is {lines}, which should be one line with {mentions}"
    case(name, problem)


def check_refusals():
    op = ["check", "ag-gemm"]
    refused("no command", [], 2, "info, check, bench and net-bench")
    refused("unknown command", ["frobnicate"], 2)
    refused("no operator", ["check", *SMALL], 2, "OP")
    refused("unknown operator", ["check", "gemm-xx", *SMALL], 2, "gemm-xx", "ag-gemm")
    refused("unknown option", [*op, *SMALL, "--bogus"], 2, "--bogus")
    refused("option twice", [*op, *SMALL, "--m", "3"], 2, "--m")
    for size in ("--m", "--n", "--k"):
        others = {option: text for option, text in SIZES.items() if option != size}
        refused(f"no {size}", [*op, *words(others)], 2, size)
    for text in ("1e3", "12x", "-5", "+5", "0x10", "1.5", " 5", "", "99999999999999999999",
                 "2147483648"):
        refused(f"--m '{text}'", [*op, *words({**SIZES, "--m": text})], 2, "--m", f"'{text}'",
                "allowed")
    for option, text in (("--n", "0"), ("--k", "0"), ("--nodes", "0"), ("--gpus", "x"),
                         ("--iters", "0"), ("--seed", "-1"), ("--timeout-ms", "0"),
                         ("--contact-timeout-ms", "0"), ("--contact-timeout-ms", "-1"),
                         ("--blocks", "-1"), ("--comm-blocks", "many"), ("--chunk-rows", "1k"),
                         ("--tile-n", "wide"),
                         ("--dtype", "fp8"), ("--b-layout", "nn"), ("--device", "tpu"),
                         ("--transport", "pigeon"), ("--link-gbs", "-2"), ("--link-us", "nan"),
                         ("--link-order", "random"), ("--link-seed", "1e3"),
                         ("--json", "/nonexistent/x.json"), ("--dump", "/dev/null/x")):
        options = words({**SIZES, "--device": "host", option: text})
        refused(f"{option} '{text}'", [*op, *options], 2, option, text, "allowed")
    refused("tiles that the machine does not have", [*op, *SMALL, *HOST, "--tile-n", "17"], 2,
            "tile_n = 17", "32, 16")
    refused("transport not in this build", [*op, *SMALL, *HOST, "--transport", "verbs"], 4,
            "verbs")
    refused("more memory than there is",
            [*op, "--m", "1073741824", "--n", "1073741824", "--k", "1", *HOST], 4, "GiB")
    refused("bench: unknown baseline", ["bench", "ag-gemm", *SMALL, "--baseline", "x"], 2,
            "--baseline", "allowed")
    for option, text in (("--transport", "pigeon"), ("--transport", "loopback,"),
                         ("--transport", "auto"), ("--min-bytes", "0"), ("--max-bytes", "1e6"),
                         ("--min-bytes", "8388608"), ("--depth", "0"), ("--iters", "0"),
                         ("--json", "/nonexistent/x.json")):
        refused(f"net-bench: {option} '{text}'", ["net-bench", option, text], 2, option, "allowed")
    refused("net-bench: transport not in this build", ["net-bench", "--transport", "loopback,verbs"],
            4, "verbs")
    refused("net-bench: no operator is taken", ["net-bench", "ag-gemm"], 2, "ag-gemm")
    slow = ["--nodes", "2", "--link-gbs", "0.000001", "--timeout-ms", "200"]
    refused("a link that is too slow", [*op, *words({**SIZES, "--m": "100"}), *HOST, *slow], 3,
            "timeout", "rank")
    if not json.loads(run("info", "--json").stdout)["gpus"]:
        refused("--device cuda without a GPU", [*op, *SMALL, "--device", "cuda"], 4, "cuda")
    else:
        case("--device cuda without a GPU: this machine has one", "")


# --- Values, made and rounded again ---

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & MASK
    x = (x ^ x >> 27) * 0x94D049BB133111EB & MASK
    return x ^ x >> 31


def normal_values(seed, rank, iteration, array, count):
    stream = mix(seed + GOLDEN & MASK)
    for part in (rank + 1, iteration + 1, array):
        stream = mix(stream + GOLDEN * part & MASK)
    values = []
    for i in range(count):
        total = -393210
        for w in range(3):
            x = mix(stream + GOLDEN * (3 * i + w) & MASK)
            total += sum(x >> shift & 0xFFFF for shift in (0, 16, 32, 48))
        values.append(total / 65536)
    return values


def float_of(bits, dtype):
    if dtype == "fp16":
        return struct.unpack("<e", struct.pack("<H", bits))[0]
    return struct.unpack("<f", struct.pack("<I", bits << 16))[0]


def bits_of(value, dtype):
    if dtype == "fp16":
        return struct.unpack("<H", struct.pack("<e", value))[0]
    bits = struct.unpack("<I", struct.pack("<f", value))[0]
    return bits + 0x7FFF + (bits >> 16 & 1) >> 16


def read_npy(path):
    """Shape and elements of a '<u2' file, read by the text of the format's description."""
    with open(path, "rb") as file:
        data = file.read()
    assert data[:8] == b"\x93NUMPY\x01\x00", "magic"
    start = 10 + struct.unpack("<H", data[8:10])[0]
    assert start % 64 == 0 and data[start - 1:start] == b"\n", "padding"
    header = eval(data[10:start].decode(), {"__builtins__": {}})
    assert header["descr"] == "<u2" and header["fortran_order"] is False, str(header)
    rows, cols = header["shape"]
    elements = struct.unpack(f"<{rows * cols}H", data[start:])
    if numpy is not None:
        loaded = numpy.load(path)
        assert loaded.shape == (rows, cols) and tuple(loaded.flatten().tolist()) == elements, "numpy"
    return (rows, cols), elements


def rows_of_rank(m, world, rank):
    return m // world + (1 if rank < m % world else 0)


def verify_dump(directory, world, m, n, k, dtype, layout, iteration):
    """What is wrong with the dumped arrays; nothing if all is right."""
    gathered = []
    for rank in range(world):
        shape, a = read_npy(f"{directory}/rank{rank}_a.npy")
        rows = rows_of_rank(m, world, rank)
        want = [bits_of(v, dtype) for v in normal_values(1, rank, iteration, 1, rows * k)]
        if shape != (rows, k) or list(a) != want:
            return f"rank {rank}: a is not what the generator gives"
        gathered += [float_of(bits, dtype) for bits in a]
    for rank in range(world):
        shape, b = read_npy(f"{directory}/rank{rank}_b.npy")
        want = [bits_of(v, dtype) for v in normal_values(1, rank, iteration, 2, n * k)]
        if layout == "nk":
            want = [want[j * k + kk] for kk in range(k) for j in range(n)]
        if shape != (k, n) or list(b) != want:
            return f"rank {rank}: b is not what the generator gives"
        weights = [float_of(bits, dtype) for bits in b]
        shape, c = read_npy(f"{directory}/rank{rank}_c.npy")
        if shape != (m, n):
            return f"rank {rank}: c has shape {shape}"
        for i in range(m):
            for j in range(n):
                terms = [gathered[i * k + kk] * weights[kk * n + j] for kk in range(k)]
                exact = math.fsum(terms)
                limit = (2.0 ** (-8 if dtype == "bf16" else -11) * abs(exact) + 2.0 ** -25 +
                         2.0 ** -22 * math.sqrt(k) * math.fsum(map(abs, terms)))
                if not abs(float_of(c[i * n + j], dtype) - exact) <= limit:
                    return f"rank {rank}: c[{i}, {j}] is {float_of(c[i * n + j], dtype)}, not {exact}"
    return ""


# --- Runs ---

SCHEMA = {"commit": str, "device": str, "driver": (str, type(None)), "op": str, "args": dict,
          "cluster": dict, "transport": str, "plan": str, "clocks": (dict, type(None)),
          "runs": list, "left_out": list, "floor_us": (float, type(None)), "floor_is": (str, type(None)),
          "ratio_to_floor": (float, type(None)), "worst_error": (dict, type(None)),
          "right": bool, "ranks": list}


def schema_problem(path, args):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    for key, kind in SCHEMA.items():
        if key not in result or not isinstance(result[key], kind):
            return f"json: {key} is {result.get(key)!r}"
    for key, value in args.items():
        if result["args"].get(key) != value:
            return f"json: args.{key} is {result['args'].get(key)!r}, not {value!r}"
    if len(result["ranks"]) != result["cluster"]["ranks"]:
        return "json: not one entry per rank"
    if result["worst_error"] is not None and not 0 <= result["worst_error"]["share"] <= 1:
        return f"json: worst_error is {result['worst_error']}"
    return ""


def check_runs():
    shapes = [(10, 9, 16), (37, 20, 24), (3, 8, 8), (0, 8, 8)]  # uneven, m < ranks, empty
    for nodes, gpus in ((1, 1), (1, 2), (2, 1), (2, 4)):
        for i, (m, n, k) in enumerate(shapes):
            dtype, layout = ("bf16", "fp16")[i % 2], ("kn", "nk")[(i // 2 + nodes) % 2]
            iters = 1 + i % 3
            check_run(nodes, gpus, m, n, k, dtype, layout, iters)
    for dtype in ("bf16", "fp16"):
        for layout in ("kn", "nk"):
            check_run(2, 2, 13, 11, 40, dtype, layout, 2, "--link-order", "reordered", "--link-us",
                      "50", "--link-seed", "7")


def check_run(nodes, gpus, m, n, k, dtype, layout, iters, *more):
    name = f"check {nodes}x{gpus} {m}x{n}x{k} {dtype} {layout} {' '.join(more)}".rstrip()
    with tempfile.TemporaryDirectory() as directory:
        result = f"{directory}/result.json"
        done = run("check", "ag-gemm", "--nodes", str(nodes), "--gpus", str(gpus), "--m", str(m),
                   "--n", str(n), "--k", str(k), "--dtype", dtype, "--b-layout", layout, "--iters",
                   str(iters), "--gather-a", "--json", result, "--dump", directory, *HOST, *more)
        if done.returncode != 0:
            case(name, f"exit code {done.returncode}: {done.stderr.strip()} {done.stdout.strip()}")
            return
        args = {"m": m, "n": n, "k": k, "dtype": dtype, "b_layout": layout, "iters": iters}
        case(name, schema_problem(result, args) or
             verify_dump(directory, nodes * gpus, m, n, k, dtype, layout, iters - 1))


def check_bench():
    with tempfile.TemporaryDirectory() as directory:
        result, plot = f"{directory}/result.json", f"{directory}/plot.svg"
        done = run("bench", "ag-gemm", "--gpus", "2", *SMALL, *HOST, "--iters", "5", "--json",
                   result, "--plot", plot)
        case("bench ends well", "" if done.returncode == 0 else done.stderr.strip())
        case("bench says that host times mean nothing",
             "" if "mean nothing" in done.stdout else done.stdout)
        case("bench writes its json", schema_problem(result, {"iters": 5}))
        with open(result, encoding="utf-8") as file:
            runs = json.load(file)["runs"]
        ordered = [r["name"] for r in runs] == ["fused"] and all(
            0 < r["p10_us"] <= r["median_us"] <= r["p90_us"] for r in runs)
        case("bench times the fused run", "" if ordered else str(runs))
        with open(plot, encoding="utf-8") as file:
            text = file.read()
        case("bench draws", "" if text.startswith("<svg") and "fused" in text else text)


def check_net_bench():
    with tempfile.TemporaryDirectory() as directory:
        result = f"{directory}/result.json"
        done = run("net-bench", "--transport", "loopback,loopback", "--min-bytes", "1000",
                   "--max-bytes", "4000", "--iters", "1", "--depth", "3", "--json", result)
        case("net-bench ends well", "" if done.returncode == 0 else done.stderr.strip())
        with open(result, encoding="utf-8") as file:
            found = json.load(file)
        sizes = [one["sizes"] for one in found["transports"]]
        right = [[s["bytes"] for s in one] for one in sizes] == 2 * [[1000, 2000, 4000]]
        case("net-bench doubles sizes up to the largest", "" if right else str(found))
        positive = all(value > 0 for one in sizes for s in one for value in s.values()) and all(
            value > 0 for value in found["proxy"].values())
        ratios = all(abs(s["gbs_ratio"] - s["gbs"] / s["tcp_gbs"]) < 1e-9 for one in sizes for s in one)
        case("net-bench measures all", "" if positive and ratios else str(found))
        case("net-bench prints a line per size",
             "" if done.stdout.count("\nloopback ") == 6 else done.stdout)


def check_stats():
    """What proxies did: with m = 8 rows each rank sends one message and gives one credit."""
    for nodes, order in ((2, "in-order"), (2, "reordered"), (1, "in-order")):
        with tempfile.TemporaryDirectory() as directory:
            result = f"{directory}/result.json"
            done = run("check", "ag-gemm", "--nodes", str(nodes), "--gpus", "2", *HOST, "--stats",
                       *words({**SIZES, "--m": "8"}), "--link-order", order, "--json", result)
            table = [line.split() for line in done.stdout.splitlines()]
            header = [i for i, row in enumerate(table) if row[:1] == ["proxy"]]
            shown = table[header[0] + 1:header[0] + 5] if header else []
            with open(result, encoding="utf-8") as file:
                proxies = json.load(file)["proxies"]
            got = [(p["rank"], p["commands"], p["bytes"], p["batches"] <= p["commands"],
                    p["retries"], p["stale_arrivals"]) for p in proxies]
            # A message is two rows of 16 elements; the credit may still be on its way at the end.
            right = (len(got) == len(shown) == (4 if nodes > 1 else 0) and
                     all(one == (r, c, 64, True, 0, 0) and c in (1, 2)
                         for r, (one, c) in enumerate(zip(got, [g[1] for g in got]))) and
                     ("one node" in done.stdout) == (nodes == 1))
        case(f"--stats of {nodes} nodes, {order}", "" if right else f"{proxies} {done.stdout}")


def check_progress():
    """Both streams into one pipe: lines of progress must stay whole, and not join another line."""
    slow = ["--nodes", "2", "--link-us", "600000", "--iters", "3"]
    done = subprocess.run([BINARY, "check", "ag-gemm", *SMALL, *HOST, *slow], text=True, timeout=120,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    lines = done.stdout.split("\n")
    shown = [i for i, line in enumerate(lines) if "iteration: " in line]
    whole = all(re.fullmatch(r"iteration: [12] of 3 \((33|66) %\)", lines[i]) for i in shown)
    case("progress is lines of its own", "" if shown and whole else done.stdout)
    result = [i for i, line in enumerate(lines) if line.startswith("right: ")]
    case("the result comes last", "" if shown and result == [len(lines) - 2] else done.stdout)


def check_info():
    plain, as_json = run("info"), run("info", "--json")
    case("info", "" if plain.returncode == 0 and "loopback: yes" in plain.stdout else plain.stdout)
    found = json.loads(as_json.stdout)
    keys = {"gpus", "driver", "nics", "transports", "used", "missing"}
    case("info --json", "" if set(found) == keys else str(set(found)))
    reasons = found["missing"]
    case("info gives reasons", "" if "verbs" in reasons and (found["gpus"] or "cuda" in reasons)
         else str(reasons))
    case("help", "" if run("check", "--help").returncode == 0 else "exit code is not 0")


def main():
    global BINARY
    build = os.environ.get("MKERNEL_BUILD_DIR", "build")
    BINARY = sys.argv[1] if len(sys.argv) > 1 else f"{build}/bin/mkernel"
    check_info()
    check_refusals()
    check_runs()
    check_bench()
    check_net_bench()
    check_stats()
    check_progress()
    print(f"{len(cases)} cases, {len(failures)} failed")
    if len(cases) != NUM_CASES:
        sys.exit(f"{len(cases)} cases ran, {NUM_CASES} were meant to")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
