#!/bin/sh
# Formats every tracked C file by .clang-format (clang-format 14).
#
# usage: sh tools/format.sh             rewrite the files
#        sh tools/format.sh --check     change nothing; exit 1 and name each place that differs
set -eu
cd "$(dirname "$0")/.."

tool=clang-format-14
command -v "$tool" >/dev/null 2>&1 || tool=clang-format
if ! "$tool" --version | grep -q 'version 14\.'; then
    echo "format.sh: clang-format 14 is needed, other versions format differently" >&2
    exit 1
fi
case ${1-} in
'') mode=-i ;;
--check) mode='--dry-run -Werror' ;;
*)
    echo "format.sh: unknown argument '$1'" >&2
    exit 2
    ;;
esac
git ls-files -z '*.c' '*.h' | xargs -0 "$tool" --style=file $mode
