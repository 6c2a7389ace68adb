# weft train as a user runs it: run configurations, stopping and going on, the live line of a terminal.
. "$(dirname "$0")/common.bash"
sed 's/"vocab_size": 256/"vocab_size": 257/' "$golden/llama/model/config.json" >"$work/config.json"
for i in $(seq 200); do
    echo "Line $i of a text that is long enough for a few sequences, and says $((i * 7919 % 1000))."
done >"$work/text"
common=(--model "$work/config.json" --data "$work/text" --seq-length 32 --micro-batch-size 2
    --global-batch-size 3 --lr-decay-steps 10 --dropout 0.1 --threads-per-rank 1)

# The batches and the weights of ten steps are those of five, then five more.
hashes() {
    grep -oE '"batch_hash": *"?[0-9a-fx]+' "$1/metrics.jsonl" | grep -oE '[0-9a-fx]+$'
}
expect 0 "$weft" train "${common[@]}" --out "$work/straight" --train-steps 10
expect 0 "$weft" train "${common[@]}" --out "$work/halves" --train-steps 5
expect 0 "$weft" train "${common[@]}" --out "$work/halves" --train-steps 10 --resume --threads-per-rank 2
[ "$(hashes "$work/straight" | sort -u | wc -l)" = 10 ] || fail "ten steps should have ten batches"
[ "$(hashes "$work/straight")" = "$(hashes "$work/halves")" ] || fail "the batches differ after a resume"
expect 0 "$weft" diff --exact "$work/straight/latest" "$work/halves/latest"
expect 1 "$weft" diff --exact "$work/straight/latest" "$work/halves/checkpoint-5"

# A run configuration says the same as options.
cat >"$work/run.json" <<JSON
{"model": "$work/config.json", "data": "$work/text", "seq_length": 32, "micro_batch_size": 2,
 "global_batch_size": 3, "lr_decay_steps": 10, "dropout": 0.1, "train_steps": 77}
JSON
expect 0 "$weft" train "$work/run.json" --out "$work/configured" --train-steps 10
expect 0 "$weft" diff --exact "$work/straight/latest" "$work/configured/latest"

# SIGINT and SIGTERM: a checkpoint, exit code 0, and the same end after a resume.
for signal in INT TERM; do
    rm -rf "$work/stopped"
    "$weft" train "${common[@]}" --out "$work/stopped" --train-steps 1000000 --lr-schedule constant \
        >"$work/out" 2>"$work/err" &
    pid=$!
    for i in $(seq 300); do
        [ -e "$work/stopped/metrics.jsonl" ] && [ "$(wc -l <"$work/stopped/metrics.jsonl")" -ge 3 ] && break
        sleep 0.1
    done
    kill -"$signal" $pid
    code=0
    wait $pid || code=$?
    [ "$code" = 0 ] || fail "a run stopped by SIG$signal ended with $code"
    [ -e "$work/stopped/latest/model.safetensors" ] || fail "a run stopped by SIG$signal left no checkpoint"
done
step=$(readlink "$work/stopped/latest" | grep -oE '[0-9]+$')
expect 0 "$weft" train "${common[@]}" --out "$work/stopped" --train-steps $((step + 2)) --lr-schedule constant --resume
expect 0 "$weft" train "${common[@]}" --out "$work/whole" --train-steps $((step + 2)) --lr-schedule constant
expect 0 "$weft" diff --exact "$work/stopped/latest" "$work/whole/latest"

# A checkpoint that cannot be written ends a run that has begun: exit code 5, and no half of it stays.
code=0
(
    ulimit -f 20
    "$weft" train "${common[@]}" --out "$work/full" --train-steps 3
) >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 5 ] || fail "a save over the limit of file sizes ended with $code, should be 5"
grep -q "safetensors" "$work/err" || fail "the message should name the file"
[ -z "$(find "$work/full" -mindepth 1 -type d)" ] || fail "a checkpoint that failed left a folder"

# Live on a terminal, plain elsewhere.
if script -qec true /dev/null >/dev/null 2>&1; then
    script -qec "'$weft' train ${common[*]} --out '$work/live' --train-steps 60" /dev/null >"$work/out" </dev/null ||
        fail "a run on a terminal"
    tr '\r' '\n' <"$work/out" | grep -q "step 59/60" || fail "the terminal did not show each step"
    n_lasting=$(sed 's/^.*\r\x1b\[K//' "$work/out" | tr -d '\r' | grep -c '^step ')
    [ "$n_lasting" -le 25 ] || fail "$n_lasting lines stay on the terminal"
fi
expect 0 "$weft" train "${common[@]}" --out "$work/plain" --train-steps 10 --log-interval 5
[ "$(grep -c '^step ' "$work/err")" = 3 ] || fail "log-interval 5 of 10 steps should print steps 1, 5, 10"
silent out

# A folder with a tokenizer that weft does not read: text is taken as bytes, and that is said; ids need none.
cp -rL "$work/plain/latest" "$work/foreign"
echo '{}' >"$work/foreign/tokenizer.json"
expect 0 "$weft" generate --model "$work/foreign" --prompt a --max-new-tokens 2
says err "foreign/tokenizer.json is not read"
expect 0 "$weft" eval --model "$work/foreign" --data "$work/text"
says err "foreign/tokenizer.json is not read"
expect 0 "$weft" generate --model "$work/foreign" --ids 1,2 --max-new-tokens 2 --output ids
silent err
expect 0 "$weft" generate --model "$work/plain/latest" --prompt a --max-new-tokens 2
silent err
finish
