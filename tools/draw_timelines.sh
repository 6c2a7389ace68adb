#!/bin/sh
# Draws docs/methods/timeline-*.svg: naive, gpipe, 1f1b and interleaved pipelines of four stages, and a data-parallel
# pipeline's reductions beside it, each a real run that is paced (docs/methods/timeline-pace.json). Prints the idle shares
# measured beside those of `weft simulate` with the stated times.
# Usage: sh tools/draw_timelines.sh [BUILD_FOLDER [OUT_FOLDER]]
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
weft=${1:-$here/build}/weft
out=${2:-$here/docs/methods}
methods=$here/docs/methods
work=$(mktemp -d "${TMPDIR:-/tmp}/weft-timelines-XXXXXX")
trap 'rm -rf "$work"' EXIT
seq 1 5000 >"$work/numbers.txt"

draw() { # NAME FLAG...
    name=$1
    shift
    "$weft" train --model "$methods/model.json" --data "$work/numbers.txt" --out "$work/$name" --seq-length 32 \
        --train-steps 2 --micro-batch-size 1 --pace "$methods/timeline-pace.json" --timeline "$out/timeline-$name.svg" \
        "$@" >"$work/$name.log" 2>&1 || { cat "$work/$name.log"; exit 1; }
    sed -n 's/^paced pipeline/measured:/p' "$work/$name.log"
}

# Two blocks of 30 ms forward and 60 ms backward a stage: what `weft simulate` is told.
for schedule in naive gpipe 1f1b interleaved; do
    chunks=1
    [ $schedule = interleaved ] && chunks=2
    draw $schedule --pp 4 --pp-schedule $schedule --pp-chunks $chunks --stage-layers "$(
        [ $chunks = 2 ] && echo 2,1,1,1,1,1,1,2 || echo 3,2,2,3)" --global-batch-size 8
    "$weft" simulate --schedule $schedule --stages 4 --micro-batches 8 --chunks $chunks --forward 60 --backward 60 \
        --weight 60 | sed -n 's/^idle/simulated: idle/p'
done
draw data-parallel --dp 2 --pp 4 --stage-layers 3,2,2,3 --global-batch-size 16 --bucket-size-mb 0.2
