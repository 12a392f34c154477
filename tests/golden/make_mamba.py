#!/usr/bin/env python3
"""Writes the golden Mamba models (both file kinds) with their expected logits: tests/golden/make_mamba.py [NAME ...]

The reference is Gu and Dao 2023 (arXiv:2312.00752), algorithm 2, with the layer of its figure 3, in plain Python floats
(float64): one token after the other, nothing in parallel. Needs only Python. Same seeds, same files.
"""
import base64
import json
import math
import pathlib
import random
import struct
import sys

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer

ROOT = pathlib.Path(__file__).resolve().parent
GREEDY_TOKENS = 16
MIN_GREEDY_GAP = 0.02


def config(**changes):
    base = {
        "architectures": ["MambaForCausalLM"], "model_type": "mamba", "bos_token_id": BOS, "conv_kernel": 4,
        "eos_token_id": EOS, "expand": 2, "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.1,
        "intermediate_size": 64, "layer_norm_epsilon": 1e-5, "num_hidden_layers": 3, "pad_token_id": PAD,
        "rescale_prenorm_residual": False, "residual_in_fp32": True, "state_size": 16, "tie_word_embeddings": True,
        "time_step_floor": 0.0001, "time_step_init_scheme": "random", "time_step_max": 0.1, "time_step_min": 0.001,
        "time_step_rank": 4, "time_step_scale": 1.0, "torch_dtype": "float32", "use_bias": False, "use_cache": True,
        "use_conv_bias": True, "vocab_size": VOCAB_SIZE,
    }
    base.update(changes)
    return base


# name: (config, seed, scored tokens, note)
CASES = {
    "mamba": (config(), 41, 40, "selective state space; tied head"),
    "mamba_odd": (config(intermediate_size=150, expand=3, hidden_size=40, state_size=5, conv_kernel=3,
                         time_step_rank="auto", use_conv_bias=False, tie_word_embeddings=False, num_hidden_layers=2),
                  42, 32, "150 channels: no whole vectors and two blocks; three taps without bias; rank 3; own head"),
}


# ---- matrices: lists of rows -----------------------------------------------------------------------------------------
def single(value):
    return struct.unpack("<f", struct.pack("<f", value))[0]


class Array:
    def __init__(self, shape, draw):
        self.shape = shape
        self.values = [single(draw(i)) for i in range(math.prod(shape))]

    def rows(self):
        cols = self.shape[-1]
        return [self.values[i:i + cols] for i in range(0, len(self.values), cols)]

    def bytes(self):
        return struct.pack(f"<{len(self.values)}f", *self.values)


def times(rows, x):
    return [sum(w * v for w, v in zip(row, x)) for row in rows]


def silu(x):
    return x / (1 + math.exp(-x))


def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


def rms_norm(x, weight, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weight)]


# ---- weights ---------------------------------------------------------------------------------------------------------
def rank_of(config):
    rank = config["time_step_rank"]
    return math.ceil(config["hidden_size"] / 16) if rank == "auto" else rank


