#!/usr/bin/env python3
"""Plants faults in a copy of the protocol and asserts that the simulation notices each of them.

A fault is (name, file, old text, new text); the old text must occur exactly once. The mutated
headers are compiled into the host machine's launch, which is linked in front of the library of the
ThreadSanitizer tree; then the simulation must fail: a wrong element, a time-out, or a data race.
The unchanged protocol must pass the same tests, or the failures would mean nothing.
"""
import concurrent.futures
import glob
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TREE = os.path.join(ROOT, "build", "tsan")
PROTOCOL = "src/protocol/all_gather_gemm.h"
SHARED = "src/protocol/launch_work.h"
REDUCE = "src/protocol/gemm_reduce.h"
SPREAD = "src/protocol/spread_results.h"

FAULTS = [
    ("a missing wait: a tile is fed before its rows have arrived", PROTOCOL,
     """  return tile.rows == 0 || op.in_place(tile.slice) ||
         await_chunk(op, epoch, tile.slice, tile.row / op.tasks.chunks.chunk_rows, tally);
""", "  return true;\n"),
    ("a missing wait: a chunk is forwarded before it has arrived", PROTOCOL,
     "if (from_slot) ok = await_chunk(op, epoch, t.slice, t.chunk, tally);", "(void)from_slot;"),
    ("a signal before its data", PROTOCOL,
     """  block.copy_rows(copy);
  block.sync();
  if (!block.leader()) return;
  store_release<Scope::kSys>(
      op.flag(t.dst, op.flags.arrived(op.flags.slot_of(epoch), t.slice, t.chunk)), epoch);
""",
     """  if (block.leader())
    store_release<Scope::kSys>(
        op.flag(t.dst, op.flags.arrived(op.flags.slot_of(epoch), t.slice, t.chunk)), epoch);
  block.copy_rows(copy);
  block.sync();
  if (!block.leader()) return;
"""),
    ("a missing block barrier before a signal", PROTOCOL,
     "  block.copy_rows(copy);\n  block.sync();\n", "  block.copy_rows(copy);\n"),
    ("a reused buffer: a slot is written without credit", PROTOCOL,
     "if (!block.all(!block.leader() || await_credit(op, op.flags.credit_needed(epoch), tally))) "
     "return;", ""),
    ("a credit that comes a launch too early", "src/protocol/slot_flags.h",
     "{ return epoch - slots; }", "{ return epoch - slots - 1; }"),
    ("peers left out of a target: local ones, of the wait for a free slot", PROTOCOL,
     """  return for_each_peer(op, [&](uint32_t peer) {
    return await_flag(""",
     """  return for_each_peer(op, [&](uint32_t peer) {
    if (op.cluster.same_node(peer, op.rank)) return true;
    return await_flag("""),
    ("peers left out of a target: rail peers get no credit", SHARED,
     "return op.queue.push({0, 0, 0, value, flag, static_cast<uint16_t>(peer)}, op.dog);",
     "return true;"),
    ("a lent slot given back at once: peers overwrite what the caller reads", PROTOCOL,
     "if (!op.lends_slot) give_credit(op, epoch);", "give_credit(op, epoch);"),
    ("a launch that ends before its peers have what copy engines push", PROTOCOL,
     "  if (op.ends_together) await_credit(op, epoch, tally);\n", ""),
    ("one flag for both slots: a later launch releases an earlier wait", "src/protocol/slot_flags.h",
     "first + (slot * world + slice) * chunks + chunk;",
     "first + (slot * 0 + slice) * chunks + chunk;"),
    ("an epoch compared without regard to its wrap", "src/core/sync.h",
     "return static_cast<int32_t>(have - want) >= 0;", "return have >= want;"),
    ("a commit before its payload", "src/command/queue.h",
     """    store_relaxed<Scope::kSys>(&slot.words[1], c.local_address);
    store_relaxed<Scope::kSys>(&slot.words[2], c.remote_address);
    store_relaxed<Scope::kSys>(&slot.words[3], (uint64_t{c.epoch} << 32) | c.bytes);
    store_release<Scope::kSys>(&slot.words[0], commit_word(c, lap_tag(pos >> log2_capacity_)));
""",
     """    store_release<Scope::kSys>(&slot.words[0], commit_word(c, lap_tag(pos >> log2_capacity_)));
    store_relaxed<Scope::kSys>(&slot.words[1], c.local_address);
    store_relaxed<Scope::kSys>(&slot.words[2], c.remote_address);
    store_relaxed<Scope::kSys>(&slot.words[3], (uint64_t{c.epoch} << 32) | c.bytes);
"""),
    ("a release made relaxed", PROTOCOL,
     """  store_release<Scope::kSys>(
      op.flag(t.dst,""",
     """  store_relaxed<Scope::kSys>(
      op.flag(t.dst,"""),
    ("an acquire made relaxed", SHARED,
     "const auto seen = [&] { return load_acquire<Scope::kSys>(word); };",
     "const auto seen = [&] { return load_relaxed<Scope::kSys>(word); };"),
    ("a missing wait: partial sums are added before they have arrived", REDUCE,
     "if (op.collects(tile.slice) && !await_partials(op, epoch, tile, tally)) return false;", ""),
    ("a missing wait: sums of nodes are added before they have arrived", REDUCE,
     "return await_node_sums(op, epoch, tile, tally) &&", "return"),
    ("a reused buffer: a sum is written without credit", REDUCE,
     "  if (tile.slice != op.rank) {\n    const uint32_t reader", "  if (false) {\n    const uint32_t reader"),
    ("a signal before its sums", REDUCE,
     """    block.await_stored();
    Tally bytes;
    ok = ok && announce_tile(op, running_epoch(op), tile, bytes);
""",
     """    Tally bytes;
    ok = ok && announce_tile(op, running_epoch(op), tile, bytes);
    block.await_stored();
"""),
    ("a credit that comes a round too early", "src/schedule/reduce_tile_order.h",
     "if (round >= depth) return depth;", "if (round >= depth) return depth + 1;"),
    ("a credit that comes a launch's last round too early", "src/schedule/reduce_tile_order.h",
     "return round + epochs - earlier;", "return round + epochs - earlier + depth;"),
    ("a credit for the first tile of a round in place of the last", "src/protocol/gemm_reduce_work.h",
     "if (count != op.tiles.tiles_in_round(tile.slice, tile.round)) return false;",
     "if (count != 1) {\n    if (count == op.tiles.tiles_in_round(tile.slice, tile.round))\n"
     "      store_relaxed<Scope::kGpu>(word, op.first_epoch);\n    return false;\n  }\n"
     "  if (op.tiles.tiles_in_round(tile.slice, tile.round) != 1) return true;"),
    ("a counter that is not set back", "src/protocol/gemm_reduce_work.h",
     "  store_relaxed<Scope::kGpu>(word, op.first_epoch);\n", ""),
    ("one flag for the sums of all nodes", "src/protocol/reduce_layout.h",
     "return sums_at + among_others(node, self) * slots + slot;", "return sums_at + slot;"),
    ("a missing wait: a finished tile is copied before it has arrived", SPREAD,
     "return await_flag(op, epoch, op.layout.result(tile.slice, op.tiles.slot_of(tile)),\n"
     "                    epoch + tile.round, {Place::kResultArrived, sender, tile.slice}, tally) &&",
     "(void)sender;\n  return"),
    ("a missing barrier of the team before a signal", SPREAD,
     "    copy_result(team, op, tile);\n    team.sync();\n", "    copy_result(team, op, tile);\n"),
]


