# The set of layouts that tests/unit/test_parallel_hybrid.c runs holds every pair of values, and the check notices one that lacks.
. "$(dirname "$0")/common.bash"
need_plain_python

tool=$WEFT_SOURCE_DIR/tools/layout_pairs.py
expect 0 python3 "$tool" --check
says out " 0 pairs missing"
mkdir -p "$work/tools" "$work/tests/support"
cp "$tool" "$work/tools/"
sed '2,4d' "$WEFT_SOURCE_DIR/tests/support/layout_pairs.inc" >"$work/tests/support/layout_pairs.inc"
expect 1 python3 "$work/tools/layout_pairs.py" --check
says out "missing: "

finish
