# What goes wrong with several ranks of the program: signals, a rank that never comes back, batches that do not divide, two
# runs at once, too little memory, bad input. It ends in time, with one rank's words and exit code.
. "$(dirname "$0")/common.bash"
sed 's/"vocab_size": 256/"vocab_size": 257/' "$golden/llama/model/config.json" >"$work/config.json"
for i in $(seq 100); do
    echo "Line $i of a text that is long enough for a few sequences, and says $((i * 7919 % 1000))."
done >"$work/text"
small=(--model "$work/config.json" --seq-length 16 --micro-batch-size 1 --threads-per-rank 1)
common=("${small[@]}" --data "$work/text" --global-batch-size 4)

# elapsed BEGIN: milliseconds since `date +%s%N` said BEGIN.
elapsed() {
    echo $((($(date +%s%N) - $1) / 1000000))
}

# start NAME OPTION...: a run without an end in the background, after its third step; $pid.
start() {
    local name=$1
    shift
    "$weft" train "${common[@]}" --train-steps 1000000 --lr-schedule constant --out "$work/$name" "$@" \
        >"$work/$name.out" 2>"$work/$name.err" </dev/null &
    pid=$!
    for _ in $(seq 600); do
        [ -e "$work/$name/metrics.jsonl" ] && [ "$(wc -l <"$work/$name/metrics.jsonl")" -ge 3 ] && return
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    fail "$name did not come to its third step:"
    cat "$work/$name.err" >&2
}

# ended NAME CODE MILLISECONDS: the run of `start` ends by itself with that code in time.
ended() {
    local begin code=0
    begin=$(date +%s%N)
    wait "$pid" || code=$?
    [ "$code" = "$2" ] || {
        fail "$1: exit code $code, should be $2:"
        sed 's/^/    /' "$work/$1.err" >&2
    }
    begin=$(elapsed "$begin")
    [ "$begin" -lt "$3" ] || fail "$1: took $begin ms to end"
    ! pgrep -f -- "--out $work/$1 " >/dev/null || fail "$1: something of it still runs"
}

last_step() {
    tail -n 1 "$1/metrics.jsonl" | grep -oE '"step": *[0-9]+' | grep -oE '[0-9]+$'
}

# ---- signals: saved once, at the step that was reported last, and nothing is left running ----

for signal in TERM INT; do
    for stage in 0 3; do
        name=stopped-$signal-$stage
        options=(--dp 4 --zero-stage "$stage")
        # Here most of the time goes into evaluations, so the signal meets one.
        [ "$stage" = 3 ] && options+=(--eval-interval 1 --eval-fraction 0.5)
        start "$name" "${options[@]}"
        kill -"$signal" "$pid"
        ended "$name" 0 10000
        step=$(last_step "$work/$name")
        [ "$(readlink "$work/$name/latest")" = "checkpoint-$step" ] || fail "$name: the last step is $step, $(readlink "$work/$name/latest") was saved"
        [ "$(grep -c '^saved ' "$work/$name.err")" = 1 ] || fail "$name: saved $(grep -c '^saved ' "$work/$name.err") times"
        [ "$(find "$work/$name" -mindepth 1 -type d | wc -l)" = 1 ] || fail "$name: more than one folder is left"
        expect 0 "$weft" checkpoint verify "$work/$name"
        expect 0 "$weft" train "${common[@]}" --train-steps $((step + 2)) --lr-schedule constant --out "$work/$name" --resume "${options[@]}" --dp 3 --zero-stage 1
    done
done

# A second SIGINT ends a run at once, in the middle of a step that takes minutes; what was saved is whole.
expect 0 "$weft" train "${common[@]}" --train-steps 2 --lr-schedule constant --out "$work/twice" --dp 4 --zero-stage 2
cat >"$work/slow.json" <<'JSON'
{"block": {"forward_ms": 60000, "input_gradient_ms": 1, "weight_gradient_ms": 1}}
JSON
"$weft" train "${common[@]}" --train-steps 1000000 --lr-schedule constant --out "$work/twice" --resume --dp 4 --zero-stage 2 \
    --pace "$work/slow.json" >"$work/twice.out" 2>"$work/twice.err" </dev/null &
pid=$!
for _ in $(seq 200); do
    grep -q '^resume: ' "$work/twice.err" && break
    sleep 0.05