def run(command, **options):
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          **options)


def build(work, binary):
    """Compiles the launch of the host machine from `work` and links the simulation around it."""
    launch = os.path.join(work, "launch.o")
    flags = ["-std=c++20", "-O1", "-g", "-fsanitize=thread", "-DMK_SCHEDULE_FUZZ=1",
             "-DMK_SANITIZER=1"]
    made = run(["g++", *flags, "-I" + work + "/include", "-I" + work + "/src", "-c",
                work + "/src/host/launch.cc", "-o", launch])
    if made.returncode != 0:
        sys.exit("does not compile:\n" + made.stdout)
    objects = glob.glob(TREE + "/tests/**/simulation_tests.dir/**/*.o", recursive=True)
    made = run(["g++", "-fsanitize=thread", launch, *objects, LIBRARY, "-lgtest", "-lgtest_main",
                "-lpthread", "-o", binary])
    if made.returncode != 0:
        sys.exit("does not link:\n" + made.stdout)


def simulate(binary, tests):
    """Runs the simulation until its first failure; returns (failed, the line that says why)."""
    env = dict(os.environ, TSAN_OPTIONS="halt_on_error=1")
    try:
        done = run([binary, "--gtest_brief=1", "--gtest_fail_fast", "--gtest_filter=" + tests],
                   env=env, timeout=400)
    except subprocess.TimeoutExpired:
        return True, "hangs"
    why = [line for line in done.stdout.splitlines()
           if "WARNING: ThreadSanitizer" in line or "Failure" in line or "expected" in line
           or "timeout:" in line]
    return done.returncode != 0, (why or [""])[-1].strip()


