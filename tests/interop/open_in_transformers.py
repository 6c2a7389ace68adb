#!/usr/bin/env python3
"""A folder that weft trained opens in transformers, gives the same logits, gradients and greedy ids, and comes back
unchanged.

  open_in_transformers.py WEFT SOURCE_DIR WORK_DIR

Ends with 0 when all agree, 77 when transformers is not installed.
"""
import os
import sys

from interop import config, english, need, weft, write_json

torch, transformers, safetensors_torch = need("torch", "transformers", "safetensors.torch")

YARN = dict(rope_scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32},
            max_position_embeddings=128)
CASES = {
    "gpt2": ("gpt2", "float32", {}),
    "gpt2-bf16": ("gpt2", "bfloat16", {}),
    "gpt2-untied": ("gpt2", "float32", dict(tie_word_embeddings=False, activation_function="gelu")),
    "llama": ("llama", "float32", {}),
    "llama-bf16": ("llama", "bfloat16", {}),
    "llama-tied-yarn": ("llama", "float32", dict(tie_word_embeddings=True, attention_bias=True, head_dim=20, **YARN)),
}


def train(program, work, name, family, dtype, more):
    """Six steps from fresh weights; the checkpoint."""
    c = config(family, 48, 3, 259, 128, dtype, **more)
    c = write_json(os.path.join(work, name + ".json"), c)
    out = os.path.join(work, name)
    weft(program, "train", "--model", c, "--data", os.path.join(work, "text"), "--out", out, "--train-steps", 6,
         "--seq-length", 40, "--micro-batch-size", 3, "--lr", "1e-2", "--threads-per-rank", 1)
    return os.path.join(out, "latest")


def batch(work):
    g = torch.Generator().manual_seed(7)
    ids = torch.randint(0, 259, (3, 37), generator=g)
    path = os.path.join(work, "batch.safetensors")
    safetensors_torch.save_file({"input_ids": ids}, path)
    return ids, path


def near(what, a, b, bound):
    d = float((a.double() - b.double()).abs().max())
    if not d <= bound:
        sys.exit(f"{what}: differ by {d:.3g}, at most {bound:.3g}")
    return d


def settings(folder):
    c = transformers.AutoConfig.from_pretrained(folder).to_dict()
    return {k: v for k, v in c.items() if k not in ("transformers_version", "_name_or_path")}


def check(program, work, name):
    family, dtype, more = CASES[name]
    folder = train(program, work, name, family, dtype, more)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="auto")
    if model.dtype != getattr(torch, dtype):
        sys.exit(f"{name}: transformers opens it as {model.dtype}, trained as {dtype}")

    # Saved again by transformers: the same tensors, bit for bit, and the same settings.
    again = os.path.join(work, name + "-again")
    model.save_pretrained(again)
    weft(program, "diff", "--exact", os.path.join(os.path.realpath(folder), "model.safetensors"),
         os.path.join(again, "model.safetensors"))
    if settings(folder) != settings(again):
        sys.exit(f"{name}: the settings changed:\n{settings(folder)}\n{settings(again)}")

    # Logits, loss and gradients in float32, from weights of either type.
    ids, path = batch(work)
    exact = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    exact.eval()
    o = exact(input_ids=ids, labels=ids)
    o.loss.backward()
    found = os.path.join(work, "found.safetensors")
    weft(program, "probe", "--model", folder, "--batch", path, "--out", found, "--dtype", "fp32", "--grads")
    t = safetensors_torch.load_file(found)
    d = near(f"{name}: logits", t["logits"], o.logits.detach(), 5e-5)
    near(f"{name}: loss", t["loss"], o.loss.detach().reshape(1), 5e-6)
    for n, p in exact.named_parameters():
        near(f"{name}: gradient of {n}", t["grad/" + n], p.grad, 3e-5 * float(p.grad.abs().max()) + 1e-9)

    # Greedy ids, through both caches; twenty that are not the end of text.
    prompt = ids[:1, :5]
    with torch.no_grad():
        g = exact.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=20, do_sample=False,
                           eos_token_id=None, pad_token_id=0)
    mine = weft(program, "generate", "--model", folder, "--ids", ",".join(str(int(x)) for x in prompt[0]),
                "--max-new-tokens", 20, "--ignore-eos", "--output", "ids", "--dtype", "fp32")
    if [int(x) for x in mine.split()] != g[0, 5:].tolist():
        sys.exit(f"{name}: greedy ids differ: {mine.split()} and {g[0, 5:].tolist()}")
    print(f"{name}: opens, comes back bit for bit, logits within {d:.2g}, gradients and greedy ids agree", flush=True)


def main():
    program, source, work = sys.argv[1:4]
    torch.set_num_threads(1)
    with open(os.path.join(work, "text"), "wb") as f:
        f.write(english(source, 20000))
    for name in CASES:
        check(program, work, name)


if __name__ == "__main__":
    main()
