#!/usr/bin/env python3
"""Writes tests/golden/internlm2 and internlm2_bias: tiny models in InternLM2's layout, in both file kinds. Needs only
Python. Same seeds, same files.

The reference computes all tokens at once in plain Python floats (float64), from the technical report (Cai et al. 2024,
arXiv:2403.17297, section 2.2 and figure 2): a Llama whose W_q, W_k and W_v are one matrix. Its rows are interleaved by
KV head: the query heads that share the head, then its key, then its value. The reference takes each head's rows straight
from that matrix. GGUF files have three matrices, with the rows of q and k reordered for neighbouring pairs; they are
written from the same one.
"""
import base64
import math
import pathlib
import random
import struct

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_mamba import Array, rms_norm, silu, times, write_gguf, write_json, write_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent
TOKENS, GREEDY = 32, 16
MIN_GREEDY_GAP = 0.02  # between the best and the second logit, at every greedy step


def config(**changes):
    out = {
        "architectures": ["InternLM2ForCausalLM"], "model_type": "internlm2", "attn_implementation": "eager",
        "auto_map": {"AutoConfig": "configuration_internlm2.InternLM2Config"}, "bias": False, "bos_token_id": BOS,
        "eos_token_id": EOS, "pad_token_id": PAD, "hidden_act": "silu", "hidden_size": 48, "initializer_range": 0.02,
        "intermediate_size": 56, "max_position_embeddings": 128, "num_attention_heads": 6, "num_hidden_layers": 2,
        "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_scaling": {"type": "dynamic", "factor": 2.0},
        "rope_theta": 1000000, "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True,
        "vocab_size": VOCAB_SIZE,
    }
    out.update(changes)
    return out


CASES = {
    "internlm2": (config(), 1041, "three query heads to a KV head; rope scaling 'dynamic', which begins past the context"),
    "internlm2_bias": (config(bias=True, num_attention_heads=4, num_key_value_heads=4, rope_scaling=None), 42,
                       "biases on wqkv and wo; as many KV heads as heads"),
}


class Sizes:
    def __init__(self, settings):
        self.heads, self.kv_heads = settings["num_attention_heads"], settings["num_key_value_heads"]
        self.dim = settings["hidden_size"] // self.heads
        self.shared = self.heads // self.kv_heads  # query heads of a group
        self.group = (self.shared + 2) * self.dim  # rows of a group

    def query(self, head):
        return head // self.shared * self.group + head % self.shared * self.dim

    def key(self, head):
        return head * self.group + self.shared * self.dim

    def value(self, head):
        return self.key(head) + self.dim


def make_weights(settings, seed):
    source, weights, sizes = random.Random(seed), {}, Sizes(settings)
    width, inner = settings["hidden_size"], settings["intermediate_size"]

    def matrix(name, rows, cols, gain):
        weights[name] = Array([rows, cols], lambda _: source.gauss(0, gain / math.sqrt(cols)))

    def vector(name, count, scale, mean=0.0):
        weights[name] = Array([count], lambda _: source.gauss(mean, scale))

    matrix("model.tok_embeddings.weight", VOCAB_SIZE, width, 0.6 * math.sqrt(width))
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        matrix(prefix + "attention.wqkv.weight", sizes.kv_heads * sizes.group, width, 1.6)
        matrix(prefix + "attention.wo.weight", width, sizes.heads * sizes.dim, 1.2)
        if settings["bias"]:
            vector(prefix + "attention.wqkv.bias", sizes.kv_heads * sizes.group, 0.3)
            vector(prefix + "attention.wo.bias", width, 0.3)
        for name, rows, cols in (("w1", inner, width), ("w3", inner, width), ("w2", width, inner)):
            matrix(f"{prefix}feed_forward.{name}.weight", rows, cols, 1.2)
        vector(prefix + "attention_norm.weight", width, 0.2, 1.0)
        vector(prefix + "ffn_norm.weight", width, 0.2, 1.0)
    vector("model.norm.weight", width, 0.2, 1.0)
    matrix("output.weight", VOCAB_SIZE, width, 1.4)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def linear(weights, name, x):
    y = times(weights[name + ".weight"].rows(), x)
    bias = weights.get(name + ".bias")
    return add(y, bias.values) if bias else y


def rotate(settings, x, position):
    """Pairs (i, i + n / 2) of one head."""
    half = len(x) // 2
    angles = [position * settings["rope_theta"] ** (-2 * i / len(x)) for i in range(half)]
    return ([x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)])


def attend(settings, weights, prefix, normed):
    sizes = Sizes(settings)
    rows = [linear(weights, prefix + "wqkv", x) for x in normed]
    part = lambda row, begin: row[begin:begin + sizes.dim]
    keys = [[rotate(settings, part(row, sizes.key(h)), p) for h in range(sizes.kv_heads)] for p, row in enumerate(rows)]
    values = [[part(row, sizes.value(h)) for h in range(sizes.kv_heads)] for row in rows]
    out = []
    for position, row in enumerate(rows):
        mixed = []
        for head in range(sizes.heads):
            query, own = rotate(settings, part(row, sizes.query(head)), position), head // sizes.shared
            scores = [dot(query, keys[j][own]) / math.sqrt(sizes.dim) for j in range(position + 1)]
            shares = [math.exp(score - max(scores)) for score in scores]
            mixed += [sum(s * values[j][own][i] for j, s in enumerate(shares)) / sum(shares) for i in range(sizes.dim)]
        out.append(linear(weights, prefix + "wo", mixed))
    return out


