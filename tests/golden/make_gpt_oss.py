#!/usr/bin/env python3
"""Writes tests/golden/gpt_oss: a tiny model in gpt-oss's layout, in both file kinds. Needs only Python. Same seeds,
same files.

The reference computes all tokens at once in plain Python floats (float64), from the model card (OpenAI 2025,
arXiv:2508.10925, section 2): attention whose softmax has one more logit a head, which is learned and has no value;
layers that see a window of the keys and layers that see all of them in turns; YaRN whose ramp ends between two dims;
biases on every matrix; experts with a clamped SwiGLU, whose weights are the softmax of the chosen experts' logits. In
the folder the rows of an expert's gate and up come in turns, and its matrices are stored with the outputs last.
"""
import base64
import math
import pathlib
import random
import struct

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_mamba import Array, rms_norm, times, write_gguf, write_json, write_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent
TOKENS, GREEDY = 40, 16
MIN_GREEDY_GAP = 0.02   # between the best and the second logit, at every greedy step
MIN_ROUTER_GAP = 0.002  # between the last expert that is chosen and the first that is not
SLOPE, LIMIT = 1.702, 7.0

CONFIG = {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "attention_bias": True, "attention_dropout": 0.0,
    "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "experts_per_token": 2, "head_dim": 16,
    "hidden_act": "silu", "hidden_size": 32, "initial_context_length": 32, "initializer_range": 0.02,
    "intermediate_size": 24, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "max_position_embeddings": 128, "num_attention_heads": 4, "num_experts_per_tok": 2, "num_hidden_layers": 3,
    "num_key_value_heads": 2, "num_local_experts": 5, "output_router_logits": False, "rms_norm_eps": 1e-5,
    "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 4.0, "original_max_position_embeddings": 32,
                     "rope_type": "yarn", "truncate": False},
    "rope_theta": 10000, "router_aux_loss_coef": 0.9, "sliding_window": 8, "swiglu_limit": LIMIT,
    "tie_word_embeddings": False, "torch_dtype": "float32", "use_cache": True, "vocab_size": VOCAB_SIZE,
}
SEED = 2026
WIDTH, INNER, EXPERTS = CONFIG["hidden_size"], CONFIG["intermediate_size"], CONFIG["num_local_experts"]
HEADS, KV_HEADS, DIM = CONFIG["num_attention_heads"], CONFIG["num_key_value_heads"], CONFIG["head_dim"]


def make_weights(seed):
    source, weights = random.Random(seed), {}

    def draw(name, shape, scale, mean=0.0):
        weights[name] = Array(shape, lambda _: source.gauss(mean, scale))

    def linear(name, rows, cols, gain):
        draw(name + ".weight", [rows, cols], gain / math.sqrt(cols))
        draw(name + ".bias", [rows], 0.3)

    draw("model.embed_tokens.weight", [VOCAB_SIZE, WIDTH], 0.6)
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, rows, cols, gain in (("q", HEADS * DIM, WIDTH, 1.8), ("k", KV_HEADS * DIM, WIDTH, 1.8),
                                       ("v", KV_HEADS * DIM, WIDTH, 1.2), ("o", WIDTH, HEADS * DIM, 1.2)):
            linear(f"{prefix}self_attn.{name}_proj", rows, cols, gain)
        draw(prefix + "self_attn.sinks", [HEADS], 1.5, 1.0)
        linear(prefix + "mlp.router", EXPERTS, WIDTH, 1.5)
        experts = prefix + "mlp.experts."
        draw(experts + "gate_up_proj", [EXPERTS, WIDTH, 2 * INNER], 4.0 / math.sqrt(WIDTH))
        draw(experts + "gate_up_proj_bias", [EXPERTS, 2 * INNER], 0.5)
        draw(experts + "down_proj", [EXPERTS, INNER, WIDTH], 0.15 / math.sqrt(INNER))
        draw(experts + "down_proj_bias", [EXPERTS, WIDTH], 0.3)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            draw(f"{prefix}{norm}.weight", [WIDTH], 0.2, 1.0)
    draw("model.norm.weight", [WIDTH], 0.2, 1.0)
    draw("lm_head.weight", [VOCAB_SIZE, WIDTH], 1.4 / math.sqrt(WIDTH))
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def linear(weights, name, x):
    return add(times(weights[name + ".weight"].rows(), x), weights[name + ".bias"].values)


