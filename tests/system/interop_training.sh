# The losses of weft beside PyTorch's, step by step. Skipped (77) where WEFT_PYTHON, or python3, has no transformers.
. "$(dirname "$0")/common.bash"
need_python
for run in llama:fp32:200 gpt2:fp32:200 llama:bf16:200 gpt2:bf16:200; do
    IFS=: read -r family dtype steps <<<"$run"
    mkdir -p "$work/$run"
    code=0
    "$python" "$WEFT_SOURCE_DIR/tests/interop/compare_training.py" "$weft" "$WEFT_SOURCE_DIR" \
        "$work/$run" --family "$family" --dtype "$dtype" --steps "$steps" || code=$?
    [ "$code" = 0 ] || exit "$code"
done
