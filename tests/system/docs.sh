# The pages of docs/methods stay true: their commands run and say what is shown, and their formulas give what runs report, to
# the byte. Formulas are taken out of the pages as they stand there: the tables' cells and the listing of formulas.md.
. "$(dirname "$0")/common.bash"
cd "$WEFT_SOURCE_DIR" || exit 1
pages=docs/methods

# ---- the formulas -------------------------------------------------------------------------------------------------

# The listing, then a rule for each cell: `if (method == "DDP") print "memory gradients", 4 * E`.
awk '/^```awk$/ { is_in = 1; next } /^```$/ { is_in = 0 } is_in' "$pages/formulas.md" >"$work/formulas.awk"
cat "$pages"/*.md | awk -F ' *\\| *' '
    !/^\|/ { what = "" }
    $2 ~ /^(memory|sent|calls|slots)( of| by) rank r$/ {
        split($2, word, " ")
        what = word[1]
        for (i = 3; i < NF; i++)
            method[i] = $i
        next
    }
    what == "" || $2 ~ /^---/ { next }
    {
        for (i = 3; i < NF; i++) {
            if ($i == "none")
                continue
            if ($i !~ /^`[^`]+`$/) {
                print "no formula: " $0 >"/dev/stderr"
                exit 1
            }
            printf "END { if (method == \"%s\") printf \"%s %s %%.0f\\n\", %s }\n", method[i], what, $2,
                substr($i, 2, length($i) - 2)
        }
    }' >>"$work/formulas.awk" || fail "a cell of a table of formulas has none"
n_cells=$(grep -c '^END { if' "$work/formulas.awk")
[ "$n_cells" -ge 60 ] || fail "only $n_cells formulas were found"

# A model's parameters in its order: layer, elements, name.
llama() { # LAYERS WIDTH HEADS KV_HEADS FFN VOCAB TIED
    awk -v L="$1" -v h="$2" -v a="$3" -v g="$4" -v f="$5" -v V="$6" -v tied="$7" 'BEGIN {
        d = h / a
        print tied ? "tied" : 0, V * h, "model.embed_tokens.weight"
        for (l = 0; l < L; l++) {
            p = "model.layers." l "."
            print l + 1, h, p "input_layernorm.weight"
            print l + 1, h * a * d, p "self_attn.q_proj.weight"
            print l + 1, h * g * d, p "self_attn.k_proj.weight"
            print l + 1, h * g * d, p "self_attn.v_proj.weight"
            print l + 1, h * a * d, p "self_attn.o_proj.weight"
            print l + 1, h, p "post_attention_layernorm.weight"
            print l + 1, h * f, p "mlp.gate_proj.weight"
            print l + 1, h * f, p "mlp.up_proj.weight"
            print l + 1, h * f, p "mlp.down_proj.weight"
        }
        print L + 1, h, "model.norm.weight"
        if (!tied)
            print L + 1, V * h, "lm_head.weight"
    }'
    cat >"$work/config.json" <<END
{"model_type": "llama", "num_hidden_layers": $1, "hidden_size": $2, "num_attention_heads": $3, "num_key_value_heads": $4,
 "intermediate_size": $5, "vocab_size": $6, "tie_word_embeddings": $([ "$7" = 1 ] && echo true || echo false),
 "max_position_embeddings": 64, "bos_token_id": null, "eos_token_id": null, "torch_dtype": "float32"}
END
}
gpt2() { # LAYERS WIDTH HEADS FFN VOCAB POSITIONS, tied
    awk -v L="$1" -v h="$2" -v f="$4" -v V="$5" -v n="$6" 'BEGIN {
        print "tied", V * h, "transformer.wte.weight"
        print 0, n * h, "transformer.wpe.weight"
        for (l = 0; l < L; l++) {
            split("ln_1 attn.c_attn attn.c_proj ln_2 mlp.c_fc mlp.c_proj", part, " ")
            split(h " " 3 * h * h " " h * h " " h " " h * f " " f * h, weight, " ")
            split(h " " 3 * h " " h " " h " " f " " h, bias, " ")
            for (i = 1; i <= 6; i++) {
                print l + 1, weight[i], "transformer.h." l "." part[i] ".weight"
                print l + 1, bias[i], "transformer.h." l "." part[i] ".bias"
            }
        }
        print L + 1, h, "transformer.ln_f.weight"
        print L + 1, h, "transformer.ln_f.bias"
    }'
    cat >"$work/config.json" <<END
{"model_type": "gpt2", "n_layer": $1, "n_embd": $2, "n_head": $3, "n_inner": $4, "vocab_size": $5, "n_positions": $6,
 "bos_token_id": null, "eos_token_id": null, "torch_dtype": "float32"}
END
}

# What a run reported of a rank, as lines "memory gradients 1234"; taken or planned (of calls the report has the run's alone).
reported() { # RANK taken|planned
    awk -v r="$1" -v which="$2" '
        function number(text, key) {
            sub(".*\"" key "\": ", "", text)
            return text + 0 > 0 ? sprintf("%.0f", text + 0) : 0
        }
        /"rank": / { here = $0 ~ "\"rank\": " r "," }
        !here { next }
        /"memory"/ {
            n = split($0, part, "},")
            for (i = 1; i <= n; i++) {
                kind = part[i]
                sub(/": \{"planned.*/, "", kind)
                sub(/.*"/, "", kind)
                if (kind ~ /^(parameters|gradients|optimizer|communication)$/)
                    print "memory", kind, number(part[i], which)
            }
        }
        /"step_traffic"/ {
            n = split($0, part, "}")
            for (i = 1; i <= n; i++) {
                if (part[i] !~ /"op"/)
                    continue
                op = part[i]
                sub(/.*"op": "/, "", op)
                sub(/".*/, "", op)
                axis = part[i]
                sub(/.*"axis": "/, "", axis)
                sub(/".*/, "", axis)
                if (axis != "dp")
                    op = op " over " axis
                print "calls", op, number(part[i], "calls")
                print "sent", op, number(part[i], which == "taken" ? "sent_bytes" : "planned_bytes")
            }
        }' "$work/run/report.json" | sort
}

# check METHOD DP B b [OPTION...]: runs the model of $work/config.json and compares every rank with the formulas.
freeze='^$'
seq=16
check() {
    local method=$1 dp=$2 batch=$3 micro=$4 s=4 k=8 stage=0 bucket_mb=25 by_micro_batch=0 prefetch=1 overlap=1 option before
    local options=()
    shift 4
    case $method in
    DataParallel*) options+=(--strategy data-parallel) ;;
    ZeRO-*) stage=${method#ZeRO-}; stage=${stage%% *} ;;
    esac
    options+=(--zero-stage "$stage")
    [ "$stage" -ge 2 ] && by_micro_batch=1
    case $method in *--reproducible) by_micro_batch=1; options+=(--reproducible) ;; esac
    before=
    for option in "$@"; do
        case $before=$option in
        --dtype=bf16) s=2; k=$((k + 4)) ;;
        --optimizer=sgd) k=$((k - 8)) ;;
        --sgd-momentum=0.9) k=$((k + 4)) ;;
        --bucket-size-mb=*) bucket_mb=$option ;;
        --zero-prefetch=off) prefetch=0 ;;
        --overlap-grad-reduce=off) overlap=0 ;;
        esac
        before=$option
    done
    rm -rf "$work/run"
    expect 0 "$weft" train --model "$work/config.json" --data README.md --out "$work/run" --dp "$dp" --seq-length "$seq" \
        --global-batch-size "$batch" --micro-batch-size "$micro" --train-steps 1 --threads-per-rank 1 "${options[@]}" "$@"
    [ -e "$work/run/report.json" ] || { fail "no report of $method --dp $dp $*"; return; }
    n_checked=$((n_checked + 1))
    for ((rank = 0; rank < dp; rank++)); do
        awk -v freeze="$freeze" '{ print $1, $2, $3 ~ freeze ? 0 : 1 }' "$work/params" |
            awk -v method="$method" -v n="$dp" -v r="$rank" -v B="$batch" -v b="$micro" -v T="$seq" -v V="$vocab" -v s="$s" \
                -v k="$k" -v stage="$stage" -v bucket_mb="$bucket_mb" -v by_micro_batch="$by_micro_batch" \
                -v prefetch="$prefetch" -v overlap="$overlap" -v last="$last" -v p=1 -f "$work/formulas.awk" |
            sort >"$work/formula"
        reported "$rank" taken >"$work/taken"
        reported "$rank" planned >"$work/planned"
        for got in taken planned; do
            diff "$work/formula" "$work/$got" >"$work/differs" || {
                fail "$method --dp $dp -B $batch -b $micro $*: rank $rank, formula < > $got:"
                sed 's/^/    /' "$work/differs" >&2
            }
        done
    done
}

