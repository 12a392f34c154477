#!/usr/bin/env python3
"""Writes tests/golden/gates: a tiny Llama whose layers have gates between pairs of tokens and gates that select tokens,
with the logits that each of them gives. Needs only Python. Same seeds, same files.

The reference computes a layer for all tokens at once, in plain Python floats (float64), and masks keys by the
definitions:
  pairs       Anagnostidis et al. 2023 (arXiv:2305.15805, section 3.1), with the step in place of the sigmoid: token k
              sees token j if the gates of all tokens j + 1 .. k are open to j
  selection   Ren et al. 2023 (arXiv:2306.11197, section 3): softmax of two options; a selected token sees the selected
              ones, the last `window` of them, and itself, and its output is multiplied by the probability; the output of
              the others is zero
"""
import base64
import math
import pathlib
import random
import struct

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_mamba import Array, rms_norm, silu, times, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent / "gates"
TOKENS, DIMS, WINDOW, SEED = 48, 6, 5, 7
LEAST_MARGIN = 1e-3  # of a gate from turning

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "attention_bias": True, "bos_token_id": BOS,
    "eos_token_id": EOS, "pad_token_id": PAD, "head_dim": 16, "hidden_act": "silu", "hidden_size": 32,
    "intermediate_size": 48, "max_position_embeddings": 256, "mlp_bias": False, "num_attention_heads": 4,
    "num_hidden_layers": 3, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
    "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": VOCAB_SIZE,
}
GGUF_NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
              "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
              "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
              "self_attn.q_int": "attn_int_q", "self_attn.k_int": "attn_int_k",
              "self_attn.q_router.weight_proj": "attn_select"}


def make_weights():
    source, weights = random.Random(SEED), {}
    width, inner, size = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["head_dim"]
    q, kv = size * CONFIG["num_attention_heads"], size * CONFIG["num_key_value_heads"]

    def matrix(name, rows, cols, gain):
        weights[name] = Array([rows, cols], lambda _: source.gauss(0, gain / math.sqrt(cols)))

    def vector(name, count, scale, mean=0.0):
        weights[name] = Array([count], lambda _: source.gauss(mean, scale))

    matrix("model.embed_tokens.weight", VOCAB_SIZE, width, 0.6 * math.sqrt(width))
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        for name, rows, cols, gain in (("q", q, width, 1.6), ("k", kv, width, 1.6), ("v", kv, width, 1.2),
                                       ("o", width, q, 1.2)):
            matrix(f"{attention}{name}_proj.weight", rows, cols, gain)
            vector(f"{attention}{name}_proj.bias", rows, 0.3)
        matrix(attention + "q_int.weight", DIMS, width, 1.0)
        matrix(attention + "k_int.weight", DIMS, width, 1.0)
        vector(attention + "int_bias", 1, 0.1, 1.8)
        matrix(attention + "q_router.weight_proj.weight", 2, width, 1.0)
        vector(attention + "q_router.weight_proj.bias", 2, 0.2)
        vector(attention + "q_router.temp", 1, 0.1, 0.4)
        for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{prefix}mlp.{name}_proj.weight", rows, cols, 1.2)
        vector(prefix + "input_layernorm.weight", width, 0.2, 1.0)
        vector(prefix + "post_attention_layernorm.weight", width, 0.2, 1.0)
    vector("model.norm.weight", width, 0.2, 1.0)
    matrix("lm_head.weight", VOCAB_SIZE, width, 1.2)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y))


def rotate(x, position):
    """Pairs (i, i + n / 2) of one head."""
    half = len(x) // 2
    angles = [position * CONFIG["rope_theta"] ** (-2 * i / len(x)) for i in range(half)]
    return ([x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)])


