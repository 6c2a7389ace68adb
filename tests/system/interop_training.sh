# The losses of weft beside PyTorch's, step by step. Skipped (77) where WEFT_PYTHON, or python3, has no transformers.
. "$(dirname "$0")/common.bash"
for run in llama:fp32 gpt2:fp32 llama:bf16 gpt2:bf16; do
    mkdir -p "$work/$run"
    code=0
    "${WEFT_PYTHON:-python3}" "$WEFT_SOURCE_DIR/tests/interop/compare_training.py" "$weft" "$WEFT_SOURCE_DIR" \
        "$work/$run" --family "${run%:*}" --dtype "${run#*:}" || code=$?
    [ "$code" = 0 ] || exit "$code"
done