n_checked=0
llama 3 36 2 1 52 259 0 >"$work/params"
vocab=259 last=4
check DDP 2 2 1
check DDP 5 9 2 --bucket-size-mb 0.05
check "DDP --reproducible" 3 7 1
check DataParallel 2 4 1
check DataParallel 5 9 2 --dtype bf16
check "DataParallel --reproducible" 3 7 2
check ZeRO-1 3 3 1 --dtype bf16
check "ZeRO-1 --reproducible" 2 5 1 --bucket-size-mb 0.05
check ZeRO-2 8 8 1
check ZeRO-2 3 5 1 --overlap-grad-reduce off --dtype bf16
check ZeRO-3 2 4 1
check ZeRO-3 5 12 2 --zero-prefetch off
check ZeRO-3 8 3 1 --dtype bf16
check ZeRO-3 3 3 1 --overlap-grad-reduce off --recompute full
freeze='embed_tokens|layers\.1\.mlp\.up'
frozen=(--freeze model.embed_tokens.weight 'model.layers.1.mlp.up*')
check DDP 3 3 1 "${frozen[@]}"
check ZeRO-2 2 5 1 "${frozen[@]}"
check ZeRO-3 5 5 1 "${frozen[@]}"
freeze='^$'
llama 2 24 3 3 40 257 1 >"$work/params"
vocab=257 last=3
check DataParallel 8 8 1
check ZeRO-1 5 5 1 --optimizer sgd
check ZeRO-2 3 4 1 --optimizer sgd --sgd-momentum 0.9
check ZeRO-3 2 5 2 --dtype bf16
check ZeRO-3 8 8 1
gpt2 3 15 3 37 257 41 >"$work/params"
vocab=257 last=4
check DDP 8 8 1 --dtype bf16
check "DDP --reproducible" 2 3 1 --overlap-grad-reduce off
check ZeRO-1 2 2 1
check ZeRO-2 5 7 1
check ZeRO-3 3 7 1
[ "$n_checked" = 27 ] || fail "$n_checked of 27 layouts were compared"

