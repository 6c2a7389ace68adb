# weft layout: the map of ranks, its figures against a run's, refusals, models and ranks beyond this machine.
. "$(dirname "$0")/common.bash"
need_plain_python
seq 1 3000 >"$work/numbers.txt"

# Five blocks, six heads on two kv heads, an odd vocabulary.
config() { # NAME TIED
    cat >"$work/$1.json" <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 257, "hidden_size": 48,
 "intermediate_size": 71, "num_hidden_layers": 5, "num_attention_heads": 6, "num_key_value_heads": 2,
 "max_position_embeddings": 64, "tie_word_embeddings": $2, "torch_dtype": "float32"}
END
}
config untied false
config tied true

# The map: uneven heads, a rank holds every kv head its queries use, uneven columns and ids, items by name.
expect 0 "$weft" layout --model "$work/untied.json" --tp 4 --pp 2 --micro-batch-size 1 --global-batch-size 3
says out "ranks         8: dp 1, tp 4, pp 2; order tp-dp-pp; ZeRO stage 0"
says out "     0    0    0    0  embedding, blocks 0-2    0-1       0         0-17          0-64"
says out "     1    0    1    0  embedding, blocks 0-2    2-3       0-1       18-35"
says out "     7    0    3    1  blocks 3-4, norm + head  5         1         54-70         193-256"
expect 0 "$weft" layout --model "$work/untied.json" --pp 2 --pp-schedule interleaved --pp-chunks 2 --stage-layers 1,2,3,1
says out "embedding | blocks 2-4"
says out "blocks 0-1 | norm + head"
expect 0 "$weft" layout --model "$work/untied.json" --tp 2 --tp-strips 2
says out "tp 2 in 2 strips"
says out "     1    0    1    0  embedding, blocks 0-4, norm + head  3-5       1         36-70         129-256"
expect 0 "$weft" layout --model "$work/untied.json" --dp 2 --pp 2 --rank-order pp-dp-tp
says out "     1    0    0    1"

# Every byte, message and call of every rank as a run takes and sends them.
check() { # CONFIG FLAG...
    local model=$1
    shift
    expect 0 "$weft" layout --model "$work/$model.json" --seq-length 16 --json "$@"
    cp "$work/out" "$work/map.json"
    rm -rf "$work/run"
    expect 0 "$weft" train --model "$work/$model.json" --data "$work/numbers.txt" --out "$work/run" \
        --seq-length 16 --train-steps 2 "$@"
    python3 - "$work/map.json" "$work/run/report.json" <<'END' || fail "layout and run differ: $*"
import json, sys
map, run = (json.load(open(path)) for path in sys.argv[1:])
assert len(map["ranks"]) == len(run["ranks"])
for a, b in zip(map["ranks"], run["ranks"]):
    for key in ("rank", "dp", "tp", "pp"):
        assert a[key] == b[key], (a["rank"], key, a[key], b[key])
    for kind, bytes in b["memory"].items():
        assert a["bytes"][kind] == bytes["taken"], (a["rank"], kind, a["bytes"][kind], bytes)
    want = [(t["axis"], t["op"], t["calls"], t["sent_bytes"]) for t in b["step_traffic"]]
    have = [(t["axis"], t["op"], t["calls"], t["sent_bytes"]) for t in a["step_traffic"]]
    assert have == want, (a["rank"], have, want)
END
}
check untied --dp 2 --tp 2 --zero-stage 3 --micro-batch-size 1 --global-batch-size 5
check tied --tp 2 --tp-strips 2 --dp 2 --zero-stage 2 --micro-batch-size 1 --global-batch-size 3
says err "ranks: 4 as threads of this process, tp 2 in 2 strips, dp 2, ZeRO stage 2"
check untied --tp 2 --reproducible --micro-batch-size 1 --global-batch-size 3
says err "to have these bits with another --tp too, see --tp-strips"
check tied --pp 3 --pp-schedule zb-h1 --micro-batch-size 1 --global-batch-size 4
check tied --dp 2 --pp 2 --tp 2 --sequence-parallel --zero-stage 1 --micro-batch-size 2 --global-batch-size 8 \
    --recompute selective

# What a rank holds: a whole count with tp and pp adds up to the model's.
expect 0 "$weft" layout --model "$work/untied.json" --dp 2 --pp 3 --zero-stage 3 --json
python3 - "$work/out" <<'END' || fail "parameters do not add up"
import json, sys
map = json.load(open(sys.argv[1]))
assert sum(r["held"] for r in map["ranks"]) == map["model"]["parameters"]
assert sum(r["parameters"] for r in map["ranks"]) == 2 * map["model"]["parameters"]
END

# Impossible ones: the arithmetic and what works nearby.
expect 4 "$weft" layout --model "$work/untied.json" --pp 8
says err "8 stages (times chunks) cannot share 7 items"
says err "with 1 a stage --pp 1 to 7 work here; with as many ranks: --dp 2 --tp 1 --pp 4"
expect 4 "$weft" layout --model "$work/untied.json" --pp 4 --pp-schedule interleaved --pp-chunks 2
says err "with 2 a stage --pp 1 to 3 work here; with as many ranks: --dp 2 --tp 1 --pp 2"
expect 0 "$weft" layout --model "$work/untied.json" --pp 4 --pp-schedule interleaved --pp-chunks 1
says out "interleaved, chunks of a stage: 1"
expect 4 "$weft" layout --model "$work/untied.json" --tp 8
says err "--tp 1 to 6 work here (uneven cuts too); with as many ranks: --dp 1 --tp 4 --pp 2"
expect 4 "$weft" layout --model "$work/untied.json" --tp 7
says err "--tp 1 to 6 work"
expect 4 "$weft" layout --model "$work/untied.json" --tp 2 --tp-strips 3
says err "at most --tp-strips 2 work here, and as many tensor ranks; with as many ranks: --dp 1 --tp 2 --pp 1 --tp-strips 2"
expect 4 "$weft" layout --model "$work/untied.json" --tp 3 --tp-strips 2
says err "no more than 2 (heads of keys and values); use at most --tp 2; with as many ranks: --dp 1 --tp 1 --pp 3"
expect 4 "$weft" layout --model "$work/untied.json" --ranks 6 --tp 4
says err "--ranks 4 and --ranks 8"
expect 4 "$weft" layout --model "$work/untied.json" --pp 2 --stage-layers 3,5
says err "7 items"
expect 4 "$weft" layout --model "$work/untied.json" --strategy data-parallel --dp 2 --tp 2
silent out
expect 2 "$weft" layout
expect 3 "$weft" layout --model "$work/none.json"

# 70 billion parameters on 64 ranks: nothing of it is taken.
cat >"$work/large.json" <<'END'
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 128256, "hidden_size": 8192,
 "intermediate_size": 28672, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
 "max_position_embeddings": 8192, "tie_word_embeddings": false, "torch_dtype": "bfloat16"}
END
expect 0 "$weft" layout --model "$work/large.json" --ranks 64 --tp 8 --pp 4 --sequence-parallel --seq-length 4096 \
    --micro-batch-size 1 --global-batch-size 64
says out "70,553,706,496 parameters, bf16"
says out "    63    1    7    3  blocks"
finish