def frequencies():
    """YaRN (Peng et al. 2023, arXiv:2309.00071), sections 3.2 and 3.4."""
    scaling, theta = CONFIG["rope_scaling"], CONFIG["rope_theta"]
    turns = lambda n: DIM * math.log(scaling["original_max_position_embeddings"] / (n * 2 * math.pi)) / (2 * math.log(theta))
    low, high = max(turns(scaling["beta_fast"]), 0), min(turns(scaling["beta_slow"]), DIM - 1)
    out = []
    for i in range(DIM // 2):
        plain = theta ** (-2 * i / DIM)
        ramp = min(max((i - low) / (high - low), 0), 1)
        out.append(plain / scaling["factor"] * ramp + plain * (1 - ramp))
    return out, 0.1 * math.log(scaling["factor"]) + 1


FREQUENCIES, FACTOR = frequencies()


def rotate(x, position):
    half = DIM // 2
    angles = [position * f for f in FREQUENCIES]
    return ([FACTOR * (x[i] * math.cos(a) - x[i + half] * math.sin(a)) for i, a in enumerate(angles)] +
            [FACTOR * (x[i + half] * math.cos(a) + x[i] * math.sin(a)) for i, a in enumerate(angles)])


def attend(weights, prefix, normed, window):
    heads_of = lambda row, count: [row[h * DIM:(h + 1) * DIM] for h in range(count)]
    queries = [[rotate(q, p) for q in heads_of(linear(weights, prefix + "q_proj", x), HEADS)] for p, x in enumerate(normed)]
    keys = [[rotate(k, p) for k in heads_of(linear(weights, prefix + "k_proj", x), KV_HEADS)] for p, x in enumerate(normed)]
    values = [heads_of(linear(weights, prefix + "v_proj", x), KV_HEADS) for x in normed]
    sinks, out = weights[prefix + "sinks"].values, []
    for position in range(len(normed)):
        first = max(0, position - window + 1) if window else 0
        mixed = []
        for head in range(HEADS):
            own = head // (HEADS // KV_HEADS)
            scores = [sum(a * b for a, b in zip(queries[position][head], keys[j][own])) / math.sqrt(DIM)
                      for j in range(first, position + 1)]
            top = max(scores + [sinks[head]])
            shares = [math.exp(score - top) for score in scores]
            total = sum(shares) + math.exp(sinks[head] - top)
            mixed += [sum(s * values[first + j][own][i] for j, s in enumerate(shares)) / total for i in range(DIM)]
        out.append(linear(weights, prefix + "o_proj", mixed))
    return out


class Clamped:
    gate = up = 0


def expert(weights, prefix, e, x):
    gate_up, down = weights[prefix + "gate_up_proj"].values, weights[prefix + "down_proj"].values
    both = [weights[prefix + "gate_up_proj_bias"].values[e * 2 * INNER + o] +
            sum(x[i] * gate_up[(e * WIDTH + i) * 2 * INNER + o] for i in range(WIDTH)) for o in range(2 * INNER)]
    hidden = []
    for g, u in zip(both[0::2], both[1::2]):
        Clamped.gate += g > LIMIT
        Clamped.up += abs(u) > LIMIT
        g, u = min(g, LIMIT), min(max(u, -LIMIT), LIMIT)
        hidden.append(g / (1 + math.exp(-SLOPE * g)) * (u + 1))
    return [weights[prefix + "down_proj_bias"].values[e * WIDTH + o] +
            sum(h * down[(e * INNER + i) * WIDTH + o] for i, h in enumerate(hidden)) for o in range(WIDTH)]


ROUTER_GAPS = []


def mixture(weights, prefix, x):
    logits = linear(weights, prefix + "router", x)
    order = sorted(range(EXPERTS), key=lambda e: -logits[e])
    used = order[:CONFIG["num_experts_per_tok"]]
    ROUTER_GAPS.append(logits[used[-1]] - logits[order[len(used)]])
    shares = [math.exp(logits[e] - logits[used[0]]) for e in used]
    out = [0.0] * WIDTH
    for e, share in zip(used, shares):
        out = add(out, [share / sum(shares) * y for y in expert(weights, prefix + "experts.", e, x)])
    return out


def forward(weights, tokens):
    eps = CONFIG["rms_norm_eps"]
    x = [weights["model.embed_tokens.weight"].rows()[token] for token in tokens]
    for layer, kind in enumerate(CONFIG["layer_types"]):
        prefix = f"model.layers.{layer}."
        normed = [rms_norm(row, weights[prefix + "input_layernorm.weight"].values, eps) for row in x]
        window = CONFIG["sliding_window"] if kind == "sliding_attention" else 0
        x = [add(row, y) for row, y in zip(x, attend(weights, prefix + "self_attn.", normed, window))]
        normed = [rms_norm(row, weights[prefix + "post_attention_layernorm.weight"].values, eps) for row in x]
        x = [add(row, mixture(weights, prefix + "mlp.", n)) for row, n in zip(x, normed)]
    final = [rms_norm(row, weights["model.norm.weight"].values, eps) for row in x]
    return [times(weights["lm_head.weight"].rows(), row) for row in final]


def greedy(weights, tokens):
    tokens, out, gap = list(tokens), [], math.inf
    for _ in range(GREEDY):
        last = forward(weights, tokens)[-1]
        best = sorted(range(len(last)), key=lambda i: -last[i])
        gap = min(gap, last[best[0]] - last[best[1]])
        out.append(best[0])
        tokens.append(best[0])
    return out, gap


# ---- files -----------------------------------------------------------------------------------------------------------
def turned(array, first, step):
    """Outputs first, first + step, ... of [experts, inputs, outputs], outputs before inputs."""
    experts, inputs, outputs = array.shape
    kept = range(first, outputs, step)
    values = [array.values[(e * inputs + i) * outputs + o] for e in range(experts) for o in kept for i in range(inputs)]
    return Array([experts, len(kept), inputs], values.__getitem__)


def picked(array, first, step):
    experts, outputs = array.shape
    values = [array.values[e * outputs + o] for e in range(experts) for o in range(first, outputs, step)]
    return Array([experts, len(values) // experts], values.__getitem__)


def gguf_tensors(weights):
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "post_attention_norm", "mlp.router": "ffn_gate_inp",
             "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    out = {}
    for name, array in weights.items():
        if not name.startswith("model.layers."):
            base, kind = name.rsplit(".", 1)
            out[f"{names[base]}.{kind}"] = array
            continue
        _, _, layer, part = name.split(".", 3)
        prefix = f"blk.{layer}."
        if part == "self_attn.sinks":
            out[prefix + "attn_sinks.weight"] = array
        elif part.startswith("mlp.experts."):
            bias = part.endswith("_bias")
            take, kind = (picked, "bias") if bias else (turned, "weight")
            both = "gate_up" in part
            for own, first, step in (("gate", 0, 2), ("up", 1, 2)) if both else (("down", 0, 1),):
                out[f"{prefix}ffn_{own}_exps.{kind}"] = take(array, first, step)
        else:
            base, kind = part.rsplit(".", 1)
            out[f"{prefix}{names[base]}.{kind}"] = array
    return out


def gguf_keys():
    scaling = CONFIG["rope_scaling"]
    keys = [("general.architecture", "string", "gpt-oss"), ("general.name", "string", "tiny random")]
    for key, kind, value in (
            ("block_count", "uint32", CONFIG["num_hidden_layers"]),
            ("context_length", "uint32", CONFIG["max_position_embeddings"]),
            ("embedding_length", "uint32", WIDTH), ("feed_forward_length", "uint32", INNER),
            ("expert_feed_forward_length", "uint32", INNER), ("expert_count", "uint32", EXPERTS),
            ("expert_used_count", "uint32", CONFIG["num_experts_per_tok"]),
            ("attention.head_count", "uint32", HEADS), ("attention.head_count_kv", "uint32", KV_HEADS),
            ("attention.key_length", "uint32", DIM), ("attention.value_length", "uint32", DIM),
            ("attention.sliding_window", "uint32", CONFIG["sliding_window"]),
            ("attention.layer_norm_rms_epsilon", "float32", CONFIG["rms_norm_eps"]),
            ("rope.freq_base", "float32", float(CONFIG["rope_theta"])), ("rope.scaling.type", "string", "yarn"),
            ("rope.scaling.factor", "float32", scaling["factor"]),
            ("rope.scaling.original_context_length", "uint32", scaling["original_max_position_embeddings"])):
        keys.append((f"gpt-oss.{key}", kind, value))
    return keys + gguf_metadata()


def main():
    weights = make_weights(SEED)
    source = random.Random(SEED + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(TOKENS - 1)]
    logits = forward(weights, tokens)
    continuation, gap = greedy(weights, tokens)
    assert gap > MIN_GREEDY_GAP, f"greedy gap {gap:.4f}: choose another seed"
    assert min(ROUTER_GAPS) > MIN_ROUTER_GAP, f"router gap {min(ROUTER_GAPS):.5f}: choose another seed"
    assert len(set(continuation)) > 2, f"dull continuation {continuation}"
    assert Clamped.gate and Clamped.up, "no value is clamped"
    folder = GOLDEN / "gpt_oss"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    write_json(folder / "config.json", CONFIG)
    write_json(folder / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_tokenizer(folder)
    write_safetensors(folder / "model.safetensors", weights)
    write_gguf(folder / "model.gguf", gguf_keys(), gguf_tensors(weights))
    flat = [value for row in logits for value in row]
    note = "attention sinks, windows of 8 in every second layer, biases, 2 of 5 experts with a clamped SwiGLU, YaRN"
    write_json(folder / "expected.json",
               {"note": note, "tokens": tokens, "shape": [TOKENS, VOCAB_SIZE], "greedy": continuation,
                "logits": base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()})
    print(f"gpt_oss: greedy gap {gap:.3f}, router gap {min(ROUTER_GAPS):.4f}, clamped {Clamped.gate} gates and "
          f"{Clamped.up} ups; {continuation}")


if __name__ == "__main__":
    main()
