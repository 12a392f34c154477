#!/usr/bin/env python3
"""Writes the golden DeepSeek models (both file kinds) and expected logits: tests/golden/make_deepseek.py [NAME]...

The reference is multi-head latent attention as DeepSeek-AI 2024 (arXiv:2405.04434, section 2.1) defines it, with every
head's keys and values formed from the latent, and the experts of its section 2.2 or of DeepSeek-V3 (arXiv:2412.19437,
section 2.1.2), in plain Python floats (float64). Needs only Python. Same seeds, same files.
"""
import base64
import json
import math
import pathlib
import random
import struct
import sys

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_mamba import Array, rms_norm, silu, times, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent
GREEDY_TOKENS = 16
MIN_GREEDY_GAP = 0.02
MIN_ROUTER_GAP = 5e-5  # between what is selected and what is not


def config(**changes):
    base = {
        "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "attention_bias": False,
        "bos_token_id": BOS, "eos_token_id": EOS, "first_k_dense_replace": 1, "hidden_act": "silu", "hidden_size": 40,
        "intermediate_size": 40, "kv_lora_rank": 48, "max_position_embeddings": 256, "moe_intermediate_size": 12,
        "moe_layer_freq": 1, "n_group": 1, "n_routed_experts": 8, "n_shared_experts": 2, "norm_topk_prob": False,
        "num_attention_heads": 4, "num_experts_per_tok": 3, "num_hidden_layers": 3, "num_key_value_heads": 4,
        "pad_token_id": PAD, "q_lora_rank": None, "qk_nope_head_dim": 24, "qk_rope_head_dim": 16, "rms_norm_eps": 1e-6,
        "rope_scaling": {"type": "yarn", "factor": 8, "beta_fast": 4, "beta_slow": 1, "mscale": 0.707,
                         "mscale_all_dim": 0.707, "original_max_position_embeddings": 32},
        "rope_theta": 10000, "routed_scaling_factor": 1.0, "scoring_func": "softmax", "tie_word_embeddings": False,
        "topk_group": 1, "topk_method": "greedy", "torch_dtype": "float32", "use_cache": True, "v_head_dim": 20,
        "vocab_size": VOCAB_SIZE,
    }
    base.update(changes)
    return base


# name: (config, seed, scored tokens, whether the GGUF file has keys and values in two stacks, note)
CASES = {
    "deepseek2": (config(), 61, 40, True,
                  "latent attention as in V2-Lite: full query matrix, YaRN with a temperature, a dense first layer"),
    "deepseek2_groups": (
        config(topk_method="group_limited_greedy", n_group=4, topk_group=2, n_routed_experts=12, q_lora_rank=28,
               routed_scaling_factor=2.5, rope_scaling=None, n_shared_experts=1),
        62, 36, False, "as in V2: query latent, experts of the two best groups, scaled; keys and values in one matrix"),
    "deepseek3": (
        config(architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", topk_method="noaux_tc",
               scoring_func="sigmoid", norm_topk_prob=True, n_group=4, topk_group=2, n_routed_experts=16,
               num_experts_per_tok=4, q_lora_rank=30, kv_lora_rank=37, qk_nope_head_dim=13, qk_rope_head_dim=6,
               v_head_dim=11, num_attention_heads=3, num_key_value_heads=3, n_shared_experts=1, num_hidden_layers=2,
               routed_scaling_factor=1.7,
               rope_scaling={"type": "yarn", "factor": 4, "beta_fast": 8, "beta_slow": 1, "mscale": 1.0,
                             "mscale_all_dim": 1.0, "original_max_position_embeddings": 64}),
        53, 40, True, "as in V3: sigmoids, a bias to select by, two experts rate a group; sizes of no whole vectors"),
}


# ---- weights ---------------------------------------------------------------------------------------------------------
def is_dense(config, layer):
    return layer < config["first_k_dense_replace"]


