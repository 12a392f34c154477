#!/usr/bin/env python3
"""Writes tests/golden/draft_heads: a tiny Llama, and for it Medusa's heads, an EAGLE layer, an EAGLE-3 layer
and Kangaroo's adapter in their published file formats, PaSS's look-ahead tokens and
LongSpec's layer; and a tiny DeepSeek-V3, Qwen3.5 and Qwen3.5-MoE with a layer for multi-token prediction. With the
outputs that tests expect.
Needs only Python. Same seeds, same files.

The reference follows Cai et al. 2024 (arXiv:2401.10774, section 2.1), Li et al. 2024 (arXiv:2401.15077, section 4.1),
Li et al. 2025 (arXiv:2503.01840, section 3.1), Liu et al. 2024 (arXiv:2404.18911, section 3.2), Monea et al. 2023 (arXiv:2311.13581, section 3.1), Yang et al. 2025 (arXiv:2502.17421, section 3.1) and DeepSeek-AI 2024 (arXiv:2412.19437, section 2.2), in plain Python
floats (float64), one token after the other.
"""
import base64
import json
import math
import pathlib
import random
import struct

import make_deepseek
import make_qwen_next
from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, write_tokenizer
from make_mamba import Array, rms_norm, silu, times, write_gguf, write_json

ROOT = pathlib.Path(__file__).resolve().parent / "draft_heads"
TOKENS = 20
HEADS, BLOCKS = 3, 2  # of Medusa
DRAFT_VOCAB = 96      # of EAGLE-3
EXIT = 2              # layers before Kangaroo's adapter
LOOKAHEAD = 4         # of PaSS

CONFIG = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "bos_token_id": BOS, "eos_token_id": EOS,
    "pad_token_id": PAD, "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_hidden_layers": 7, "max_position_embeddings": 256, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": VOCAB_SIZE,
}


class Drawn:
    def __init__(self, seed):
        self.source = random.Random(seed)
        self.tensors = {}

    def matrix(self, name, rows, cols, gain):
        self.tensors[name] = Array([rows, cols], lambda _: self.source.gauss(0, gain / math.sqrt(cols)))

    def vector(self, name, size, scale, mean=0.0):
        self.tensors[name] = Array([size], lambda _: self.source.gauss(mean, scale))

    def layer(self, prefix, config, norms, read):
        width, inner = config["hidden_size"], config["intermediate_size"]
        head = width // config["num_attention_heads"]
        kv = head * config["num_key_value_heads"]
        for norm in norms:
            self.vector(prefix + norm + ".weight", width, 0.3, 1.0)
        self.matrix(prefix + "self_attn.q_proj.weight", width, read, 1.6)
        self.matrix(prefix + "self_attn.k_proj.weight", kv, read, 1.6)
        self.matrix(prefix + "self_attn.v_proj.weight", kv, read, 1.2)
        self.matrix(prefix + "self_attn.o_proj.weight", width, width, 1.2)
        self.matrix(prefix + "mlp.gate_proj.weight", inner, width, 1.2)
        self.matrix(prefix + "mlp.up_proj.weight", inner, width, 1.2)
        self.matrix(prefix + "mlp.down_proj.weight", width, inner, 1.2)


def write_tensors(path, tensors):
    """`tensors`: name -> Array of float32, or (type, shape, bytes)."""
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, tensor in tensors.items():
        kind, shape, blob = tensor if isinstance(tensor, tuple) else ("F32", tensor.shape, tensor.bytes())
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def rotate(x, position, theta):
    """Pairs (i, i + n / 2) of one head."""
    half = len(x) // 2
    angles = [position * theta ** (-2 * i / len(x)) for i in range(half)]
    return ([x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)])


def mix(query, keys, values, size):
    """One head: softmax of scores, and the mean of values."""
    scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(size) for key in keys]
    shares = [math.exp(s - max(scores)) for s in scores]
    return [sum(w * value[i] for w, value in zip(shares, values)) / sum(shares) for i in range(size)]


