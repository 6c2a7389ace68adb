#!/usr/bin/env python3
"""Trains the same model on the same batches with weft and with PyTorch, from the same saved weights, and compares the
losses step by step.

  compare_training.py WEFT SOURCE_DIR WORK_DIR [--family llama] [--steps 200] [--dtype fp32] [--bound 0.01]

The batches are windows of a token file in order (--shuffle off); PyTorch runs the model of transformers with its AdamW,
the schedule (warm-up, then cosine) and clipping written out here. With bf16 the model and its gradients are bfloat16,
and AdamW keeps float32 weights, from which the model's are rounded after every step. Ends with 0 when every step's loss
is within --bound of weft's, 77 when transformers is not installed.
"""
import argparse
import json
import math
import os
import struct
import sys

from interop import config, english, need, weft, write_json

torch, transformers = need("torch", "transformers")

SEQ, MICRO, GLOBAL = 64, 4, 8
LR, MIN_LR, WARMUP, DECAY, BETAS, EPS, CLIP = 1e-3, 1e-4, 20, 0.1, (0.9, 0.95), 1e-8, 1.0


def read_tokens(path):
    with open(path, "rb") as f:
        b = f.read()
    if b[:8] != b"WEFTTOK1":
        sys.exit(f"{path} is no token file")
    width, _, _, n, _ = struct.unpack("<IIQQQ", b[8:40])
    kind = {2: torch.uint16, 4: torch.int32}[width]
    ids = torch.frombuffer(bytearray(b[64:]), dtype=kind).to(torch.int64)
    assert ids.numel() == n
    return ids


def rate(step, steps):
    """Of step 1, 2, ...: up to LR at the end of the warm-up, down to MIN_LR at the last step."""
    if step <= WARMUP:
        return LR * step / WARMUP
    x = min(1.0, (step - WARMUP) / (steps - WARMUP))
    return MIN_LR + (LR - MIN_LR) * (1 + math.cos(math.pi * x)) / 2


def torch_losses(folder, tokens, steps, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    model.train()  # no dropout in the config
    masters = [torch.nn.Parameter(p.detach().float()) for p in model.parameters()]  # the parameters themselves in fp32
    matrices = [p for p in masters if p.dim() >= 2]
    others = [p for p in masters if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": DECAY}, {"params": others, "weight_decay": 0.0}],
                                  lr=LR, betas=BETAS, eps=EPS)
    n_windows = (tokens.numel() - 1) // SEQ
    losses, norms = [], []
    for step in range(1, steps + 1):
        windows = [((step - 1) * GLOBAL + i) % n_windows for i in range(GLOBAL)]
        x = torch.stack([tokens[w * SEQ:w * SEQ + SEQ] for w in windows])
        y = torch.stack([tokens[w * SEQ + 1:w * SEQ + SEQ + 1] for w in windows])
        for g in optimizer.param_groups:
            g["lr"] = rate(step, steps)
        model.zero_grad()
        logits = model(input_ids=x).logits.float()
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        loss.backward()
        for m, p in zip(masters, model.parameters()):
            m.grad = p.grad.float()
        norms.append(float(torch.nn.utils.clip_grad_norm_(masters, CLIP)))
        optimizer.step()
        with torch.no_grad():
            for m, p in zip(masters, model.parameters()):
                p.copy_(m)
        losses.append(float(loss.detach()))
    return losses, norms


def main():
    p = argparse.ArgumentParser()
    p.add_argument("weft")
    p.add_argument("source")
    p.add_argument("work")
    p.add_argument("--family", default="llama", choices=("llama", "gpt2"))
    p.add_argument("--steps", type=int, default=200)
    p.add_argument("--dtype", default="fp32", choices=("fp32", "bf16"))
    p.add_argument("--bound", type=float, default=0.01)
    a = p.parse_args()
    torch.set_num_threads(2)
    text, tokens = os.path.join(a.work, "text"), os.path.join(a.work, "tokens.bin")
    with open(text, "wb") as f:
        f.write(english(a.source, 300000))
    weft(a.weft, "tokenize", "--out", tokens, text)

    # Weights to start from: weft's fresh ones, saved after a step whose rate is 0.
    c = write_json(os.path.join(a.work, "config.json"), config(a.family, 64, 3, 257, SEQ))
    start = os.path.join(a.work, "start")
    weft(a.weft, "train", "--model", c, "--data", tokens, "--out", start, "--train-steps", 1, "--lr", 0, "--optimizer",
         "sgd", "--seq-length", SEQ)
    folder = os.path.join(start, "latest")

    out = os.path.join(a.work, "out")
    weft(a.weft, "train", "--model", folder, "--data", tokens, "--out", out, "--shuffle", "off", "--train-steps", a.steps,
         "--seq-length", SEQ, "--micro-batch-size", MICRO, "--global-batch-size", GLOBAL, "--lr", LR, "--min-lr", MIN_LR,
         "--lr-schedule", "cosine", "--lr-warmup-steps", WARMUP, "--weight-decay", DECAY, "--adam-beta1", BETAS[0],
         "--adam-beta2", BETAS[1], "--adam-eps", EPS, "--clip-grad", CLIP, "--dtype", a.dtype)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        lines = [json.loads(x) for x in f]
    mine = [x for x in lines if "loss" in x]
    dtype = torch.bfloat16 if a.dtype == "bf16" else torch.float32
    theirs, norms = torch_losses(folder, read_tokens(tokens), a.steps, dtype)
    if len(mine) != a.steps:
        sys.exit(f"{len(mine)} steps in metrics.jsonl, {a.steps} were run")
    worst, at, worst_norm = 0.0, 0, 0.0
    for k, (m, t) in enumerate(zip(mine, theirs)):
        if abs(m["lr"] - rate(k + 1, a.steps)) > 1e-9:
            sys.exit(f"step {k + 1}: weft's rate is {m['lr']}, {rate(k + 1, a.steps)} was meant")
        d = abs(m["loss"] - t) / t
        worst_norm = max(worst_norm, abs(m["grad_norm"] - norms[k]) / norms[k])
        if d > worst:
            worst, at = d, k + 1
        if (k + 1) % 50 == 0 or k == 0:
            print(f"step {k + 1}: weft {m['loss']:.6f}, PyTorch {t:.6f}", flush=True)
    if not theirs[-1] < 0.75 * theirs[0]:
        sys.exit(f"the loss went from {theirs[0]:.3f} to {theirs[-1]:.3f}: nothing was learnt, so nothing was compared")
    print(f"{a.family} {a.dtype}: largest relative difference of the loss {worst:.2e} (step {at} of {a.steps}), of the "
          f"gradient norm {worst_norm:.2e}")
    if not worst <= a.bound:
        sys.exit(f"over the bound of {a.bound:g}")


if __name__ == "__main__":
    main()
