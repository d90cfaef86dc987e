# The everyday commands. CMake does the work; this file says which trees there are and who runs what.
#   make demo        build the application and run one operator on a small virtual cluster
#   make test        build everything and run all tests that this machine can run
#   make build       build/: the library, the application, the tests; GPU kernels where nvcc is
#   make build-all   and the sanitizer trees build/asan, build/tsan
#   make lint        format, layers, clang-tidy          make format   apply the format
#   make clean
.PHONY: demo test build build-all lint format clean setup
MAKEFLAGS += --no-print-directory

PRESET := $(if $(shell command -v nvcc),cuda,cpu)
JOBS := $(shell nproc)

# From nothing, the demo compiles the GPU kernels only if there is a GPU to run them.
demo: setup
	@test -f build/build.ninja || cmake --preset $(if $(wildcard /dev/nvidia[0-9]*),$(PRESET),cpu)
	@cmake --build build --target mkernel_app
	build/bin/mkernel check ag-gemm --nodes 2 --gpus 4 --m 1024 --n 512 --k 512 --iters 3

build: setup
	@cmake --preset $(PRESET)
	@cmake --build build

build-all: build
	$(if $(filter cuda,$(PRESET)),@cmake --build build --target gemm_core)
	@for tree in asan tsan; do \
	  cmake --preset $$tree && cmake --build build/$$tree --target gtests || exit; \
	done

test: build-all
	@tools/run_tests.py build -j $(JOBS)

lint: build
	@tools/format.sh --check
	@tools/check_layers.py
	@tools/clang_tidy.sh build -j $(JOBS)

format: setup
	@tools/format.sh

clean:
	rm -rf build

setup:
	@tools/setup.sh
