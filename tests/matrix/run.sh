#!/bin/bash
# The whole product of layouts: every group of the program `matrix` in a process of its own, two at a time.
# Prints how far each group is, a line a group, and a last line with the sum.
#
# usage: run.sh MATRIX [GROUP...]     MATRIX: the program (cmake builds it for the target check-all)
set -u
matrix=${1:?the program matrix}
shift
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-matrix-XXXXXX")
trap 'rm -rf "$work"' EXIT
jobs=${WEFT_MATRIX_JOBS:-2}
begin=$SECONDS
# Collectives are compared over the ranks before each starts: the order of calls is under test as well.
export WEFT_COMM_CHECK=${WEFT_COMM_CHECK:-global}

if [ $# -gt 0 ]; then
    groups=("$@")
else
    mapfile -t groups < <("$matrix" --list)
fi

run_group() {
    local log=$work/${1//\//-}.log
    "$matrix" "$1" 2>"$log.err" | tee "$log" | grep --line-buffered -E '(combinations|FAILED:)'
    local code=${PIPESTATUS[0]}
    if [ "$code" != 0 ] && ! grep -q ': done: ' "$log"; then
        echo "$1: ended with $code before it was done"
        tail -n 5 "$log.err"
    fi
    echo "$code" >"$log.code"
}

for group in "${groups[@]}"; do
    while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do
        wait -n
    done
    run_group "$group" &
done
wait

total=0
failed=0
broken=0
for group in "${groups[@]}"; do
    log=$work/${group//\//-}.log
    line=$(grep ': done: ' "$log" || true)
    [ "$(cat "$log.code" 2>/dev/null)" = 0 ] || broken=$((broken + 1))
    [ -n "$line" ] || continue
    total=$((total + $(sed 's/.*: done: \([0-9]*\) comb.*/\1/' <<<"$line")))
    failed=$((failed + $(sed 's/.*combinations, \([0-9]*\) failed.*/\1/' <<<"$line")))
done
echo "check-all: ${#groups[@]} groups, $broken failed; $total combinations, $failed failed; $((SECONDS - begin)) s"
[ "$broken" = 0 ] && [ "$total" -gt 0 ]
