# weft train --timeline, the map of a pipeline, and idle shares measured beside simulated.
. "$(dirname "$0")/common.bash"
need_plain_python
seq 1 3000 >"$work/numbers.txt"
cat >"$work/config.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "hidden_size": 32,
 "intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 2, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "tie_word_embeddings": false, "torch_dtype": "float32"}
END
cat >"$work/pace.json" <<'END'
{"block": {"forward_ms": 8, "input_gradient_ms": 8, "weight_gradient_ms": 8},
 "embedding": {"forward_ms": 0.2, "input_gradient_ms": 0, "weight_gradient_ms": 0.2},
 "head": {"forward_ms": 0.2, "input_gradient_ms": 0.2, "weight_gradient_ms": 0.2},
 "message": {"latency_us": 50, "bandwidth_gb_per_s": 0.1}}
END
run() { # FLAG...
    rm -rf "$work/run"
    expect 0 "$weft" train --model "$work/config.json" --data "$work/numbers.txt" --out "$work/run" --seq-length 16 \
        --train-steps 3 --micro-batch-size 1 --timeline "$work/t.svg" "$@"
}

# draws TEXT...: the picture is well-formed and holds the texts.
draws() {
    python3 - "$work/t.svg" "$@" <<'END' || fail "the picture lacks $*"
import sys, xml.dom.minidom
xml.dom.minidom.parse(sys.argv[1])
text = open(sys.argv[1]).read()
missing = [t for t in sys.argv[2:] if t not in text]
if missing: sys.exit("missing " + repr(missing))
END
}

# A bar for every action, and what ran when is what the schedule says: the measured share is the simulated one.
within() { # POINTS
    python3 - "$work/run/report.json" "$1" <<'END' || fail "measured and simulated idle shares differ"
import json, sys
p = json.load(open(sys.argv[1]))["pipeline"]

assert abs(p["idle"] - p["simulated_idle"]) < float(sys.argv[2]) / 100, p
END
}
run --pp 4 --pp-schedule naive --global-batch-size 4 --pace "$work/pace.json"
says err "pp 4 naive"
says err "stage 0 on rank 0: embedding, block"
says err "stage 3 on rank 3: block"
says err "paced pipeline naive: idle 7"
draws "naive: dp 1, tp 1, pp 4" "paced: " "idle " "simulated" "forward" "backward" "communication" "rank 3" \
    "forward, micro-batch 3" ">idle<"
[ "$(grep -c "backward, micro-batch" "$work/t.svg")" = 16 ] || fail "16 backwards should be drawn"
within 8
run --pp 2 --pp-schedule zb-h1 --global-batch-size 6 --pace "$work/pace.json"
draws "input gradient, micro-batch 5" "weight gradient, micro-batch 5"
within 8

# Micro-batches of data-parallel ranks have their numbers in the global batch; reductions are drawn apart.
run --dp 2 --pp 2 --global-batch-size 8 --zero-stage 1 --pace "$work/pace.json"
says err "stage 1 on ranks 2, 3: block"
draws "micro-batch 7" "dp 1 pp 1" "over dp" "optimizer"

# Both pictures of a run may lie in its folder, which is not there yet.
run --dp 2 --global-batch-size 2 --trace "$work/run//trace.json" --timeline "$work/run/t.svg"
python3 -c 'import json, sys; json.load(open(sys.argv[1]))' "$work/run/trace.json" || fail "the trace is no JSON"
[ -s "$work/run/t.svg" ] || fail "no picture in the folder of the run"

# Reductions run beside the pipeline: every stage but the first hides all of them behind what the stages before it still
# compute, the first all but its last bucket. Each is shorter than a backward of one micro-batch.
sed 's/"bandwidth_gb_per_s": 0.1/"bandwidth_gb_per_s": 0.005/' "$work/pace.json" >"$work/slow.json"
run --dp 2 --pp 4 --stage-layers 3,2,2,3 --global-batch-size 16 --bucket-size-mb 0.04 --pace "$work/slow.json"
python3 - "$work/t.svg" <<'END' || fail "reductions are not hidden"
import re, sys
backward, reductions = {}, {}
for y, what, start, end in re.findall(
        r'<rect x="[^"]*" y="([^"]*)"[^>]*><title>([a-z ]*)[^:]*: ([0-9.e+]*) to ([0-9.e+]*)', open(sys.argv[1]).read()):
    row = int((float(y) - 84) // 38)
    if what == "backward": backward[row] = max(backward.get(row, 0), float(end))
    if what == "over dp": reductions.setdefault(row, []).append((float(start), float(end)))
for row, calls in sorted(reductions.items()):
    stage = row // 2
    assert len(calls) == (3 if stage == 3 else 2), (row, calls) # a bucket a block, the embedding in one's, the head's own
    assert sum(end - start for start, end in calls) < 2 * 16, (row, calls) # a backward of two blocks takes 32 ms
    done = calls[-2 if stage == 0 else -1][1]
    limit = max(backward[0], backward[1]) + (3 if stage == 0 else 0)
    assert done < limit, (row, stage, calls, backward)
END

# Not paced, without a pipeline, with an evaluation after the step that is drawn.
run --dp 2 --global-batch-size 6 --zero-stage 3 --eval-interval 1
draws "one stage: dp 2, tp 1, ZeRO stage 3" "backward, micro-batch 5" "over dp"
grep -q paced "$work/t.svg" && fail "the run was not paced"
run --dp 2 --strategy data-parallel --global-batch-size 4
draws "DataParallel" "forward, micro-batch 3"
run --global-batch-size 2
draws "rank 0"

rm -rf "$work/run"
expect 3 "$weft" train --model "$work/config.json" --data "$work/numbers.txt" --out "$work/run" --train-steps 1 \
    --timeline "$work/none/t.svg"
says err "none/t.svg"
expect 3 "$weft" train --model "$work/config.json" --data "$work/numbers.txt" --out "$work/run" --train-steps 1 \
    --timeline "$work"
says err "is a folder"

# A run without a step of its own, or one that fails, leaves the picture that is there.
rm -rf "$work/run"
more=("$weft" train --model "$work/config.json" --data "$work/numbers.txt" --out "$work/run" --seq-length 16 --train-steps 2
    --micro-batch-size 1 --timeline "$work/t.svg")
expect 0 "${more[@]}"
cp "$work/t.svg" "$work/before.svg"
expect 0 "${more[@]}" --resume
says err "timeline: no step was made"
cmp -s "$work/t.svg" "$work/before.svg" || fail "a run without a step changed the picture"
expect 5 env WEFT_FAULT=1:fail:60 "${more[@]}" --train-steps 40 --resume --dp 2
cmp -s "$work/t.svg" "$work/before.svg" || fail "a run that failed changed the picture"
[ -e "$work/t.svg.tmp" ] && fail "t.svg.tmp was left"
finish