# Weights are broadcast once, before the first step: (n - 1) s P bytes from rank 0. ZeRO-3's ranks read their own.
started() { # bytes of broadcasts over dp that rank 0 sent
    awk '/"name":"broadcast"/ && /"pid":0,/ && /"axis":"dp"/ { sub(/.*"bytes":/, ""); sum += $0 + 0 }
        END { printf "%.0f\n", sum }' "$work/trace.json"
}
check ZeRO-1 3 3 1 --trace "$work/trace.json"
weights=$(reported 0 taken | sed -n 's/^memory parameters //p')
[ "$weights" -gt 0 ] && [ "$(started)" = $((2 * weights)) ] || fail "$(started) bytes were sent at the start, not 2 x $weights"
check ZeRO-3 3 3 1 --trace "$work/trace.json"
[ "$(started)" = 0 ] || fail "ZeRO-3 sent $(started) bytes at the start"

# ---- pipelines ----------------------------------------------------------------------------------------------------

# The lines of $work/params that are chunk PART of the cut: the items 0 (embedding), 1 to L, L + 1 (final norm and head). A
# tied table is the first stage's and, as a copy, the last one's.
chunk_params() { # CUT PART
    awk -v cut="$1" -v part="$2" -v last="$last" '
        BEGIN {
            n = split(cut, count, ",")
            for (i = 1; i <= part; i++) from += count[i]
            to = from + count[part + 1]
        }
        { item = $1 == "tied" ? (from == 0 ? 0 : last) : $1 }
        from <= item && item < to' "$work/params"
}

