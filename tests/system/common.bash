# What the scripts of tests/system share. WEFT_PROGRAM, WEFT_SOURCE_DIR and WEFT_BUILD_DIR come from ctest.
set -u
weft=${WEFT_PROGRAM:?the program to test}
golden=${WEFT_SOURCE_DIR:?the source folder}/tests/golden
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-system-XXXXXX")
trap 'rm -rf "$work"' EXIT
n_failed=0

fail() {
    echo "FAILED: $*" >&2
    n_failed=$((n_failed + 1))
}

# expect CODE COMMAND...: runs it, keeps $work/out and $work/err, checks the exit code.
expect() {
    local wanted=$1 code=0
    shift
    "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    if [ "$code" != "$wanted" ]; then
        fail "exit code $code, should be $wanted: $*"
        sed 's/^/    /' "$work/out" "$work/err" >&2
    fi
}

# says FILE TEXT: out or err of the last command holds the text.
says() {
    grep -qF -- "$2" "$work/$1" || {
        fail "$1 lacks \"$2\":"
        sed 's/^/    /' "$work/$1" >&2
    }
}

# silent FILE: nothing was written there.
silent() {
    [ ! -s "$work/$1" ] || {
        fail "$1 should be empty:"
        sed 's/^/    /' "$work/$1" >&2
    }
}

# Python, of which the standard library is enough; the test is skipped where there is none.
need_plain_python() {
    command -v python3 >/dev/null || {
        echo "skipped: no python3 here, which reads what this test has written"
        exit 77
    }
}

# The interpreter of the scripts of tests/interop, in $python; the test is skipped where there is none.
need_python() {
    python=${WEFT_PYTHON:-python3}
    command -v "$python" >/dev/null || {
        echo "skipped: no $python here; WEFT_PYTHON names an interpreter that has torch and transformers"
        exit 77
    }
}

finish() {
    [ "$n_failed" = 0 ] || exit 1
}
