#!/usr/bin/env python3
"""Writes tests/golden/lora/NAME: random LoRA adapters of golden models in both file kinds, with the logits of the model whose
matrices have them added (W + scale * B A, float64). Needs python3-torch and python3-numpy. Same seeds, same files.
"""
import base64
import json
import pathlib
import re

import numpy
import torch

from golden_cases import CASES
from golden_files import write_gguf, write_safetensors
from golden_forward import forward
from golden_gguf import ARCHITECTURES, PAIRWISE_ROPE, gguf_name, reorder_pairs
from golden_weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parent
ATTENTION = r"self_attn\.(q|k|v|o|qkv)_proj"
DENSE = ATTENTION + r"|mlp\.(gate|up|down|gate_up)_proj|lm_head"
# base -> (modules, rank, alpha, rank-stabilized)
ADAPTERS = {
    "llama3": (DENSE, 4, 8, False),
    "llama_linear": (r"q_proj|v_proj", 3, 6, True),
    "phi3": (DENSE, 5, 5, False),
    "qwen2moe": (ATTENTION + r"|shared_expert\.(gate|up|down)_proj", 4, 12, False),
    "gpt2": (r"c_attn|c_proj|c_fc", 8, 16, False),
    "gemma2": (DENSE, 2, 4, False),
}


def make(name, modules, rank, alpha, stabilized):
    case = CASES[name]
    config = case.config
    arrays = make_weights(config, case.seed, case.dtype == "BF16")
    random = numpy.random.Generator(numpy.random.PCG64(case.seed + 5000))
    transposed = config["model_type"] == "gpt2"
    scale = alpha / (rank ** 0.5 if stabilized else rank)
    merged, peft, gguf = dict(arrays), {}, {}
    for tensor, array in arrays.items():
        if array.ndim != 2 or not re.search(rf"(?:^|\.)(?:{modules})\.weight$", tensor):
            continue
        rows, cols = array.T.shape if transposed else array.shape
        a = random.normal(0, 0.3, (rank, cols)).astype("f4")
        b = random.normal(0, 0.3, (rows, rank)).astype("f4")
        delta = scale * (b.astype("f8") @ a.astype("f8"))
        merged[tensor] = array.astype("f8") + (delta.T if transposed else delta)
        module = "base_model.model." + ("transformer." if transposed else "") + tensor[:-len(".weight")]
        peft[module + ".lora_A.weight"], peft[module + ".lora_B.weight"] = a, b
        if config["model_type"] in PAIRWISE_ROPE and re.search("[qk]_proj", tensor):
            b = reorder_pairs(b, config["num_attention_heads" if "q_proj" in tensor else "num_key_value_heads"])
        stored = gguf_name(config["model_type"], tensor)
        gguf[stored + ".lora_a"], gguf[stored + ".lora_b"] = (a, "F32"), (b, "F32")
    expected = json.loads((ROOT / name / "expected.json").read_text())
    weights = {key: torch.from_numpy(numpy.asarray(array, "f8")) for key, array in merged.items()}
    logits = forward(config, weights, expected["tokens"])
    plain = numpy.frombuffer(base64.b64decode(expected["logits"]), "<f4").reshape(logits.shape)
    moved = float((logits - torch.from_numpy(plain.astype("f8"))).abs().max() / logits.abs().max())
    assert moved > 0.05, f"{name}: the adapter hardly matters ({moved})"

    folder = ROOT / "lora" / name
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / "adapter_model.safetensors", peft, "F32")
    text = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": alpha, "lora_dropout": 0.0, "bias": "none",
            "use_rslora": stabilized, "use_dora": False, "fan_in_fan_out": transposed, "modules_to_save": None, "alpha_pattern": {},
            "rank_pattern": {}, "inference_mode": True}
    (folder / "adapter_config.json").write_text(json.dumps(text, indent=1) + "\n")
    # GGUF knows no rank stabilization: its alpha stands for the same scale.
    write_gguf(folder / "adapter.gguf",
               [("general.type", "string", "adapter"), ("general.architecture", "string", ARCHITECTURES[config["model_type"]]),
                ("adapter.type", "string", "lora"), ("adapter.lora.alpha", "float32", scale * rank)], gguf)
    (folder / "expected.json").write_text(json.dumps(
        {"tokens": expected["tokens"], "shape": list(logits.shape),
         "logits": base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode()}, indent=1) + "\n")
    print(f"{name:14} {len(peft) // 2} matrices, rank {rank}; logits move by {moved:.2f} of the largest")


if __name__ == "__main__":
    torch.set_num_threads(1)
    for base, arguments in ADAPTERS.items():
        make(base, *arguments)