def make_weights(config, seed):
    source = random.Random(seed)
    normal = lambda scale, mean=0.0: lambda i: source.gauss(mean, scale)
    width, heads, rank = config["hidden_size"], config["num_attention_heads"], config["kv_lora_rank"]
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    weights = {"model.embed_tokens.weight": Array([config["vocab_size"], width], normal(1.0))}

    def matrix(name, rows, cols, gain=1.0):
        weights[name] = Array([rows, cols], normal(gain / math.sqrt(cols)))

    def mlp(prefix, hidden):
        matrix(prefix + "gate_proj.weight", hidden, width, 1.3)
        matrix(prefix + "up_proj.weight", hidden, width, 1.3)
        matrix(prefix + "down_proj.weight", width, hidden, 1.3)

    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        weights[prefix + "input_layernorm.weight"] = Array([width], normal(0.3, 1.0))
        if config["q_lora_rank"]:
            matrix(attention + "q_a_proj.weight", config["q_lora_rank"], width)
            weights[attention + "q_a_layernorm.weight"] = Array([config["q_lora_rank"]], normal(0.3, 1.0))
            matrix(attention + "q_b_proj.weight", heads * (nope + rope), config["q_lora_rank"], 1.5)
        else:
            matrix(attention + "q_proj.weight", heads * (nope + rope), width, 1.5)
        matrix(attention + "kv_a_proj_with_mqa.weight", rank + rope, width, 1.2)
        weights[attention + "kv_a_layernorm.weight"] = Array([rank], normal(0.3, 1.0))
        matrix(attention + "kv_b_proj.weight", heads * (nope + value), rank, 1.2)
        matrix(attention + "o_proj.weight", width, heads * value, 1.5)
        weights[prefix + "post_attention_layernorm.weight"] = Array([width], normal(0.3, 1.0))
        if is_dense(config, layer):
            mlp(prefix + "mlp.", config["intermediate_size"])
            continue
        matrix(prefix + "mlp.gate.weight", config["n_routed_experts"], width, 1.5)
        if config["topk_method"] == "noaux_tc":
            weights[prefix + "mlp.gate.e_score_correction_bias"] = Array([config["n_routed_experts"]], normal(0.15))
        for expert in range(config["n_routed_experts"]):
            mlp(f"{prefix}mlp.experts.{expert}.", config["moe_intermediate_size"])
        mlp(prefix + "mlp.shared_experts.", config["moe_intermediate_size"] * config["n_shared_experts"])
    weights["model.norm.weight"] = Array([width], normal(0.3, 1.0))
    matrix("lm_head.weight", config["vocab_size"], width, math.sqrt(width))
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def yarn_mscale(factor, mscale):
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def rope_frequencies(config):
    dims, base, scaling = config["qk_rope_head_dim"], config["rope_theta"], config["rope_scaling"]
    plain = [base ** (-2 * i / dims) for i in range(dims // 2)]
    if not scaling:
        return plain, 1.0
    original, factor = scaling["original_max_position_embeddings"], scaling["factor"]
    at = lambda turns: dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))
    low, high = max(math.floor(at(scaling["beta_fast"])), 0), min(math.ceil(at(scaling["beta_slow"])), dims - 1)
    high = high if high > low else low + 0.001
    out = []
    for i, frequency in enumerate(plain):
        ramp = min(1.0, max(0.0, (i - low) / (high - low)))
        out.append(frequency / factor * ramp + frequency * (1 - ramp))
    return out, yarn_mscale(factor, scaling["mscale"]) / yarn_mscale(factor, scaling["mscale_all_dim"])


def rotate(config, x, position):
    """As the models' own code does: neighbouring pairs are put into halves, which are rotated."""
    frequencies, scale = rope_frequencies(config)
    even, odd, out = x[0::2], x[1::2], []
    for i, f in enumerate(frequencies):
        out.append((even[i] * math.cos(position * f) - odd[i] * math.sin(position * f)) * scale)
    for i, f in enumerate(frequencies):
        out.append((odd[i] * math.cos(position * f) + even[i] * math.sin(position * f)) * scale)
    return out


def dot(a, b):
    return sum(x * y for x, y in zip(a, b))


def softmax(values):
    top = max(values)
    out = [math.exp(v - top) for v in values]
    total = sum(out)
    return [v / total for v in out]


class Mlp:
    def __init__(self, weights, prefix):
        self.gate, self.up, self.down = (weights[f"{prefix}{part}_proj.weight"].rows()
                                         for part in ("gate", "up", "down"))

    def __call__(self, x):
        return times(self.down, [silu(g) * u for g, u in zip(times(self.gate, x), times(self.up, x))])


