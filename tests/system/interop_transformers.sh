# A folder that weft trained, in transformers and back. Skipped (77) where WEFT_PYTHON, or python3, has no transformers.
. "$(dirname "$0")/common.bash"
need_python
code=0
"$python" "$WEFT_SOURCE_DIR/tests/interop/open_in_transformers.py" "$weft" "$WEFT_SOURCE_DIR" "$work" || code=$?
exit "$code"
