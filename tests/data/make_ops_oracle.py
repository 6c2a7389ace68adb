#!/usr/bin/env python3
"""Writes tests/data/ops_oracle.inc: what PyTorch computes for small inputs of weft's operations.

    python3 tests/data/make_ops_oracle.py > tests/data/ops_oracle.inc

Inputs are fp32 numbers; everything but the optimizers is computed in fp64 by PyTorch's own functions and autograd, the
optimizers by torch.optim in fp32. Made with PyTorch 2.13.
"""
import math
import sys

import torch
import torch.nn.functional as F

torch.manual_seed(20240607)


def rand(*shape, scale=1.0):
    return (torch.randn(*shape) * scale).float().double()


def emit(name, tensor, ctype="double"):
    flat = tensor.detach().reshape(-1).tolist()
    text = [str(int(v)) if ctype == "int" else f"{float(v):.12g}" for v in flat]
    print(f"static const {ctype} oracle_{name}[{len(text)}] = {{")
    line = "   "
    for t in text:
        if len(line) + len(t) + 2 > 100:
            print(line)
            line = "   "
        line += f" {t},"
    print(line)
    print("};")


def grads(out, dout, inputs):
    return torch.autograd.grad(out, inputs, dout)


def activations():
    x = torch.cat([torch.tensor([0.0, 1.0, -1.0, 0.5, -3.0, 6.0, -6.0, 12.0]).double(), rand(16, scale=2.0)])
    dy, up = rand(24), rand(24)
    emit("act_x", x)
    emit("act_dy", dy)
    emit("act_up", up)
    kinds = [lambda v: F.gelu(v, approximate="tanh"), F.gelu, F.relu, F.silu]
    ys, dxs, gys, gdxs, gdups = [], [], [], [], []
    for f in kinds:
        v = x.clone().requires_grad_()
        u = up.clone().requires_grad_()
        y = f(v)
        ys.append(y)
        dxs.append(grads(y, dy, [v])[0])
        gated = f(v) * u
        dv, du = grads(gated, dy, [v, u])
        gys.append(gated)
        gdxs.append(dv)
        gdups.append(du)
    for name, parts in (("y", ys), ("dx", dxs), ("gated_y", gys), ("gated_dx", gdxs), ("gated_dup", gdups)):
        emit(f"act_{name}", torch.stack(parts))


def norms():
    x, dy = rand(3, 7, scale=2.0) + 1.0, rand(3, 7)
    x = x.float().double()
    gain, bias, residual = rand(7), rand(7), rand(3, 7)
    for name, t in (("x", x), ("dy", dy), ("gain", gain), ("bias", bias), ("residual", residual)):
        emit(f"norm_{name}", t)
    v, g, b = (t.clone().requires_grad_() for t in (x, gain, bias))
    y = F.layer_norm(v, (7,), g, b, 1e-5)
    dx, dg, db = grads(y, dy, [v, g, b])
    for name, t in (("y", y), ("dx", dx), ("dgain", dg), ("dbias", db)):
        emit(f"layer_{name}", t)
    y = F.rms_norm(v, (7,), g, 1e-5)
    dx, dg = grads(y, dy, [v, g])
    for name, t in (("y", y), ("dx", dx), ("dgain", dg)):
        emit(f"rms_{name}", t)


def rope():
    heads, dim, half = 2, 8, 4
    positions = torch.tensor([0, 1, 5, 13])
    freq = 10000.0 ** (-torch.arange(half).double() / half)
    table = torch.arange(16).double()[:, None] * freq
    cos, sin = table.cos().float().double(), table.sin().float().double()
    x, dy = rand(4, heads * dim), rand(4, heads * dim)
    v = x.clone().requires_grad_()
    q = v.view(4, heads, dim)
    rotated = torch.cat([-q[..., half:], q[..., :half]], dim=-1)
    c = torch.cat([cos, cos], -1)[positions][:, None]
    s = torch.cat([sin, sin], -1)[positions][:, None]
    y = (q * c + rotated * s).reshape(4, heads * dim)
    emit("rope_positions", positions, "int")
    for name, t in (("cos", cos), ("sin", sin), ("x", x), ("dy", dy), ("y", y), ("dx", grads(y, dy, [v])[0])):
        emit(f"rope_{name}", t)


def attention():
    n, t, h, kv, d = 2, 5, 4, 2, 6
    q, k, v, dout = rand(n * t, h * d), rand(n * t, kv * d), rand(n * t, kv * d), rand(n * t, h * d)
    qs, ks, vs = (w.clone().requires_grad_() for w in (q, k, v))

    def heads(w, count):
        return w.view(n, t, count, d).transpose(1, 2)

    kk, vv = (heads(w, kv).repeat_interleave(h // kv, dim=1) for w in (ks, vs))
    out = F.scaled_dot_product_attention(heads(qs, h), kk, vv, is_causal=True)
    scores = heads(qs, h) @ kk.transpose(-1, -2) / math.sqrt(d)
    mask = torch.ones(t, t, dtype=torch.bool).tril()
    lse = torch.logsumexp(scores.masked_fill(~mask, float("-inf")), -1)
    out = out.transpose(1, 2).reshape(n * t, h * d)
    dq, dk, dv = grads(out, dout, [qs, ks, vs])
    for name, w in (("q", q), ("k", k), ("v", v), ("dout", dout), ("out", out), ("lse", lse), ("dq", dq), ("dk", dk),
                    ("dv", dv)):
        emit(f"attn_{name}", w)


def cross_entropy():
    logits = rand(6, 9, scale=3.0)
    targets = torch.tensor([0, 8, -100, 4, 3, 4])
    v = logits.clone().requires_grad_()
    loss = F.cross_entropy(v, targets, reduction="none", ignore_index=-100)
    emit("xent_logits", logits)
    emit("xent_targets", targets, "int")
    emit("xent_loss", loss)
    emit("xent_grad", grads(loss, torch.full((6,), 0.2).double(), [v])[0])


def optimizers():
    n, steps = 11, 3
    start, grad = torch.randn(n), torch.randn(steps, n)
    emit("opt_start", start)
    emit("opt_grad", grad)
    p = start.clone().requires_grad_()
    opt = torch.optim.AdamW([p], lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1, foreach=False)
    for s in range(steps):
        p.grad = grad[s].clone()
        opt.step()
    emit("adamw_p", p)
    emit("adamw_m", opt.state[p]["exp_avg"])
    emit("adamw_v", opt.state[p]["exp_avg_sq"])
    for name, momentum in (("sgd", 0.0), ("momentum", 0.9)):
        p = start.clone().requires_grad_()
        opt = torch.optim.SGD([p], lr=0.01, momentum=momentum, weight_decay=0.1, foreach=False)
        for s in range(steps):
            p.grad = grad[s].clone()
            opt.step()
        emit(f"{name}_p", p)
        if momentum > 0:
            emit(f"{name}_m", opt.state[p]["momentum_buffer"])


def main():
    print("/* What PyTorch computes for small inputs. Made by tests/data/make_ops_oracle.py; do not edit. */")
    for part in (activations, norms, rope, attention, cross_entropy, optimizers):
        part()
    return 0


if __name__ == "__main__":
    sys.exit(main())