done
sleep 0.5
kill -INT "$pid"
sleep 0.2
kill -0 "$pid" 2>/dev/null || fail "the first SIGINT ended a run in the middle of a step"
kill -INT "$pid"
ended twice 130 2000
[ "$(readlink "$work/twice/latest")" = checkpoint-2 ] || fail "a run that was interrupted twice saved"
expect 0 "$weft" checkpoint verify "$work/twice"

# ---- a rank that never comes back: the timeout, then 8 s for it to end, then the program goes without it ----

code=0
begin=$(date +%s%N)
WEFT_FAULT=1:delay:30:120 "$weft" train "${common[@]}" --train-steps 9 --out "$work/stuck" --dp 4 --comm-timeout 1 \
    >"$work/out" 2>"$work/err" </dev/null || code=$?
took=$(elapsed "$begin")
[ "$code" = 5 ] || fail "a rank that stands still: exit code $code, should be 5"
grep -qE '^weft: error: rank 1 missing from [a-z_]+ [0-9]+ of .+ over (dp|world): rank [023] waited' "$work/err" ||
    fail "a rank that stands still is not named: $(cat "$work/err")"
[ "$took" -lt 13000 ] || fail "a rank that stands still: $took ms until the end"

# ---- work that does not divide ----

head -c 80 "$work/text" >"$work/five" # 5 sequences of 16, and the token after
head -c 17 "$work/text" >"$work/one"
for stage in 0 1 2 3; do
    expect 0 "$weft" train "${small[@]}" --data "$work/five" --out "$work/five-$stage" --train-steps 3 --micro-batch-size 2 \
        --global-batch-size 4 --dp 2 --zero-stage "$stage" --comm-timeout 20
    [ "$(wc -l <"$work/five-$stage/metrics.jsonl")" = 3 ] || fail "5 sequences, stage $stage: not 3 steps"
    expect 0 "$weft" train "${small[@]}" --data "$work/one" --out "$work/one-$stage" --train-steps 2 --global-batch-size 1 \
        --dp 4 --zero-stage "$stage" --comm-timeout 20
    expect 0 "$weft" train "${common[@]}" --out "$work/frozen-$stage" --train-steps 2 --dp 3 --zero-stage "$stage" \
        --freeze '*mlp*' --freeze 'model.embed*' --comm-timeout 20
done
expect 0 "$weft" diff --exact "$work/one-0/latest" "$work/one-3/latest"
expect 0 "$weft" diff --exact "$work/frozen-0/latest" "$work/frozen-1/latest"
expect 0 "$weft" diff --exact "$work/frozen-2/latest" "$work/frozen-3/latest"

# ---- a generation that a signal ends: what there is stays, and it is said ----

printf '{"block": {"forward_ms": 20, "input_gradient_ms": 1, "weight_gradient_ms": 1}}' >"$work/slow-forward.json"
for ranks in 1 2; do
    "$weft" generate --model "$work/five-0/latest" --prompt a --prompt bc --max-new-tokens 120 --pp "$ranks" \
        --pace "$work/slow-forward.json" >"$work/cut.out" 2>"$work/cut.err" </dev/null &
    pid=$!
    for _ in $(seq 100); do
        [ -s "$work/cut.out" ] && break
        sleep 0.05
    done
    kill -TERM "$pid"
    ended cut 5 5000
    grep -qx "weft: error: stopped by a signal; 0 of 2 prompts were finished" "$work/cut.err" ||
        fail "a generation stopped by a signal says: $(cat "$work/cut.err")"
done

# ---- a failure in each other command: named, and 5 once batches have begun ----

"$weft" train "${common[@]}" --out "$work/model" --train-steps 1 >/dev/null 2>&1
header='{"input_ids": {"dtype": "I32", "shape": [3, 2], "data_offsets": [0, 24]}}'
{
    printf "\\x$(printf %x ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"
    head -c 24 /dev/zero
} >"$work/batch.safetensors"
for command in "eval --data $work/five --seq-length 16" "probe --batch $work/batch.safetensors --grads --out $work/probe" \
    "generate --prompt a --prompt bc --prompt def --max-new-tokens 3"; do
    read -ra words <<<"$command"
    codes=
    for ((call = 0; call < 400; call += 3)); do
        code=0
        WEFT_FAULT=1:fail:$call "$weft" "${words[@]}" --model "$work/model/latest" --dp 2 --zero-stage 3 --micro-batch-size 1 \
            --threads-per-rank 1 >"$work/out" 2>"$work/err" </dev/null || code=$?
        [ "$code" = 0 ] && break
        codes=$codes$code
        grep -qE "^weft: error: rank 1.* failed by injection at call $call " "$work/err" && continue
        fail "${words[0]}: rank 1 failed at call $call, and it was said:"
        sed 's/^/    /' "$work/err" >&2
        break
    done
    [ "$code" = 0 ] || fail "${words[0]}: 400 calls did not do"
    [[ $codes =~ ^3+5+$ ]] || fail "${words[0]}: the exit codes of failures are $codes, should be some 3, then some 5"
