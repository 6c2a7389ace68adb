#!/usr/bin/env python3
"""Writes tiny seeded models in the Hugging Face layout, and what PyTorch and transformers compute with them.

  python make_reference.py --out DIR [--models gpt2,llama,...]

Needs torch, transformers (5.x), safetensors, on a CPU. One folder a model:

  model/                 config.json, generation_config.json, model.safetensors (float32)
  model-sharded/         (llama only) the same weights in several shards with model.safetensors.index.json
  config.hub-style.json  the same configuration under the key names that published checkpoints use
  golden.safetensors     the values (names: README.md)
  golden_bf16.safetensors  (gpt2, llama) the same weights rounded to bfloat16: a bfloat16 run beside a float64 one
  golden.json            settings, scalars, differences between the float32 and the float64 run, tensor list

Weights are drawn in float64 and rounded to float32; the float64 run starts from these same float32 weights and
really is float64 throughout (checked op by op), norms, softmax, rotary tables and loss included.
"""
import argparse, contextlib, copy, hashlib, inspect, json, math, os, shutil, tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import (GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, MistralConfig,
                          MistralForCausalLM, MixtralConfig, MixtralForCausalLM, Qwen2Config, Qwen2ForCausalLM,
                          Qwen3Config, Qwen3ForCausalLM)

transformers.logging.set_verbosity_error()
with contextlib.suppress(Exception):
    transformers.utils.logging.disable_progress_bar()

B, T, STEPS, GEN, PROMPT = 2, 24, 5, 32, 8
LR = [1e-3, 2e-3, 3e-3, 2e-3, 1e-3]
BETAS, EPS, DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
NOISE = 1e-6
F32, F64 = torch.float32, torch.float64

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
COMMON = dict(hidden_size=32, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
              bos_token_id=1, eos_token_id=2, rms_norm_eps=1e-5, tie_word_embeddings=False, rope_parameters=ROPE)


def spec(cls, ccls, seed, vary, lean=False, shape=(B, T), **kw):
    """lean, for size: no training steps, no float32 run; float64 gradients are stored rounded to float32."""
    return dict(cls=cls, ccls=ccls, seed=seed, vary=vary, lean=lean, shape=shape, kw=kw)


def rope(kind, max_positions, seed, **kw):
    """A small llama with that kind of rotary positions; heads of 16 so that several frequencies differ."""
    p = dict({"rope_type": kind, "rope_theta": 10000.0}, **kw)
    return spec(LlamaForCausalLM, LlamaConfig, seed, [("rope_parameters", ROPE)], lean=True,
                **dict(COMMON, vocab_size=97, num_hidden_layers=2, intermediate_size=40, num_attention_heads=2,
                       num_key_value_heads=1, max_position_embeddings=max_positions, rope_parameters=p))


