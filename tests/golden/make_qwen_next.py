#!/usr/bin/env python3
"""Writes tests/golden/qwen3next, qwen35 and qwen35moe: tiny models in the layouts of Qwen3-Next and Qwen3.5, in both file
kinds. Needs only Python. Same seeds, same files.

The reference runs one token after the other in plain Python floats (float64). The gated delta rule is Yang, Kautz and
Hatamizadeh 2024 (arXiv:2412.06464), equation 10; queries and keys have length 1, and values the convolution and gate of
its figure 1. Attention is Vaswani et al. 2017 with a gate on its output, the rotations of Su et al. 2021 on a quarter of
each head, and an RMS norm of each query and key. Folders hold the weights of norms minus 1, but for the norm behind the
delta rule. A folder of Qwen3-Next fuses its projections by key head. GGUF files hold norms as they are applied and
-exp(A_log); those of Qwen3.5 order value heads so that head h reads key head h mod key heads, as llama.cpp's converter
does. Both kinds of Qwen3.5 have tensors of a layer that predicts further tokens, and its folder one of the vision part.
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
MIN_EXPERT_GAP = 1e-4  # between the last selected expert's logit and the next one's
UNIT_EPS = 1e-6


def config(**changes):
    out = {
        "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": BOS, "eos_token_id": EOS, "head_dim": 16,
        "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_value_head_dim": 8,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 4, "num_key_value_heads": 2,
        "pad_token_id": PAD, "rms_norm_eps": 1e-6, "tie_word_embeddings": False, "torch_dtype": "float32",
        "use_cache": True, "vocab_size": VOCAB_SIZE,
    }
    out.update(changes)
    return out


EXPERTS = {"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 16, "norm_topk_prob": True,
           "num_experts": 5, "num_experts_per_tok": 2, "output_router_logits": False, "router_aux_loss_coef": 0.001,
           "shared_expert_intermediate_size": 24}
ROPE = {"mrope_interleaved": True, "mrope_section": [1, 1, 0], "partial_rotary_factor": 0.25, "rope_theta": 10000,
        "rope_type": "default"}
LAYERS_OF_TWO = ["linear_attention", "full_attention"]

# name: (config.json, seed, note)
CASES = {
    "qwen3next": (config(architectures=["Qwen3NextForCausalLM"], model_type="qwen3_next", intermediate_size=48,
                         full_attention_interval=4, partial_rotary_factor=0.25, rope_theta=10000, rope_scaling=None,
                         **EXPERTS), 71, "projections fused by key head; experts stored one by one"),
    "qwen35": ({"architectures": ["Qwen3_5ForConditionalGeneration"], "model_type": "qwen3_5", "image_token_id": 1,
                "text_config": config(model_type="qwen3_5_text", intermediate_size=40, attn_output_gate=True,
                                      full_attention_interval=2, head_dim=24, hidden_size=30, linear_key_head_dim=6,
                                      linear_num_key_heads=3, linear_num_value_heads=6, linear_value_head_dim=10,
                                      linear_conv_kernel_dim=3, layer_types=2 * LAYERS_OF_TWO, num_attention_heads=2,
                                      mamba_ssm_dtype="float32", mtp_num_hidden_layers=1, num_key_value_heads=1,
                                      mtp_use_dedicated_embeddings=False, rope_parameters=dict(ROPE, rope_theta=500),
                                      tie_word_embeddings=True),
                "vision_config": {"depth": 1, "hidden_size": 8, "model_type": "qwen3_5"}}, 78,
               "text part of a multimodal folder; sizes that fill no vector; three taps; a layer of predictions; tied"),
    "qwen35moe": (config(architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text", attn_output_gate=True,
                         full_attention_interval=2, layer_types=LAYERS_OF_TWO, num_hidden_layers=2,
                         linear_num_value_heads=6, linear_value_head_dim=40, rope_parameters=ROPE, **EXPERTS), 74,
                  "three value heads of 40 dims to a key head; stacked experts, gate and up in one tensor"),
}


def text_fields(settings):
    return settings.get("text_config", settings)


class Sizes:
    def __init__(self, text):
        self.heads, self.kv_heads, self.dim = (text[key] for key in (
            "num_attention_heads", "num_key_value_heads", "head_dim"))
        rope = text.get("rope_parameters", text)
        self.rope, self.rotated = rope, int(self.dim * rope["partial_rotary_factor"])
        self.keys, self.values = text["linear_num_key_heads"], text["linear_num_value_heads"]
        self.key_dim, self.value_dim = text["linear_key_head_dim"], text["linear_value_head_dim"]
        self.each, self.taps = self.values // self.keys, text["linear_conv_kernel_dim"]
        self.inner, self.q = self.values * self.value_dim, self.keys * self.key_dim
        self.convolved = 2 * self.q + self.inner
        self.experts = text.get("num_experts", 0)

    @staticmethod
    def full(text, layer):
        types = text.get("layer_types")
        return types[layer] == "full_attention" if types else (layer + 1) % text["full_attention_interval"] == 0


def make_weights(text, seed):
    """The weights of Qwen3.5's folders; those of norms minus 1."""
    source, weights, sizes = random.Random(seed), {}, Sizes(text)
    width = text["hidden_size"]

    def matrix(name, rows, cols, gain):
        weights[name + ".weight"] = Array([rows, cols], lambda _: source.gauss(0, gain / math.sqrt(cols)))

    def vector(name, count, scale, mean=0.0):
        weights[name] = Array([count], lambda _: source.gauss(mean, scale))

    def mlp(name, inner):
        for part, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{name}.{part}_proj", rows, cols, 1.2)

    matrix("model.embed_tokens", VOCAB_SIZE, width, 0.6 * math.sqrt(width))
    for layer in range(text["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        if sizes.full(text, layer):
            matrix(prefix + "self_attn.q_proj", 2 * sizes.heads * sizes.dim, width, 1.6)
            matrix(prefix + "self_attn.k_proj", sizes.kv_heads * sizes.dim, width, 1.6)
            matrix(prefix + "self_attn.v_proj", sizes.kv_heads * sizes.dim, width, 1.4)
            matrix(prefix + "self_attn.o_proj", width, sizes.heads * sizes.dim, 1.6)
            vector(prefix + "self_attn.q_norm.weight", sizes.dim, 0.3, 0.4)
            vector(prefix + "self_attn.k_norm.weight", sizes.dim, 0.3, 0.4)
        else:
            linear = prefix + "linear_attn."
            matrix(linear + "in_proj_qkv", sizes.convolved, width, 1.2)
            matrix(linear + "in_proj_z", sizes.inner, width, 1.4)
            matrix(linear + "in_proj_b", sizes.values, width, 1.2)
            matrix(linear + "in_proj_a", sizes.values, width, 1.2)
            weights[linear + "conv1d.weight"] = Array([sizes.convolved, 1, sizes.taps], lambda _: source.gauss(0, 0.6))
            vector(linear + "dt_bias", sizes.values, 0.5, -1.5)
            vector(linear + "A_log", sizes.values, 0.5, -0.5)
            vector(linear + "norm.weight", sizes.value_dim, 0.3, 1.0)
            matrix(linear + "out_proj", width, sizes.inner, 1.2)
        if sizes.experts:
            matrix(prefix + "mlp.gate", sizes.experts, width, 1.5)
            for expert in range(sizes.experts):
                mlp(f"{prefix}mlp.experts.{expert}", text["moe_intermediate_size"])
            mlp(prefix + "mlp.shared_expert", text["shared_expert_intermediate_size"])
            matrix(prefix + "mlp.shared_expert_gate", 1, width, 1.0)
        else:
            mlp(prefix + "mlp", text["intermediate_size"])
        vector(prefix + "input_layernorm.weight", width, 0.2)
        vector(prefix + "post_attention_layernorm.weight", width, 0.2)
    vector("model.norm.weight", width, 0.2)
    if not text["tie_word_embeddings"]:
        matrix("lm_head", VOCAB_SIZE, width, 1.4)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def unit(x):
    scale = 1 / math.sqrt(dot(x, x) + UNIT_EPS)
    return [v * scale for v in x]


def gated_mlp(rows, name, x):
    gate, up = times(rows[name + ".gate_proj.weight"], x), times(rows[name + ".up_proj.weight"], x)
    return times(rows[name + ".down_proj.weight"], [silu(g) * u for g, u in zip(gate, up)])


class Layer:
    """One layer, its keys and values or its state; step() takes one token's row."""

    def __init__(self, text, weights, layer, without):
        self.text, self.sizes, self.full = text, Sizes(text), Sizes.full(text, layer)
        prefix = f"model.layers.{layer}."
        self.weights = {name.removeprefix(prefix): array for name, array in weights.items() if name.startswith(prefix)}
        self.rows = {name: array.rows() for name, array in self.weights.items()}
        self.without, self.expert_gap = without, math.inf
        self.keys, self.stored = [], []
        self.before = [[0.0] * self.sizes.convolved for _ in range(self.sizes.taps - 1)]
        # Of each value head, a row of values for each dim of its key.
        self.state = [[[0.0] * self.sizes.value_dim for _ in range(self.sizes.key_dim)]
                      for _ in range(self.sizes.values)]

    def norm(self, name, x):
        return rms_norm(x, [1 + w for w in self.weights[name + ".weight"].values], self.text["rms_norm_eps"])

    def attend(self, x, position):
        sizes, dim = self.sizes, self.sizes.dim
        cut = lambda row, size: [row[i:i + size] for i in range(0, len(row), size)]
        turn = lambda head: rotate(sizes.rope, head[:sizes.rotated], position) + head[sizes.rotated:]
        both = cut(times(self.rows["self_attn.q_proj.weight"], x), 2 * dim)
        self.keys.append([turn(self.norm("self_attn.k_norm", head))
                          for head in cut(times(self.rows["self_attn.k_proj.weight"], x), dim)])
        self.stored.append(cut(times(self.rows["self_attn.v_proj.weight"], x), dim))
        mixed = []
        for i, head in enumerate(both):
            query, own = turn(self.norm("self_attn.q_norm", head[:dim])), i // (sizes.heads // sizes.kv_heads)
            scores = [dot(query, key[own]) / math.sqrt(dim) for key in self.keys]
            shares = [math.exp(score - max(scores)) for score in scores]
            gates = [1.0] * dim if self.without == "gates" else [sigmoid(g) for g in head[dim:]]
            mixed += [g * sum(s * value[own][d] for s, value in zip(shares, self.stored)) / sum(shares)
                      for d, g in enumerate(gates)]
        return times(self.rows["self_attn.o_proj.weight"], mixed)

    def update(self, x):
        sizes = self.sizes
        get = lambda name: self.weights["linear_attn." + name].values
        project = lambda name: times(self.rows[f"linear_attn.in_proj_{name}.weight"], x)
        window = self.before + [project("qkv")]
        self.before = window[1:]
        conv = self.rows["linear_attn.conv1d.weight"]
        qkv = [silu(sum(w * past[c] for w, past in zip(conv[c], window))) for c in range(sizes.convolved)]
        z, b, a, out = project("z"), project("b"), project("a"), []
        for head in range(sizes.values):
            key_at = head // sizes.each * sizes.key_dim
            q = [v / math.sqrt(sizes.key_dim) for v in unit(qkv[key_at:key_at + sizes.key_dim])]
            k = unit(qkv[sizes.q + key_at:][:sizes.key_dim])
            at = head * sizes.value_dim
            v = qkv[2 * sizes.q + at:][:sizes.value_dim]
            decay = math.exp(-math.exp(get("A_log")[head]) * softplus(a[head] + get("dt_bias")[head]))
            state = [[decay * s for s in row] for row in self.state[head]]
            held = [sum(kn * row[d] for kn, row in zip(k, state)) for d in range(sizes.value_dim)]
            change = [sigmoid(b[head]) * (new - old) for new, old in zip(v, held)]
            self.state[head] = [[s + kn * c for s, c in zip(row, change)] for kn, row in zip(k, state)]
            y = [sum(qn * row[d] for qn, row in zip(q, self.state[head])) for d in range(sizes.value_dim)]
            y = rms_norm(y, get("norm.weight"), self.text["rms_norm_eps"])
            out += [v * silu(g) for v, g in zip(y, z[at:at + sizes.value_dim])]
        return times(self.rows["linear_attn.out_proj.weight"], out)

    def mix_experts(self, x):
        logits = times(self.rows["mlp.gate.weight"], x)
        order = sorted(range(len(logits)), key=lambda i: -logits[i])
        used = self.text["num_experts_per_tok"]
        self.expert_gap = min(self.expert_gap, logits[order[used - 1]] - logits[order[used]])
        shares = [math.exp(logits[i] - logits[order[0]]) for i in order[:used]]
        gate = sigmoid(times(self.rows["mlp.shared_expert_gate.weight"], x)[0])
        out = [gate * v for v in gated_mlp(self.rows, "mlp.shared_expert", x)]
        for expert, share in zip(order, shares):
            y = gated_mlp(self.rows, f"mlp.experts.{expert}", x)
            out = add(out, [share / sum(shares) * v for v in y])
        return out

    def step(self, residual, position):
        normed = self.norm("input_layernorm", residual)
        if self.without != ("attention" if self.full else "delta nets"):
            residual = add(residual, self.attend(normed, position) if self.full else self.update(normed))
        normed = self.norm("post_attention_layernorm", residual)
        return add(residual, self.mix_experts(normed) if self.sizes.experts else gated_mlp(self.rows, "mlp", normed))


def steps(text, weights, tokens, more=0, without=None):
    """Logits after every token, and after `more` greedy ones, and the smallest gap between experts."""
    layers = [Layer(text, weights, i, without) for i in range(text["num_hidden_layers"])]
    embedding = weights["model.embed_tokens.weight"].rows()
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).rows()
    last_norm = [1 + w for w in weights["model.norm.weight"].values]
    tokens, logits = list(tokens), []
    for position in range(len(tokens) + more):
        if position == len(tokens):
            tokens.append(max(range(VOCAB_SIZE), key=logits[-1].__getitem__))
        row = embedding[tokens[position]]
        for layer in layers:
            row = layer.step(row, position)
        logits.append(times(head, rms_norm(row, last_norm, text["rms_norm_eps"])))
    return logits, min(layer.expert_gap for layer in layers)


# ---- files -----------------------------------------------------------------------------------------------------------
def stack(arrays, shape=None):
    """The rows of several arrays, one after the other."""
    values = [v for array in arrays for v in array.values]
    rows = sum(array.shape[0] for array in arrays)
    return Array(shape or [rows, *arrays[0].shape[1:]], values.__getitem__)


def take_rows(array, rows):
    each = math.prod(array.shape[1:])
    return Array([len(rows), *array.shape[1:]], lambda i: array.values[rows[i // each] * each + i % each])


def blocks(heads, dim, first=0):
    """The rows of heads of `dim` rows, which begin at `first`."""
    return [first + head * dim + d for head in heads for d in range(dim)]


def fuse_by_key_head(text, weights):
    """in_proj_qkvz and in_proj_ba of Qwen3-Next's folders."""
    sizes, out = Sizes(text), dict(weights)
    for name in [name for name in weights if name.endswith("in_proj_qkv.weight")]:
        prefix = name.removesuffix("qkv.weight")
        qkv, z, b, a = (out.pop(f"{prefix}{part}.weight") for part in ("qkv", "z", "b", "a"))
        qkvz, ba = [], []
        for key in range(sizes.keys):
            own = range(key * sizes.each, (key + 1) * sizes.each)
            qkvz += [take_rows(qkv, blocks([key], sizes.key_dim)), take_rows(qkv, blocks([key], sizes.key_dim, sizes.q)),
                     take_rows(qkv, blocks(own, sizes.value_dim, 2 * sizes.q)), take_rows(z, blocks(own, sizes.value_dim))]
            ba += [take_rows(b, list(own)), take_rows(a, list(own))]
        out[prefix + "qkvz.weight"], out[prefix + "ba.weight"] = stack(qkvz), stack(ba)
    return out


def stack_experts(text, weights):
    """experts.gate_up_proj and experts.down_proj of Qwen3.5's folders."""
    out, inner, width = dict(weights), text["moe_intermediate_size"], text["hidden_size"]
    for layer in range(text["num_hidden_layers"]):
        prefix = f"model.layers.{layer}.mlp.experts."
        take = lambda part: [out.pop(f"{prefix}{e}.{part}_proj.weight") for e in range(text["num_experts"])]
        gates, ups, downs = take("gate"), take("up"), take("down")
        both = [array for pair in zip(gates, ups) for array in pair]
        out[prefix + "gate_up_proj"] = stack(both, [len(gates), 2 * inner, width])
        out[prefix + "down_proj"] = stack(downs, [len(downs), width, inner])
    return out


def folder_tensors(name, text, weights):
    if name == "qwen3next":
        return fuse_by_key_head(text, weights)
    if name == "qwen35moe":
        return stack_experts(text, weights)
    nested = lambda tensor: tensor.replace("model.", "model.language_model.", 1)
    return {**{nested(tensor): array for tensor, array in weights.items()},
            "model.visual.patch_embed.proj.weight": Array([8, 4], lambda i: i / 32),
            "mtp.fc.weight": Array([text["hidden_size"], 2 * text["hidden_size"]], lambda i: 0.5)}


GGUF_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "linear_attn.in_proj_qkv": "attn_qkv", "linear_attn.in_proj_z": "attn_gate", "linear_attn.in_proj_b": "ssm_beta",
    "linear_attn.in_proj_a": "ssm_alpha", "linear_attn.in_proj_ba": "ssm_ba", "linear_attn.conv1d": "ssm_conv1d",
    "linear_attn.norm": "ssm_norm", "linear_attn.out_proj": "ssm_out", "input_layernorm": "attn_norm",
    "post_attention_layernorm": "post_attention_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
    "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
    "mlp.shared_expert.down_proj": "ffn_down_shexp"}


def tile_heads(text, part, array):
    """Value heads in the order of GGUF files of Qwen3.5."""
    sizes = Sizes(text)
    order = [key * sizes.each + j for j in range(sizes.each) for key in range(sizes.keys)]
    values = blocks(order, sizes.value_dim)
    if part in ("in_proj_qkv.weight", "conv1d.weight"):
        return take_rows(array, list(range(2 * sizes.q)) + [2 * sizes.q + row for row in values])
    if part == "in_proj_z.weight":
        return take_rows(array, values)
    if part == "out_proj.weight":
        cols = array.shape[1]
        return Array(array.shape, lambda i: array.values[i // cols * cols + values[i % cols]])
    return array if part == "norm.weight" else take_rows(array, order)


def gguf_tensors(name, text, weights):
    out = {}
    if name == "qwen3next":  # llama.cpp's converter separates in_proj_qkvz, and keeps in_proj_ba
        fused = fuse_by_key_head(text, weights)
        unwanted = ("in_proj_b.weight", "in_proj_a.weight")
        weights = {**{key: array for key, array in weights.items() if not key.endswith(unwanted)},
                   **{key: array for key, array in fused.items() if key.endswith("in_proj_ba.weight")}}
    for key, array in weights.items():
        if key.endswith("norm.weight") and "linear_attn" not in key:
            array = Array(array.shape, lambda i, a=array: 1 + a.values[i])
        if not key.startswith("model.layers."):
            out[{"model.embed_tokens.weight": "token_embd.weight", "lm_head.weight": "output.weight",
                 "model.norm.weight": "output_norm.weight"}[key]] = array
            continue
        _, _, layer, part = key.split(".", 3)
        prefix = f"blk.{layer}."
        if part.startswith("linear_attn.") and name != "qwen3next":
            array = tile_heads(text, part.removeprefix("linear_attn."), array)
        if part == "linear_attn.dt_bias":
            out[prefix + "ssm_dt.bias"] = array
        elif part == "linear_attn.A_log":
            out[prefix + "ssm_a"] = Array(array.shape, lambda i: -math.exp(array.values[i]))
        elif part.startswith("mlp.experts."):
            expert, kind = part.removeprefix("mlp.experts.").removesuffix("_proj.weight").split(".")
            stacked = out.get(f"{prefix}ffn_{kind}_exps.weight")
            both = [stacked, array] if stacked else [array]
            out[f"{prefix}ffn_{kind}_exps.weight"] = stack(both, [int(expert) + 1, *array.shape])
        else:
            base, kind = part.rsplit(".", 1)
            shape = [array.shape[0], array.shape[2]] if len(array.shape) == 3 else array.shape
            if base == "mlp.shared_expert_gate":
                shape = shape[1:]
            out[f"{prefix}{GGUF_NAMES[base]}.{kind}"] = Array(shape, lambda i, a=array: a.values[i])
    if "mtp_num_hidden_layers" in text:
        width = text["hidden_size"]
        out[f"blk.{text['num_hidden_layers']}.nextn.eh_proj.weight"] = Array([width, 2 * width], lambda i: 0.5)
    return out


def gguf_keys(name, text):
    sizes, experts = Sizes(text), text.get("num_experts", 0)
    predicted = text.get("mtp_num_hidden_layers", 0)
    values = [("context_length", text["max_position_embeddings"]), ("embedding_length", text["hidden_size"]),
              ("block_count", text["num_hidden_layers"] + predicted), ("attention.head_count", sizes.heads),
              ("attention.head_count_kv", sizes.kv_heads), ("attention.key_length", sizes.dim),
              ("attention.value_length", sizes.dim), ("rope.dimension_count", sizes.rotated),
              ("ssm.conv_kernel", sizes.taps), ("ssm.state_size", sizes.key_dim), ("ssm.group_count", sizes.keys),
              ("ssm.time_step_rank", sizes.values), ("ssm.inner_size", sizes.inner),
              ("full_attention_interval", text["full_attention_interval"])]
    if "intermediate_size" in text:
        values.append(("feed_forward_length", text["intermediate_size"]))
    if experts:
        values += [("expert_count", experts), ("expert_used_count", text["num_experts_per_tok"]),
                   ("expert_feed_forward_length", text["moe_intermediate_size"]),
                   ("expert_shared_feed_forward_length", text["shared_expert_intermediate_size"])]
    if predicted:
        values.append(("nextn_predict_layers", predicted))
    keys = [("general.architecture", "string", name), ("general.name", "string", "tiny random")]
    keys += [(f"{name}.{key}", "uint32", value) for key, value in values]
    keys += [(f"{name}.attention.layer_norm_rms_epsilon", "float32", text["rms_norm_eps"]),
             (f"{name}.rope.freq_base", "float32", float(sizes.rope["rope_theta"]))]
    if name != "qwen3next":
        keys.append((f"{name}.rope.dimension_sections", "int32[]", [1, 1, 0, 0]))
    return keys + gguf_metadata()


def make(name, settings, seed, note):
    text = text_fields(settings)
    weights = make_weights(text, seed)
    source = random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(TOKENS - 1)]
    every, expert_gap = steps(text, weights, tokens, GREEDY)
    logits, after = every[:TOKENS], every[TOKENS - 1:-1]
    continuation, gap = [], math.inf
    for row in after:
        best = sorted(range(len(row)), key=lambda i: -row[i])
        gap = min(gap, row[best[0]] - row[best[1]])
        continuation.append(best[0])
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert expert_gap > MIN_EXPERT_GAP, f"{name}: gap of experts {expert_gap:.6f}: choose another seed"
    assert len(set(continuation)) > 2, f"{name}: dull continuation {continuation}"
    # Each part reaches the last logits, and so does an early token.
    changed = tokens[:2] + [(tokens[2] + 1) % (VOCAB_SIZE - 4)] + tokens[3:]
    for what, other in (("token 2", steps(text, weights, changed)[0]),
                        *((part, steps(text, weights, tokens, without=part)[0])
                          for part in ("attention", "gates", "delta nets"))):
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
    write_safetensors(folder / "model.safetensors", folder_tensors(name, text, weights))
    write_gguf(folder / "model.gguf", gguf_keys(name, text), gguf_tensors(name, text, weights))
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
