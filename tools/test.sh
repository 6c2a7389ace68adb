#!/bin/sh
# Installs what is missing, builds weft in build/ and runs all its tests.
#
# usage: sh tools/test.sh [arguments of ctest]     e.g. sh tools/test.sh -R base
set -eu
cd "$(dirname "$0")/.."

sh tools/install_packages.sh --test
cmake -S . -B build -DWEFT_TESTS=ON
jobs=$(nproc)
cmake --build build -j "$jobs"
exec ctest --test-dir build --output-on-failure --no-tests=error -j "$jobs" "$@"
