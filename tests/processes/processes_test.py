#!/usr/bin/env python3
"""Runs `mkernel check` with one process per rank, as launchers start it, and looks at what every
process says and returns. Host machine only.
"""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BUILD = os.environ.get("MKERNEL_BUILD_DIR", "build")
MKERNEL = os.path.join(BUILD, "bin", "mkernel")
SHAPE = ["--m", "300", "--n", "70", "--k", "90"]
LAUNCHER = re.compile(r"OMPI_|PMI|PMIX|SLURM_|MASTER_|TORCH|RANK$|WORLD_SIZE|LOCAL_")


def plain_environment():
    return {k: v for k, v in os.environ.items() if not LAUNCHER.match(k)}


def torchrun(rank, world, port):
    """What torchrun sets for a worker."""
    return {"RANK": rank, "WORLD_SIZE": world, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}


def srun(rank, world, job):
    """What srun sets for a task."""
    return {"SLURM_PROCID": rank, "SLURM_NTASKS": world, "SLURM_LOCALID": rank,
            "SLURM_JOB_ID": job, "SLURM_STEP_ID": 0, "SLURM_STEP_NODELIST": "localhost"}


_ports = iter(range(21000 + os.getpid() % 4000 * 2, 32000, 7))


def start(world, arguments, launcher=torchrun, ranks=None):
    port = next(_ports)
    processes = []
    for rank in ranks if ranks is not None else range(world):
        env = plain_environment()
        env.update({k: str(v) for k, v in launcher(rank, world, port).items()})
        processes.append(subprocess.Popen(
            [MKERNEL, *arguments], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True))
    return processes


def finish(processes, limit=120):
    """(exit code, stdout, stderr) of each; kills what does not end."""
    ended = []
    deadline = time.monotonic() + limit
    for p in processes:
        try:
            out, err = p.communicate(timeout=max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            p.kill()
            out, err = p.communicate()
            err += "\nHUNG"
        ended.append((p.returncode, out, err))
    return ended


def check(*more):
    return ["check", "ag-gemm", "--device", "host", *SHAPE, *more]


class Processes(unittest.TestCase):
    def assert_right(self, ended):
        for rank, (code, out, err) in enumerate(ended):
            self.assertEqual(code, 0, f"rank {rank}: {out}{err}")
        self.assertIn("right: worst error", ended[0][1])
        for rank, (_, out, _) in enumerate(ended[1:], 1):
            self.assertEqual(out, "", f"rank {rank} prints too")

    def test_every_cluster_is_right(self):
        for nodes, gpus in [(1, 2), (2, 1), (1, 4), (2, 2), (3, 1)]:
            with self.subTest(cluster=f"{nodes}x{gpus}"):
                arguments = check("--nodes", str(nodes), "--gpus", str(gpus), "--iters", "20")
                self.assert_right(finish(start(nodes * gpus, arguments)))

    def test_srun_is_understood_and_nodes_are_found_from_the_host(self):
        ended = finish(start(3, check("--iters", "3"), srun))
        self.assert_right(ended)
        self.assertIn("cluster: 1 x 3 ranks", ended[0][1])

    def test_a_table_has_all_ranks_and_each_dumps_its_arrays(self):
        with tempfile.TemporaryDirectory() as folder:
            ended = finish(start(2, check("--dump", folder, "--json", folder + "/out.json")))
            self.assert_right(ended)
            self.assertEqual(sorted(os.listdir(folder)),
                             ["out.json"] + [f"rank{r}_{a}.npy" for r in (0, 1) for a in "abc"])
            self.assertRegex(ended[0][1], r"(?m)^ +1 +1 ")

    def test_a_layout_that_does_not_fit_is_refused_on_every_rank(self):
        ended = finish(start(2, check("--nodes", "3")))
        self.assertEqual([code for code, _, _ in ended], [2, 2], ended)
        for _, _, err in ended:  # each says so, since only one of them may be at fault
            self.assertIn("nodes = 3", err)

    def test_a_killed_rank_ends_all_others_soon(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                processes = start(3, check("--nodes", "3", "--iters", "1000000"))
                time.sleep(3)
                processes[victim].send_signal(signal.SIGKILL)
                begin = time.monotonic()
                ended = finish(processes, 40)
                self.assertLess(time.monotonic() - begin, 30)
                for rank, (code, _, err) in enumerate(ended):
                    if rank == victim:
                        continue
                    self.assertEqual(code, 3, err)
                    self.assertIn(f"rank {victim}", err)

    def test_a_rank_that_stands_still_for_five_seconds_is_waited_for(self):
        for late in (0, 1):
            with self.subTest(late=late):
                processes = start(3, check("--nodes", "3", "--iters", "3000"))
                time.sleep(2)
                processes[late].send_signal(signal.SIGSTOP)
                time.sleep(5)
                self.assertIsNone(processes[2].poll(), "it ended before it could be held up")
                processes[late].send_signal(signal.SIGCONT)
                self.assert_right(finish(processes))

    def test_a_rank_that_never_comes_is_named(self):
        arguments = check("--join-timeout-ms", "2000")
        for code, _, err in finish(start(3, arguments, ranks=[0, 2]), 60):
            self.assertEqual(code, 3, err)
            self.assertIn("1", err)

    @unittest.skipUnless(shutil.which("mpirun"), "no mpirun on this machine")
    def test_mpirun(self):
        for nodes, gpus in [(1, 2), (2, 1), (2, 2), (3, 1)]:
            with self.subTest(cluster=f"{nodes}x{gpus}"):
                command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                           str(nodes * gpus), MKERNEL, *check("--nodes", str(nodes), "--gpus",
                                                              str(gpus), "--iters", "20")]
                done = subprocess.run(command, env=plain_environment(), text=True, timeout=120,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
                self.assertEqual(done.returncode, 0, done.stdout)
                self.assertEqual(done.stdout.count("right: worst error"), 1, done.stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