class Layer:
    """One decoder layer and the keys and values of the tokens it has seen."""

    def __init__(self, config, tensors, prefix):
        self.c, self.keys, self.values = config, [], []
        self.matrices = {name: tensors[f"{prefix}{name}_proj.weight"].rows()
                         for name in ("self_attn.q", "self_attn.k", "self_attn.v", "self_attn.o", "mlp.gate", "mlp.up",
                                      "mlp.down") if f"{prefix}{name}_proj.weight" in tensors}
        if "mlp.up" in self.matrices:
            self.norm = tensors[prefix + "post_attention_layernorm.weight"].values

    def attend(self, residual, attention_in, position):
        c, m = self.c, self.matrices
        count, shared = c["num_attention_heads"], c["num_key_value_heads"]
        size = c["hidden_size"] // count
        heads = lambda x: [x[i:i + size] for i in range(0, len(x), size)]
        turned = lambda x: [rotate(head, position, c["rope_theta"]) for head in heads(x)]
        self.keys.append(turned(times(m["self_attn.k"], attention_in)))
        self.values.append(heads(times(m["self_attn.v"], attention_in)))
        mixed = []
        for h, query in enumerate(turned(times(m["self_attn.q"], attention_in))):
            g = h * shared // count
            mixed += mix(query, [key[g] for key in self.keys], [value[g] for value in self.values], size)
        return add(residual, times(m["self_attn.o"], mixed))

    def step(self, residual, attention_in, position):
        c, m = self.c, self.matrices
        x = self.attend(residual, attention_in, position)
        n = rms_norm(x, self.norm, c["rms_norm_eps"])
        return add(x, times(m["mlp.down"], [silu(g) * u for g, u in zip(times(m["mlp.gate"], n), times(m["mlp.up"], n))]))


def run_target(config, tensors, tokens, rows=()):
    """Of each token, and of each row of the embedding table behind them: the final hidden state, and the residual
    streams before each layer."""
    layers = [Layer(config, tensors, f"model.layers.{i}.") for i in range(config["num_hidden_layers"])]
    norms = [tensors[f"model.layers.{i}.input_layernorm.weight"].values for i in range(len(layers))]
    table, eps = tensors["model.embed_tokens.weight"].rows(), config["rms_norm_eps"]
    hidden, streams = [], []
    for position, x in enumerate([table[token] for token in tokens] + list(rows)):
        before = []
        for layer, norm in zip(layers, norms):
            before.append(x)
            x = layer.step(x, rms_norm(x, norm, eps), position)
        streams.append(before)
        hidden.append(rms_norm(x, tensors["model.norm.weight"].values, eps))
    run_target.last = layers[-1]
    return hidden, streams


def medusa(tensors, hidden):
    """[head][token] -> logits"""
    out = []
    for i in range(HEADS):
        rows = []
        for h in hidden:
            for j in range(BLOCKS):
                product = times(tensors[f"{i}.{j}.linear.weight"].rows(), h)
                h = add(h, [silu(v) for v in add(product, tensors[f"{i}.{j}.linear.bias"].values)])
            rows.append(times(tensors[f"{i}.{BLOCKS}.weight"].rows(), h))
        out.append(rows)
    return out


# Each runs tokens 1, 2, ... with the features before them, and then one more pass over the last token's own feature with
# the likeliest token, as drafting does. Returns logits of all passes.
def draft(tokens, features, step):
    logits, feature = [], None
    for position, token in list(enumerate(tokens))[1:]:
        feature, row = step(token, features[position - 1], position)
        logits.append(row)
    token = max(range(len(logits[-1])), key=lambda i: logits[-1][i])
    logits.append(step(token, feature, len(tokens))[1])
    return logits, token


def eagle(config, tensors, target, tokens, hidden):
    layer = Layer(config, tensors, "layers.0.")
    table, head = target["model.embed_tokens.weight"].rows(), target["lm_head.weight"].rows()
    join, bias = tensors["fc.weight"].rows(), tensors["fc.bias"].values

    def step(token, feature, position):
        x = add(times(join, table[token] + feature), bias)
        x = layer.step(x, x, position)
        return x, times(head, x)

    return draft(tokens, hidden, step)


