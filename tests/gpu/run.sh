#!/usr/bin/env bash
# The GPU suite on whatever GPUs this machine has: correctness, sanitizer, benchmarks.
#   tests/gpu/run.sh [--daily] [--only PART[,PART...]] [--bin DIR] [--out DIR]
# Parts, in this order: tests (the suite of GoogleTest), checks (the command line's, ranks as processes
# too), bench (AllGather+GEMM), sums (GEMM+ReduceScatter and GEMM+AllReduce), tune, sanitizer. --daily
# is tests, checks and a short bench: a few minutes. Every step has its own time limit, so that a hang
# costs seconds; the table of steps comes last.
set -u
# Never NVLink multicast: a fault in it can take a host's GPUs down.
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
daily=0 parts=tests,checks,bench,sums,tune,sanitizer bin=build/bin out=build/gpu-results
while [ $# -gt 0 ]; do
  case $1 in
    --daily) daily=1 parts=tests,checks,bench ;;
    --only) parts=$2; shift ;;
    --bin) bin=$2; shift ;;
    --out) out=$2; shift ;;
    *) echo "usage: $0 [--daily] [--only PART[,PART...]] [--bin DIR] [--out DIR]" >&2; exit 2 ;;
  esac
  shift
done
mkdir -p "$out"
table= failed=0

# step NAME SECONDS COMMAND...: output to $out/NAME.log; its last lines are shown if it fails.
step() {
  local name=$1 limit=$2 start=$SECONDS rc=0 verdict=ok
  shift 2
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 || rc=$?
  if [ $rc -ne 0 ]; then
    verdict="FAILED ($rc)"
    failed=1
    echo "--- $name: $*"
    tail -n 25 "$out/$name.log"
  fi
  table+=$(printf '%-34s %-14s %4ds' "$name" "$verdict" $((SECONDS - start)))$'\n'
}

check() {  # check NAME ARGUMENTS...
  local name=$1
  shift
  step "check-$name" 60 "$bin/mkernel" check ag-gemm --device cuda --timeout-ms 5000 "$@"
}
check_sums() {  # check_sums NAME ARGUMENTS...: both operators that sum over ranks
  local name=$1 op
  shift
  for op in gemm-rs gemm-ar; do
    step "check-$op-$name" 60 "$bin/mkernel" check $op --device cuda --timeout-ms 5000 "$@"
  done
}
bench_sums() {  # bench_sums NAME ARGUMENTS...
  local name=$1 op
  shift
  for op in gemm-rs gemm-ar; do
    step "bench-$op-$name" 120 "$bin/mkernel" bench $op --device cuda --baseline all \
      --json "$out/$op-$name.json" "$@"
  done
}
bench() {  # bench NAME ARGUMENTS...; $baseline, if not all
  local name=$1
  shift
  step "bench-$name" 120 "$bin/mkernel" bench ag-gemm --device cuda \
    --baseline "${baseline:-all}" --json "$out/$name.json" --plot "$out/$name.svg" "$@"
}
finish() {
  printf '\n%s' "$table"
  exit $failed
}

# What plans choose for themselves, each way, where the choice matters: few tiles. 128 rows are the
# least that a message can have; with k = 8192 they are 2 MiB, and 512 are what engines get.
run_tune() {
  [ ! -x "$bin/gemm_core" ] || step gemm_core-bench 240 "$bin/gemm_core" bench
  [ "$num_gpus" -ge 2 ] || return 0
  rm -f "$out"/tune-*
  local baseline=gemm shape m n k tile_n push chunk_rows
  for shape in 2048x1024x8192 4096x2048x8192; do
    IFS=x read -r m n k <<<"$shape"
    for tile_n in 128 256; do
      for push in blocks engine; do
        for chunk_rows in 128 256 512; do
          bench "tune-1x2-$shape-tile$tile_n-$push-chunk$chunk_rows" --gpus 2 --m "$m" --n "$n" \
            --k "$k" --tile-n "$tile_n" --push "$push" --chunk-rows "$chunk_rows"
        done
      done
    done
  done
  table+=$(tuned "$out"/tune-*.json)$'\n'
}

# tuned FILE...: a line for each result, of a shape the best first.
tuned() {
  python3 - "$@" <<'END'
import json, os, sys

def row(path):
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    us = {run["name"]: run["median_us"] for run in result["runs"]}
    args = result["args"]
    words = [f"{args[key]}" for key in ("m", "n", "k", "tile_n", "push", "chunk_rows")]
    return args["m"], us["fused"], "".join(f"{w:>8}" for w in words) + "".join(
        f"{us[name]:9.1f}" for name in ("fused", "gemm"))

print("       m       n       k  tile_n    push   chunk fused us  gemm us")
written = [path for path in sys.argv[1:] if os.path.isfile(path) and os.path.getsize(path)]
for _, _, line in sorted(map(row, written)):
    print(line)
END
}

check_processes() {  # check_processes NAME ARGUMENTS...: two ranks, each a process with a GPU
  local name=$1
  shift
  processes() {
    local port=$((20000 + RANDOM % 10000)) first=0 rank
    for rank in 0 1; do
      "$bin/mkernel" check "$@" --device cuda --timeout-ms 5000 --world 2 --rank $rank \
        --run-id "gpu-$port" --rendezvous 127.0.0.1:$port &
    done
    wait -n || first=$?
    wait -n || first=$?
    return $first
  }
  export bin
  export -f processes
  step "processes-$name" 60 bash -c 'processes "$@"' _ "$@"
}