class Experts:
    def __init__(self, config, weights, prefix):
        self.config = config
        self.router = weights[prefix + "gate.weight"].rows()
        bias = weights.get(prefix + "gate.e_score_correction_bias")
        self.bias = bias.values if bias else [0.0] * config["n_routed_experts"]
        self.experts = [Mlp(weights, f"{prefix}experts.{e}.") for e in range(config["n_routed_experts"])]
        self.shared = Mlp(weights, prefix + "shared_experts.")
        self.gap = math.inf

    def best(self, scores, count):
        order = sorted(scores, key=lambda i: -scores[i])
        if count < len(order):
            self.gap = min(self.gap, scores[order[count - 1]] - scores[order[count]])
        return order[:count]

    def __call__(self, x):
        c, logits = self.config, times(self.router, x)
        scores = softmax(logits) if c["scoring_func"] == "softmax" else [1 / (1 + math.exp(-v)) for v in logits]
        rated = {e: s + b for e, (s, b) in enumerate(zip(scores, self.bias))}
        if c["topk_method"] != "greedy":
            size, rate = c["n_routed_experts"] // c["n_group"], 2 if c["topk_method"] == "noaux_tc" else 1
            groups = {g: sum(sorted((rated[g * size + i] for i in range(size)), reverse=True)[:rate])
                      for g in range(c["n_group"])}
            kept = self.best(groups, c["topk_group"])
            rated = {e: s for e, s in rated.items() if e // size in kept}
        chosen = self.best(rated, c["num_experts_per_tok"])
        weights = [scores[e] for e in chosen]
        if c["norm_topk_prob"]:
            weights = [w / sum(scores[e] for e in chosen) for w in weights]
        out = self.shared(x)
        for e, w in zip(chosen, weights):
            out = [o + c["routed_scaling_factor"] * w * v for o, v in zip(out, self.experts[e](x))]
        return out


class Layer:
    """One layer, and the keys and values of all heads; step() takes one token's row."""

    def __init__(self, config, weights, layer):
        prefix = f"model.layers.{layer}."
        attention = prefix + "self_attn."
        rows = lambda name: weights[attention + name].rows() if attention + name in weights else None
        vector = lambda name: weights[name].values if name in weights else None
        self.config = config
        self.q, self.q_a, self.q_b = rows("q_proj.weight"), rows("q_a_proj.weight"), rows("q_b_proj.weight")
        self.q_norm, self.kv_norm = (vector(attention + f"{n}_a_layernorm.weight") for n in ("q", "kv"))
        self.kv_a, self.kv_b, self.o = (rows(f"{n}.weight") for n in ("kv_a_proj_with_mqa", "kv_b_proj", "o_proj"))
        self.norm, self.mlp_norm = (vector(prefix + f"{n}_layernorm.weight") for n in ("input", "post_attention"))
        self.mlp = (Mlp if is_dense(config, layer) else lambda w, p: Experts(config, w, p))(weights, prefix + "mlp.")
        self.keys, self.values = [], []  # [token][head]

    def attend(self, x, position):
        c = self.config
        nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
        rank, eps = c["kv_lora_rank"], c["rms_norm_eps"]
        q = times(self.q, x) if self.q else times(self.q_b, rms_norm(times(self.q_a, x), self.q_norm, eps))
        both = times(self.kv_a, x)
        shared = rotate(c, both[rank:], position)
        up = times(self.kv_b, rms_norm(both[:rank], self.kv_norm, eps))
        keys, values, out = [], [], []
        for h in range(c["num_attention_heads"]):
            mine = up[h * (nope + value):(h + 1) * (nope + value)]
            keys.append(mine[:nope] + shared)
            values.append(mine[nope:])
        self.keys.append(keys)
        self.values.append(values)
        scale = 1 / math.sqrt(nope + rope)
        if c["rope_scaling"]:
            scale *= yarn_mscale(c["rope_scaling"]["factor"], c["rope_scaling"]["mscale_all_dim"]) ** 2
        for h in range(c["num_attention_heads"]):
            query = q[h * (nope + rope):(h + 1) * (nope + rope)]
            query = query[:nope] + rotate(c, query[nope:], position)
            p = softmax([scale * dot(query, token[h]) for token in self.keys])
            out += [sum(w * token[h][d] for w, token in zip(p, self.values)) for d in range(value)]
        return times(self.o, out)

    def step(self, residual, position):
        eps = self.config["rms_norm_eps"]
        residual = [r + v for r, v in zip(residual, self.attend(rms_norm(residual, self.norm, eps), position))]
        return [r + v for r, v in zip(residual, self.mlp(rms_norm(residual, self.mlp_norm, eps)))]


class Model:
    def __init__(self, config, weights):
        self.config = config
        self.layers = [Layer(config, weights, i) for i in range(config["num_hidden_layers"])]
        self.embedding, self.head = (weights[n].rows() for n in ("model.embed_tokens.weight", "lm_head.weight"))
        self.norm, self.position = weights["model.norm.weight"].values, 0

    def step(self, token):
        row = self.embedding[token]
        for layer in self.layers:
            row = layer.step(row, self.position)
        self.position += 1
        return times(self.head, rms_norm(row, self.norm, self.config["rms_norm_eps"]))

    def router_gap(self):
        return min(layer.mlp.gap for layer in self.layers if isinstance(layer.mlp, Experts))


# ---- files -----------------------------------------------------------------------------------------------------------
GGUF_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm", "self_attn.q_b_proj": "attn_q_b",
    "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa", "self_attn.kv_a_layernorm": "attn_kv_a_norm",
    "self_attn.kv_b_proj": "attn_kv_b", "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_experts.gate_proj": "ffn_gate_shexp", "mlp.shared_experts.up_proj": "ffn_up_shexp",
    "mlp.shared_experts.down_proj": "ffn_down_shexp",
}
TOP_NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}