class Gates:
    """seen[k]: the tokens that token k sees; weights[k]; staying: tokens that a later one may still see."""

    def __init__(self, tensors, prefix, kind, window, normed):
        self.margin, count = math.inf, len(normed)
        self.weights = [1.0] * count
        if kind == "plain":
            self.seen, self.staying = [list(range(k + 1)) for k in range(count)], count
        elif kind == "pairs":
            queries = [times(tensors[prefix + "q_int.weight"].rows(), x) for x in normed]
            keys = [times(tensors[prefix + "k_int.weight"].rows(), x) for x in normed]
            bias = tensors[prefix + "int_bias"].values[0]
            gate = lambda n, j: dot(queries[n], keys[j]) / math.sqrt(DIMS) + bias
            opened = [[self.is_open(gate(n, j)) for j in range(n)] for n in range(count)]
            product = lambda k, j: all(opened[n][j] for n in range(j + 1, k + 1))
            self.seen = [[j for j in range(k + 1) if product(k, j)] for k in range(count)]
            self.staying = len(self.seen[-1])
        else:
            rows, bias = tensors[prefix + "q_router.weight_proj.weight"].rows(), tensors[prefix + "q_router.weight_proj.bias"].values
            temperature = math.exp(tensors[prefix + "q_router.temp"].values[0])
            options = [add(times(rows, x), bias) for x in normed]
            chosen = [k for k, (out, into) in enumerate(options) if self.is_open(into - out)]
            share = lambda u: math.exp(u[1] / temperature) / (math.exp(u[0] / temperature) + math.exp(u[1] / temperature))
            self.weights = [share(options[k]) if k in chosen else 0.0 for k in range(count)]
            newest = lambda upto: [j for j in chosen if j <= upto][-(window + 1) if window else None:]
            self.seen = [newest(k) if k in chosen else [] for k in range(count)]
            self.staying = len(newest(count - 1))

    def is_open(self, value):
        self.margin = min(self.margin, abs(value))
        return value > 0


def attend(tensors, prefix, gates, normed):
    size, heads, shared = CONFIG["head_dim"], CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"]
    split = lambda x: [x[i:i + size] for i in range(0, len(x), size)]
    of = lambda name: [split(add(times(tensors[f"{prefix}{name}_proj.weight"].rows(), x),
                                 tensors[f"{prefix}{name}_proj.bias"].values)) for x in normed]
    turned = lambda rows: [[rotate(head, position) for head in row] for position, row in enumerate(rows)]
    q, k, v = turned(of("q")), turned(of("k")), of("v")
    out = []
    for token, (seen, weight) in enumerate(zip(gates.seen, gates.weights)):
        if not seen:
            out.append([0.0] * CONFIG["hidden_size"])
            continue
        mixed = []
        for head in range(heads):
            group = head * shared // heads
            scores = [dot(q[token][head], k[j][group]) / math.sqrt(size) for j in seen]
            shares = [math.exp(score - max(scores)) for score in scores]
            mixed += [sum(s * v[j][group][i] for s, j in zip(shares, seen)) / sum(shares) for i in range(size)]
        y = add(times(tensors[prefix + "o_proj.weight"].rows(), mixed), tensors[prefix + "o_proj.bias"].values)
        out.append([weight * value for value in y])
    return out


def forward(tensors, tokens, kind, window=0):
    """Logits of every token, the tokens that stay in each layer, and the least margin of a gate."""
    eps = CONFIG["rms_norm_eps"]
    x = [tensors["model.embed_tokens.weight"].rows()[token] for token in tokens]
    staying, margin = [], math.inf
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        normed = [rms_norm(row, tensors[prefix + "input_layernorm.weight"].values, eps) for row in x]
        gates = Gates(tensors, prefix + "self_attn.", kind, window, normed)
        x = [add(row, y) for row, y in zip(x, attend(tensors, prefix + "self_attn.", gates, normed))]
        normed = [rms_norm(row, tensors[prefix + "post_attention_layernorm.weight"].values, eps) for row in x]
        mlp = {name: tensors[f"{prefix}mlp.{name}_proj.weight"].rows() for name in ("gate", "up", "down")}
        inner = [[silu(g) * u for g, u in zip(times(mlp["gate"], row), times(mlp["up"], row))] for row in normed]
        x = [add(row, times(mlp["down"], h)) for row, h in zip(x, inner)]
        staying.append(gates.staying)
        margin = min(margin, gates.margin)
    final = [rms_norm(row, tensors["model.norm.weight"].values, eps) for row in x]
    return [times(tensors["lm_head.weight"].rows(), row) for row in final], staying, margin


