#!/usr/bin/env python3
"""Writes tests/golden/falcon_h1 and falcon_h1_norm: tiny models in Falcon-H1's layout, in both file kinds. Needs only
Python. Same seeds, same files.

The reference runs one token after the other in plain Python floats (float64). Attention is Vaswani et al. 2017 with the
rotations of Su et al. 2021. The state space is Dao and Gu 2024 (arXiv:2405.21060), the recurrence of section 2.1 with
the block of figure 6: one decay for each head, B and C of groups of heads. Both read the same normed row, and their
outputs are added (Zuo et al. 2025, arXiv:2507.22448, section 2). Every factor is applied where the report has it. The
factors of a GGUF file are in its matrices, as llama.cpp's converter writes them; its rows of q and k keep their order.
"""
import base64
import math
import pathlib
import random
import struct

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_internlm2 import add, dot, rotate
from make_mamba import Array, rms_norm, silu, softplus, times, write_gguf, write_json, write_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent
TOKENS, GREEDY = 40, 16
MIN_GREEDY_GAP = 0.02  # between the best and the second logit, at every greedy step


def config(**changes):
    out = {
        "architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "attention_bias": False,
        "attention_dropout": 0.0, "attention_in_multiplier": 1.3, "attention_out_multiplier": 0.7, "bos_token_id": BOS,
        "embedding_multiplier": 2.5, "eos_token_id": EOS, "head_dim": 32, "hidden_act": "silu", "hidden_size": 48,
        "initializer_range": 0.02, "intermediate_size": 56, "key_multiplier": 0.6, "lm_head_multiplier": 0.4,
        "mamba_chunk_size": 128, "mamba_conv_bias": True, "mamba_d_conv": 4, "mamba_d_head": 16, "mamba_d_ssm": 48,
        "mamba_d_state": 8, "mamba_expand": 2, "mamba_n_groups": 1, "mamba_n_heads": 3, "mamba_norm_before_gate": False,
        "mamba_proj_bias": False, "mamba_rms_norm": False, "mamba_use_mlp": True, "max_position_embeddings": 8192,
        "mlp_bias": False, "mlp_multipliers": [1.4, 0.8], "num_attention_heads": 2, "num_hidden_layers": 2,
        "num_key_value_heads": 1, "num_logits_to_keep": 1, "pad_token_id": PAD, "projectors_bias": False,
        "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 100000, "ssm_in_multiplier": 1.25,
        "ssm_multipliers": [0.8, 1.2, 0.7, 1.5, 0.9], "ssm_out_multiplier": 1.6, "tie_word_embeddings": False,
        "torch_dtype": "float32", "use_cache": True, "vocab_size": VOCAB_SIZE,
    }
    out.update(changes)
    return out


CASES = {
    "falcon_h1": (config(), 57, "attention and a state space side by side; every factor differs from 1"),
    "falcon_h1_norm": (config(mamba_rms_norm=True, mamba_n_groups=2, mamba_n_heads=4, mamba_d_head=10, mamba_d_ssm=40,
                              mamba_d_state=5, mamba_d_conv=3, mamba_conv_bias=False, num_attention_heads=4,
                              num_key_value_heads=2, head_dim=16, tie_word_embeddings=True, embedding_multiplier=0.5,
                              lm_head_multiplier=0.5, num_hidden_layers=3), 53,
                       "norm of each of two groups; sizes that fill no vector; three taps without bias; tied head"),
}


class Sizes:
    def __init__(self, settings):
        self.heads, self.kv_heads = settings["num_attention_heads"], settings["num_key_value_heads"]
        self.dim = settings["head_dim"]
        self.ssm_heads, self.groups = settings["mamba_n_heads"], settings["mamba_n_groups"]
        self.inner, self.state, self.taps = (settings[key] for key in ("mamba_d_ssm", "mamba_d_state", "mamba_d_conv"))
        self.ssm_dim = self.inner // self.ssm_heads
        self.convolved = self.inner + 2 * self.groups * self.state
        # The parts of in_proj's rows: z, x, B, C, step sizes.
        self.parts = [self.inner, self.inner, self.groups * self.state, self.groups * self.state, self.ssm_heads]


