# Text to token files and back, and what reads them.
. "$(dirname "$0")/common.bash"
head -c 100000 /dev/urandom >"$work/a"
printf '\357\273\277one\r\ntwo\r\n' >"$work/b"
expect 0 "$weft" tokenize --out "$work/ab.bin" "$work/a" "$work/b"
says out "100,013 tokens of 2 bytes (ids below 257) from 100,013 bytes"
silent err
expect 0 "$weft" tokenize --decode "$work/ab.bin"
cat "$work/a" "$work/b" | cmp - "$work/out" || fail "the bytes did not come back"
expect 0 "$weft" tokenize --decode --out "$work/back" "$work/ab.bin"
cat "$work/a" "$work/b" | cmp - "$work/back" || fail "the bytes did not come back through --out"
expect 0 "$weft" tokenize --append-eos --show 3 --out "$work/b.bin" "$work/b"
says out "239 187 191"
[ "$(stat -c %s "$work/b.bin")" = $((64 + 2 * 14)) ] || fail "size of the token file"
"$weft" tokenize --out "$work/c.bin" - <"$work/b" >/dev/null || fail "standard input"
"$weft" tokenize --decode "$work/c.bin" | cmp - "$work/b" || fail "standard input did not come back"
"$weft" tokenize --decode "$work/ab.bin" | head -c 10 | cmp - <(head -c 10 "$work/a") || fail "a closed pipe"

expect 3 "$weft" tokenize --out "$work/x.bin" "$work/none"
says err "none"
[ ! -e "$work/x.bin" ] || fail "a failed run left a file"
expect 2 "$weft" tokenize "$work/b"
says err "--out"
expect 3 "$weft" tokenize --decode "$work/b"
says err "no token file"
# What is refused destroys nothing: neither the input nor what --out names.
echo kept >"$work/kept"
expect 3 "$weft" tokenize --decode --out "$work/kept" "$work/b"
says err "no token file"
expect 2 "$weft" tokenize --decode --out "$work/b.bin" "$work/b.bin"
says err "another name"
expect 2 "$weft" tokenize --out "$work/kept" "$work/kept"
says err "another name"
[ "$(cat "$work/kept")" = kept ] || fail "a refused run changed what was there"
head -c 70 "$work/b.bin" >"$work/cut.bin"
expect 3 "$weft" tokenize --decode "$work/cut.bin"
says err "14 tokens of 2 bytes"

# Text and its token file are the same data.
head -c 2000 /dev/zero | tr '\0' 'a' >"$work/text"
"$weft" tokenize --out "$work/text.bin" "$work/text" >/dev/null
sed 's/"vocab_size": 256/"vocab_size": 257/' "$golden/llama/model/config.json" >"$work/config.json"
for data in text text.bin; do
    expect 0 "$weft" train --model "$work/config.json" --data "$work/$data" --out "$work/run-$data" \
        --train-steps 3 --seq-length 16 --micro-batch-size 2 --threads-per-rank 1
done
expect 0 "$weft" diff --exact "$work/run-text/latest" "$work/run-text.bin/latest"

# A model with fewer rows than the tokenizer has ids is refused with both numbers, before anything is computed.
expect 3 "$weft" train --model "$golden/llama/model" --data "$work/text" --out "$work/small" --train-steps 1
says err "257"
says err "256"
# Too little data is refused with what is needed.
printf '0123456789abcdef' >"$work/short"
expect 3 "$weft" train --model "$work/config.json" --data "$work/short" --out "$work/o" --seq-length 16
says err "16 tokens, need at least 17"
: >"$work/empty"
expect 3 "$weft" train --model "$work/config.json" --data "$work/empty" --out "$work/o" --seq-length 16
says err "0 tokens, need at least 17"
printf '0123456789abcdefg' >"$work/enough"
expect 0 "$weft" train --model "$work/config.json" --data "$work/enough" --out "$work/o" --seq-length 16 \
    --train-steps 1 --micro-batch-size 1
# Ids without a header are not taken for text.
cp "$work/text" "$work/raw.bin"
expect 3 "$weft" train --model "$work/config.json" --data "$work/raw.bin" --out "$work/o2"
says err "raw.bin"
finish