# check_stages METHOD DP SCHEDULE V CUT B b [OPTION...]: METHOD is the data axis'. The formulas of the data axis are those
# of a rank's chunks, added up; those of the pipeline come on top.
check_stages() {
    local method=$1 n=$2 schedule=$3 v=$4 cut=$5 batch=$6 micro=$7 s=4 k=8 stage=0 by_micro_batch=0 name=pipeline
    local options=(--bucket-size-mb 0.05) p q r rank got part streams first second more
    shift 7
    p=$(($(echo "$cut" | tr , '\n' | wc -l) / v))
    case $method in ZeRO-*) stage=${method#ZeRO-}; stage=${stage%% *} ;; esac
    [ "$stage" -ge 2 ] && by_micro_batch=1
    grep -q '^tied' "$work/params" && name="tied pipeline"
    case $method in *--reproducible)
        by_micro_batch=1
        options+=(--reproducible)
        [ "$stage" -lt 2 ] || method=${method% --reproducible} # what they always do
        [ "$name" = pipeline ] || name="$name --reproducible" ;;
    esac
    case " $* " in *" bf16 "*) s=2; k=12 ;; esac
    options+=(--dp "$n" --pp "$p" --pp-schedule "$schedule" --pp-chunks "$v" --stage-layers "$cut" --zero-stage "$stage")
    options+=(--micro-batch-size "$micro" --seq-length "$seq" --train-steps 1 --threads-per-rank 1 "$@")
    options+=(--model "$work/config.json" --data README.md)
    for got in full one; do # one micro-batch a rank shows what a slot takes
        rm -rf "$work/run"
        expect 0 "$weft" train --out "$work/run" "${options[@]}" --global-batch-size "$([ $got = one ] && echo $((n * micro)) || echo "$batch")"
        [ -e "$work/run/report.json" ] || { fail "no report of $method $schedule $cut"; return; }
        cp "$work/run/report.json" "$work/$got.json"
    done
    n_checked=$((n_checked + 1))
    for ((rank = 0; rank < n * p; rank++)); do
        q=$((rank / n)) r=$((rank % n))
        letters=(-v n="$n" -v r="$r" -v p="$p" -v q="$q" -v v="$v" -v w=$((n * p)) -v a="$rank" -v B="$batch" -v b="$micro"
            -v T="$seq" -v V="$vocab" -v h="$width" -v s="$s" -v k="$k" -v stage="$stage" -v bucket_mb=0.05
            -v by_micro_batch="$by_micro_batch" -v prefetch=1 -v overlap=1 -v last="$last")
        for ((part = q; part < p * v; part += p)); do
            chunk_params "$cut" "$part" | awk '{ print $1, $2, 1 }' |
                awk -v method="$method" "${letters[@]}" -f "$work/formulas.awk" |
                awk '$1 == "calls" && $2 == "all_reduce" { $3-- } { print }' # the step's sums go over the world
        done >"$work/parts"
        awk -v method="$name" "${letters[@]}" -f "$work/formulas.awk" </dev/null >>"$work/parts"
        awk '{ x = $NF; sub(/ [^ ]*$/, ""); sum[$0] += x; if ($1 == "calls") calls[substr($0, 7)] += x }
            END {
                for (i in sum) {
                    op = i; sub(/^(calls|sent) /, "", op)
                    if (i ~ /^memory/ || calls[op] > 0) printf "%s %.0f\n", i, sum[i]
                }
            }' "$work/parts" | over_ranks "$n" | sort >"$work/formula"
        for got in taken planned; do
            cp "$work/full.json" "$work/run/report.json"
            reported "$rank" "$got" | over_ranks "$n" | sort >"$work/got"
            diff "$work/formula" "$work/got" >"$work/differs" || {
                fail "$method $schedule --dp $n -B $batch -b $micro $cut $*: rank $rank, formula < > $got:"
                sed 's/^/    /' "$work/differs" >&2
            }
        done
        [ "$v" = 1 ] || continue
        awk -v method="$schedule" "${letters[@]}" -f "$work/formulas.awk" </dev/null | grep '^slots' >"$work/slots"
        first=$(sed -n 's/^slots first //p' "$work/slots") second=$(sed -n 's/^slots second //p' "$work/slots")
        streams=$(((s * micro * seq * width + 63) / 64 * 64 * ((q > 0) + (q < p - 1))))
        activations "$work/full.json" "$rank" >"$work/full"
        activations "$work/one.json" "$rank" >"$work/one"
        more=$(($(cat "$work/full") - streams - first * ($(cat "$work/one") - streams)))
        if [ "$first" = "$second" ]; then
            [ "$more" = 0 ] || fail "$schedule $cut: rank $rank has $more bytes of activations more than $first slots"
        else # what a second part takes follows, and must be the same under every schedule that splits backward
            [ $((more % (64 * (second - first)))) = 0 ] || fail "$schedule $cut: rank $rank has $more bytes in $first, $second parts"
            echo "$schedule tied $(grep -c '^tied' "$work/params") $cut $micro $s $q $((more / (second - first)))" >>"$work/seconds"
        fi
    done
}
# A data axis of one rank sends nothing, and whether it makes a call of that is nobody's concern.
over_ranks() { # N
    awk -v n="$1" 'n > 1 || / over / || !($1 == "calls" || ($1 == "sent" && $3 == 0))'
}
activations() { # REPORT RANK
    grep -A 1 "\"rank\": $2," "$1" | sed -n 's/.*"activations": {"planned": [0-9]*, "taken": \([0-9]*\).*/\1/p'
}