# Subsets that take seconds, with every kind of cluster and network in them.
GATHER_TESTS = ["AllGatherGemmSim.RanksThatRunAhead*", "AllGatherGemmSim.LaunchesMayOvertake*",
                "AllGatherGemmSim.IsRightFarFrom*", "AllGatherGemmSim.GatheredRows*",
                "AllGatherGemmSim.IsRightWithThree*", "AllGatherGemmSim/RandomClusters.*/0"]
REDUCE_TESTS = ["GemmReduceSim.RanksThatRunAhead*", "GemmReduceSim.LaunchesMayOvertake*",
                "GemmReduceSim.IsRightFarFrom*", "GemmReduceSim.TakesOneBlock*",
                "GemmReduceSim.IsRightWithThree*", "GemmReduceSim/RandomReductions.*/0",
                "GemmReduceSim/RandomReductions.*/1"]


def tests_for(path):
    """The operators' own protocol is for their own tests, what they share for all."""
    reduces = any(word in path for word in ("reduce", "spread"))
    gathers = any(word in path for word in ("all_gather", "slot_flags"))
    return ":".join(([] if reduces else GATHER_TESTS) + ([] if gathers else REDUCE_TESTS))


LIBRARY = next(iter(glob.glob(TREE + "/**/libmkernel.a", recursive=True)), None)


def plant(fault):
    """Plants one fault; returns (right, the line to print)."""
    name, path, old, new = fault
    with tempfile.TemporaryDirectory() as work:
        for folder in ("src", "include"):
            shutil.copytree(os.path.join(ROOT, folder), os.path.join(work, folder))
        file = os.path.join(work, path)
        with open(file) as f:
            text = f.read()
        if old and text.count(old) != 1:
            return False, f"WRONG: the text of {name!r} occurs {text.count(old)} times in {path}"
        with open(file, "w") as f:
            f.write(text.replace(old, new) if old else text)
        binary = os.path.join(work, "simulation")
        build(work, binary)
        failed, why = simulate(binary, tests_for(path))
    right = failed == bool(old)
    return right, (("ok    " if right else "WRONG ") + ("red:   " if failed else "green: ") + name +
                   (f"  [{why}]" if failed else ""))


def main():
    if LIBRARY is None:
        print("skipped: build/tsan is not built")
        return 77
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for right, line in pool.map(plant, [("nothing (control)", SHARED, "", ""), *FAULTS]):
            print(line, flush=True)
            wrong += not right
    print(f"{len(FAULTS)} faults planted, {wrong} of them or the control went wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
