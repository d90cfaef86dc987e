#!/usr/bin/env bash
# Installs what building and testing need and this machine lacks. Quick when nothing is missing.
# Takes Debian packages only; says what it cannot install, and what then is left out.
set -euo pipefail

# Without these nothing builds.
required=(g++ cmake ninja-build git python3 libgtest-dev librapidcheck-dev libcli11-dev
          nlohmann-json3-dev)
# Without these something is skipped or slower, and the tests say so.
optional=(ccache clang-format-14 clang-tidy-14 libfabric-dev libibverbs-dev openmpi-bin
          libopenmpi-dev libclang-rt-14-dev clang-14 iproute2)

missing() {
  for package in "$@"; do
    [[ $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) == installed ]] ||
      echo "$package"
  done
}

as_root=()
[[ $EUID == 0 ]] || as_root=(sudo -n)

apt() { "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=120 "$@"; }

# The package lists of a new machine may be empty or old, so a failed install is tried once more.
install() { apt install --no-install-recommends "$@" >/dev/null 2>&1 ||
            { apt update && apt install --no-install-recommends "$@" >/dev/null; }; }

if ! command -v dpkg-query >/dev/null; then
  echo "setup: no Debian package manager here; these must be present: ${required[*]}" >&2
  exit 0
fi

mapfile -t need < <(missing "${required[@]}")
if ((${#need[@]})); then
  echo "setup: installing ${need[*]}"
  install "${need[@]}" || {
    echo "setup: cannot install ${need[*]}: apt-get failed (see above); the build needs them" >&2
    exit 1
  }
fi

mapfile -t need < <(missing "${optional[@]}")
for package in "${need[@]}"; do
  echo "setup: installing $package"
  install "$package" || echo "setup: cannot install $package; going on without it" >&2
done

command -v nvcc >/dev/null || echo "setup: no nvcc on PATH; CUDA 13 is not a Debian package, so" \
  "it is not installed here and the GPU kernels are left out"