n_checked=0
seq=16 width=36
llama 3 36 2 1 52 259 0 >"$work/params"
vocab=259 last=4
: >"$work/seconds"
check_stages DDP 1 naive 1 3,2 4 1
check_stages DDP 1 gpipe 1 1,1,3 9 2
check_stages DDP 2 1f1b 1 2,2,1 7 1
check_stages ZeRO-1 2 1f1b 1 2,3 9 2 --dtype bf16
check_stages "DDP --reproducible" 2 zb-h1 1 1,2,2 7 1
check_stages "ZeRO-1 --reproducible" 2 gpipe 1 3,2 3 1
check_stages ZeRO-2 2 zb-h2 1 1,2,2 9 1
check_stages ZeRO-3 3 1f1b 1 2,3 8 1
check_stages ZeRO-3 2 interleaved 2 1,1,1,2 8 1
check_stages DDP 1 interleaved 2 1,1,2,1 5 1
llama 3 24 3 3 40 257 1 >"$work/params"
vocab=257 last=4 width=24
check_stages DDP 1 1f1b 1 2,3 4 1
check_stages DDP 2 zb-h1 1 1,2,2 7 1 --dtype bf16
check_stages ZeRO-1 2 gpipe 1 2,3 5 1
check_stages ZeRO-3 2 interleaved 2 1,1,1,2 6 1
check_stages "DDP --reproducible" 1 1f1b 1 1,2,2 5 1
check_stages "DDP --reproducible" 2 interleaved 2 1,1,1,2 9 1
check_stages "ZeRO-1 --reproducible" 2 naive 1 2,3 5 1
check_stages "ZeRO-3 --reproducible" 2 zb-h2 1 2,3 6 1
sort -u "$work/seconds" | awk '
    {
        key = $3 " " $4 " " $5 " " $6 " " $7
        n_wrong += key in size && size[key] != $8
        n_pairs += key in by && by[key] != $1
        size[key] = $8
        by[key] = $1
    }
    END { exit n_wrong > 0 || n_pairs < 2 }' || fail "second parts of slots differ, or were not compared: $(cat "$work/seconds")"
[ "$n_checked" = 18 ] || fail "$n_checked of 18 pipelines were compared"

# ---- the tables of README.md --------------------------------------------------------------------------------------

