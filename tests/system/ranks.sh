# Ranks of one process that fail, come late or go silent at every call of a run: it ends as promised and never hangs.
# Every 5th call; all of them with WEFT_TEST_ALL=1.
. "$(dirname "$0")/common.bash"
sed 's/"vocab_size": 256/"vocab_size": 257/' "$golden/llama/model/config.json" >"$work/config.json"
for i in $(seq 100); do
    echo "Line $i of a text that is long enough for a few sequences, and says $((i * 7919 % 1000))."
done >"$work/text"
stride=5
[ "${WEFT_TEST_ALL:-}" = 1 ] && stride=1
common=(--model "$work/config.json" --data "$work/text" --seq-length 16 --micro-batch-size 1 --global-batch-size 3
    --train-steps 2 --threads-per-rank 1 --bucket-size-mb 0.02 --dp 2 --out "$work/out-of-a-run")
train() { rm -rf "$work/out-of-a-run"; "$weft" train "${common[@]}" "$@"; }

# timed COMMAND...: runs it; its exit code is in $code, the milliseconds it took in $took.
timed() {
    local begin
    begin=$(date +%s%N)
    code=0
    "$@" >"$work/out" 2>"$work/err" </dev/null || code=$?
    took=$((($(date +%s%N) - begin) / 1000000))
}

for stage in 0 1 2 3; do
    layout=(--zero-stage "$stage")
    expect 0 train "${layout[@]}"
    cp -r "$work/out-of-a-run/latest/" "$work/right-$stage"
    rank=0
    n_failed_at=0
    n_input=0
    for ((call = 0; call < 2000; call += stride)); do
        rank=$((1 - rank))
        export WEFT_FAULT="$rank:fail:$call"
        timed train "${layout[@]}"
        [ "$code" = 0 ] && break
        n_failed_at=$((n_failed_at + 1))
        # Before the first step a status keeps its code, 3 for what is injected; then the run failed: 5.
        [ "$code" = 3 ] && n_input=$((n_input + 1))
        [ "$code" = 3 ] || [ "$code" = 5 ] || fail "stage $stage, $WEFT_FAULT: exit code $code"
        [ "$code" = 3 ] && [ "$n_input" -lt "$n_failed_at" ] && fail "stage $stage, $WEFT_FAULT: 3 after a 5"
        says err "weft: error: rank $rank failed by injection at call $call"
        [ "$took" -lt 10000 ] || fail "stage $stage, $WEFT_FAULT: $took ms until all ended"
    done
    [ "$code" = 0 ] || fail "stage $stage: 2000 calls did not do for two steps"
    [ $((n_failed_at * stride)) -ge 20 ] || fail "stage $stage: only $n_failed_at calls were tried"
    [ "$n_input" -gt 0 ] && [ "$n_input" -lt "$n_failed_at" ] || fail "stage $stage: $n_input of $n_failed_at exits were 3"
    n_calls=$(((n_failed_at - 1) * stride + 1))

    # A late rank changes nothing. A lost call is a rank that stands still: it is named, after the timeout.
    for ((call = stage; call < n_calls; call += 6 * stride)); do
        rank=$((1 - rank))
        export WEFT_FAULT="$rank:delay:$call:0.3"
        expect 0 train "${layout[@]}" --comm-timeout 5
        expect 0 "$weft" diff --exact "$work/right-$stage" "$work/out-of-a-run/latest"
        export WEFT_FAULT="$rank:lose:$call:1.5"
        timed train "${layout[@]}" --comm-timeout 0.4
        [ "$code" = 5 ] || fail "stage $stage, $WEFT_FAULT: exit code $code, should be 5"
        grep -q "rank $rank missing from" "$work/err" || {
            fail "stage $stage, $WEFT_FAULT: the silent rank is not named"
            sed 's/^/    /' "$work/err" >&2
        }
        [ "$took" -lt 12000 ] || fail "stage $stage, $WEFT_FAULT: $took ms until all ended"
    done
    unset WEFT_FAULT
done
finish
