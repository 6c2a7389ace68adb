#!/usr/bin/env python3
"""Makes rope_oracle.json: inverse frequencies and attention factors of rotary positions as transformers computes them.

    python3 -m venv v && v/bin/pip install torch==2.13.0 transformers==5.24.0
    v/bin/python tests/data/make_rope_oracle.py

Every float32 that the modelling code names is float64 here, so that the values can be held to 1e-12. `config` is what a
config.json says; `n_positions` is the length of the sequence (only dynamic scaling depends on it).
"""
import json
import pathlib

import torch

torch.float32 = torch.float = torch.float64
torch.set_default_dtype(torch.float64)

import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

SMALL = dict(hidden_size=32, num_attention_heads=2, max_position_embeddings=256)  # head_dim 16
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0)


def rope(theta, **kw):
    return {"rope_parameters": {"rope_theta": theta, **kw}}


def cases():
    yield "none", SMALL, 16
    yield "default", {**SMALL, **rope(10000.0, rope_type="default")}, 16
    yield "default 5e5 head 128", {"hidden_size": 4096, "num_attention_heads": 32, **rope(5e5, rope_type="default")}, 16
    yield "head_dim of its own", {**SMALL, "head_dim": 24, **rope(1e6, rope_type="default")}, 16
    for factor in (1.0, 2.0, 2.5, 8):
        yield f"linear {factor}", {**SMALL, **rope(10000.0, rope_type="linear", factor=factor)}, 16
    for factor in (1.0, 2.0, 4.0):
        for n in (1, 256, 257, 300, 1000, 4096):
            yield f"dynamic {factor} at {n}", {**SMALL, **rope(10000.0, rope_type="dynamic", factor=factor)}, n
    yield "llama3 tiny", {**SMALL, "max_position_embeddings": 512,
                          **rope(10000.0, **LLAMA3, original_max_position_embeddings=64)}, 16
    yield "llama3 1B", {"hidden_size": 2048, "num_attention_heads": 32, "max_position_embeddings": 131072,
                        **rope(5e5, **{**LLAMA3, "factor": 32.0}, original_max_position_embeddings=8192)}, 16
    yield "llama3 8B", {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072,
                        **rope(5e5, **LLAMA3, original_max_position_embeddings=8192)}, 16
    yield "llama3 without original", {**SMALL, **rope(10000.0, **LLAMA3)}, 16
    for factor in (1.0, 2.0, 4.0, 16.0, 40.0):
        yield f"yarn {factor}", {**SMALL, **rope(10000.0, rope_type="yarn", factor=factor,
                                                 original_max_position_embeddings=64)}, 16
    yarn = dict(rope_type="yarn", factor=16.0, original_max_position_embeddings=64)
    yield "yarn mscale equal", {**SMALL, **rope(10000.0, **yarn, mscale=1.0, mscale_all_dim=1.0)}, 16
    yield "yarn mscale ratio", {**SMALL, **rope(10000.0, **yarn, mscale=1.2, mscale_all_dim=0.7)}, 16
    yield "yarn mscale alone", {**SMALL, **rope(10000.0, **yarn, mscale=1.2)}, 16
    yield "yarn mscale_all_dim zero", {**SMALL, **rope(10000.0, **yarn, mscale=1.2, mscale_all_dim=0)}, 16
    yield "yarn attention_factor", {**SMALL, **rope(10000.0, **yarn, attention_factor=1.0)}, 16
    yield "yarn attention_factor and mscale", {**SMALL, **rope(10000.0, **yarn, attention_factor=0.8, mscale=1.2,
                                                               mscale_all_dim=0.7)}, 16
    yield "yarn not truncated", {**SMALL, **rope(10000.0, **yarn, truncate=False)}, 16
    yield "yarn betas", {**SMALL, **rope(10000.0, **yarn, beta_fast=8, beta_slow=2.5)}, 16
    yield "yarn beta zero", {**SMALL, **rope(10000.0, **yarn, beta_fast=0, beta_slow=0)}, 16
    yield "yarn without original", {**SMALL, **rope(10000.0, rope_type="yarn", factor=4.0)}, 16
    yield "yarn head 128", {"hidden_size": 4096, "num_attention_heads": 32, "max_position_embeddings": 131072,
                            **rope(1e6, rope_type="yarn", factor=4.0, original_max_position_embeddings=32768)}, 16
    for theta in (10.0, 10000.0):  # the ramp ends behind the last pair
        yield f"yarn long, theta {theta}", {**SMALL, "max_position_embeddings": 262144, **rope(
            theta, rope_type="yarn", factor=4.0, original_max_position_embeddings=65536)}, 16
    yield "yarn low equals high", {**SMALL, **rope(10000.0, rope_type="yarn", factor=4.0, beta_fast=1e-3,
                                                   beta_slow=1e-3, original_max_position_embeddings=1,
                                                   truncate=False)}, 16
    yield "yarn null factor", {**SMALL, **rope(10000.0, rope_type="yarn", factor=None,
                                               original_max_position_embeddings=64)}, 16
    yield "old spelling linear", {**SMALL, "rope_theta": 5000.0, "rope_scaling": {"type": "linear", "factor": 2.0}}, 16
    yield "old spelling llama3", {**SMALL, "rope_theta": 5e5, "rope_scaling": {
        **LLAMA3, "original_max_position_embeddings": 32}}, 16
    yield "old spelling theta alone", {**SMALL, "rope_theta": 5e5, "rope_scaling": None}, 16
    yield "original beside", {**SMALL, "original_max_position_embeddings": 32, **rope(
        10000.0, **LLAMA3, original_max_position_embeddings=64)}, 16
    yield "original beside, yarn", {**SMALL, "original_max_position_embeddings": 32, "rope_theta": 10000.0,
                                    "rope_scaling": {"rope_type": "yarn", "factor": 8.0}}, 16


def values(config, n_positions):
    config = LlamaConfig(**json.loads(json.dumps(config)))
    kind = config.rope_parameters["rope_type"]
    if kind == "default":
        inv_freq, factor = LlamaRotaryEmbedding.compute_default_rope_parameters(config)
    else:
        inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"), seq_len=n_positions)
    assert inv_freq.dtype == torch.float64, kind
    return [float(x) for x in inv_freq], float(factor)


out = []
for name, config, n_positions in cases():
    inv_freq, factor = values(config, n_positions)
    out.append({"name": name, "config": {"model_type": "llama", **config}, "n_positions": n_positions,
                "attention_factor": factor, "inv_freq": inv_freq})
text = ",\n".join("    " + json.dumps(case) for case in out)
path = pathlib.Path(__file__).with_name("rope_oracle.json")
path.write_text(f'{{\n  "transformers": "{transformers.__version__}",\n  "cases": [\n{text}\n  ]\n}}\n')
print(f"{len(out)} cases, {path.stat().st_size} bytes")
