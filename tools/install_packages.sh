#!/bin/sh
# Installs the Debian packages that weft is built and tested with. Nothing happens when all are there.
#
# usage: sh tools/install_packages.sh          what a user needs: the build, the text of the first example
#        sh tools/install_packages.sh --test   and the tests
#        sh tools/install_packages.sh --ci     and continuous integration
#        sh tools/install_packages.sh --list   print the names and install nothing (with --test or --ci: theirs too)
#
# Works as root or with sudo. On other systems it says what is needed and leaves the installing to you.
set -eu

# A C compiler, its headers, make and CMake; oneDNN (matrix products); jansson (JSON); zlib (checksums); fortunes
# (2.5 MB of English text to train on). cmocka (unit tests); Python without any package (reads the JSON and the pictures
# that programs under test write).
packages="gcc libc6-dev make cmake libdnnl-dev libjansson-dev zlib1g-dev fortunes"
test_packages="libcmocka-dev python3"
ci_packages="git clang clang-format llvm libclang-rt-14-dev mandoc"

list_only=no
for argument in "$@"; do
    case $argument in
    --test) packages="$packages $test_packages" ;;
    --ci) packages="$packages $test_packages $ci_packages" ;;
    --list) list_only=yes ;;
    *)
        echo "install_packages.sh: unknown argument '$argument'" >&2
        exit 2
        ;;
    esac
done

if [ "$list_only" = yes ]; then
    printf '%s\n' $packages
    exit 0
fi

if ! command -v dpkg-query >/dev/null 2>&1 || ! command -v apt-get >/dev/null 2>&1; then
    echo "This is not a Debian system. Please see to it that these, by their Debian names, are installed:"
    echo "  $packages"
    exit 0
fi

missing=
for package in $packages; do
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
    echo "Debian packages: all installed ($packages)"
    exit 0
fi

run=
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "install_packages.sh: these Debian packages are missing, and neither root nor sudo is at hand:" >&2
        echo "  apt-get install$missing" >&2
        exit 1
    fi
    run=sudo
fi

echo "Debian packages to install:$missing"
apt="$run env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q"
$apt update
$apt install -y --no-install-recommends $missing