def plain(shape, values):
    return Array(shape, lambda i: values[i])


def split_heads(config, array):
    """W_UK of every head transposed, [heads, rank, nope], and W_UV, [heads, value, rank]."""
    nope, value, rank = config["qk_nope_head_dim"], config["v_head_dim"], config["kv_lora_rank"]
    heads, rows, keys, values = config["num_attention_heads"], array.rows(), [], []
    for h in range(heads):
        own = rows[h * (nope + value):(h + 1) * (nope + value)]
        keys += [own[i][r] for r in range(rank) for i in range(nope)]
        values += [v for row in own[nope:] for v in row]
    return plain([heads, rank, nope], keys), plain([heads, value, rank], values)


def gguf_tensors(config, weights, split):
    out, stacks = {}, {}
    for name, array in weights.items():
        if name in TOP_NAMES:
            out[TOP_NAMES[name]] = array
            continue
        _, _, layer, part = name.split(".", 3)
        prefix = f"blk.{layer}."
        if part == "mlp.gate.e_score_correction_bias":
            out[prefix + "exp_probs_b.bias"] = array
        elif part.startswith("mlp.experts."):
            stacks.setdefault(f"{prefix}ffn_{part.split('.')[3].removesuffix('_proj')}_exps.weight", []).append(array)
        elif part == "self_attn.kv_b_proj.weight" and split:
            out[prefix + "attn_k_b.weight"], out[prefix + "attn_v_b.weight"] = split_heads(config, array)
        else:
            out[f"{prefix}{GGUF_NAMES[part.removesuffix('.weight')]}.weight"] = array
    for name, arrays in stacks.items():
        out[name] = plain([len(arrays)] + arrays[0].shape, [v for array in arrays for v in array.values])
    return out


