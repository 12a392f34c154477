#!/usr/bin/env python3
"""Writes tests/golden/lora/NAME for families whose references need only Python: random LoRA adapters of golden models in both
file kinds, with the logits of the model whose matrices have them added (W + scale * B A, float64). Same seeds, same files.

    tests/golden/make_lora_families.py [NAME ...]
"""
import base64
import json
import pathlib
import random
import re
import struct
import sys

import make_gemma3n as gemma3n
import make_gemma4 as gemma4
import make_gpt_oss as gpt_oss
from make_mamba import Array, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent
ATTENTION = r"self_attn\.[qkvo]_proj"
DENSE = ATTENTION + r"|mlp\.(gate|up|down)_proj"
MULTIMODAL = "model.language_model."
MIN_MOVED = 0.05  # of the largest logit


class Merged:
    """A matrix in float64, in place of an Array, which rounds."""

    def __init__(self, shape, values):
        self.shape, self.values = shape, values

    rows = Array.rows


def gemma4_case(name):
    c, seed, _, _ = gemma4.CASES[name]
    return gemma4.make_weights(c, seed), lambda w, t: gemma4.forward(c, w, t), lambda w: gemma4.gguf_tensors(w, gemma4.GGUF_NAMES)


# name: (weights, reference, names in GGUF, architecture in GGUF, prefix of layers in PEFT's names, modules, rank, alpha, seed)
CASES = {
    "gemma4": (*gemma4_case("gemma4"), "gemma4", "model.", DENSE, 3, 6, 1),
    "gemma4_e": (*gemma4_case("gemma4_e"), "gemma4", MULTIMODAL, DENSE, 4, 4, 2),
    "gemma3n": (gemma3n.make_weights(gemma3n.SEED), gemma3n.forward, gemma3n.gguf_tensors, "gemma3n", MULTIMODAL, DENSE, 2, 4, 3),
    "gpt_oss": (gpt_oss.make_weights(gpt_oss.SEED), gpt_oss.forward, gpt_oss.gguf_tensors, "gpt-oss", "model.",
                ATTENTION + "|lm_head", 3, 3, 4),
}


def make(name):
    weights, forward, gguf_tensors, architecture, prefix, modules, rank, alpha, seed = CASES[name]
    source, scale = random.Random(seed), alpha / rank
    # The same array under both names: its name in GGUF.
    stored = {id(array): key for key, array in gguf_tensors(weights).items()}
    merged, peft, gguf = dict(weights), {}, {}
    for tensor, array in weights.items():
        if not re.search(rf"(?:^|\.)(?:{modules})\.weight$", tensor):
            continue
        rows, cols = array.shape
        a = Array([rank, cols], lambda _: source.gauss(0, 0.2))
        b = Array([rows, rank], lambda _: source.gauss(0, 0.2))
        down = list(zip(*a.rows()))
        delta = [scale * sum(x * y for x, y in zip(row, column)) for row in b.rows() for column in down]
        merged[tensor] = Merged(array.shape, [w + d for w, d in zip(array.values, delta)])
        module = "base_model.model." + re.sub("^model\\.", prefix, tensor)[:-len(".weight")]
        peft[module + ".lora_A.weight"], peft[module + ".lora_B.weight"] = a, b
        gguf[stored[id(array)] + ".lora_a"], gguf[stored[id(array)] + ".lora_b"] = a, b
    expected = json.loads((ROOT / name / "expected.json").read_text(encoding="utf-8"))
    for gaps in (gemma4.ROUTER_GAPS, gpt_oss.ROUTER_GAPS):
        gaps.clear()
    logits = [v for row in forward(merged, expected["tokens"]) for v in row]
    assert min(gpt_oss.ROUTER_GAPS, default=1) > gpt_oss.MIN_ROUTER_GAP, f"{name}: router gap: choose another seed"
    plain = struct.unpack(f"<{len(logits)}f", base64.b64decode(expected["logits"]))
    moved = max(abs(x - y) for x, y in zip(logits, plain)) / max(map(abs, logits))
    assert moved > MIN_MOVED, f"{name}: the adapter hardly matters ({moved})"

    folder = ROOT / "lora" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", peft)
    write_json(folder / "adapter_config.json",
               {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none",
                "use_rslora": False, "use_dora": False, "modules_to_save": None, "alpha_pattern": {}, "rank_pattern": {}})
    write_gguf(folder / "adapter.gguf",
               [("general.type", "string", "adapter"), ("general.architecture", "string", architecture),
                ("adapter.type", "string", "lora"), ("adapter.lora.alpha", "float32", float(alpha))], gguf)
    write_json(folder / "expected.json",
               {"tokens": expected["tokens"], "shape": expected["shape"],
                "logits": base64.b64encode(struct.pack(f"<{len(logits)}f", *logits)).decode()})
    print(f"{name:10} {len(peft) // 2} matrices, rank {rank}; logits move by {moved:.2f} of the largest")


if __name__ == "__main__":
    for case in sys.argv[1:] or CASES:
        make(case)