def make_weights(config, seed):
    source = random.Random(seed)
    width, inner, state = config["hidden_size"], config["intermediate_size"], config["state_size"]
    rank = rank_of(config)
    normal = lambda scale, mean=0.0: lambda i: source.gauss(mean, scale)
    weights = {"backbone.embeddings.weight": Array([config["vocab_size"], width], normal(1.0))}
    for layer in range(config["num_hidden_layers"]):
        prefix = f"backbone.layers.{layer}."
        mixer = prefix + "mixer."
        weights[prefix + "norm.weight"] = Array([width], normal(0.3, 1.0))
        weights[mixer + "A_log"] = Array([inner, state], lambda i: math.log(1 + i % state) + source.gauss(0, 0.2))
        weights[mixer + "D"] = Array([inner], normal(0.5, 1.0))
        weights[mixer + "in_proj.weight"] = Array([2 * inner, width], normal(1.2 / math.sqrt(width)))
        weights[mixer + "conv1d.weight"] = Array([inner, 1, config["conv_kernel"]], normal(0.6))
        if config["use_conv_bias"]:
            weights[mixer + "conv1d.bias"] = Array([inner], normal(0.3))
        weights[mixer + "x_proj.weight"] = Array([rank + 2 * state, inner], normal(2.0 / math.sqrt(inner)))
        weights[mixer + "dt_proj.weight"] = Array([inner, rank], normal(1.0 / math.sqrt(rank)))
        weights[mixer + "dt_proj.bias"] = Array(
            [inner], lambda i: math.log(math.expm1(math.exp(source.uniform(math.log(0.02), math.log(0.5))))))
        weights[mixer + "out_proj.weight"] = Array([width, inner], normal(1.0 / math.sqrt(inner)))
    weights["backbone.norm_f.weight"] = Array([width], normal(0.3, 1.0))
    if not config["tie_word_embeddings"]:
        weights["lm_head.weight"] = Array([config["vocab_size"], width], normal(1.0))
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
class MambaLayer:
    """One layer and its state; step() takes one token's row."""

    def __init__(self, config, weights, layer):
        prefix = f"backbone.layers.{layer}."
        mixer = prefix + "mixer."
        self.eps = config["layer_norm_epsilon"]
        self.rank, self.state = rank_of(config), config["state_size"]
        self.inner, self.taps = config["intermediate_size"], config["conv_kernel"]
        self.norm = weights[prefix + "norm.weight"].values
        self.a = [[-math.exp(v) for v in row] for row in weights[mixer + "A_log"].rows()]
        self.d = weights[mixer + "D"].values
        self.into, self.out = weights[mixer + "in_proj.weight"].rows(), weights[mixer + "out_proj.weight"].rows()
        self.conv = weights[mixer + "conv1d.weight"].rows()
        bias = weights.get(mixer + "conv1d.bias")
        self.conv_bias = bias.values if bias else [0.0] * self.inner
        self.x, self.dt = weights[mixer + "x_proj.weight"].rows(), weights[mixer + "dt_proj.weight"].rows()
        self.dt_bias = weights[mixer + "dt_proj.bias"].values
        self.before = [[0.0] * self.inner for _ in range(self.taps - 1)]
        self.h = [[0.0] * self.state for _ in range(self.inner)]

    def step(self, residual):
        both = times(self.into, rms_norm(residual, self.norm, self.eps))
        inputs, z = both[:self.inner], both[self.inner:]
        window = self.before + [inputs]
        self.before = window[1:]
        x = [silu(sum(w * row[c] for w, row in zip(self.conv[c], window)) + self.conv_bias[c])
             for c in range(self.inner)]
        params = times(self.x, x)
        b, c = params[self.rank:self.rank + self.state], params[self.rank + self.state:]
        delta = [softplus(v + bias) for v, bias in zip(times(self.dt, params[:self.rank]), self.dt_bias)]
        y = []
        for i in range(self.inner):
            self.h[i] = [math.exp(delta[i] * a) * h + delta[i] * bn * x[i] for a, h, bn in zip(self.a[i], self.h[i], b)]
            y.append((sum(h * cn for h, cn in zip(self.h[i], c)) + self.d[i] * x[i]) * silu(z[i]))
        return [r + v for r, v in zip(residual, times(self.out, y))]


def forward(config, weights, tokens):
    """Logits of every token."""
    layers = [MambaLayer(config, weights, i) for i in range(config["num_hidden_layers"])]
    embedding = weights["backbone.embeddings.weight"].rows()
    head = weights.get("lm_head.weight", weights["backbone.embeddings.weight"]).rows()
    final, logits = weights["backbone.norm_f.weight"].values, []
    for token in tokens:
        row = embedding[token]
        for layer in layers:
            row = layer.step(row)
        logits.append(times(head, rms_norm(row, final, config["layer_norm_epsilon"])))
    return logits


def greedy(config, weights, tokens):
    tokens, out, gap = list(tokens), [], math.inf
    for _ in range(GREEDY_TOKENS):
        last = forward(config, weights, tokens)[-1]
        order = sorted(range(len(last)), key=lambda i: -last[i])
        gap = min(gap, last[order[0]] - last[order[1]])
        out.append(order[0])
        tokens.append(out[-1])
    return out, gap


# ---- files -----------------------------------------------------------------------------------------------------------
GGUF_NAMES = {"in_proj": "ssm_in", "conv1d": "ssm_conv1d", "x_proj": "ssm_x", "dt_proj": "ssm_dt",
              "out_proj": "ssm_out"}
SCALARS = {"uint8": (0, "<B"), "uint32": (4, "<I"), "int32": (5, "<i"), "float32": (6, "<f"), "bool": (7, "<?")}