def eagle3(config, tensors, ids, target, tokens, streams):
    count, eps = 7, config["rms_norm_eps"]
    layer, table = Layer(config, tensors, "midlayer."), target["model.embed_tokens.weight"].rows()
    features = [times(tensors["fc.weight"].rows(), s[2] + s[count // 2] + s[count - 3]) for s in streams]
    head = tensors["lm_head.weight"].rows()

    def step(token, feature, position):
        wide = (rms_norm(table[token], tensors["midlayer.input_layernorm.weight"].values, eps) +
                rms_norm(feature, tensors["midlayer.hidden_norm.weight"].values, eps))
        x = layer.step(feature, wide, position)
        full = [-1e30] * VOCAB_SIZE
        for i, value in enumerate(times(head, rms_norm(x, tensors["norm.weight"].values, eps))):
            full[ids[i]] = value
        return x, full

    return draft(tokens, features, step)


def kangaroo(config, tensors, target, streams):
    layer, eps = Layer(config, tensors, "layers.0."), config["rms_norm_eps"]
    head, logits = target["lm_head.weight"].rows(), []
    for position, before in enumerate(streams):
        h = before[EXIT]
        x = layer.attend(h, rms_norm(h, tensors["layers.0.input_layernorm.weight"].values, eps), position)
        logits.append(times(head, rms_norm(x, tensors["norm.weight"].values, eps)))
    return logits


def longspec(config, tensors, target, tokens, drafted):
    """Tokens drafted behind `tokens`, of which the model has computed all but the last one."""
    run_target(CONFIG, target, tokens[:-1])
    seen, eps, width = run_target.last, config["rms_norm_eps"], config["hidden_size"]
    count, size = config["num_attention_heads"], width // config["num_attention_heads"]
    heads = lambda x: [x[i:i + size] for i in range(0, len(x), size)]
    turned = lambda x, position: [rotate(head, position, config["rope_theta"]) for head in heads(x)]
    linear = lambda name, x: add(times(tensors[name + ".weight"].rows(), x), tensors[name + ".bias"].values)
    norm = lambda name, x: rms_norm(x, tensors[name + ".weight"].values, eps)
    table, head, keys, values, out = target["model.embed_tokens.weight"].rows(), target["lm_head.weight"].rows(), [], [], []
    for position in range(len(tokens) + drafted - 1):
        x = table[(tokens + out)[position]]
        n = norm("input_layernorm", x)
        keys.append(turned(linear("self_attn.k_proj", n), position)[0])
        values.append(heads(linear("self_attn.v_proj", n))[0])
        if position < len(tokens) - 1:
            continue
        window = config["draft_window"] + 1
        mixed = [mix(query, keys[-window:], values[-window:], size)
                 for query in turned(linear("self_attn.q_proj", n), position)]
        x = add(x, times(tensors["self_attn.o_proj.weight"].rows(), sum(mixed, [])))
        n = norm("post_self_attention_layernorm", x)
        mixed = [mix(query, [key[0] for key in seen.keys], [value[0] for value in seen.values], size)
                 for query in turned(linear("cross_attn.q_proj", n), position)]
        x = add(x, times(tensors["cross_attn.o_proj.weight"].rows(), sum(mixed, [])))
        n = norm("post_cross_attention_layernorm", x)
        up, gate = (times(tensors[f"mlp.{name}_proj.weight"].rows(), n) for name in ("up", "gate"))
        x = add(x, times(tensors["mlp.down_proj.weight"].rows(), [silu(g) * u for g, u in zip(gate, up)]))
        logits = sorted(((value, i) for i, value in enumerate(times(head, x))), reverse=True)
        if logits[0][0] - logits[1][0] < 0.02:
            return None  # rounding may choose another token
        out.append(logits[0][1])
    return out


def mtp():
    config = make_deepseek.config(
        architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", topk_method="noaux_tc", scoring_func="sigmoid",
        norm_topk_prob=True, n_group=2, topk_group=1, n_routed_experts=6, num_experts_per_tok=2, q_lora_rank=10,
        kv_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=6, v_head_dim=7, num_attention_heads=2,
        num_key_value_heads=2, n_shared_experts=1, num_hidden_layers=2, num_nextn_predict_layers=1, hidden_size=20,
        intermediate_size=24, moe_intermediate_size=10, routed_scaling_factor=1.7, rope_scaling=None)
    count, width, eps = config["num_hidden_layers"], config["hidden_size"], config["rms_norm_eps"]
    weights = make_deepseek.make_weights(dict(config, num_hidden_layers=count + 1), 77)  # the layer behind the model's
    prefix = f"model.layers.{count}."
    own = Drawn(78)
    for norm in ("enorm", "hnorm", "shared_head.norm"):
        own.vector(prefix + norm + ".weight", width, 0.3, 1.0)
    own.matrix(prefix + "eh_proj.weight", width, 2 * width, 1.5)
    weights.update(own.tensors)
    for name, copied in (("embed_tokens", "model.embed_tokens"), ("shared_head.head", "lm_head")):
        weights[f"{prefix}{name}.weight"] = weights[copied + ".weight"]
    source = random.Random(79)
    tokens = [source.randrange(120) for _ in range(TOKENS)]
    model, hidden = make_deepseek.Model(config, weights), []
    for position, token in enumerate(tokens):
        row = model.embedding[token]
        for layer in model.layers:
            row = layer.step(row, position)
        hidden.append(rms_norm(row, model.norm, eps))
    layer = make_deepseek.Layer(config, weights, count)
    vector = lambda name: weights[f"{prefix}{name}.weight"].values

    def step(token, feature, position):
        wide = rms_norm(model.embedding[token], vector("enorm"), eps) + rms_norm(feature, vector("hnorm"), eps)
        x = layer.step(times(weights[prefix + "eh_proj.weight"].rows(), wide), position)
        x = rms_norm(x, vector("shared_head.norm"), eps)
        return x, times(model.head, x)

    save(ROOT / "mtp", config, weights, tokens, *draft(tokens, hidden, step))
    assert layer.mlp.gap > make_deepseek.MIN_ROUTER_GAP, "the selected experts lead by too little"
    write_tokenizer(ROOT / "mtp")


# A Qwen3.5 of the target's width, whose layer of predictions has attention, and experts where the model has some. Weights
# of norms are minus 1 in the folder.
def mtp_qwen(name, seed, **changes):
    text = make_qwen_next.config(
        attn_output_gate=True, full_attention_interval=2, head_dim=8, hidden_size=CONFIG["hidden_size"],
        layer_types=2 * make_qwen_next.LAYERS_OF_TWO, linear_key_head_dim=4, linear_value_head_dim=4,
        max_position_embeddings=256, mtp_num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
        rope_parameters=make_qwen_next.ROPE, **changes)
    count, width, eps = text["num_hidden_layers"], text["hidden_size"], text["rms_norm_eps"]
    weights = make_qwen_next.make_weights(text, seed)
    alone = dict(text, layer_types=["full_attention"], num_hidden_layers=1)
    first = "model.layers.0."
    layer = {key: array for key, array in make_qwen_next.make_weights(alone, seed + 1).items() if key.startswith(first)}
    own = Drawn(seed + 2)
    for norm in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm"):
        own.vector(f"mtp.{norm}.weight", width, 0.3)
    own.matrix("mtp.fc.weight", width, 2 * width, 1.5)
    source = random.Random(seed + 3)
    tokens = [source.randrange(120) for _ in range(TOKENS)]
    normed = lambda x, key: rms_norm(x, [1 + w for w in {**weights, **own.tensors}[key + ".weight"].values], eps)
    embedding = weights["model.embed_tokens.weight"].rows()
    head = weights.get("lm_head.weight", weights["model.embed_tokens.weight"]).rows()
    layers = [make_qwen_next.Layer(text, weights, i, None) for i in range(count)]
    hidden = []
    for position, token in enumerate(tokens):
        row = embedding[token]
        for one in layers:
            row = one.step(row, position)
        hidden.append(normed(row, "model.norm"))
    predicting = make_qwen_next.Layer(alone, layer, 0, None)

    def step(token, feature, position):
        wide = normed(embedding[token], "mtp.pre_fc_norm_embedding") + normed(feature, "mtp.pre_fc_norm_hidden")
        x = predicting.step(times(own.tensors["mtp.fc.weight"].rows(), wide), position)
        x = normed(x, "mtp.norm")
        return x, times(head, x)

    outputs = draft(tokens, hidden, step)
    assert min(one.expert_gap for one in layers + [predicting]) > make_qwen_next.MIN_EXPERT_GAP, "choose another seed"
    arch = "qwen35moe" if "num_experts" in text else "qwen35"
    moe = lambda part, tensors: make_qwen_next.stack_experts(part, tensors) if "num_experts" in text else tensors
    renamed = {key.replace(first, "mtp.layers.0."): array for key, array in moe(alone, layer).items()}
    save(ROOT / name, text, {**moe(text, weights), **renamed, **own.tensors}, tokens, *outputs)
    write_tokenizer(ROOT / name)
    behind = {key.replace(first, f"model.layers.{count}."): array for key, array in layer.items()}
    tensors = make_qwen_next.gguf_tensors(arch, text, {**weights, **behind})
    for key, stored in (("pre_fc_norm_embedding", "enorm"), ("pre_fc_norm_hidden", "hnorm"),
                        ("norm", "shared_head_norm"), ("fc", "eh_proj")):
        array, plus = own.tensors[f"mtp.{key}.weight"], 0 if key == "fc" else 1
        tensors[f"blk.{count}.nextn.{stored}.weight"] = Array(array.shape, lambda i, a=array, p=plus: p + a.values[i])
    write_gguf(ROOT / name / "model.gguf", make_qwen_next.gguf_keys(arch, text), tensors)


def floats(rows):
    return base64.b64encode(struct.pack(f"<{sum(map(len, rows))}f", *(v for row in rows for v in row))).decode()


def save(folder, config, tensors, tokens, logits, last=None):
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "config.json", config)
    write_tensors(folder / "model.safetensors", tensors)
    expected = {"tokens": tokens, "shape": [len(logits), len(logits[0])], "logits": floats(logits)}
    if last is not None:
        expected["greedy"] = last if isinstance(last, list) else [last]
    write_json(folder / "expected.json", expected)


def main():
    width = CONFIG["hidden_size"]
    target = Drawn(71)
    target.matrix("model.embed_tokens.weight", VOCAB_SIZE, width, 4.0)
    for i in range(CONFIG["num_hidden_layers"]):
        target.layer(f"model.layers.{i}.", CONFIG, ["input_layernorm", "post_attention_layernorm"], width)
    target.vector("model.norm.weight", width, 0.3, 1.0)
    target.matrix("lm_head.weight", VOCAB_SIZE, width, 4.0)
    source = random.Random(72)
    tokens = [source.randrange(120) for _ in range(TOKENS)]
    hidden, streams = run_target(CONFIG, target.tensors, tokens)
    folder = ROOT / "target"
    save(folder, CONFIG, target.tensors, tokens, [times(target.tensors["lm_head.weight"].rows(), h) for h in hidden])
    write_tokenizer(folder)

    heads = Drawn(73)
    for i in range(HEADS):
        for j in range(BLOCKS):
            heads.matrix(f"{i}.{j}.linear.weight", width, width, 1.2)
            heads.vector(f"{i}.{j}.linear.bias", width, 0.3)
        heads.matrix(f"{i}.{BLOCKS}.weight", VOCAB_SIZE, width, 2.0)
    logits = [row for head in medusa(heads.tensors, hidden) for row in head]
    save(ROOT / "medusa", {"base_model_name_or_path": "target", "medusa_num_heads": 2, "medusa_num_layers": BLOCKS},
         heads.tensors, tokens, logits)  # as published: more heads than the configuration says

    one = dict(CONFIG, num_hidden_layers=1)
    first = Drawn(74)
    first.matrix("fc.weight", width, 2 * width, 1.5)
    first.vector("fc.bias", width, 0.3)
    first.layer("layers.0.", one, ["post_attention_layernorm"], width)
    first.tensors["embed_tokens.weight"] = target.tensors["model.embed_tokens.weight"]
    save(ROOT / "eagle", one, first.tensors, tokens, *eagle(one, first.tensors, target.tensors, tokens, hidden))

    third = Drawn(75)
    third.matrix("fc.weight", width, 3 * width, 1.5)
    third.layer("midlayer.", one, ["input_layernorm", "hidden_norm", "post_attention_layernorm"], 2 * width)
    third.vector("norm.weight", width, 0.3, 1.0)
    third.matrix("lm_head.weight", DRAFT_VOCAB, width, 3.0)
    ids = sorted(random.Random(76).sample(range(VOCAB_SIZE), DRAFT_VOCAB))
    result = eagle3(one, third.tensors, ids, target.tensors, tokens, streams)
    third.tensors["d2t"] = ("I64", [DRAFT_VOCAB], struct.pack(f"<{DRAFT_VOCAB}q", *(t - i for i, t in enumerate(ids))))
    third.tensors["t2d"] = ("BOOL", [VOCAB_SIZE], bytes(i in ids for i in range(VOCAB_SIZE)))
    save(ROOT / "eagle3", dict(one, architectures=["LlamaForCausalLMEagle3"], draft_vocab_size=DRAFT_VOCAB),
         third.tensors, tokens, *result)

    adapter = Drawn(80)
    for name, rows in (("q", width), ("k", width // 2), ("v", width // 2), ("o", width)):
        adapter.matrix(f"layers.0.self_attn.{name}_proj.weight", rows, width, 1.4)
    adapter.vector("layers.0.input_layernorm.weight", width, 0.3, 1.0)
    adapter.vector("norm.weight", width, 0.3, 1.0)
    save(ROOT / "kangaroo", one, adapter.tensors, tokens, kangaroo(one, adapter.tensors, target.tensors, streams))

    ahead = Drawn(81)
    ahead.matrix("lookahead.weight", LOOKAHEAD, width, 4.0)
    head = target.tensors["lm_head.weight"].rows()
    likeliest = lambda row: max(range(len(row)), key=lambda i: row[i])
    read = tokens + [likeliest(times(head, hidden[-1]))]
    states, _ = run_target(CONFIG, target.tensors, read, ahead.tensors["lookahead.weight"].rows())
    logits = [times(head, h) for h in states[TOKENS:]]
    save(ROOT / "pass", {}, ahead.tensors, read, logits, [likeliest(row) for row in logits])

    glide = dict(CONFIG, draft_window=7)  # otherwise the model's configuration
    layer = Drawn(82)
    layer.layer("", glide, ["input_layernorm", "post_self_attention_layernorm", "post_cross_attention_layernorm"], width)
    for name, rows in (("self_attn.q", width), ("self_attn.k", width // 2), ("self_attn.v", width // 2), ("cross_attn.q", width)):
        layer.vector(f"{name}_proj.bias", rows, 0.3)
    layer.matrix("cross_attn.q_proj.weight", width, width, 1.6)
    layer.matrix("cross_attn.o_proj.weight", width, width, 1.2)
    save(ROOT / "longspec", glide, layer.tensors, tokens, [[0.0]])
    cases = []
    for length in range(8, TOKENS + 1):
        read = tokens[:length] + [likeliest(times(head, run_target(CONFIG, target.tensors, tokens[:length])[0][-1]))]
        if greedy := longspec(glide, layer.tensors, target.tensors, read, 4):
            cases.append({"tokens": read, "greedy": greedy})
    assert len(cases) >= 5
    write_json(ROOT / "longspec" / "expected.json", {"cases": cases})
    mtp()
    mtp_qwen("mtp_qwen35", 91, architectures=["Qwen3_5ForCausalLM"], intermediate_size=24, model_type="qwen3_5_text")
    mtp_qwen("mtp_qwen35moe", 96, architectures=["Qwen3_5MoeForCausalLM"], model_type="qwen3_5_moe_text",
             tie_word_embeddings=True, **make_qwen_next.EXPERTS)


if __name__ == "__main__":
    main()