def forward(settings, weights, tokens):
    eps = settings["rms_norm_eps"]
    x = [weights["model.tok_embeddings.weight"].rows()[token] for token in tokens]
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        normed = [rms_norm(row, weights[prefix + "attention_norm.weight"].values, eps) for row in x]
        x = [add(row, y) for row, y in zip(x, attend(settings, weights, prefix + "attention.", normed))]
        normed = [rms_norm(row, weights[prefix + "ffn_norm.weight"].values, eps) for row in x]
        mlp = prefix + "feed_forward."
        inner = [[silu(g) * u for g, u in zip(linear(weights, mlp + "w1", row), linear(weights, mlp + "w3", row))]
                 for row in normed]
        x = [add(row, linear(weights, mlp + "w2", h)) for row, h in zip(x, inner)]
    final = [rms_norm(row, weights["model.norm.weight"].values, eps) for row in x]
    return [linear(weights, "output", row) for row in final]


def greedy(settings, weights, tokens):
    tokens, out, gap = list(tokens), [], math.inf
    for _ in range(GREEDY):
        last = forward(settings, weights, tokens)[-1]
        best = sorted(range(len(last)), key=lambda i: -last[i])
        gap = min(gap, last[best[0]] - last[best[1]])
        out.append(best[0])
        tokens.append(best[0])
    return out, gap


# ---- files -----------------------------------------------------------------------------------------------------------
def pick_rows(array, rows):
    cols = array.shape[1] if len(array.shape) > 1 else 1
    return Array([len(rows)] + array.shape[1:], lambda i: array.values[rows[i // cols] * cols + i % cols])


def gguf_tensors(settings, weights):
    sizes, out = Sizes(settings), {}
    neighbours = [i // 2 + i % 2 * (sizes.dim // 2) for i in range(sizes.dim)]  # of a head, in the order of GGUF
    parts = {"attn_q": [sizes.query(h) + i for h in range(sizes.heads) for i in neighbours],
             "attn_k": [sizes.key(h) + i for h in range(sizes.kv_heads) for i in neighbours],
             "attn_v": [sizes.value(h) + i for h in range(sizes.kv_heads) for i in range(sizes.dim)]}
    names = {"attention.wo": "attn_output", "attention_norm": "attn_norm", "ffn_norm": "ffn_norm",
             "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
             "model.tok_embeddings": "token_embd", "model.norm": "output_norm", "output": "output"}
    for name, array in weights.items():
        base, kind = name.rsplit(".", 1)
        if not base.startswith("model.layers."):
            out[f"{names[base]}.{kind}"] = array
            continue
        _, _, layer, part = base.split(".", 3)
        if part == "attention.wqkv":
            for own, rows in parts.items():
                out[f"blk.{layer}.{own}.{kind}"] = pick_rows(array, rows)
        else:
            out[f"blk.{layer}.{names[part]}.{kind}"] = array
    return out


def gguf_keys(settings):
    sizes = Sizes(settings)
    keys = [("general.architecture", "string", "internlm2"), ("general.name", "string", "tiny random")]
    for key, kind, value in (
            ("block_count", "uint32", settings["num_hidden_layers"]),
            ("context_length", "uint32", settings["max_position_embeddings"]),
            ("embedding_length", "uint32", settings["hidden_size"]),
            ("feed_forward_length", "uint32", settings["intermediate_size"]),
            ("attention.head_count", "uint32", sizes.heads),
            ("attention.head_count_kv", "uint32", sizes.kv_heads),
            ("attention.layer_norm_rms_epsilon", "float32", settings["rms_norm_eps"]),
            ("rope.freq_base", "float32", float(settings["rope_theta"]))):
        keys.append((f"internlm2.{key}", kind, value))
    return keys + gguf_metadata()


def make(name, settings, seed, note):
    weights = make_weights(settings, seed)
    source = random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(TOKENS - 1)]
    logits = forward(settings, weights, tokens)
    continuation, gap = greedy(settings, weights, tokens)
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert len(set(continuation)) > 2, f"{name}: dull continuation {continuation}"

    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    write_json(folder / "config.json", settings)
    write_json(folder / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_tokenizer(folder)
    write_safetensors(folder / "model.safetensors", weights)
    write_gguf(folder / "model.gguf", gguf_keys(settings), gguf_tensors(settings, weights))
    flat = [value for row in logits for value in row]
    write_json(folder / "expected.json",
               {"note": note, "tokens": tokens, "shape": [TOKENS, VOCAB_SIZE], "greedy": continuation,
                "logits": base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()})
    print(f"{name}: greedy gap {gap:.3f}; {continuation}")


def main():
    for name, (settings, seed, note) in CASES.items():
        make(name, settings, seed, note)


if __name__ == "__main__":
    main()