def gguf_keys(config, split):
    c, rope = config, config["qk_rope_head_dim"]
    keys = [("general.architecture", "string", "deepseek2"), ("general.name", "string", "tiny random")]
    own = [
        ("context_length", "uint32", c["max_position_embeddings"]), ("embedding_length", "uint32", c["hidden_size"]),
        ("block_count", "uint32", c["num_hidden_layers"]), ("feed_forward_length", "uint32", c["intermediate_size"]),
        ("attention.head_count", "uint32", c["num_attention_heads"]),
        ("attention.layer_norm_rms_epsilon", "float32", c["rms_norm_eps"]),
        ("attention.kv_lora_rank", "uint32", c["kv_lora_rank"]), ("rope.dimension_count", "uint32", rope),
        ("rope.freq_base", "float32", float(c["rope_theta"])), ("vocab_size", "uint32", c["vocab_size"]),
        ("leading_dense_block_count", "uint32", c["first_k_dense_replace"]),
        ("expert_count", "uint32", c["n_routed_experts"]), ("expert_used_count", "uint32", c["num_experts_per_tok"]),
        ("expert_shared_count", "uint32", c["n_shared_experts"]),
        ("expert_feed_forward_length", "uint32", c["moe_intermediate_size"]),
        ("expert_weights_scale", "float32", c["routed_scaling_factor"]),
        ("expert_weights_norm", "bool", c["norm_topk_prob"]),
    ]
    key, value = c["qk_nope_head_dim"] + rope, c["v_head_dim"]
    if split:  # the plain names are those of the stored row
        own += [("attention.head_count_kv", "uint32", 1), ("attention.key_length", "uint32", c["kv_lora_rank"] + rope),
                ("attention.value_length", "uint32", c["kv_lora_rank"]), ("attention.key_length_mla", "uint32", key),
                ("attention.value_length_mla", "uint32", value),
                ("expert_gating_func", "uint32", 2 if c["scoring_func"] == "sigmoid" else 1)]
    else:
        own += [("attention.head_count_kv", "uint32", c["num_attention_heads"]),
                ("attention.key_length", "uint32", key), ("attention.value_length", "uint32", value)]
    if c["q_lora_rank"]:
        own.append(("attention.q_lora_rank", "uint32", c["q_lora_rank"]))
    if c["n_group"] > 1:
        own += [("expert_group_count", "uint32", c["n_group"]), ("expert_group_used_count", "uint32", c["topk_group"])]
    if scaling := c["rope_scaling"]:
        own += [("rope.scaling.type", "string", "yarn"), ("rope.scaling.factor", "float32", float(scaling["factor"])),
                ("rope.scaling.original_context_length", "uint32", scaling["original_max_position_embeddings"]),
                ("rope.scaling.yarn_beta_fast", "float32", float(scaling["beta_fast"])),
                ("rope.scaling.yarn_beta_slow", "float32", float(scaling["beta_slow"])),
                ("rope.scaling.yarn_log_multiplier", "float32", 0.1 * scaling["mscale_all_dim"])]
    return keys + [(f"deepseek2.{name}", kind, v) for name, kind, v in own] + gguf_metadata()


def make(name):
    config, seed, length, split, note = CASES[name]
    weights = make_weights(config, seed)
    source = random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(config["vocab_size"] - 4) for _ in range(length - 1)]
    model = Model(config, weights)
    logits = [model.step(token) for token in tokens]
    changed = list(tokens)
    changed[2] = (changed[2] + 1) % (config["vocab_size"] - 4)
    other = Model(config, weights)
    reach = max(abs(a - b) for a, b in zip([other.step(token) for token in changed][-1], logits[-1]))
    assert reach > 0.01, "attention does not reach far enough to be tested"
    continuation, gap, last = [], math.inf, logits[-1]
    for _ in range(GREEDY_TOKENS):
        order = sorted(range(len(last)), key=lambda i: -last[i])
        gap = min(gap, last[order[0]] - last[order[1]])
        continuation.append(order[0])
        last = model.step(order[0])
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert model.router_gap() > MIN_ROUTER_GAP, f"{name}: router gap {model.router_gap():.6f}: choose another seed"
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
    write_gguf(folder / "model.gguf", gguf_keys(config, split), gguf_tensors(config, weights, split))
    flat = [v for row in logits for v in row]
    write_json(folder / "expected.json",
               {"note": note, "tokens": tokens, "shape": [len(logits), len(logits[0])], "greedy": continuation,
                "logits": base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()})
    print(f"{name}: largest logit {max(map(abs, flat)):.2f}, greedy gap {gap:.3f}, "
          f"router gap {model.router_gap():.5f}, token 2 changes the last logits by {reach:.3f}; {continuation}")


def main():
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
