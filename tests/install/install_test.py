#!/usr/bin/env python3
"""Installs the library, then builds and runs README's first C++ block against it, as a user would."""
import os
import pathlib
import re
import subprocess
import tempfile

PROJECT = """\
cmake_minimum_required(VERSION 3.25)
project(user LANGUAGES CXX)
find_package(mkernel 0.1 REQUIRED)
add_executable(user user.cc)
target_link_libraries(user mkernel::mkernel)
"""


def run(*command):
    print("+", *command, flush=True)
    subprocess.run(command, check=True)


readme = pathlib.Path("README.md").read_text()
with tempfile.TemporaryDirectory() as temporary:
    tmp = pathlib.Path(temporary)
    (tmp / "CMakeLists.txt").write_text(PROJECT)
    (tmp / "user.cc").write_text(re.search(r"^```cpp\n(.*?)^```", readme, re.DOTALL | re.MULTILINE)[1])
    run("cmake", "--install", os.environ["MKERNEL_BUILD_DIR"], "--prefix", f"{tmp}/prefix")
    run("cmake", "-S", tmp, "-B", f"{tmp}/build", f"-DCMAKE_PREFIX_PATH={tmp}/prefix")
    run("cmake", "--build", f"{tmp}/build")
    run(f"{tmp}/build/user")
    run(f"{tmp}/prefix/bin/mkernel", "info")
