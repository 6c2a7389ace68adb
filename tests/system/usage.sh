# The program as a user meets it: commands, help, wrong command lines, run configurations, broken outputs.
. "$(dirname "$0")/common.bash"

expect 2 "$weft"
says err "Commands:"
silent out
expect 0 "$weft" help
says out "tokenize"
expect 0 "$weft" --help
expect 0 "$weft" --version
says out "weft "
expect 2 "$weft" frobnicate
says err 'there is no command "frobnicate"'
expect 2 "$weft" trian
says err 'the nearest is "train"'
silent out

for command in train eval generate probe info diff tokenize checkpoint simulate layout; do
    expect 0 "$weft" "$command" --help
    says out "Usage: weft $command"
    cp "$work/out" "$work/help"
    expect 0 "$weft" help "$command"
    cmp "$work/help" "$work/out" || fail "two helps of $command differ"
    awk 'length > 100 { exit 1 }' "$work/help" || fail "help of $command is wider than 100 columns"
    expect 2 "$weft" "$command"
    says err "weft: error: weft $command needs"
    expect 2 "$weft" "$command" --frobnicate
    says err "there is no option --frobnicate"
done
expect 2 "$weft" help nothing

needs=(--model m --data d --out o)
expect 2 "$weft" train "${needs[@]}" --seq-lenght 3
says err "weft: error: there is no option --seq-lenght; the nearest is --seq-length"
expect 2 "$weft" train "${needs[@]}" --lr fast
says err "weft: error: --lr fast is not possible: a number >= 0 is needed"
expect 2 "$weft" train "${needs[@]}" --pp-schedule 2f2b
says err "one of naive, gpipe, 1f1b"
expect 2 "$weft" train "${needs[@]}" --lr
says err "--lr needs a value"
echo '{"learning_rate": 1}' >"$work/run.json"
expect 2 "$weft" train "$work/run.json"
says err 'there is no key "learning_rate"; the nearest is "lr"'
echo '{"lr": }' >"$work/run.json"
expect 3 "$weft" train "$work/run.json"
says err "run.json:1:"
expect 3 "$weft" train "$work/none.json"
expect 3 "$weft" eval --model "$work/none" --data "$work/none.txt"
expect 3 "$weft" generate --model "$golden/llama/model" --prompt x --tokenizer gpt2
silent out

# Layouts: what is not in this version ends with 3, what cannot be with 4, what is no layout with 2; the rest runs.
for i in $(seq 20); do echo "Line $i of some text"; done >"$work/text"
sed 's/"vocab_size": 256/"vocab_size": 257/' "$golden/llama/model/config.json" >"$work/config.json"
expect 0 "$weft" train --model "$work/config.json" --data "$work/text" --out "$work/trained" --train-steps 1 --seq-length 16 --dp 2
says err "times are of the steps after the first; this run made one"
# The figures of a table stand below the names of the ranks, those of the longest name of a call too.
expect 0 "$weft" train --model "$work/config.json" --data "$work/text" --out "$work/columns" --train-steps 2 --seq-length 16 --dp 2 \
    --zero-stage 3
says err "reduce_scatter over dp, "
awk '/^(memory taken|sent in a step), bytes/ { n = length($0); next } /^[a-z]/ && $NF !~ /^[0-9,]+$/ { n = 0 }
    n && length($0) != n { print; exit 1 }' "$work/err" >"$work/crooked" || fail "out of its column: $(cat "$work/crooked")"
eval=("$weft" eval --model "$work/trained/latest" --data "$work/text" --seq-length 16)
expect 0 "${eval[@]}" --pp 2
expect 4 "${eval[@]}" --stage-layers 1,1
says err "names 2 parts, but there are 1"
expect 4 "${eval[@]}" --pp 99
says err "without an empty one"
expect 4 "${eval[@]}" --pp 2 --pp-chunks 2
says err "interleaved"
expect 0 "${eval[@]}" --tp 2
expect 4 "${eval[@]}" --tp 9
says err "--tp 9"
says err "heads"
expect 4 "${eval[@]}" --ranks 4 --dp 3
says err "dp 3 x tp 1 x pp 1 = 3 ranks"
expect 4 "${eval[@]}" --ranks 4 --tp 3
says err "no multiple of tp 3 x pp 1 = 3"
expect 4 "${eval[@]}" --dp 2 --strategy data-parallel --zero-stage 1
expect 2 "${eval[@]}" --dp 0
expect 2 "${eval[@]}" --comm-timeout 0
says err "--comm-timeout 0 is not possible"
expect 3 "${eval[@]}" --pace "$work/none.json"
echo '{"block": {"forward_ms": 1}}' >"$work/pace.json"
expect 3 "${eval[@]}" --pace "$work/pace.json"
says err "pace.json: block lacks input_gradient_ms"
expect 0 "${eval[@]}" --dp 2 --threads-per-rank 1
cp "$work/out" "$work/two"
expect 0 "${eval[@]}"
cmp "$work/two" "$work/out" || fail "two ranks evaluate other than one"

# A rank that fails before the first batch keeps its code, after it the run failed.
for command in eval generate probe; do
    case $command in
    eval) run=("${eval[@]}") ;;
    generate) run=("$weft" generate --model "$work/trained/latest" --ids 1,2,3 --max-new-tokens 3 --output ids) ;;
    probe) run=("$weft" probe --model "$work/trained/latest" --batch "$golden/llama/golden.safetensors" --out "$work/probe") ;;
    esac
    run+=(--ranks 2 --threads-per-rank 1)
    codes=
    for ((call = 0; call < 100; call++)); do
        code=0
        WEFT_FAULT=1:fail:$call "${run[@]}" >"$work/out" 2>"$work/err" </dev/null || code=$?
        [ "$code" = 0 ] && break
        codes+=$code
        says err "rank 1 failed by injection at call $call"
    done
    [[ $codes =~ ^3+5+$ ]] || fail "$command: exit codes of a rank that fails at call 0, 1, ...: $codes"
done

# A full disk is an error, a reader that went away is not.
if [ -w /dev/full ]; then
    code=0
    "$weft" help >/dev/full 2>"$work/err" || code=$?
    [ "$code" = 3 ] || fail "help to a full disk: exit code $code, should be 3"
    says err "standard output could not be written"
fi
{
    "$weft" help train 2>"$work/err"
    echo $? >"$work/code"
} | head -c 1 >/dev/null
[ "$(cat "$work/code")" = 0 ] || fail "help to a closed pipe: exit code $(cat "$work/code")"
silent err
finish
