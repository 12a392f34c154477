#!/usr/bin/env python3
"""Writes every golden model (both file kinds) with its expected logits: tests/golden/make_golden.py [NAME ...]

Needs python3-torch and python3-numpy; nothing but this script does. Same seeds, same files.
Before anything is written the reference itself is checked: later tokens never reach earlier logits, what is
outside a window has no effect, no token's top choice is so close that rounding could turn it.
"""
import base64
import json
import pathlib
import sys

import numpy
import torch

from golden_cases import CASES
from golden_files import write_gguf_folder, write_safetensors_folder
from golden_forward import forward
from golden_gguf import gguf_keys, gguf_tensors
from golden_tokenizer import BOS, EOS, PAD, write_tokenizer
from golden_weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parent
GREEDY_TOKENS = 16
MIN_GREEDY_GAP = 0.02  # between the best and the second logit, at every greedy step


def greedy(config, weights, tokens):
    tokens, out, gap = list(tokens), [], float("inf")
    for _ in range(GREEDY_TOKENS):
        best, second = torch.topk(forward(config, weights, tokens)[-1], 2)[0].tolist()
        gap = min(gap, best - second)
        out.append(int(forward(config, weights, tokens)[-1].argmax()))
        tokens.append(out[-1])
    return out, gap


def check_causality(config, weights, tokens, logits):
    changed = list(tokens)
    changed[-5] = (changed[-5] + 1) % config["vocab_size"]
    other = forward(config, weights, changed)
    assert torch.equal(other[:-5], logits[:-5]), "a later token reached an earlier logit"
    assert not torch.allclose(other[-5], logits[-5]), "a token had no effect at its own position"


def check_window(config, weights, tokens):
    """With its first layer alone (a sliding one), a model cannot see further back than its window."""
    window = config.get("sliding_window")
    if window is None or window + 1 >= len(tokens) or config.get("use_sliding_window") is False:
        return
    one_layer = {**config, "num_hidden_layers": 1}
    changed = list(tokens)
    changed[0] = (changed[0] + 1) % config["vocab_size"]
    before, after = forward(one_layer, weights, tokens), forward(one_layer, weights, changed)
    assert torch.equal(before[window:], after[window:]), "a token outside the window had an effect"
    assert not torch.equal(before[window - 1], after[window - 1]), "the oldest token in the window had no effect"
    full = forward({**config, "sliding_window": None}, weights, tokens)
    assert (full - forward(config, weights, tokens)).abs().max() > 0.01, "the window does not matter"


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def make(name, case):
    config = case.config
    arrays = make_weights(config, case.seed, case.dtype == "BF16")
    weights = {key: torch.from_numpy(array).to(torch.float64) for key, array in arrays.items()}
    random = numpy.random.Generator(numpy.random.PCG64(case.seed + 1000))
    tokens = [BOS] + random.integers(0, config["vocab_size"] - 4, case.tokens - 1).tolist()
    logits = forward(config, weights, tokens)
    check_causality(config, weights, tokens, logits)
    check_window(config, weights, tokens)
    continuation, gap = greedy(config, weights, tokens)
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert len(set(continuation)) > 2, f"{name}: dull continuation {continuation}"

    folder = ROOT / name
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    write_json(folder / "config.json", config)
    write_json(folder / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_tokenizer(folder)
    write_safetensors_folder(folder, arrays, case.dtype, case.safetensors_shards)
    if case.gguf_splits:
        write_gguf_folder(folder, gguf_keys(config, case.dtype), gguf_tensors(config, arrays, case.dtype),
                          case.gguf_splits)
    expected = {"note": case.note, "tokens": tokens, "shape": list(logits.shape), "greedy": continuation,
                "logits": base64.b64encode(logits.numpy().astype("<f4").tobytes()).decode()}
    write_json(folder / "expected.json", expected)
    size = sum(path.stat().st_size for path in folder.iterdir())
    biggest = max(path.stat().st_size for path in folder.iterdir())
    print(f"{name:20} {size / 1e3:7.0f} kB, largest file {biggest / 1e3:4.0f} kB; logits std {logits.std():5.2f} "
          f"max {logits.abs().max():6.2f}; greedy gap {gap:.3f}; {continuation}")
    assert biggest < 300_000
    return size


def main():
    torch.set_num_threads(1)
    names = sys.argv[1:] or list(CASES)
    total = sum(make(name, CASES[name]) for name in names)
    print(f"{len(names)} models, {total / 1e6:.2f} MB")


if __name__ == "__main__":
    main()
