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

for command in train eval generate probe info diff tokenize checkpoint; do
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

# One rank: what asks for more is refused, with exit code 3 (not in this version).
printf 'some text, long enough for one short sequence' >"$work/text"
for axis in "--tp 2" "--pp 2"; do
    expect 3 "$weft" eval --model "$golden/gpt2/model" --data "$work/text" $axis
    says err "${axis##*--}"
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