llama 8 64 4 4 176 257 0 >"$work/params"
cp "$pages/model.json" "$work/config.json"
vocab=257 last=9 seq=64
for type in fp32 bf16; do
    for method in DataParallel DDP ZeRO-1 ZeRO-2 ZeRO-3; do
        check "$method" 4 8 1 --bucket-size-mb 0.1 --dtype "$type"
        reported 0 taken | awk -v who="$type $method " '
            $1 != "calls" { print who $0; sum[$1] += $3 }
            END {
                printf "%smemory of these four %.0f\n", who, sum["memory"]
                printf "%ssent in all %.0f\n", who, sum["sent"]
            }'
    done
done | sort >"$work/run-tables"
awk -F ' *\\| *' '
    !/^\|/ { type = "" }
    $2 ~ /^rank 0, / {
        type = substr($2, 9)
        for (i = 3; i < NF; i++)
            method[i] = $i
        next
    }
    type == "" || $2 ~ /^---/ { next }
    {
        for (i = 3; i < NF; i++) {
            gsub(/,/, "", $i)
            if ($i != "")
                print type, method[i], $2, $i
        }
    }' "$pages/README.md" | sort >"$work/shown-tables"
[ "$(wc -l <"$work/shown-tables")" -ge 80 ] || fail "the tables of $pages/README.md were not found"
diff "$work/shown-tables" "$work/run-tables" >"$work/differs" || {
    fail "$pages/README.md < > what was reported:"
    sed 's/^/    /' "$work/differs" >&2
}

# ---- tables whose rows are flags ----------------------------------------------------------------------------------