MODELS = {
    "gpt2": spec(GPT2LMHeadModel, GPT2Config, 3101, [("layer_norm_epsilon", 1e-3), ("activation_function", "gelu")],
                 vocab_size=256, n_embd=32, n_layer=2, n_head=4, n_positions=64, bos_token_id=0, eos_token_id=0,
                 attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, activation_function="gelu_new"),
    "llama": spec(LlamaForCausalLM, LlamaConfig, 5102,
                  [("rms_norm_eps", 1e-3), ("rope_parameters", dict(ROPE, rope_theta=20000.0))],
                  **dict(COMMON, vocab_size=256, num_hidden_layers=2, intermediate_size=48)),
    "llama3_rope": spec(LlamaForCausalLM, LlamaConfig, 4103, [("rope_parameters", dict(ROPE, rope_theta=500000.0))], lean=True,
                        **dict(COMMON, vocab_size=200, num_hidden_layers=3, intermediate_size=40, num_attention_heads=2,
                               num_key_value_heads=1, rope_parameters={
                                   "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                   "high_freq_factor": 4.0, "original_max_position_embeddings": 32})),
    "mistral": spec(MistralForCausalLM, MistralConfig, 6104, [("sliding_window", 9), ("sliding_window", None)],
                    **dict(COMMON, vocab_size=200, num_hidden_layers=3, intermediate_size=40, sliding_window=8)),
    "qwen2": spec(Qwen2ForCausalLM, Qwen2Config, 11105, [("rope_parameters", dict(ROPE, rope_theta=10000.0))],
                  **dict(COMMON, vocab_size=250, num_hidden_layers=2, intermediate_size=56, rms_norm_eps=1e-6,
                         tie_word_embeddings=True, rope_parameters=dict(ROPE, rope_theta=1000000.0))),
    "qwen3": spec(Qwen3ForCausalLM, Qwen3Config, 9106, [("rope_parameters", dict(ROPE, rope_theta=10000.0))],
                  **dict(COMMON, vocab_size=256, num_hidden_layers=2, intermediate_size=48, head_dim=16,
                         rms_norm_eps=1e-6, tie_word_embeddings=True,
                         rope_parameters=dict(ROPE, rope_theta=1000000.0))),
    "mixtral": spec(MixtralForCausalLM, MixtralConfig, 10107, [("num_experts_per_tok", 1)],
                    **dict(COMMON, vocab_size=160, num_hidden_layers=2, intermediate_size=28, num_local_experts=4,
                           num_experts_per_tok=2, sliding_window=None, router_aux_loss_coef=0.02,
                           rope_parameters=dict(ROPE, rope_theta=1000000.0))),
    "llama_odd": spec(LlamaForCausalLM, LlamaConfig, 108, [("rms_norm_eps", 1e-3)], lean=True, shape=(3, 19),
                      **dict(COMMON, vocab_size=257, hidden_size=48, num_attention_heads=6, num_key_value_heads=2,
                             num_hidden_layers=5, intermediate_size=20, tie_word_embeddings=True,
                             rope_parameters=dict(ROPE, rope_theta=50000.0))),
    # head_dim 5, and no size is a multiple of anything
    "gpt2_odd": spec(GPT2LMHeadModel, GPT2Config, 13001, [("layer_norm_epsilon", 1e-3), ("activation_function", "gelu")],
                     lean=True, shape=(3, 23), vocab_size=257, n_embd=15, n_layer=3, n_head=3, n_inner=37,
                     n_positions=41, bos_token_id=0, eos_token_id=0, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
                     activation_function="gelu_new"),
    # what GPT-2 configs may ask for and hardly one does
    "gpt2_other": spec(GPT2LMHeadModel, GPT2Config, 13002,
                       [("activation_function", "gelu_new"), ("scale_attn_by_inverse_layer_idx", False)], lean=True,
                       shape=(2, 17), vocab_size=101, n_embd=24, n_layer=3, n_head=3, n_positions=64, bos_token_id=0,
                       eos_token_id=0, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0, activation_function="gelu",
                       scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False),
    "rope_linear": rope("linear", 128, 12001, factor=2.5),
    # the batch and the generated text are longer than max_positions: frequencies change with the length
    "rope_dynamic": rope("dynamic", 16, 12002, factor=2.0),
    "rope_yarn": rope("yarn", 128, 12003, factor=4.0, original_max_position_embeddings=32),
    "rope_yarn_mscale": rope("yarn", 128, 12004, factor=8.0, original_max_position_embeddings=16, mscale=1.0,
                             mscale_all_dim=0.7, beta_fast=8, beta_slow=0.5, truncate=False),
    # biases everywhere, and heads wider than hidden_size / heads
    "llama_bias": spec(LlamaForCausalLM, LlamaConfig, 14001, [("rms_norm_eps", 1e-3)], lean=True, shape=(2, 21),
                       **dict(COMMON, vocab_size=97, num_hidden_layers=2, intermediate_size=44, head_dim=12,
                              attention_bias=True, mlp_bias=True)),
}
BF16 = ("gpt2", "llama")


class NoFloat32(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        r = func(*args, **(kwargs or {}))
        for x in (r if isinstance(r, (tuple, list)) else [r]):
            if isinstance(x, torch.Tensor) and x.dtype in (F32, torch.float16, torch.bfloat16):
                raise AssertionError(f"{func} gave {x.dtype} in the float64 run")
        return r


@contextlib.contextmanager
def precision(dtype):
    """In the float64 run every float32 the modelling code names is float64."""
    if dtype != F64:
        yield
        return
    old = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
    torch.float32 = torch.float = F64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(F64)
    try:
        with NoFloat32():
            yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = old[:3]
        torch.set_default_dtype(old[3])


def config(s, **over):
    c = s["ccls"](**dict(copy.deepcopy(s["kw"]), **copy.deepcopy(over)))
    c._attn_implementation = "eager"
    with contextlib.suppress(Exception):
        c._experts_implementation = "eager"
    return c


def build(s, weights, dtype, **over):
    m = s["cls"]._from_config(config(s, **over), attn_implementation="eager")
    m.eval()
    with torch.no_grad():
        for n, p in m.named_parameters():
            p.data = weights[n].to(dtype).clone() if n in weights else p.data
        m.tie_weights()
    assert all(p.dtype == dtype for p in m.parameters())
    buffers = F32 if dtype == torch.bfloat16 else dtype  # rotary frequencies stay float32
    assert all(b.dtype == buffers for n, b in m.named_buffers() if b.is_floating_point()), list(m.named_buffers())
    return m


def draw(s):
    """Large enough that attention, rotary positions, norms and biases all move the logits."""
    g = torch.Generator().manual_seed(s["seed"])
    m = s["cls"]._from_config(config(s), attn_implementation="eager")
    w = {}
    for n, p in m.named_parameters():
        r = torch.randn(p.shape, generator=g, dtype=F64)
        if p.dim() >= 2:
            fan = p.shape[0] if n.startswith("transformer.h.") else p.shape[-1]
            gain = 2.0 if ("q_proj" in n or "k_proj" in n or "gate.weight" in n or "c_attn" in n) else 1.2
            if "o_proj" in n or "down_proj" in n:
                gain *= math.sqrt(2 / m.config.num_hidden_layers)
            r = r * (0.7 if ("embed" in n or "wte" in n) and not getattr(m.config, "tie_word_embeddings", False)
                     else 0.25 if ("wpe" in n or "wte" in n or "embed" in n) else gain / math.sqrt(fan))
        elif n.endswith("bias"):
            r = r * 0.2
        else:
            r = 1.0 + 0.2 * r
        w[n] = r.to(F32)
    return w, g


def to_disk(s, tensors, dtype):
    """Named and laid out as in the checkpoint (split experts, no tied copy)."""
    with precision(dtype):
        m = build(s, tensors, dtype)
    d = tempfile.mkdtemp()
    m.save_pretrained(d)
    r = load_file(os.path.join(d, "model.safetensors"))
    shutil.rmtree(d)
    return r


def losses(logits, ids):
    lp = torch.log_softmax(logits[:, :-1], dim=-1)
    return -lp.gather(-1, ids[:, 1:, None])[..., 0]


def forward_part(s, w, ids, masked, dtype):
    r = {}
    with precision(dtype):
        m = build(s, w, dtype)
        o = m(input_ids=ids, labels=ids)
        assert o.logits.dtype == dtype
        o.loss.backward()
        grads = {n: p.grad.detach().clone() for n, p in m.named_parameters()}
        with torch.no_grad():
            r["logits"] = o.logits.detach()
            r["token_loss"] = losses(o.logits.detach(), ids)
            r["loss"] = o.loss.detach().reshape(1)
            assert (r["token_loss"].mean() - r["loss"]).abs() < 1e-5
            r["loss_masked"] = m(input_ids=ids, labels=masked).loss.reshape(1)
            if s["cls"] is MixtralForCausalLM:
                q = m(input_ids=ids, labels=ids, output_router_logits=True)
                r["aux_loss"] = q.aux_loss.reshape(1)
                r["loss_with_aux"] = q.loss.reshape(1)
                for i, x in enumerate(q.router_logits):
                    r[f"router_logits.{i}"] = x
    return r, to_disk(s, grads, dtype)


def bf16_part(s, w, ids):
    """The run in bfloat16 as transformers does it (weights, activations and gradients in bfloat16, the loss from logits
    made float32), and the float64 run of the same rounded weights: what rounding does to PyTorch is the yardstick."""
    r = {n: x.to(torch.bfloat16).to(F32) for n, x in w.items()}
    m = build(s, r, torch.bfloat16)
    o = m(input_ids=ids, labels=ids)
    o.loss.backward()
    t = {"input_ids": ids, "logits.bf16": o.logits.detach(), "loss.bf16": o.loss.detach().reshape(1)}
    t["token_loss.bf16"] = losses(o.logits.detach().float(), ids)
    assert o.logits.dtype == torch.bfloat16 and o.loss.dtype == F32
    for n, x in to_disk(s, {n: p.grad.detach() for n, p in m.named_parameters()}, torch.bfloat16).items():
        t["grad.bf16/" + n] = x
    f, g = forward_part(s, r, ids, ids, F64)
    for k in ("logits", "token_loss", "loss"):
        t[k + ".f64"] = f[k]
    for k in g:
        t["grad.f64/" + k] = g[k].to(F32)
    e = {k: diff(t[k + ".bf16"], t[k + ".f64"]) for k in ("logits", "token_loss", "loss")}
    return t, e


def train_part(s, w, batches, dtype, noise=0.0, noise_seed=0):
    """noise: every gradient is moved by this times the largest in its tensor, to see what rounding does to AdamW."""
    gen = torch.Generator().manual_seed(noise_seed)
    with precision(dtype):
        m = build(s, w, dtype)
        mats = [p for p in m.parameters() if p.dim() >= 2]
        rest = [p for p in m.parameters() if p.dim() < 2]
        opt = torch.optim.AdamW([{"params": mats, "weight_decay": DECAY}, {"params": rest, "weight_decay": 0.0}],
                                lr=LR[0], betas=BETAS, eps=EPS, foreach=False)
        loss, norm = [], []
        for k in range(STEPS):
            for gr in opt.param_groups:
                gr["lr"] = LR[k]
            opt.zero_grad()
            o = m(input_ids=batches[k], labels=batches[k])
            o.loss.backward()
            if noise:
                for x in m.parameters():
                    r = torch.randn(x.shape, generator=gen, dtype=dtype)
                    x.grad += noise * x.grad.abs().max() * r * (x.grad != 0)
            norm.append(torch.nn.utils.clip_grad_norm_(m.parameters(), CLIP, foreach=False).reshape(1))
            loss.append(o.loss.detach().reshape(1))
            opt.step()
        p = {n: x.detach().clone() for n, x in m.named_parameters()}
        a = {n: opt.state[x]["exp_avg"].clone() for n, x in m.named_parameters()}
        v = {n: opt.state[x]["exp_avg_sq"].clone() for n, x in m.named_parameters()}
        loss, norm = torch.cat(loss), torch.cat(norm)
    return (loss, norm) + tuple(to_disk(s, x, dtype) for x in (p, a, v))


def generate(s, w, prompt, dtype):
    """Greedy, one token at a time on the cache; checked against generate() and against no cache at all."""
    with precision(dtype), torch.no_grad():
        m = build(s, w, dtype)
        key = "cache" if "cache" in inspect.signature(m.forward).parameters else "past_key_values"
        cache, x, ids, rows = transformers.DynamicCache(config=m.config), prompt[None], [], []
        for _ in range(GEN):
            o = m(input_ids=x, use_cache=True, **{key: cache})
            rows.append(o.logits[0, -1])
            ids.append(int(rows[-1].argmax()))
            x = torch.tensor([[ids[-1]]])
        rows = torch.stack(rows)
        full = m(input_ids=torch.cat([prompt, torch.tensor(ids[:-1])])[None], use_cache=False).logits[0, PROMPT - 1:]
        top = rows.topk(2, dim=-1).values
        margin = float((top[:, 0] - top[:, 1]).min())
        cache_diff = float((full - rows).abs().max())
    if dtype == F32:
        g = m.generate(prompt[None], attention_mask=torch.ones_like(prompt[None]), max_new_tokens=GEN, do_sample=False, use_cache=True, eos_token_id=None,
                       pad_token_id=0)[0, PROMPT:].tolist()
        assert g == ids, (g, ids)
    return ids, rows, margin, cache_diff


def diff(a, b):
    return float((a.to(F64) - b.to(F64)).abs().max())


def hub_style(cfg):
    c = {k: v for k, v in cfg.items() if k not in ("rope_parameters", "dtype", "transformers_version")}
    r = cfg.get("rope_parameters")
    if r:
        c["rope_theta"] = r["rope_theta"]
        c["rope_scaling"] = None if r["rope_type"] == "default" else {k: v for k, v in r.items() if k != "rope_theta"}
    c["torch_dtype"] = "float32"
    return dict(sorted(c.items()))


def hashes(d):
    r = {}
    for base, _, fs in os.walk(d):
        for f in fs:
            p = os.path.join(base, f)
            r[os.path.relpath(p, d)] = hashlib.sha256(open(p, "rb").read()).hexdigest()
    return dict(sorted(r.items()))


def shapes(t):
    return {k: {"dtype": str(v.dtype).replace("torch.", ""), "shape": list(v.shape)} for k, v in sorted(t.items())}


def write_lean(name, s, d, cfg, t, f32, g32, f64, g64, null, sens, gen):
    skip = {z["tensor"] for z in null}
    man = {
        "model": name, "family": cfg["model_type"], "seed": s["seed"],
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "parameters": sum(v.numel() for v in g64.values()), "batch": list(s["shape"]), "ignore_label": -100,
        "generation": {"ids": gen[0], "smallest_margin_f64": gen[1], "cache_against_no_cache": {"f32": gen[2],
                                                                                               "f64": gen[3]}},
        "scalars": {"loss.f32": float(f32["loss"]), "loss.f64": float(f64["loss"]),
                    "loss_masked.f64": float(f64["loss_masked"])},
        "f32_against_f64": {
            "logits": diff(f32["logits"], f64["logits"]), "token_loss": diff(f32["token_loss"], f64["token_loss"]),
            "loss": diff(f32["loss"], f64["loss"]),
            "grad_over_largest_in_tensor": max(diff(g32[k], g64[k]) / max(float(g64[k].abs().max()), 1e-30)
                                               for k in g64 if k not in skip)},
        "zero_gradient_in_exact_arithmetic": null, "logits_move_by": sens, "files": hashes(d), "tensors": shapes(t)}
    json.dump(man, open(os.path.join(d, "golden.json"), "w"), indent=1)
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(d) for f in fs)
    print(f"{name}: {man['parameters']} parameters, {size / 1e6:.2f} MB, loss {man['scalars']['loss.f64']:.4f}, margin "
          f"{gen[1]:.3f}, { {k: float('%.2g' % v) for k, v in man['f32_against_f64'].items()} }, "
          f"moves { {k: float('%.2g' % v) for k, v in sens.items()} }, null {null}", flush=True)


def one(name, s, out):
    w, g = draw(s)
    d = os.path.join(out, name)
    shutil.rmtree(d, ignore_errors=True)
    os.makedirs(d)
    vocab = s["kw"]["vocab_size"]
    n_seqs, n_tokens = s["shape"]
    batches = torch.randint(0, vocab, (STEPS, n_seqs, n_tokens), generator=g)
    ids = batches[0]
    masked = ids.clone()
    masked[0, :7] = -100
    masked[1, 15:] = -100

    m = build(s, w, F32)
    m.generation_config.eos_token_id = None
    m.save_pretrained(os.path.join(d, "model"))
    if name == "llama":
        m.save_pretrained(os.path.join(d, "model-sharded"), max_shard_size="48KB")
    cfg = json.load(open(os.path.join(d, "model", "config.json")))
    hub = os.path.join(d, "config.hub-style.json")
    json.dump(hub_style(cfg), open(hub, "w"), indent=2)

    f32, g32 = forward_part(s, w, ids, masked, F32)
    f64, g64 = forward_part(s, w, ids, masked, F64)
    on_disk = load_file(os.path.join(d, "model", "model.safetensors")).keys()
    assert g32.keys() == g64.keys() == on_disk
    if not s["lean"]:
        l32, n32, p32, a32, v32 = train_part(s, w, batches, F32)
        l64, n64, p64, a64, v64 = train_part(s, w, batches, F64)
        assert p32.keys() == on_disk

    for _ in range(400):  # a prompt whose every greedy choice is clear of rounding
        prompt = torch.randint(0, vocab, (PROMPT,), generator=g)
        i32, r32, m32, c32 = generate(s, w, prompt, F32)
        if m32 > 0.02 and len(set(i32)) > 8:
            break
    i64, r64, m64, c64 = generate(s, w, prompt, F64)
    assert i32 == i64 and m64 > 0.02, (i32, i64, m64)

    # the hub-style configuration and the sharded weights load to the same model
    with tempfile.TemporaryDirectory() as t:
        shutil.copytree(os.path.join(d, "model"), t, dirs_exist_ok=True)
        shutil.copy(hub, os.path.join(t, "config.json"))
        again = s["cls"].from_pretrained(t, dtype=F32, attn_implementation="eager").eval()
        with torch.no_grad():
            assert diff(again(input_ids=ids).logits, f32["logits"]) < 1e-6
    if name == "llama":
        again = s["cls"].from_pretrained(os.path.join(d, "model-sharded"), dtype=F32, attn_implementation="eager")
        with torch.no_grad():
            assert diff(again.eval()(input_ids=ids).logits, f32["logits"]) == 0

    sens = {}
    for key, val in s["vary"]:
        with precision(F64), torch.no_grad():
            x = build(s, w, F64, **{key: val})(input_ids=ids).logits
        sens[f"{key}={val}"] = diff(x, f64["logits"])
    with precision(F64), torch.no_grad():
        sw = ids.clone()
        sw[:, [2, 3]] = sw[:, [3, 2]]
        x = build(s, w, F64)(input_ids=sw).logits
        sens["tokens 2 and 3 swapped, last position"] = diff(x[:, -1], f64["logits"][:, -1])

    t = {"input_ids": ids, "labels_masked": masked, "gen.prompt": prompt, "gen.ids": torch.tensor(i32)}
    for k in f32:
        t[k + ".f64"] = f64[k]
    for k in g64:
        t["grad.f64/" + k] = g64[k].to(F32) if s["lean"] else g64[k]
    if not s["lean"]:
        t.update({"train.input_ids": batches, "train.lr": torch.tensor(LR, dtype=F64), "gen.logits.f32": r32,
                  "train.loss.f32": l32, "train.loss.f64": l64, "train.grad_norm.f32": n32,
                  "train.grad_norm.f64": n64})
        for k in f32:
            t[k + ".f32"] = f32[k]
        for k in g32:
            t["grad.f32/" + k] = g32[k]
            t["after.param.f32/" + k], t["after.exp_avg.f32/" + k] = p32[k], a32[k]
            t["after.exp_avg_sq.f32/" + k] = v32[k]
    t = {k: v.detach().clone().contiguous() for k, v in t.items()}
    gp = os.path.join(d, "golden.safetensors")
    save_file(t, gp, metadata={"format": "pt"})
    bf16 = None
    if name in BF16:
        tb, bf16 = bf16_part(s, w, ids)
        tb = {k: v.detach().clone().contiguous() for k, v in tb.items()}
        save_file(tb, os.path.join(d, "golden_bf16.safetensors"), metadata={"format": "pt"})

    null = []  # gradients that are zero in exact arithmetic: Adam turns their rounding noise into steps
    for k in g64:
        x = g64[k].flatten().abs()
        at = ((x < 1e-12) & ((g32[k].flatten() != 0) | (x != 0))).nonzero().flatten().tolist()
        if at:
            assert float(x[at[0]:at[-1] + 1].max()) < 1e-12, k
            null.append({"tensor": k, "first": at[0], "last": at[-1]})
    if s["lean"]:
        write_lean(name, s, d, cfg, t, f32, g32, f64, g64, null, sens, (i32, m64, c32, c64))
        return

    def settled(a, b, name_):
        x = (a[name_].to(F64) - b[name_]).abs().flatten()
        for z in null:
            if z["tensor"] == name_:
                x[z["first"]:z["last"] + 1] = 0
        return float(x.max())
    off = []  # what gradients that are off by rounding do to the parameters after the steps
    for i in range(4):
        q = train_part(s, w, batches, F64, noise=NOISE, noise_seed=i)[2]
        for k in q:
            x = (q[k] - p64[k]).abs().flatten()
            for z in null:
                if z["tensor"] == k:
                    x[z["first"]:z["last"] + 1] = 0
            off.append(x)
    off = torch.cat(off)
    off = {"largest": float(off.max()), "share_above_1e-5": float((off > 1e-5).double().mean()),
           "share_above_1e-4": float((off > 1e-4).double().mean())}
    rel = {k: diff(g32[k], g64[k]) / max(float(g64[k].abs().max()), 1e-30)
           for k in g64 if k not in {z["tensor"] for z in null}}
    per = {k: {"grad": diff(g32[k], g64[k]), "after.param": settled(p32, p64, k),
               "after.exp_avg": settled(a32, a64, k), "after.exp_avg_sq": settled(v32, v64, k),
               "largest_grad": float(g64[k].abs().max()), "largest_change": diff(p64[k], load_w[k])}
           for load_w in [load_file(os.path.join(d, "model", "model.safetensors"))] for k in sorted(g64)}
    man = {
        "model": name, "family": cfg["model_type"], "seed": s["seed"],
        "made_with": {"torch": torch.__version__.split("+")[0], "transformers": transformers.__version__},
        "parameters": sum(v.numel() for v in g32.values()),
        "batch": [B, T], "ignore_label": -100,
        "training": {"steps": STEPS, "lr": LR, "betas": list(BETAS), "eps": EPS, "weight_decay": DECAY,
                     "weight_decay_on": "tensors of 2 dimensions in the checkpoint (embeddings included), not on "
                                        "norms and biases",
                     "clip_norm": CLIP, "clip": "gradients times min(1, clip_norm / (norm + 1e-6))",
                     "loss": "mean cross-entropy over all B*(T-1) shifted positions", "batches": "train.input_ids[k] at "
                     "step k, k = 0..4; train.input_ids[0] is input_ids"},
        "generation": {"prompt": prompt.tolist(), "ids": i32, "smallest_margin_f64": m64,
                       "cache_against_no_cache": {"f32": c32, "f64": c64}},
        "scalars": {"loss.f32": float(f32["loss"]), "loss.f64": float(f64["loss"]),
                    "loss_masked.f64": float(f64["loss_masked"]),
                    "train.loss.f32": l32.tolist(), "train.loss.f64": l64.tolist(),
                    "train.grad_norm.f32": n32.tolist(), "train.grad_norm.f64": n64.tolist()},
        "f32_against_f64": {
            "logits": diff(f32["logits"], f64["logits"]), "token_loss": diff(f32["token_loss"], f64["token_loss"]),
            "loss": diff(f32["loss"], f64["loss"]), "grad": max(diff(g32[k], g64[k]) for k in g64),
            "grad_over_largest_in_tensor": max(rel.values()),
            "train.loss": diff(l32, l64), "train.grad_norm": diff(n32, n64),
            "after.param": max(x["after.param"] for x in per.values()),
            "after.exp_avg": max(x["after.exp_avg"] for x in per.values()),
            "after.exp_avg_sq": max(x["after.exp_avg_sq"] for x in per.values()),
            "gen.logits": diff(r32, r64)},
        f"after.param_with_gradients_off_by_{NOISE:g}_of_the_largest": off,
        "zero_gradient_in_exact_arithmetic": null,
        "logits_move_by": sens,
        "per_tensor": per,
        "files": {}, "tensors": shapes(t)}
    if bf16 is not None:
        man["bf16_against_f64"] = bf16
    if "aux_loss" in f32:
        man["scalars"].update({"aux_loss.f64": float(f64["aux_loss"]), "loss_with_aux.f64": float(f64["loss_with_aux"])})
        man["f32_against_f64"]["aux_loss"] = diff(f32["aux_loss"], f64["aux_loss"])
        man["router_smallest_gap_between_chosen_and_not"] = min(
            float((x.topk(3, dim=-1).values[:, 1] - x.topk(3, dim=-1).values[:, 2]).min())
            for x in [f64[k] for k in f64 if k.startswith("router_logits")])
    man["files"] = hashes(d)
    json.dump(man, open(os.path.join(d, "golden.json"), "w"), indent=1)
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(d) for f in fs)
    print(f"{name}: {man['parameters']} parameters, {size / 1e6:.2f} MB, loss {man['scalars']['loss.f64']:.4f}, "
          f"norms {[round(x, 3) for x in n64.tolist()]}, margin {m64:.3f}, "
          f"{ {k: float('%.2g' % v) for k, v in man['f32_against_f64'].items()} }, "
          f"moves { {k: float('%.2g' % v) for k, v in sens.items()} }, noise {off}, null {null}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--out", required=True)
    p.add_argument("--models", default=",".join(MODELS))
    a = p.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for n in a.models.split(","):
        one(n, MODELS[n], a.out)


if __name__ == "__main__":
    main()