done

# ---- two runs at once ----

"$weft" train "${common[@]}" --train-steps 5 --dp 2 --zero-stage 3 --out "$work/left" >/dev/null 2>&1 </dev/null &
left=$!
"$weft" train "${common[@]}" --train-steps 5 --dp 2 --zero-stage 3 --out "$work/right" >/dev/null 2>&1 </dev/null &
right=$!
wait "$left" || fail "the first of two runs at once"
wait "$right" || fail "the second of two runs at once"
expect 0 "$weft" diff --exact "$work/left/latest" "$work/right/latest"

start held --dp 2 --save-interval 1
for dp in 1 3; do
    expect 3 "$weft" train "${common[@]}" --train-steps 5 --dp "$dp" --out "$work/held"
    says err "weft: error: $work/held: another run is writing there"
    expect 3 "$weft" train "${common[@]}" --train-steps 5 --dp "$dp" --out "$work/held" --resume
    says err "weft: error: $work/held: another run is writing there"
done
kill -TERM "$pid"
ended held 0 10000
expect 0 "$weft" checkpoint verify "$work/held"

# ---- memory: what does not fit is refused before the first step; later steps take what the first took ----

expect 0 "$weft" train "${common[@]}" --train-steps 3 --dp 3 --zero-stage 2 --out "$work/fits"
[ "$(grep -oE '"memory_bytes": *[0-9]+' "$work/fits/metrics.jsonl" | sort -u | wc -l)" = 1 ] || fail "the peak differs from step to step"
most=$(grep -oE '^most memory: rank [0-9], [0-9,]+' "$work/err" | grep -oE '[0-9,]+$' | tr -d ,)
megabytes() { awk "BEGIN { printf \"%.6f\", $most * $1 / 1e6 }"; }
expect 5 "$weft" train "${common[@]}" --train-steps 3 --dp 3 --zero-stage 2 --out "$work/tight" --memory-limit-mb "$(megabytes 0.95)"
says err "on all ranks here, and --memory-limit-mb allows"
[ ! -e "$work/tight" ] || fail "a run that does not fit began"
expect 0 "$weft" train "${common[@]}" --train-steps 3 --dp 3 --zero-stage 2 --out "$work/tight" --memory-limit-mb "$(megabytes 1.001)"

# ---- bad input: one rank's words and code on several ranks ----

