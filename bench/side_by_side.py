#!/usr/bin/env python3
"""Training speed and memory of weft beside PyTorch, in one run: A B A B ..., medians and ratios.

  bench/side_by_side.py --weft build/weft --peers DIR --python PYTHON [--models gpt2,llama] [--dtypes fp32,bf16]
                        [--rounds 3] [--steps 6] [--threads 2]

DIR holds PyTorch programs to compare with: train.py MODEL lean THREADS DTYPE eager WARM STEPS, which prints tok/s= and
rssMB=, and configs/*.json with the same shapes for weft. PYTHON is an interpreter that has torch. Both sides train on
random tokens: a step is forward, backward and AdamW of 4 sequences. The first two steps of a process are not counted; the
figure of a process is the median of its steps, the figure of a side the median of its processes.
"""
import argparse
import json
import os
import random
import re
import statistics
import struct
import subprocess
import tempfile

SHAPES = {"gpt2": ("gpt2-124m.json", 50257, 256), "llama": ("llama-56m.json", 32000, 512)}
WARM = 2


def write_tokens(path, vocab, n):
    """A token file (docs/formats.md) of n random ids below vocab."""
    draw = random.Random(1)
    with open(path, "wb") as f:
        f.write(struct.pack("<8sIIQQQ24x", b"WEFTTOK1", 2, 0, vocab, n, vocab))
        f.write(b"".join(struct.pack("<H", draw.randrange(vocab)) for _ in range(n - 1)))
        f.write(struct.pack("<H", vocab - 1))


def peak_mb(command, **kwargs):
    """Runs a command to its end; its standard output and the largest resident size of it alone, in MB."""
    with tempfile.TemporaryFile("w+") as out:
        p = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, **kwargs)
        _, status, usage = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {p.returncode}:\n{text}")
    return text, usage.ru_maxrss * 1024 / 1e6


def run_weft(a, model, dtype, folder):
    config, vocab, seq = SHAPES[model]
    data = os.path.join(folder, model + ".bin")
    if not os.path.exists(data):
        write_tokens(data, vocab, 4 * seq * 64 + 1)
    out = tempfile.mkdtemp(dir=folder)
    command = [a.weft, "train", "--model", os.path.join(a.peers, "configs", config), "--data", data, "--out", out,
               "--train-steps", str(WARM + a.steps), "--micro-batch-size", "4", "--seq-length", str(seq),
               "--dtype", dtype, "--lr", "1e-4", "--threads-per-rank", str(a.threads)]
    _, mb = peak_mb(command)
    with open(os.path.join(out, "metrics.jsonl")) as f:
        steps = [json.loads(line) for line in f]
    subprocess.run(["rm", "-rf", out], check=True)
    return statistics.median(s["tokens_per_second"] for s in steps[WARM:]), mb


def run_torch(a, model, dtype):
    command = [a.python, "train.py", model, "lean", str(a.threads), dtype, "eager", str(WARM), str(a.steps)]
    env = {k: v for k, v in os.environ.items() if not k.startswith("OPENBLAS_")}
    text, mb = peak_mb(command, cwd=a.peers, env=env)
    return float(re.search(r"tok/s=([0-9.]+)", text).group(1)), mb


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weft", required=True)
    p.add_argument("--peers", required=True)
    p.add_argument("--python", required=True)
    p.add_argument("--models", default="gpt2,llama")
    p.add_argument("--dtypes", default="fp32,bf16")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=2)
    a = p.parse_args()
    a.weft, a.peers, a.python = (os.path.abspath(x) for x in (a.weft, a.peers, a.python))
    print("| model | dtype | weft tok/s | PyTorch tok/s | ratio | weft MB | PyTorch MB | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for model in a.models.split(","):
            for dtype in a.dtypes.split(","):
                pairs = [(run_weft(a, model, dtype, folder), run_torch(a, model, dtype)) for _ in range(a.rounds)]
                weft, torch = ([x[side] for x in pairs] for side in (0, 1))
                speed = [statistics.median(v for v, _ in s) for s in (weft, torch)]
                memory = [statistics.median(m for _, m in s) for s in (weft, torch)]
                ratio = statistics.median(x[0] / y[0] for x, y in pairs)
                print(f"| {model} | {dtype} | {speed[0]:.0f} | {speed[1]:.0f} | {ratio:.2f} "
                      f"| {memory[0]:.0f} | {memory[1]:.0f} | {memory[0] / memory[1]:.2f} |", flush=True)


if __name__ == "__main__":
    main()
