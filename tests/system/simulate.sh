# weft simulate: numbers of published cases, the picture, refusals.
. "$(dirname "$0")/common.bash"

expect 0 "$weft" simulate --schedule 1f1b --stages 4 --micro-batches 8
says out "makespan         33"
says out "4 3 2 1"

expect 0 "$weft" simulate --schedule zb-h2 --stages 4 --micro-batches 8 --json
says out '"span": 24, "ideal": 24, "idle_of_total": 0'
says out '"in_flight_input": [7, 5, 3, 1]'

# Zero Bubble, table 5: 1.5B, 8 stages, 24 micro-batches, 1F1B: 0.2431 of the total.
expect 0 "$weft" simulate --schedule 1f1b --stages 8 --micro-batches 24 --forward 18.522 --backward 18.086 \
    --weight 9.337 --comm 0.601 --json
says out '"idle_of_total": 0.24305'

expect 0 "$weft" simulate --schedule interleaved --chunks 2 --stages 4 --micro-batches 8 --timeline "$work/t.svg"
says out "28.5"
for text in "<svg" "rank 3" "micro-batch 7" "chunk 1" "idle" "every second chunk" "</svg>"; do
    grep -q -- "$text" "$work/t.svg" || fail "the picture lacks $text"
done
# A bar narrower than its white edges would be white.
expect 0 "$weft" simulate --schedule interleaved --chunks 3 --stages 4 --micro-batches 150 --timeline "$work/t.svg"
[ "$(grep -c 'stroke="none"' "$work/t.svg")" = 3600 ] || fail "4 x 3 x 150 narrow forwards and backwards should have no edge"

# Interleaved has two chunks unless told otherwise, as `weft train` has.
expect 0 "$weft" simulate --schedule interleaved --stages 4 --micro-batches 8
says out "interleaved, 4 stages, 8 micro-batches, 2 chunks"
says out "28.5"
expect 0 "$weft" simulate --schedule interleaved --stages 4 --micro-batches 8 --chunks 1 --json
says out '"chunks": 1,'

expect 2 "$weft" simulate --schedule gpipe --chunks 2 --stages 4 --micro-batches 8
says err "interleaved"
expect 2 "$weft" simulate --stages 3 --micro-batches 3 --forward 1e308 --backward 1e308
says err "beyond what a number can hold"
expect 2 "$weft" simulate --stages 4
says err "micro-batches"
expect 3 "$weft" simulate --stages 2 --micro-batches 2 --timeline "$work/none/t.svg"
says err "none/t.svg"
finish
