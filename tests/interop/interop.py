"""What the scripts of this folder share: running weft, and leaving with 77 where PyTorch or transformers are missing."""
import json
import os
import subprocess
import sys


def need(*modules):
    """Imports, or ends the script as skipped."""
    import importlib

    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    try:
        found = [importlib.import_module(m) for m in modules]
        if "transformers" in modules:
            sys.modules["transformers"].utils.logging.disable_progress_bar()
        return found
    except ImportError as e:
        print(f"skipped: {e} (set WEFT_PYTHON to a Python that has {', '.join(modules)})")
        sys.exit(77)


def weft(program, *args, code=0):
    """Runs weft; its standard output. Another exit code than `code` ends the script."""
    r = subprocess.run([program, *map(str, args)], capture_output=True, text=True)
    if r.returncode != code:
        sys.exit(f"weft {' '.join(map(str, args))}\nended with {r.returncode}, not {code}:\n{r.stdout}{r.stderr}")
    return r.stdout


def config(family, width, layers, vocab, positions, dtype="float32", **more):
    """A config.json for fresh weights."""
    if family == "gpt2":
        c = dict(model_type="gpt2", architectures=["GPT2LMHeadModel"], n_embd=width, n_layer=layers, n_head=4,
                 n_positions=positions, vocab_size=vocab, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
                 bos_token_id=256, eos_token_id=256, dtype=dtype)
    else:
        c = dict(model_type="llama", architectures=["LlamaForCausalLM"], hidden_size=width, num_hidden_layers=layers,
                 num_attention_heads=4, num_key_value_heads=2, intermediate_size=width * 8 // 3 // 4 * 4,
                 vocab_size=vocab, max_position_embeddings=positions, rms_norm_eps=1e-5, rope_theta=10000.0,
                 tie_word_embeddings=False, bos_token_id=256, eos_token_id=256, dtype=dtype)
    c.update(more)
    return c


def write_json(path, value):
    with open(path, "w") as f:
        json.dump(value, f, indent=2)
    return path


def english(source_dir, n_bytes):
    """English text: Debian's fortunes where they are, else the repository's own prose and comments."""
    fortunes = "/usr/share/games/fortunes"
    if os.path.isdir(fortunes):
        files = [os.path.join(fortunes, f) for f in sorted(os.listdir(fortunes)) if "." not in f]
    else:
        files = []
        for folder, names, leaves in os.walk(source_dir):
            names[:] = sorted(n for n in names if not n.startswith((".", "build")) and n != "golden")
            files += [os.path.join(folder, f) for f in sorted(leaves) if f.endswith((".md", ".c", ".h", ".py"))]
    text = b""
    for f in files:
        with open(f, "rb") as i:
            text += i.read()
        if len(text) >= n_bytes:
            break
    return text[:n_bytes]