run_tests() {
  step info 30 "$bin/mkernel" info
  [ ! -x "$bin/gemm_core" ] || step gemm_core-check 90 "$bin/gemm_core" check
  step gpu_tests 400 "$bin/gpu_tests" --gtest_brief=1
}

run_checks() {
  check 1x1 --m 1000 --n 1030 --k 777 --iters 3
  check 1x1-large --m 8192 --n 4096 --k 8192
  check 1x2 --gpus 2 --m 4100 --n 2048 --k 4096 --iters 5
  check 1x2-fp16-nk --gpus 2 --m 333 --n 515 --k 259 --iters 3 --dtype fp16 --b-layout nk
  check 2x1 --nodes 2 --m 2000 --n 1024 --k 2048 --iters 5
  check 2x4 --nodes 2 --gpus 4 --m 2048 --n 512 --k 1024 --iters 5 --link-order reordered
  check_sums 1x1 --m 1000 --n 1030 --k 777
  check_sums 1x2 --gpus 2 --m 4100 --n 2048 --k 2048 --iters 5
  check_sums 1x2-fp32 --gpus 2 --m 4100 --n 2048 --k 2048 --iters 5 --partials fp32 --out fp32
  check_sums 1x2-epilogue --gpus 2 --m 333 --n 515 --k 259 --iters 3 --dtype fp16 --b-layout nk \
    --alpha 0.5 --bias --residual --activation gelu
  check_sums 2x1 --nodes 2 --m 2000 --n 1024 --k 1024 --iters 5
  check_sums 2x4 --nodes 2 --gpus 4 --m 2048 --n 512 --k 512 --iters 5 --link-order reordered
  check_sums 2x4-rounds --nodes 2 --gpus 4 --m 4096 --n 2048 --k 256 --iters 3 --workspace-mib 8
  step net-bench 60 "$bin/mkernel" net-bench --transport loopback --json "$out/net-bench.json"
  [ "$num_gpus" -ge 2 ] || return 0
  local op
  for op in ag-gemm gemm-rs gemm-ar; do
    check_processes $op-1x2 $op --gpus 2 --m 4100 --n 2048 --k 2048 --iters 5
    check_processes $op-2x1 $op --nodes 2 --gpus 1 --m 2000 --n 1024 --k 1024 --iters 5
  done
}

run_bench() {
  local shape m n k
  for shape in 8192x4096x8192 4096x4096x4096; do
    IFS=x read -r m n k <<<"$shape"
    bench "1x1-$shape-kn" --m "$m" --n "$n" --k "$k"
    [ $daily = 1 ] || bench "1x1-$shape-nk" --m "$m" --n "$n" --k "$k" --b-layout nk
  done
  [ "$num_gpus" -ge 2 ] || return 0
  for shape in 2048x1024x8192 4096x2048x8192 8192x4096x8192 16384x4096x8192 32768x4096x8192; do
    IFS=x read -r m n k <<<"$shape"
    bench "1x2-$shape-kn" --gpus 2 --m "$m" --n "$n" --k "$k"
    [ $daily = 1 ] || bench "1x2-$shape-kn-engine" --gpus 2 --m "$m" --n "$n" --k "$k" --push engine
  done
}

run_sums() {
  [ "$num_gpus" -ge 2 ] || return 0
  local shape m n k
  for shape in 2048x2048x4096 4096x4096x4096 8192x8192x4096 16384x8192x4096 32768x8192x4096; do
    IFS=x read -r m n k <<<"$shape"
    bench_sums "1x2-$shape-kn" --gpus 2 --m "$m" --n "$n" --k "$k"
    bench_sums "1x2-$shape-kn-fp32" --gpus 2 --m "$m" --n "$n" --k "$k" --partials fp32
  done
  for m in 1 16 64 128 256; do
    bench_sums "1x2-small-$m" --gpus 2 --m "$m" --n 8192 --k 4096
  done
}

run_sanitizer() {
  command -v compute-sanitizer >/dev/null || return 0
  memcheck() {  # memcheck NAME OP ARGUMENTS...
    local name=$1 op=$2
    shift 2
    step "memcheck-$name" 240 compute-sanitizer --tool memcheck --error-exitcode 9 \
      "$bin/mkernel" check "$op" --device cuda --timeout-ms 60000 "$@"
  }
  memcheck 1x1 ag-gemm --m 333 --n 515 --k 259 --iters 2
  memcheck 1x1-aligned ag-gemm --m 512 --n 512 --k 256 --iters 2 --gather-a
  memcheck 1x1-sum gemm-rs --m 333 --n 515 --k 259 --iters 2 --bias --residual
  memcheck 1x2-sum gemm-ar --gpus 2 --blocks 8 --m 333 --n 515 --k 259 --iters 2
}

num_gpus=$(nvidia-smi -L | wc -l)
for part in ${parts//,/ }; do
  if ! declare -F "run_$part" >/dev/null; then
    echo "$0: no part $part" >&2
    exit 2
  fi
  "run_$part"
done
finish
