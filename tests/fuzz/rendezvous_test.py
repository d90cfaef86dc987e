#!/usr/bin/env python3
"""Fuzzes what reads bytes of strangers, for 20 seconds or as many as the first argument says."""
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
SECONDS = sys.argv[1] if len(sys.argv) > 1 else "20"
PURE = ["collectives", "host_list", "identity", "join_desk", "message", "payload", "sha256",
        "socket", "text"]
FLAGS = ["-std=c++20", "-O1", "-g", "-fsanitize=fuzzer,address,undefined",
         "-fno-sanitize-recover=all", f"-I{ROOT}/include", f"-I{ROOT}/src"]


def skip(reason):
    print(f"skipped: {reason}")
    sys.exit(77)


compiler = shutil.which("clang++-14") or shutil.which("clang++") or skip("no clang++")
with tempfile.TemporaryDirectory() as temporary:
    tmp = pathlib.Path(temporary)
    (tmp / "empty.cc").write_text("#include <cstddef>\n#include <cstdint>\nextern \"C\" int "
                                  "LLVMFuzzerTestOneInput(const uint8_t*, size_t) { return 0; }\n")
    if subprocess.run([compiler, *FLAGS, tmp / "empty.cc", "-o", tmp / "empty"],
                      capture_output=True, check=False).returncode != 0:
        skip(f"{compiler} has no fuzzer runtime, which is Debian's libclang-rt-14-dev")
    sources = [ROOT / f"src/rendezvous/{name}.cc" for name in PURE]
    subprocess.run([compiler, *FLAGS, ROOT / "tests/fuzz/rendezvous_fuzz.cc",
                    ROOT / "src/core/status.cc", *sources, "-o", tmp / "fuzz"], check=True)
    (tmp / "words").write_text('"mkrv"\n"\\x01\\x00"\n')
    (tmp / "corpus").mkdir()
    result = subprocess.run(
        [tmp / "fuzz", f"-max_total_time={SECONDS}", "-max_len=2048", "-timeout=10",
         "-rss_limit_mb=1024", f"-dict={tmp}/words", "-print_final_stats=1",
         f"-artifact_prefix={tmp}/", tmp / "corpus"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", check=False)
    print(result.stdout[-4000:])
    for artifact in (*tmp.glob("crash-*"), *tmp.glob("timeout-*"), *tmp.glob("oom-*"), *tmp.glob("leak-*")):
        print(f"{artifact.name}: {artifact.read_bytes().hex()}")
    sys.exit(result.returncode)