def make_weights(settings, seed):
    source, weights, sizes = random.Random(seed), {}, Sizes(settings)
    width, inner = settings["hidden_size"], settings["intermediate_size"]

    def matrix(name, rows, cols, gain):
        weights[name] = Array([rows, cols], lambda _: source.gauss(0, gain / math.sqrt(cols)))

    def vector(name, count, scale, mean=0.0):
        weights[name] = Array([count], lambda _: source.gauss(mean, scale))

    matrix("model.embed_tokens.weight", VOCAB_SIZE, width, 0.6 * math.sqrt(width))
    for layer in range(settings["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        matrix(prefix + "self_attn.q_proj.weight", sizes.heads * sizes.dim, width, 1.6)
        matrix(prefix + "self_attn.k_proj.weight", sizes.kv_heads * sizes.dim, width, 1.6)
        matrix(prefix + "self_attn.v_proj.weight", sizes.kv_heads * sizes.dim, width, 1.2)
        matrix(prefix + "self_attn.o_proj.weight", width, sizes.heads * sizes.dim, 1.2)
        matrix(prefix + "mamba.in_proj.weight", sum(sizes.parts), width, 1.2)
        weights[prefix + "mamba.conv1d.weight"] = Array([sizes.convolved, 1, sizes.taps],
                                                        lambda _: source.gauss(0, 0.6))
        if settings["mamba_conv_bias"]:
            vector(prefix + "mamba.conv1d.bias", sizes.convolved, 0.3)
        weights[prefix + "mamba.dt_bias"] = Array(
            [sizes.ssm_heads], lambda _: math.log(math.expm1(math.exp(source.uniform(math.log(0.05), math.log(0.5))))))
        weights[prefix + "mamba.A_log"] = Array([sizes.ssm_heads], lambda i: math.log(1 + i) + source.gauss(0, 0.3) - 1)
        vector(prefix + "mamba.D", sizes.ssm_heads, 0.5, 1.0)
        if settings["mamba_rms_norm"]:
            vector(prefix + "mamba.norm.weight", sizes.inner, 0.3, 1.0)
        matrix(prefix + "mamba.out_proj.weight", width, sizes.inner, 1.0)
        for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{prefix}feed_forward.{name}_proj.weight", rows, cols, 1.2)
        vector(prefix + "input_layernorm.weight", width, 0.2, 1.0)
        vector(prefix + "pre_ff_layernorm.weight", width, 0.2, 1.0)
    vector("model.final_layernorm.weight", width, 0.2, 1.0)
    if not settings["tie_word_embeddings"]:
        matrix("lm_head.weight", VOCAB_SIZE, width, 1.4)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def scaled(x, factor):
    return [v * factor for v in x]


class Layer:
    """One layer, its keys and values, and its state; step() takes one token's row."""

    def __init__(self, settings, weights, layer):
        self.settings, self.sizes = settings, Sizes(settings)
        self.weights, self.prefix = weights, f"model.layers.{layer}."
        self.rows = {name.removeprefix(self.prefix): array.rows() for name, array in weights.items()
                     if name.startswith(self.prefix)}
        self.a = [-math.exp(v) for v in self.values("mamba.A_log")]
        bias = weights.get(self.prefix + "mamba.conv1d.bias")
        self.conv_bias = bias.values if bias else [0.0] * self.sizes.convolved
        self.keys, self.stored = [], []
        self.before = [[0.0] * self.sizes.convolved for _ in range(self.sizes.taps - 1)]
        self.h = [[0.0] * self.sizes.state for _ in range(self.sizes.inner)]

    def values(self, name):
        return self.weights[self.prefix + name].values

    def linear(self, name, x):
        return times(self.rows[name + ".weight"], x)

    def attend(self, x, position):
        sizes = self.sizes
        heads = lambda row: [row[i:i + sizes.dim] for i in range(0, len(row), sizes.dim)]
        turned = lambda row: [rotate(self.settings, head, position) for head in heads(row)]
        queries = turned(self.linear("self_attn.q_proj", x))
        self.keys.append(turned(scaled(self.linear("self_attn.k_proj", x), self.settings["key_multiplier"])))
        self.stored.append(heads(self.linear("self_attn.v_proj", x)))
        mixed = []
        for i, query in enumerate(queries):
            own = i // (sizes.heads // sizes.kv_heads)
            scores = [dot(query, key[own]) / math.sqrt(sizes.dim) for key in self.keys]
            shares = [math.exp(score - max(scores)) for score in scores]
            mixed += [sum(s * value[own][d] for s, value in zip(shares, self.stored)) / sum(shares)
                      for d in range(sizes.dim)]
        return self.linear("self_attn.o_proj", mixed)

    def scan(self, x):
        sizes, row = self.sizes, self.linear("mamba.in_proj", x)
        parts, at = [], 0
        for count, factor in zip(sizes.parts, self.settings["ssm_multipliers"]):
            parts.append(scaled(row[at:at + count], factor))
            at += count
        z, steps = parts[0], parts[4]
        window = self.before + [parts[1] + parts[2] + parts[3]]
        self.before = window[1:]
        conv = self.rows["mamba.conv1d.weight"]
        xbc = [silu(sum(w * past[c] for w, past in zip(conv[c], window)) + self.conv_bias[c])
               for c in range(sizes.convolved)]
        out = []
        for channel in range(sizes.inner):
            head = channel // sizes.ssm_dim
            at = sizes.inner + head // (sizes.ssm_heads // sizes.groups) * sizes.state
            b, c = xbc[at:at + sizes.state], xbc[at + sizes.groups * sizes.state:][:sizes.state]
            step = softplus(steps[head] + self.values("mamba.dt_bias")[head])
            decay = math.exp(step * self.a[head])
            self.h[channel] = [decay * h + step * bn * xbc[channel] for h, bn in zip(self.h[channel], b)]
            y = dot(self.h[channel], c) + self.values("mamba.D")[head] * xbc[channel]
            out.append(y * silu(z[channel]))
        if self.settings["mamba_rms_norm"]:
            each, weight = sizes.inner // sizes.groups, self.values("mamba.norm.weight")
            out = [v for i in range(0, sizes.inner, each)
                   for v in rms_norm(out[i:i + each], weight[i:i + each], self.settings["rms_norm_eps"])]
        return self.linear("mamba.out_proj", out)

    def step(self, residual, position):
        get, eps = self.settings.get, self.settings["rms_norm_eps"]
        normed = rms_norm(residual, self.values("input_layernorm.weight"), eps)
        attended = self.attend(scaled(normed, get("attention_in_multiplier")), position)
        scanned = self.scan(scaled(normed, get("ssm_in_multiplier")))
        mixed = add(scaled(scanned, get("ssm_out_multiplier")), scaled(attended, get("attention_out_multiplier")))
        residual = add(residual, mixed)
        normed = rms_norm(residual, self.values("pre_ff_layernorm.weight"), eps)
        gate_factor, down_factor = get("mlp_multipliers")
        gate = scaled(self.linear("feed_forward.gate_proj", normed), gate_factor)
        inner = [silu(g) * u for g, u in zip(gate, self.linear("feed_forward.up_proj", normed))]
        return add(residual, scaled(self.linear("feed_forward.down_proj", inner), down_factor))


def steps(settings, weights, tokens, more=0):
    """Logits after every token, and after `more` greedy ones."""
    layers = [Layer(settings, weights, i) for i in range(settings["num_hidden_layers"])]
    embedding = weights["model.embed_tokens.weight"].rows()
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).rows()
    tokens, logits = list(tokens), []
    for position in range(len(tokens) + more):
        if position == len(tokens):
            tokens.append(max(range(VOCAB_SIZE), key=logits[-1].__getitem__))
        row = scaled(embedding[tokens[position]], settings["embedding_multiplier"])
        for layer in layers:
            row = layer.step(row, position)
        row = rms_norm(row, weights["model.final_layernorm.weight"].values, settings["rms_norm_eps"])
        logits.append(scaled(times(head, row), settings["lm_head_multiplier"]))
    return logits


# ---- files -----------------------------------------------------------------------------------------------------------
def gguf_tensors(settings, weights):
    sizes, get = Sizes(settings), settings.get
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
             "self_attn.o_proj": "attn_output", "mamba.in_proj": "ssm_in", "mamba.conv1d": "ssm_conv1d",
             "mamba.norm": "ssm_norm", "mamba.out_proj": "ssm_out", "input_layernorm": "attn_norm",
             "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up",
             "feed_forward.down_proj": "ffn_down"}
    attention = get("attention_in_multiplier")
    factors = {"attn_q": attention, "attn_k": attention * get("key_multiplier"), "attn_v": attention,
               "attn_output": get("attention_out_multiplier"), "ssm_out": get("ssm_out_multiplier"),
               "ffn_gate": get("mlp_multipliers")[0], "ffn_down": get("mlp_multipliers")[1]}
    row_factors = [get("ssm_in_multiplier") * factor
                   for count, factor in zip(sizes.parts, get("ssm_multipliers")) for _ in range(count)]
    times_all = lambda array, factor, shape=None: Array(shape or array.shape, lambda i: array.values[i] * factor)
    out = {}
    for name, array in weights.items():
        if not name.startswith("model.layers."):
            table = {"model.embed_tokens.weight": ("token_embd.weight", get("embedding_multiplier")),
                     "lm_head.weight": ("output.weight", get("lm_head_multiplier")),
                     "model.final_layernorm.weight": ("output_norm.weight", 1)}[name]
            out[table[0]] = times_all(array, table[1])
            continue
        _, _, layer, part = name.split(".", 3)
        prefix = f"blk.{layer}."
        if part == "pre_ff_layernorm.weight":
            out[prefix + "ffn_norm"] = array  # without a suffix
        elif part == "mamba.dt_bias":
            out[prefix + "ssm_dt.bias"] = array
        elif part == "mamba.D":
            out[prefix + "ssm_d"] = times_all(array, 1, [sizes.ssm_heads, 1])
        elif part == "mamba.A_log":
            out[prefix + "ssm_a"] = Array([sizes.ssm_heads, 1], lambda i: -math.exp(array.values[i]))
        elif part == "mamba.in_proj.weight":
            cols = array.shape[1]
            out[prefix + "ssm_in.weight"] = Array(array.shape, lambda i: array.values[i] * row_factors[i // cols])
        else:
            base, kind = part.rsplit(".", 1)
            own = names[base]
            shape = {"ssm_conv1d.weight": [sizes.convolved, sizes.taps],
                     "ssm_norm.weight": [sizes.groups, sizes.inner // sizes.groups]}.get(f"{own}.{kind}", array.shape)
            out[f"{prefix}{own}.{kind}"] = times_all(array, factors.get(own, 1), shape)
    return out


def gguf_keys(settings):
    sizes = Sizes(settings)
    keys = [("general.architecture", "string", "falcon-h1"), ("general.name", "string", "tiny random")]
    for key, kind, value in (
            ("context_length", "uint32", settings["max_position_embeddings"]),
            ("embedding_length", "uint32", settings["hidden_size"]),
            ("feed_forward_length", "uint32", settings["intermediate_size"]),
            ("block_count", "uint32", settings["num_hidden_layers"]), ("vocab_size", "uint32", VOCAB_SIZE),
            ("attention.head_count", "uint32", sizes.heads), ("attention.head_count_kv", "uint32", sizes.kv_heads),
            ("attention.key_length", "uint32", sizes.dim), ("attention.value_length", "uint32", sizes.dim),
            ("attention.layer_norm_rms_epsilon", "float32", settings["rms_norm_eps"]),
            ("rope.freq_base", "float32", float(settings["rope_theta"])), ("ssm.conv_kernel", "uint32", sizes.taps),
            ("ssm.inner_size", "uint32", sizes.inner), ("ssm.state_size", "uint32", sizes.state),
            ("ssm.time_step_rank", "uint32", sizes.ssm_heads), ("ssm.group_count", "uint32", sizes.groups)):
        keys.append((f"falcon-h1.{key}", kind, value))
    return keys + gguf_metadata()


def make(name, settings, seed, note):
    weights = make_weights(settings, seed)
    source = random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(TOKENS - 1)]
    every = steps(settings, weights, tokens, GREEDY)
    logits, after = every[:TOKENS], every[TOKENS - 1:-1]
    continuation, gap = [], math.inf
    for row in after:
        best = sorted(range(len(row)), key=lambda i: -row[i])
        gap = min(gap, row[best[0]] - row[best[1]])
        continuation.append(best[0])
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert len(set(continuation)) > 2, f"{name}: dull continuation {continuation}"
    # Each half reaches the last logits, and so does an early token.
    changed = tokens[:2] + [(tokens[2] + 1) % (VOCAB_SIZE - 4)] + tokens[3:]
    for what, other in (("token 2", steps(settings, weights, changed)),
                        ("attention", steps(dict(settings, attention_out_multiplier=0.0), weights, tokens)),
                        ("the state space", steps(dict(settings, ssm_out_multiplier=0.0), weights, tokens))):
        reach = max(abs(a - b) for a, b in zip(other[-1], logits[-1]))
        assert reach > 0.01, f"{name}: {what} changes the last logits by {reach:.4f} only"
        print(f"{name}: {what} changes the last logits by {reach:.3f}")

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
