# weft checkpoint: what it lists, and which damage it names. Folders written by several ranks.
. "$(dirname "$0")/common.bash"
need_plain_python

head -c 20000 "$WEFT_SOURCE_DIR/README.md" >"$work/text"
run=$work/run
"$weft" train --model "$golden/llama_odd/model" --data "$work/text" --out "$run" --seq-length 16 --dp 3 --zero-stage 3 \
    --micro-batch-size 2 --train-steps 4 --save-interval 2 --threads-per-rank 1 >/dev/null 2>"$work/err" || {
    fail "training failed"
    cat "$work/err" >&2
}

expect 0 "$weft" checkpoint list "$run"
says out "checkpoint-2 "
says out "checkpoint-4 "
says out "dp 3, zero stage 3"
[ "$(grep -c 'complete, latest' "$work/out")" = 1 ] || fail "one of two checkpoints is the latest"
expect 0 "$weft" checkpoint list "$run/latest"
says out "complete"
expect 0 "$weft" checkpoint verify "$run"
[ "$(grep -c ': whole; 5 files' "$work/out")" = 2 ] || fail "both are whole"
expect 0 "$weft" checkpoint verify "$run/latest"
silent err
expect 0 "$weft" checkpoint verify "$golden/gpt2/model"
says out "no checksums.json"

# damaged NAME: a copy of the newest to do harm to, in $harm.
damaged() {
    harm=$work/$1
    cp -r "$run/checkpoint-4" "$harm"
}

# flip FILE OFFSET: one bit of one byte.
flip() {
    local byte
    byte=$(od -An -tu1 -j "$2" -N 1 "$1" | tr -d ' ')
    printf "$(printf '\\%03o' $((byte ^ 1)))" | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null
}

# Where data begins, the middle of which is in a tensor that the checksums name.
size=$(wc -c <"$run/checkpoint-4/optimizer.safetensors")
damaged flipped
flip "$harm/optimizer.safetensors" $((size / 2))
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: optimizer.safetensors: tensor exp_avg"
[ "$(grep -c damaged: "$work/out")" = 1 ] || fail "one tensor is damaged, not more"
expect 0 "$weft" checkpoint list "$harm"
says out "complete" # lengths are right; list reads no contents

damaged last
flip "$harm/model.safetensors" $(($(wc -c <"$harm/model.safetensors") - 1))
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: model.safetensors: tensor model.norm.weight"

# The name in the header changes, the numbers do not.
damaged header
flip "$harm/model.safetensors" 30
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: model.safetensors"

damaged short
truncate -s -5 "$harm/optimizer.safetensors"
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: optimizer.safetensors: has $((size - 5)) bytes, $size were written"
expect 0 "$weft" checkpoint list "$harm"
says out "incomplete"
says out "optimizer.safetensors has $((size - 5)) bytes, $size were written"

damaged without
rm "$harm/optimizer.safetensors"
expect 1 "$weft" checkpoint verify "$harm"
says out "missing: optimizer.safetensors"
expect 1 "$weft" checkpoint verify --json "$harm"
says out '"fault": "missing", "file": "optimizer.safetensors"'

damaged config
flip "$harm/config.json" 40
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: config.json"

# The checksums themselves: nothing else is blamed for it.
damaged sums
flip "$harm/checksums.json" 70
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: checksums.json"
[ "$(grep -c damaged: "$work/out")" = 1 ] || fail "only checksums.json is damaged"

# Without them: the form of the files.
damaged plain
rm "$harm/checksums.json"
expect 0 "$weft" checkpoint verify "$harm"
says out "no checksums.json"
expect 0 "$weft" checkpoint list "$harm"
says out "complete, no checksums"
truncate -s -5 "$harm/optimizer.safetensors"
expect 1 "$weft" checkpoint verify "$harm"
says out "damaged: optimizer"
rm "$harm/optimizer.safetensors"
expect 1 "$weft" checkpoint verify "$harm"
says out "optimizer"
rm "$harm/model.safetensors"
expect 1 "$weft" checkpoint verify "$harm"
says out "missing: model.safetensors"

# A save that was cut short is listed, not verified, and not in the way.
mkdir "$run/tmp-checkpoint-6"
expect 0 "$weft" checkpoint list "$run"
says out "tmp-checkpoint-6"
says out "its save was cut short"
expect 0 "$weft" checkpoint verify "$run"
expect 0 "$weft" checkpoint list --json "$run"
python3 -c 'import json, sys
entries = json.load(open(sys.argv[1]))
assert [e["step"] for e in entries] == [2, 4, 6], entries
assert [e["latest"] for e in entries] == [False, True, False], entries
assert [e["complete"] for e in entries] == [True, True, False], entries' "$work/out" || fail "the JSON of list"
# Any tool with a CRC-32 can check our files.
python3 -c 'import json, os, sys, zlib
files = json.load(open(os.path.join(sys.argv[1], "checksums.json")))["files"]
for name, entry in files.items():
    data = open(os.path.join(sys.argv[1], name), "rb").read()
    assert len(data) == entry["bytes"] and "%08x" % zlib.crc32(data) == entry["crc32"], name
    if "tensors" not in entry:
        continue
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    for tensor, crc in entry["tensors"].items():
        first, end = header[tensor]["data_offsets"]
        assert "%08x" % zlib.crc32(data[8 + n + first:8 + n + end]) == crc, tensor
assert set(files) == set(os.listdir(sys.argv[1])) - {"checksums.json"}, files.keys()' "$run/latest" ||
    fail "checksums are not those of zlib"

# What cannot be read.
expect 3 "$weft" checkpoint verify "$work/none"
expect 3 "$weft" checkpoint list "$work/none"
mkdir "$work/empty"
expect 3 "$weft" checkpoint list "$work/empty"
says err "holds no checkpoint"
if [ "$(id -u)" != 0 ]; then
    damaged locked
    chmod 000 "$harm/optimizer.safetensors"
    expect 3 "$weft" checkpoint verify "$harm"
    says out "unreadable: optimizer.safetensors"
fi
# Through three layouts, the optimizer's state included: the bits of a run that was never broken off. What is frozen stays as
# it was read.
through() {
    local common=(--model "$golden/llama_odd/model" --data "$work/text" --seq-length 16 --micro-batch-size 1
        --global-batch-size 12 --threads-per-rank 1 --save-interval 2 --lr 1e-2 --lr-schedule constant --reproducible "$@")
    rm -rf "$work/straight" "$work/layouts"
    expect 0 "$weft" train "${common[@]}" --out "$work/straight" --train-steps 6
    expect 0 "$weft" train "${common[@]}" --out "$work/layouts" --train-steps 2 --dp 4 --zero-stage 3
    expect 0 "$weft" train "${common[@]}" --out "$work/layouts" --train-steps 4 --resume
    expect 0 "$weft" train "${common[@]}" --out "$work/layouts" --train-steps 6 --resume --dp 3 --zero-stage 1
    expect 0 "$weft" diff --exact "$work/straight/latest" "$work/layouts/latest"
    expect 0 "$weft" checkpoint list "$work/layouts"
    says out "one rank"
    says out "dp 3, zero stage 1"
}
through --dtype bf16 --save-dtype bf16
through --dtype fp32 --freeze '*layers.0*'
expect 1 "$weft" diff --exact --top 1000 "$golden/llama_odd/model" "$work/layouts/latest"
says out "model.layers.1.mlp.up_proj.weight"
! grep -q '^model.layers.0' "$work/out" || fail "frozen weights have changed"

expect 2 "$weft" checkpoint remove "$run"
says err "one of list, verify"
expect 2 "$weft" checkpoint list
finish
