#!/usr/bin/env python3
"""Makes the seeds of the fuzz targets: small valid files and one of each kind of damage.

    python3 tests/fuzz/make_corpus.py
"""
import json
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent / "corpus"


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


ONE = {"a": tensor("F32", [1], 0, 4)}
FILES = {
    "empty_object": safetensors({}),
    "one": safetensors(ONE, b"abcd"),
    "metadata": safetensors({"__metadata__": {"format": "pt"}, **ONE}, b"abcd"),
    "many": safetensors({"b.c": tensor("BF16", [2, 3], 4, 16), "a": tensor("F32", [1], 0, 4),
                         "z": tensor("I64", [], 16, 24), "e": tensor("F16", [0, 5], 24, 24)}, bytes(24)),
    "other_types": safetensors({"q": tensor("Q4", [16], 0, 8), "f": tensor("F4", [2], 8, 9),
                                "g": tensor("F8_E4M3", [1], 9, 10)}, bytes(10)),
    "padded": safetensors(json.dumps(ONE).encode() + b" " * 13, b"abcd"),
    "gap": safetensors({"a": tensor("F32", [1], 4, 8)}, bytes(8)),
    "overlap": safetensors({"a": tensor("F32", [1], 0, 4), "b": tensor("F32", [1], 2, 6)}, bytes(6)),
    "truncated": safetensors(ONE, b"abc"),
    "too_large": safetensors(ONE, b"abcd", 2**63),
    "repeated": safetensors(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                            b'"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"),
    "overflow": safetensors({"a": tensor("F64", [2**40, 2**40], 0, 8)}, bytes(8)),
}
GPT2 = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 53, "n_positions": 64, "n_embd": 32,
        "n_layer": 4, "n_head": 4, "n_inner": None, "activation_function": "gelu_new", "attn_pdrop": 0.1,
        "embd_pdrop": 0.1, "resid_pdrop": 0.1, "layer_norm_epsilon": 1e-05, "initializer_range": 0.02,
        "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "reorder_and_upcast_attn": False,
        "tie_word_embeddings": True, "bos_token_id": 0, "eos_token_id": [0, 1], "torch_dtype": "float32"}
LLAMA = {"model_type": "llama", "vocab_size": 53, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "hidden_act": "silu",
         "max_position_embeddings": 128, "rms_norm_eps": 1e-05, "attention_bias": False, "mlp_bias": False,
         "tie_word_embeddings": False, "dtype": "bfloat16"}
SCALE = {"rope_theta": 500000.0, "factor": 8.0, "original_max_position_embeddings": 64}
CONFIGS = {
    "gpt2": GPT2,
    "gpt2_common_names": {"model_type": "gpt2", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4},
    "llama": {**LLAMA, "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
    "llama_old": {**LLAMA, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 2.0}},
    "llama_dynamic": {**LLAMA, "rope_parameters": {"rope_type": "dynamic", **SCALE}},
    "llama_llama3": {**LLAMA, "rope_parameters": {"rope_type": "llama3", "low_freq_factor": 1.0,
                                                  "high_freq_factor": 4.0, **SCALE}},
    "llama_yarn": {**LLAMA, "rope_parameters": {"rope_type": "yarn", "beta_fast": 32, "beta_slow": 1, "mscale": 1.0,
                                                "mscale_all_dim": 0.7, "attention_factor": 1.0, "truncate": False,
                                                **SCALE}},
    "refused": {**LLAMA, "sliding_window": 8, "quantization_config": {"bits": 4}, "partial_rotary_factor": 0.5,
                "layer_types": ["sliding_attention"]},
    "mistral": {"model_type": "mistral"},
}

for folder, files in (("safetensors", FILES), ("config", {k: json.dumps(v).encode() for k, v in CONFIGS.items()})):
    (HERE / folder).mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (HERE / folder / name).write_bytes(data)
