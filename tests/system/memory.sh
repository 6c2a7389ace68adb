# What a run of over 256 MB takes: planned and taken are equal, and resident memory is within 5 % of them.
. "$(dirname "$0")/common.bash"
if ldd "$weft" | grep -qE 'lib(asan|tsan)'; then
    echo "a sanitizer keeps memory of its own: not measured"
    exit 77
fi
head -c 60000 /dev/zero | tr '\0' 'a' >"$work/text"
for dtype in fp32 bf16; do
    expect 0 "$weft" train --model "$WEFT_SOURCE_DIR/examples/configs/llama-1m-bytes.json" --data "$work/text" \
        --out "$work/$dtype" --dtype "$dtype" --train-steps 2 --micro-batch-size 48 --seq-length 256
    awk -v dtype="$dtype" '
        $1 == "sum" { sum = $2; if ($2 != $3) exit bad("planned " $2 ", taken " $3) }
        /measured peak/ {
            is_found = 1
            if (!match($0, /\([0-9.]+ % of the plan/)) exit bad("no share of the plan")
            share = substr($0, RSTART + 1) + 0
            if (share < 95 || share > 105) exit bad("resident memory is " share " % of the plan")
        }
        function bad(text) { print dtype ": " text; return 1 }
        END {
            gsub(/,/, "", sum)
            if (!is_found || sum < 256e6) exit bad("a plan of " sum " bytes, should be over 256 MB")
        }' "$work/err" >"$work/verdict" || fail "$(cat "$work/verdict")"
done
finish