# alike CODE OPTION...: the error of one rank, on three as well, whichever finds it first. A line differs in nothing.
alike() {
    local wanted=$1 one
    shift
    expect "$wanted" "$weft" train "$@" --dp 1
    grep '^weft: error: ' "$work/err" >"$work/one-rank"
    [ -s "$work/one-rank" ] || fail "no error: $*"
    for stage in 0 3 1; do
        expect "$wanted" "$weft" train "$@" --dp 3 --zero-stage "$stage"
        one=$(grep '^weft: error: ' "$work/err" | diff "$work/one-rank" -) || fail "one rank and three differ: $one"
    done
}
fresh=(--out "$work/none" --train-steps 2)
alike 3 "${common[@]}" "${fresh[@]}" --model "$work/no-such-model"
printf '{"model_type": "llama", "hidden_size": ' >"$work/cut.json"
alike 3 "${common[@]}" "${fresh[@]}" --model "$work/cut.json"
sed 's/"hidden_size": [0-9]*/"hidden_size": -4/' "$work/config.json" >"$work/negative.json"
alike 3 "${common[@]}" "${fresh[@]}" --model "$work/negative.json"
cp -r "$golden/llama/model" "$work/short-model"
truncate -s -1 "$work/short-model/model.safetensors"
alike 3 "${common[@]}" "${fresh[@]}" --model "$work/short-model"
alike 3 "${common[@]}" "${fresh[@]}" --model "$golden/llama/model" # fewer ids than bytes
alike 3 "${small[@]}" --global-batch-size 4 "${fresh[@]}" --data "$work/no-such-text"
printf abc >"$work/abc"
alike 3 "${small[@]}" --global-batch-size 4 "${fresh[@]}" --data "$work/abc"
: >"$work/empty"
alike 3 "${small[@]}" --global-batch-size 4 "${fresh[@]}" --data "$work/empty"
expect 0 "$weft" tokenize --out "$work/ids.bin" "$work/text"
sed 's/"vocab_size": 257/"vocab_size": 60/' "$work/config.json" >"$work/narrow.json"
alike 3 "${small[@]}" --global-batch-size 4 "${fresh[@]}" --data "$work/ids.bin" --model "$work/narrow.json"
alike 3 "${common[@]}" "${fresh[@]}" --tokenizer "$work/no-such-tokenizer"
alike 2 "${common[@]}" "${fresh[@]}" --freeze 'no-such-parameter'
alike 2 "${common[@]}" "${fresh[@]}" --freeze '*'
alike 3 "${common[@]}" "${fresh[@]}" --eval-interval 1 --eval-fraction 0.0001
alike 3 "${common[@]}" --train-steps 2 --out "$work/text/inside-a-file"
alike 3 "${common[@]}" --train-steps 2 --out /proc/none
alike 3 "${common[@]}" "${fresh[@]}" --resume
alike 3 "${common[@]}" "${fresh[@]}" --resume "$work/no-such-checkpoint"
cp -rL "$work/fits/latest" "$work/odd-tokenizer"
mkdir "$work/odd-tokenizer/tokenizer.json" # before the first step, not at the first save
alike 3 "${common[@]}" "${fresh[@]}" --model "$work/odd-tokenizer"
[ ! -e "$work/none" ] || fail "bad input made a folder"
alike 2 "${common[@]}" --train-steps 9 --out "$work/fits"
alike 3 "${common[@]}" --train-steps 2 --out "$work/fits" --resume
alike 3 "${common[@]}" --train-steps 9 --out "$work/fits" --resume --seq-length 8
alike 3 "${common[@]}" --train-steps 9 --out "$work/fits" --resume --model "$golden/llama/model"
alike 3 "${small[@]}" --global-batch-size 4 --train-steps 9 --out "$work/fits" --resume --data "$work/config.json"
cp -rL "$work/fits" "$work/unlinked" # latest became a folder: before the first step, not at the first save
alike 3 "${common[@]}" --train-steps 9 --out "$work/unlinked" --resume
sed -i 's/"step": *[0-9]*/"step": true/' "$work/fits/latest/trainer_state.json"
alike 3 "${common[@]}" --train-steps 9 --out "$work/fits" --resume
truncate -s -1 "$work/fits/latest/optimizer.safetensors"
alike 3 "${common[@]}" --train-steps 9 --out "$work/fits" --resume

# ---- data that is shortened while it is read: the file is named ----

yes "A text that will not stay as long as it is." | head -n 2000 >"$work/shortened.txt"
start shortened --data "$work/shortened.txt" --dp 2 --pp 2
: >"$work/shortened.txt"
ended shortened 5 10000
grep -qF "/shortened.txt: could not be read any more" "$work/shortened.err" || fail "a shortened file should be named"

# ---- what the process was started with: closed streams, few open files ----

# A file that got the number of a closed stream would take the program's messages.
for closed in '2>&-' '>&- 2>&-' '<&- >&- 2>&-'; do
    rm -rf "$work/closed"
    code=0
    eval '"$weft" train "${common[@]}" --train-steps 4 --save-interval 1 --dp 2 --tp 2 --out "$work/closed"' "$closed" ||
        code=$?
    [ "$code" = 0 ] || fail "with $closed: exit code $code"
    ! grep -vq '^{"step": .*}$' "$work/closed/metrics.jsonl" || fail "with $closed: messages in metrics.jsonl"
    [ ! -s "$work/closed/.lock" ] || fail "with $closed: messages in the lock"
    expect 0 "$weft" checkpoint verify "$work/closed"
done

# A rank that saves has a file open: the program raises its own limit, and says before the first step where it cannot.
few_files() {
    ulimit -S -n 30
    [ "$1" = soft ] || ulimit -H -n 30
    shift
    "$weft" train "${common[@]}" --train-steps 1 "$@"
}
code=0
(few_files soft --out "$work/files" --dp 40) >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 0 ] || fail "40 ranks and a low limit that may be raised: exit code $code"
code=0
(few_files hard --out "$work/too-few" --dp 40) >"$work/out" 2>"$work/err" || code=$?
[ "$code" = 5 ] || fail "40 ranks and 30 files: exit code $code"
says err "ulimit -n"
[ ! -e "$work/too-few" ] || fail "too few open files made a folder"
finish
