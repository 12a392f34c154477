#!/usr/bin/env python3
"""Writes gguf_types/: tiny Llamas whose matrices are random blocks of GGUF's small types, with the logits of the values
that these stand for: PYTHONPATH=LLAMA_CPP/gguf-py tests/golden/make_gguf_types.py [CASE ...]

The values are those that llama.cpp's own gguf package reads, and of Q1_0 and Q2_0, which it does not, those of their
definition. Needs python3-torch and python3-numpy; nothing but this
script does. Same seeds, same files.
"""
import base64
import json
import pathlib
import sys

import numpy
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from golden_cases import llama
from golden_files import Blocks, write_gguf
from golden_forward import forward
from golden_gguf import gguf_keys, gguf_name, reorder_pairs
from golden_tokenizer import BOS
from golden_weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parent / "gguf_types"
CONFIG = llama(hidden_size=256, intermediate_size=256, num_hidden_layers=1, num_attention_heads=8, head_dim=32,
               num_key_value_heads=1, tie_word_embeddings=True)
CASES = {"ternary": ["TQ1_0", "TQ2_0"], "iq1": ["IQ1_S", "IQ1_M"], "iq2": ["IQ2_XXS", "IQ2_XS", "IQ2_S"],
         "iq3": ["IQ3_XXS", "IQ3_S"], "nvfp4": ["NVFP4"], "few_bits": ["Q1_0", "Q2_0"]}
SCALE_AT = {"TQ1_0": 52, "TQ2_0": 64}


def values_of(blocks, kind):
    if kind.name not in ("Q1_0", "Q2_0"):
        return dequantize(blocks, kind)
    bits = 1 if kind.name == "Q1_0" else 2
    fields = (blocks[:, 2:, None] >> numpy.arange(0, 8, bits)) & (2 ** bits - 1)
    levels = fields.reshape(len(blocks), -1).astype(numpy.float32)
    return blocks[:, :2].copy().view("<f2").astype(numpy.float32) * (2 * levels - 1 if bits == 1 else levels - 1)


def set_scale(blocks, name, scale):
    """`scale` and, for every other block, twice that, as the f16 of each block."""
    bits = numpy.where(numpy.arange(len(blocks)) % 2, 2 * scale, scale).astype("<f2").view("<u2")
    if name == "IQ1_M":  # four bits at the end of each of four words
        words = blocks[:, 48:].copy().view("<u2") & 0x0FFF
        for i in range(4):
            words[:, i] |= (bits >> (4 * i) & 15) << 12
        blocks[:, 48:] = words.view(numpy.uint8)
    else:
        at = SCALE_AT.get(name, 0)
        blocks[:, at:at + 2] = bits[:, None].view(numpy.uint8)


def random_nvfp4(shape, deviation, random, with_scale):
    """With scales of all magnitudes, and one for the matrix; without one the deviation is about that wanted."""
    blocks = random.integers(0, 256, (shape[0] * shape[1] // 64, 36), dtype=numpy.uint8)
    blocks[:, :4] = random.integers(0, 127, (len(blocks), 4)) if with_scale else random.integers(16, 40, (len(blocks), 4))
    values = dequantize(blocks, GGMLQuantizationType.NVFP4).reshape(shape)
    scale = numpy.array([deviation / values.std() if with_scale else 1], numpy.float32)
    return Blocks(shape, blocks.reshape(shape[0], -1), GGMLQuantizationType.NVFP4.value), values.astype(float) * scale, scale


def random_matrix(name, shape, deviation, random):
    """Rows of random blocks whose values have this standard deviation, and the values."""
    kind = GGMLQuantizationType[name]
    values, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (shape[0] * shape[1] // values, size), dtype=numpy.uint8)
    if name == "TQ2_0":  # four values of 0 to 2
        digits = random.integers(0, 3, (len(blocks), 64, 4))
        blocks[:, :64] = (digits << numpy.array([0, 2, 4, 6])).sum(2)
    set_scale(blocks, name, 1.0)
    spread = values_of(blocks, kind).std()
    set_scale(blocks, name, deviation / spread)
    values = values_of(blocks, kind).reshape(shape)
    return Blocks(shape, blocks.reshape(shape[0], -1), kind.value), values


def make(name, kinds):
    random = numpy.random.Generator(numpy.random.PCG64(11))
    tensors, weights = {}, {}
    for index, (key, array) in enumerate(make_weights(CONFIG, 107, False).items()):
        if array.ndim == 1:
            tensors[gguf_name("llama", key)], weights[key] = (array, "F32"), torch.from_numpy(array.astype(float))
            continue
        gain = 0.25 if "embed" in key else 0.15 if "q_proj" in key or "k_proj" in key else 0.0625
        if name == "nvfp4":
            blocks, values, scale = random_nvfp4(array.shape, gain, random, "embed" not in key)
            if "embed" not in key:  # the second is of inputs, and not to be mistaken for a part of ours
                stem = gguf_name("llama", key).removesuffix("weight")
                tensors[stem + "scale"], tensors[stem + "input_scale"] = (scale, "F32"), (7 * scale, "F32")
        else:
            blocks, values = random_matrix(kinds[index % len(kinds)], array.shape, gain, random)
        weights[key] = torch.from_numpy(values.astype(float))
        for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
            if part in key:
                blocks.rows = reorder_pairs(blocks.rows, CONFIG[heads])
        tensors[gguf_name("llama", key)] = (blocks, None)
    tokens = [BOS] + random.integers(0, CONFIG["vocab_size"] - 4, 15).tolist()
    logits = forward(CONFIG, weights, tokens).to(torch.float32).numpy()
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    write_gguf(folder / "model.gguf", gguf_keys(CONFIG, "F32"), tensors)
    expected = {"note": "logits of the values that the file stands for, in float64", "tokens": tokens,
                "shape": list(logits.shape), "logits": base64.b64encode(logits.astype("<f4").tobytes()).decode()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")
    print(name, [f"{k}:{v[0].ggml_type}" for k, v in tensors.items() if v[1] is None], logits.std(), abs(logits).max())


for case in sys.argv[1:] or CASES:
    make(case, CASES[case])
