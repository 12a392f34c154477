#!/usr/bin/env python3
"""Writes tests/golden/keep_policy: tiny random policies of prompt compressors with the probabilities that they give.

The reference is plain Python floats (float64), by the definition of two torch.nn.Linear layers with an exact GELU between
them: x -> W1 x + b1 -> x * Phi(x) -> W2 h + b2 -> sigmoid of one logit, or the second of the softmax of two. Needs only
Python. Same seeds, same files.
"""
import math
import pathlib
import random
import struct

from make_mamba import Array, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent / "keep_policy"
# name: inputs, hidden, outputs, bias of the first layer, bias of the second
NETWORKS = {"policy": (19, 33, 2, False, True), "shot": (19, 12, 1, True, True), "token": (19, 24, 2, True, False)}
VECTORS, SEED = 12, 23


def linear(weight, bias, x):
    rows, cols = weight.shape
    out = []
    for row in range(rows):
        value = math.fsum(weight.values[row * cols + i] * x[i] for i in range(cols))
        out.append(value + (bias.values[row] if bias else 0.0))
    return out


def gelu(x):
    return x * 0.5 * math.erfc(-x / math.sqrt(2.0))


def keep_probability(weights, name, x):
    hidden = [gelu(value) for value in linear(weights[f"{name}.0.weight"], weights.get(f"{name}.0.bias"), x)]
    logits = linear(weights[f"{name}.2.weight"], weights.get(f"{name}.2.bias"), hidden)
    if len(logits) == 1:
        return 1.0 / (1.0 + math.exp(-logits[0]))
    powers = [math.exp(value - max(logits)) for value in logits]
    return powers[1] / sum(powers)


def main():
    source, weights = random.Random(SEED), {}
    for name, (inputs, hidden, outputs, first_bias, second_bias) in NETWORKS.items():
        weights[f"{name}.0.weight"] = Array([hidden, inputs], lambda _: source.gauss(0, 1.5 / math.sqrt(inputs)))
        if first_bias:
            weights[f"{name}.0.bias"] = Array([hidden], lambda _: source.gauss(0, 0.5))
        weights[f"{name}.2.weight"] = Array([outputs, hidden], lambda _: source.gauss(0, 3 / math.sqrt(hidden)))
        if second_bias:
            weights[f"{name}.2.bias"] = Array([outputs], lambda _: source.gauss(0, 0.5))
    vectors = [[struct.unpack("<f", struct.pack("<f", source.gauss(0, 1)))[0] for _ in range(19)]
               for _ in range(VECTORS)]
    expected = {name: [keep_probability(weights, name, x) for x in vectors] for name in NETWORKS}
    for name, values in expected.items():
        assert min(values) < 0.3 and max(values) > 0.7, f"{name}: the probabilities are too alike to test anything"
    ROOT.mkdir(exist_ok=True)
    write_safetensors(ROOT / "policy.safetensors", weights)
    write_json(ROOT / "probabilities.json", {"vectors": vectors, **expected})


if __name__ == "__main__":
    main()
