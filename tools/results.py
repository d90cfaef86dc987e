#!/usr/bin/env python3
"""Writes README's table of results from bench/results/**/*.json, as `mkernel bench --json` makes them.

  results.py            writes the table between <!-- results --> and <!-- /results -->
  results.py --check    changes nothing; exit status 1 if the table is not what it should be

Every recorded result is shown, those that lose too. One that was not verified as right, or was not
taken on a GPU, is no result: it is refused by name.
"""
import argparse
import json
import pathlib
import re
import sys

TABLE = re.compile(r"(?<=<!-- results -->\n).*?(?=<!-- /results -->)", re.DOTALL)
HEADER = ("m × n × k", "ranks", "type, B", "fused µs", "GEMM alone µs", "fused / GEMM",
          "in turn µs", "TFLOP/s per GPU", "devices", "commit")
# Arguments that every result has its own of, or that have a column; others show if not usual.
COLUMNS = {"m", "n", "k", "dtype", "b_layout", "seed", "iters", "timeout_ms", "link_seed", "push"}
USUAL = (0, False, "in-order", None)
PUSH = re.compile(r"pushed by [a-z ]+")  # in the plan's own words: what it chose, not what was asked


class BadResult(Exception):
    """A file that cannot be shown; says which, and why."""


def settings(args, plan):
    """Element type and layout, and what else was asked for or chosen."""
    more = [name if value is True else f"{name} {value}" for name, value in args.items()
            if name not in COLUMNS and value not in USUAL]
    return ", ".join([args["dtype"], args["b_layout"], *PUSH.findall(plan), *more])


def row_of(result, link):
    """The cells of one result."""
    if result["right"] is not True:
        raise BadResult(f"{link}: its outputs were not right")
    if result["device"] == "host":
        raise BadResult(f"{link}: times of the host machine mean nothing")
    runs = {run["name"]: run for run in result["runs"]}
    if "fused" not in runs:
        raise BadResult(f"{link}: holds no timed run; 'mkernel bench' makes one")
    args, cluster, fused, gemm = result["args"], result["cluster"], runs["fused"], runs.get("gemm")
    in_turn = runs.get("in_turn")  # NCCL, then cuBLAS
    return (f"[{args['m']} × {args['n']} × {args['k']}]({link})",
            f"{cluster['nodes']} × {cluster['gpus']}",
            settings(args, result["plan"] if cluster["ranks"] > 1 else ""),
            f"{fused['median_us']:.0f}",
            f"{gemm['median_us']:.0f}" if gemm else "–",
            f"{fused['median_us'] / gemm['median_us']:.2f}" if gemm else "–",
            f"{in_turn['median_us']:.0f}" if in_turn else "–",
            f"{fused['tflops_per_gpu']:.0f}",
            f"{cluster['devices']} × {result['device']}",
            result["commit"])


def order_of(result):
    args, cluster = result["args"], result["cluster"]
    return (result["device"], cluster["devices"], cluster["nodes"], cluster["gpus"], args["dtype"],
            args["b_layout"], args["m"] * args["n"] * args["k"], args["m"])


def load(root):
    """[(result, path from the root)] of all files, in the order of the table."""
    found = []
    for path in sorted((root / "bench" / "results").rglob("*.json")):
        link = path.relative_to(root).as_posix()
        try:
            result = json.loads(path.read_text(encoding="utf-8"))
            found.append((order_of(result), link, result))
        except (ValueError, KeyError, TypeError) as error:
            raise BadResult(f"{link}: not a result of mkernel bench: {error!r}") from error
    return [(result, link) for _, link, result in sorted(found, key=lambda f: f[:2])]


def table_of(results):
    if not results:
        return "No results are recorded.\n"
    operators = {}
    for result, link in results:
        operators.setdefault(result["op"], []).append(row_of(result, link))
    text = ""
    for op, rows in operators.items():
        lines = [HEADER, ("---",) * 2 + ("---",) + ("---:",) * 5 + ("---",) * 2, *rows]
        text += f"\n`{op}`:\n\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
    return text + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--check", action="store_true", help="only say whether the table is stale")
    parser.add_argument("root", nargs="?", type=pathlib.Path,
                        default=pathlib.Path(__file__).resolve().parent.parent)
    args = parser.parse_args()
    readme = args.root / "README.md"
    text = readme.read_text(encoding="utf-8")
    if len(TABLE.findall(text)) != 1:
        sys.exit("results: README.md must hold <!-- results --> and <!-- /results --> once")
    try:
        table = table_of(load(args.root))
    except BadResult as error:
        sys.exit(f"results: {error}")
    updated = TABLE.sub(lambda _: table, text)
    if not args.check:
        readme.write_text(updated, encoding="utf-8")
    elif updated != text:
        sys.exit("results: README.md is stale; tools/results.py brings it up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