def gguf_tensors(weights):
    """name -> Array: A itself in place of its logarithm, the convolution as a matrix."""
    out = {}
    for name, array in weights.items():
        if name == "backbone.embeddings.weight":
            out["token_embd.weight"] = array
        elif name == "backbone.norm_f.weight":
            out["output_norm.weight"] = array
        elif name == "lm_head.weight":
            out["output.weight"] = array
        else:
            _, _, layer, part = name.split(".", 3)
            part = part.removeprefix("mixer.")
            if part == "A_log":
                out[f"blk.{layer}.ssm_a"] = Array(array.shape, lambda i: -math.exp(array.values[i]))
            elif part == "D":
                out[f"blk.{layer}.ssm_d"] = array
            elif part == "norm.weight":
                out[f"blk.{layer}.attn_norm.weight"] = array
            else:
                base, kind = part.split(".")
                shape = [array.shape[0], array.shape[2]] if len(array.shape) == 3 else array.shape
                out[f"blk.{layer}.{GGUF_NAMES[base]}.{kind}"] = Array(shape, lambda i: array.values[i])
                if part == "conv1d.weight" and name.removesuffix("weight") + "bias" not in weights:  # readers need it
                    out[f"blk.{layer}.ssm_conv1d.bias"] = Array(shape[:1], lambda i: 0.0)
    return out


def gguf_keys(config):
    keys = [("general.architecture", "string", "mamba"), ("general.name", "string", "tiny random")]
    for key, kind, value in (
            ("context_length", "uint32", 1 << 20), ("embedding_length", "uint32", config["hidden_size"]),
            ("feed_forward_length", "uint32", 0), ("attention.head_count", "uint32", 0),
            ("block_count", "uint32", config["num_hidden_layers"]),
            ("ssm.conv_kernel", "uint32", config["conv_kernel"]),
            ("ssm.inner_size", "uint32", config["intermediate_size"]),
            ("ssm.state_size", "uint32", config["state_size"]), ("ssm.time_step_rank", "uint32", rank_of(config)),
            ("attention.layer_norm_rms_epsilon", "float32", config["layer_norm_epsilon"]),
            ("ssm.dt_b_c_rms", "bool", False)):
        keys.append((f"mamba.{key}", kind, value))
    return keys + gguf_metadata()


def gguf_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == "string":
        return struct.pack("<I", 8) + gguf_string(value)
    if kind == "string[]":
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(gguf_string, value))
    if kind.endswith("[]"):
        code, layout = SCALARS[kind[:-2]]
        return struct.pack("<IIQ", 9, code, len(value)) + b"".join(struct.pack(layout, v) for v in value)
    code, layout = SCALARS[kind]
    return struct.pack("<I", code) + struct.pack(layout, value)


def write_gguf(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    head += b"".join(gguf_string(key) + gguf_value(kind, value) for key, kind, value in keys)
    data = b""
    for name, array in tensors.items():
        shape = array.shape[::-1]
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += array.bytes()
        data += bytes(-len(data) % 32)
    path.write_bytes(head + bytes(-len(head) % 32) + data)


def write_safetensors(path, tensors):
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, array in tensors.items():
        end = len(data) + 4 * len(array.values)
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(data), end]}
        data += array.bytes()
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def write_json(path, value):
    path.write_text(json.dumps(value, indent=1) + "\n")


def make(name):
    config, seed, length, note = CASES[name]
    weights = make_weights(config, seed)
    source = random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(config["vocab_size"] - 4) for _ in range(length - 1)]
    logits = forward(config, weights, tokens)
    changed = list(tokens)
    changed[2] = (changed[2] + 1) % (config["vocab_size"] - 4)
    other = forward(config, weights, changed)
    assert other[:2] == logits[:2], "a later token reached an earlier logit"
    reach = max(abs(a - b) for a, b in zip(other[-1], logits[-1]))
    assert reach > 0.01, "the state forgets too fast to be tested"
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
    write_safetensors(folder / "model.safetensors", weights)
    write_gguf(folder / "model.gguf", gguf_keys(config), gguf_tensors(weights))
    flat = [v for row in logits for v in row]
    write_json(folder / "expected.json",
               {"note": note, "tokens": tokens, "shape": [len(logits), len(logits[0])], "greedy": continuation,
                "logits": base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()})
    print(f"{name}: largest logit {max(map(abs, flat)):.2f}, greedy gap {gap:.3f}, token 2 changes the last logits by "
          f"{reach:.3f}; {continuation}")


def main():
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