# ---- files -----------------------------------------------------------------------------------------------------------
def reorder_pairs(array, heads):
    """Rows of each head from (first half, second half) to neighbouring pairs."""
    cols = array.shape[1] if len(array.shape) > 1 else 1
    size = array.shape[0] // heads
    row = lambda r: r // size * size + r % size // 2 + r % 2 * (size // 2)
    return Array(array.shape, lambda i: array.values[row(i // cols) * cols + i % cols])


def gguf_tensors(tensors):
    out = {}
    for name, array in tensors.items():
        if not name.startswith("model.layers."):
            out[{"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
                 "lm_head.weight": "output.weight"}[name]] = array
            continue
        _, _, layer, part = name.split(".", 3)
        if part.startswith("self_attn.q_proj."):
            array = reorder_pairs(array, CONFIG["num_attention_heads"])
        if part.startswith("self_attn.k_proj."):
            array = reorder_pairs(array, CONFIG["num_key_value_heads"])
        whole = {"self_attn.int_bias": "attn_int.bias", "self_attn.q_router.temp": "attn_select.temperature"}
        base, kind = part.rsplit(".", 1)
        out[f"blk.{layer}.{whole[part] if part in whole else GGUF_NAMES[base] + '.' + kind}"] = array
    return out


def gguf_keys():
    keys = [("general.architecture", "string", "llama"), ("general.name", "string", "tiny random")]
    for key, kind, value in (
            ("block_count", "uint32", CONFIG["num_hidden_layers"]),
            ("context_length", "uint32", CONFIG["max_position_embeddings"]),
            ("embedding_length", "uint32", CONFIG["hidden_size"]),
            ("feed_forward_length", "uint32", CONFIG["intermediate_size"]),
            ("attention.head_count", "uint32", CONFIG["num_attention_heads"]),
            ("attention.head_count_kv", "uint32", CONFIG["num_key_value_heads"]),
            ("attention.layer_norm_rms_epsilon", "float32", CONFIG["rms_norm_eps"]),
            ("attention.key_length", "uint32", CONFIG["head_dim"]),
            ("attention.value_length", "uint32", CONFIG["head_dim"]),
            ("rope.dimension_count", "uint32", CONFIG["head_dim"]),
            ("rope.freq_base", "float32", CONFIG["rope_theta"])):
        keys.append((f"llama.{key}", kind, value))
    return keys + gguf_metadata()


def flat(logits):
    values = [v for row in logits for v in row]
    return base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode()


def main():
    tensors = make_weights()
    source = random.Random(SEED + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(TOKENS - 1)]
    plain, _, _ = forward(tensors, tokens, "plain")
    expected = {"note": "gates between pairs of tokens, and gates that select tokens; `logits` are without either",
                "tokens": tokens, "shape": [TOKENS, VOCAB_SIZE], "logits": flat(plain), "window": WINDOW}
    for name, kind, window in (("pairs", "pairs", 0), ("selection", "selection", 0), ("windowed", "selection", WINDOW)):
        logits, staying, margin = forward(tensors, tokens, kind, window)
        assert margin > LEAST_MARGIN, f"{name}: a gate is {margin:.1e} from turning: choose another seed"
        moved = max(abs(a - b) for x, y in zip(logits, plain) for a, b in zip(x, y))
        assert moved > 0.1 and max(staying) < TOKENS, f"{name}: the gates do nothing: choose another seed"
        expected[name] = {"logits": flat(logits), "staying": staying}
        print(f"{name}: of {TOKENS} tokens {staying} stay; logits move by {moved:.2f}; least margin {margin:.1e}")

    ROOT.mkdir(exist_ok=True)
    for old in ROOT.iterdir():
        old.unlink()
    write_json(ROOT / "config.json", CONFIG)
    write_json(ROOT / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_tokenizer(ROOT)
    write_safetensors(ROOT / "model.safetensors", tensors)
    write_gguf(ROOT / "model.gguf", gguf_keys(), gguf_tensors(tensors))
    write_json(ROOT / "expected.json", expected)


if __name__ == "__main__":
    main()