# A table headed "train flags, MODEL", "layout flags, MODEL" or "simulate flags": what the command says with a row's flags.
# Of several ranks the largest of each column; train in bytes, of report.json; layout in GB.
columns() { # REPORT: lines "COLUMN<tab>VALUE"
    awk '
        function number(text, key) {
            if (!sub(".*\"" key "\": ", "", text)) return 0
            sub(/^\{"planned": [0-9]*, "taken": /, "", text)
            return text + 0
        }
        function raise(column, x) { if (x + 0 >= most[column] + 0) most[column] = x + 0 }
        function end_rank() {
            if (!is_in) return
            raise("states", kind["parameters"] + kind["gradients"] + kind["optimizer"])
            raise("activations", kind["activations"])
            raise("communication", kind["communication"])
            raise("in all", all)
            for (axis in sent) raise("sent " axis, sent[axis])
        }
        /"rank": / { end_rank(); is_in = 1; all = 0; delete sent }
        is_in && /"parameters": [{0-9]/ {
            text = $0
            sub(/"total_bytes.*/, "", text)
            sub(/.*"(bytes|memory)": /, "", text)
            n = split("parameters gradients optimizer activations communication workspace cache tables", name, " ")
            for (i = 1; i <= n; i++) all += kind[name[i]] = number(text, name[i])
        }
        is_in && /"step_traffic"/ {
            n = split($0, call, /"axis": "/)
            for (i = 2; i <= n; i++) {
                axis = call[i]
                sub(/".*/, "", axis)
                sub(/}.*/, "", call[i])
                sent[axis] += number(call[i], "sent_bytes")
            }
        }
        END { end_rank(); for (c in most) printf "%s\t%.0f\n", c, most[c] }' "$1"
}

n_rows=0
for page in docs/choosing.md "$pages"/*.md; do
    awk -F ' *\\| *' '
        !/^\|/ { head = "" }
        $2 ~ /^(train|layout|simulate) flags/ { head = $0; next }
        head != "" && $2 !~ /^---/ { print head; print }' "$page" >"$work/rows"
    while IFS= read -r head && IFS= read -r row; do
        n_rows=$((n_rows + 1))
        flags=$(echo "$row" | sed 's/^| *`\([^`]*\)`.*/\1/')
        model=$(echo "$head" | sed -n 's/^|[^|,]*, \([^ |]*\).*/\1/p')
        rm -rf "$work/run"
        # shellcheck disable=SC2086
        case $head in
        "| train"*)
            expect 0 "$weft" train --model "$pages/$model" --data README.md --out "$work/run" --seq-length 64 \
                --micro-batch-size 1 --global-batch-size 8 --train-steps 1 --threads-per-rank 1 $flags
            columns "$work/run/report.json" ;;
        "| layout"*)
            expect 0 "$weft" layout --model "$pages/$model" --seq-length 4096 --micro-batch-size 1 --global-batch-size 64 \
                --threads-per-rank 1 --json $flags
            columns "$work/out" | awk -F '\t' '{ printf "%s\t%.1f\n", $1, $2 / 1e9 }' ;;
        "| simulate"*)
            expect 0 "$weft" simulate --stages 4 --micro-batches 8 --forward 7.2 --backward 10 --weight 10 $flags
            awk '/^(makespan|span)/ { print $1 "\t" $2 } /^idle/ { printf "idle\t%.1f %%\n", $2 }
                /^in flight/ { print "in flight\t" $3, $4, $5, $6 }' "$work/out" ;;
        esac >"$work/columns"
        printf '%s\n%s\n' "$head" "$row" | awk -F ' *\\| *' '
            FILENAME != "-" { split($0, pair, "\t"); value[pair[1]] = pair[2]; next }
            !n { for (i = 3; i < NF; i++) column[i] = $i; n = NF; next }
            {
                line = "| " $2
                for (i = 3; i < n; i++) {
                    x = column[i] in value ? value[column[i]] : ""
                    while (x ~ /^[0-9]*[0-9][0-9][0-9][0-9](,|$)/ && x !~ /\./)
                        x = gensub_comma(x)
                    line = line " | " x
                }
                print line " |"
            }
            function gensub_comma(x,   head, at) {
                at = index(x ",", ",") - 1
                return substr(x, 1, at - 3) "," substr(x, at - 2)
            }' "$work/columns" - | sed 's/  *|/ |/g' >"$work/row"
        echo "$row" | sed 's/  *|/ |/g' | diff - "$work/row" >"$work/differs" || {
            fail "$page: a row < > what weft says:"
            sed 's/^/    /' "$work/differs" >&2
        }
    done <"$work/rows"
done
[ "$n_rows" -ge 30 ] || fail "only $n_rows rows of flags were found"

# ---- the commands -------------------------------------------------------------------------------------------------

# A line "    $ COMMAND", lines "    > ..." that go on with it, then what it says: "..." leaves lines out.
mkdir "$work/build"
n_commands=0
for page in docs/choosing.md "$pages"/*.md; do
    rm -f "$work"/command.* "$work"/shows.*
    awk -v work="$work" '
        /^    \$ / { n++; sub(/^    \$ /, ""); print >(work "/command." n); is_in = 1; next }
        is_in && /^    > / { sub(/^    > /, ""); print >(work "/command." n); next }
        is_in && /^    / { sub(/^    /, ""); print >(work "/shows." n); next }
        { is_in = 0 }' "$page"
    (
        for ((i = 1; ; i++)); do
            [ -e "$work/command.$i" ] || exit 0
            sed -i -e "s#build/weft#@weft@#g" -e "s#build/#$work/build/#g" -e "s#@weft@#$weft#g" "$work/command.$i"
            # shellcheck disable=SC1090
            . "$work/command.$i" >"$work/said.$i" 2>&1 </dev/null || exit "$i"
        done
    )
    code=$?
    [ "$code" = 0 ] || { fail "$page: command $code failed:"; sed 's/^/    /' "$work/command.$code" "$work/said.$code" >&2; }
    for ((i = 1; ; i++)); do
        [ -e "$work/command.$i" ] || break
        n_commands=$((n_commands + 1))
        [ -e "$work/shows.$i" ] && [ -e "$work/said.$i" ] || continue
        awk 'NR == FNR { said[++n] = $0; next }
            $0 == "..." { is_loose = 1; next }
            {
                do at++; while (is_loose && at <= n && said[at] != $0)
                is_loose = 0
                if (at > n || said[at] != $0) { print; exit 1 }
            }' "$work/said.$i" "$work/shows.$i" >"$work/missing" || {
            fail "$page: a command does not say \"$(cat "$work/missing")\" there:"
            sed 's/^/    /' "$work/command.$i" "$work/said.$i" >&2
        }
    done
done
[ "$n_commands" -ge 11 ] || fail "only $n_commands commands were found in $pages"

finish
