#!/usr/bin/env python3
"""Writes tests/golden/gemma4, gemma4_e and gemma4_moe: tiny models in the layouts of Gemma 4's 31B, of its E2B and E4B,
and of its 26B-A4B, in both file kinds. tests/golden/make_gemma4.py [NAME ...] Needs only Python. Same seeds, same files.

The reference computes all tokens at once in plain Python floats (float64). Its formulas are those of Transformers'
published Gemma 4 (modeling_gemma4.py) in our own words: queries, keys and values are normed, values without weights;
layers that see all keys have larger heads, rotate a quarter of their frequencies, and may take their keys as values;
the last layers may read the keys and values of the last layer of their kind before them; the factor of scores is 1.
"""
import base64
import math
import pathlib
import random
import struct
import sys

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata, write_tokenizer
from make_mamba import Array, rms_norm, times, write_gguf, write_json, write_safetensors

GOLDEN = pathlib.Path(__file__).resolve().parent
GREEDY = 16
MIN_GREEDY_GAP = 0.02
MIN_ROUTER_GAP = 0.0005  # between the scores of the last expert that is chosen and of the first that is not
WINDOW, FULL = "sliding_attention", "full_attention"


def config(types, **changes):
    out = {
        "architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "attention_bias": False,
        "attention_dropout": 0.0, "attention_k_eq_v": False, "bos_token_id": BOS, "eos_token_id": EOS,
        "pad_token_id": PAD, "enable_moe_block": False, "final_logit_softcapping": 30.0, "global_head_dim": 32,
        "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32, "hidden_size_per_layer_input": 0,
        "initializer_range": 0.02, "intermediate_size": 48, "layer_types": types, "max_position_embeddings": 128,
        "num_attention_heads": 4, "num_global_key_value_heads": None, "num_hidden_layers": len(types),
        "num_key_value_heads": 2, "num_kv_shared_layers": 0, "num_experts": None, "top_k_experts": None,
        "moe_intermediate_size": None, "rms_norm_eps": 1e-6,
        "rope_parameters": {
            FULL: {"partial_rotary_factor": 0.25, "rope_theta": 1000000.0, "rope_type": "proportional"},
            WINDOW: {"rope_theta": 10000.0, "rope_type": "default"}},
        "sliding_window": 8, "tie_word_embeddings": True, "torch_dtype": "float32", "use_bidirectional_attention": None,
        "use_cache": True, "use_double_wide_mlp": False, "vocab_size": VOCAB_SIZE,
        "vocab_size_per_layer_input": VOCAB_SIZE,
    }
    out.update(changes)
    return out


# name: (config, seed, scored tokens, note)
CASES = {
    "gemma4": (config([WINDOW, WINDOW, FULL, WINDOW, FULL], attention_k_eq_v=True, num_global_key_value_heads=1),
               61, 40, "two sizes of heads, keys as values and one KV head in layers that see all keys, windows of 8"),
    "gemma4_e": (config([WINDOW, WINDOW, FULL, WINDOW, FULL, WINDOW, FULL], num_kv_shared_layers=4,
                        use_double_wide_mlp=True, hidden_size_per_layer_input=8, num_key_value_heads=1,
                        use_bidirectional_attention="vision"),
                 62, 40, "an input for each layer; four layers read keys of earlier ones, with wider MLPs; vision part"),
    "gemma4_moe": (config([WINDOW, FULL, WINDOW, FULL], attention_k_eq_v=True, num_global_key_value_heads=1,
                          enable_moe_block=True, num_experts=5, top_k_experts=2, moe_intermediate_size=16),
                   64, 32, "2 of 5 experts beside each MLP, with their own norms, router input and scales"),
}


def layer_sizes(c, i):
    """Dims of heads, KV heads and MLP of layer i, and the layer whose keys and values it reads."""
    full = c["layer_types"][i] == FULL
    kv_heads = c["num_global_key_value_heads"] if full and c["attention_k_eq_v"] else c["num_key_value_heads"]
    first = c["num_hidden_layers"] - c["num_kv_shared_layers"]
    source = i if i < first else max(j for j in range(first) if c["layer_types"][j] == c["layer_types"][i])
    inner = c["intermediate_size"] * (2 if i >= first and c["use_double_wide_mlp"] else 1)
    return c["global_head_dim"] if full else c["head_dim"], kv_heads, inner, source


def make_weights(c, seed):
    source, weights = random.Random(seed), {}
    width, heads = c["hidden_size"], c["num_attention_heads"]
    layers, own = c["num_hidden_layers"], c["hidden_size_per_layer_input"]

    def draw(name, shape, scale, mean=0.0):
        weights[name] = Array(shape, lambda _: source.gauss(mean, scale))

    def matrix(name, rows, cols, gain=1.0):
        draw(name + ".weight", [rows, cols], gain / math.sqrt(cols))

    draw("model.embed_tokens.weight", [VOCAB_SIZE, width], 0.3)
    if own:
        draw("model.embed_tokens_per_layer.weight", [VOCAB_SIZE, layers * own], 0.4)
        matrix("model.per_layer_model_projection", layers * own, width)
        draw("model.per_layer_projection_norm.weight", [own], 0.2, 1.0)
    for i in range(layers):
        prefix, (dim, kv_heads, inner, stored) = f"model.layers.{i}.", layer_sizes(c, i)
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm"):
            draw(f"{prefix}{norm}.weight", [width], 0.2, 1.0)
        draw(prefix + "layer_scalar", [1], 0.1, 0.8)
        matrix(prefix + "self_attn.q_proj", heads * dim, width)
        matrix(prefix + "self_attn.o_proj", width, heads * dim)
        draw(prefix + "self_attn.q_norm.weight", [dim], 0.1, 0.7)
        if stored == i:
            matrix(prefix + "self_attn.k_proj", kv_heads * dim, width)
            draw(prefix + "self_attn.k_norm.weight", [dim], 0.1, 0.7)
            if not (c["attention_k_eq_v"] and c["layer_types"][i] == FULL):
                matrix(prefix + "self_attn.v_proj", kv_heads * dim, width)
        for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            matrix(f"{prefix}mlp.{name}_proj", rows, cols, 1.5)
        if own:
            matrix(prefix + "per_layer_input_gate", own, width)
            matrix(prefix + "per_layer_projection", width, own)
            draw(prefix + "post_per_layer_input_norm.weight", [width], 0.2, 0.7)
        if c["enable_moe_block"]:
            experts, small = c["num_experts"], c["moe_intermediate_size"]
            for norm in ("post_feedforward_layernorm_1", "post_feedforward_layernorm_2", "pre_feedforward_layernorm_2"):
                draw(f"{prefix}{norm}.weight", [width], 0.2, 1.0)
            draw(prefix + "router.scale", [width], 0.5, 6.0)
            draw(prefix + "router.per_expert_scale", [experts], 0.3, 1.0)
            matrix(prefix + "router.proj", experts, width, 1.5)
            draw(prefix + "experts.gate_up_proj", [experts, 2 * small, width], 1.5 / math.sqrt(width))
            draw(prefix + "experts.down_proj", [experts, width, small], 1.5 / math.sqrt(small))
    draw("model.norm.weight", [width], 0.2, 1.0)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def scaled(x, factor):
    return [v * factor for v in x]


def gelu(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def rotate(c, x, position, full):
    rope, half = c["rope_parameters"][FULL if full else WINDOW], len(x) // 2
    moving = int(rope.get("partial_rotary_factor", 1.0) * len(x)) // 2
    angles = [position * rope["rope_theta"] ** (-2 * i / len(x)) if i < moving else 0.0 for i in range(half)]
    return ([x[i] * math.cos(a) - x[i + half] * math.sin(a) for i, a in enumerate(angles)] +
            [x[i + half] * math.cos(a) + x[i] * math.sin(a) for i, a in enumerate(angles)])


def attend(c, weights, i, normed, stored):
    """`stored`: by layer, the keys and values [token][head] that layers have stored so far."""
    prefix, eps, heads = f"model.layers.{i}.self_attn.", c["rms_norm_eps"], c["num_attention_heads"]
    full = c["layer_types"][i] == FULL
    dim, kv_heads, _, source = layer_sizes(c, i)
    split = lambda row: [row[h:h + dim] for h in range(0, len(row), dim)]
    rows = lambda name: [split(times(weights[f"{prefix}{name}_proj.weight"].rows(), x)) for x in normed]
    norm = lambda name, head: rms_norm(head, weights[f"{prefix}{name}_norm.weight"].values, eps)
    queries = [[rotate(c, norm("q", h), p, full) for h in row] for p, row in enumerate(rows("q"))]
    if source == i:
        raw = rows("k")
        values = raw if c["attention_k_eq_v"] and full else rows("v")
        stored[i] = ([[rotate(c, norm("k", h), p, full) for h in row] for p, row in enumerate(raw)],
                     [[rms_norm(h, [1.0] * dim, eps) for h in row] for row in values])
    keys, values = stored[source]
    out = []
    for p in range(len(normed)):
        first = 0 if full else max(0, p - c["sliding_window"] + 1)
        mixed = []
        for h in range(heads):
            own = h // (heads // kv_heads)
            scores = [sum(a * b for a, b in zip(queries[p][h], keys[j][own])) for j in range(first, p + 1)]
            shares = [math.exp(s - max(scores)) for s in scores]
            total = sum(shares)
            mixed += [sum(s * values[first + j][own][d] for j, s in enumerate(shares)) / total for d in range(dim)]
        out.append(times(weights[prefix + "o_proj.weight"].rows(), mixed))
    return out


def mlp(weights, prefix, x):
    gate, up = (times(weights[f"{prefix}{name}_proj.weight"].rows(), x) for name in ("gate", "up"))
    return times(weights[prefix + "down_proj.weight"].rows(), [gelu(g) * u for g, u in zip(gate, up)])


ROUTER_GAPS = []


def mixture(c, weights, prefix, residual, x):
    width, eps, small = len(residual), c["rms_norm_eps"], c["moe_intermediate_size"]
    routed = rms_norm(residual, scaled(weights[prefix + "router.scale"].values, 1 / math.sqrt(width)), eps)
    logits = times(weights[prefix + "router.proj.weight"].rows(), routed)
    order = sorted(range(c["num_experts"]), key=lambda e: -logits[e])
    used = order[:c["top_k_experts"]]
    ROUTER_GAPS.append(logits[used[-1]] - logits[order[len(used)]])
    shares = [math.exp(logits[e] - logits[used[0]]) for e in used]
    gate_up, down = weights[prefix + "experts.gate_up_proj"].rows(), weights[prefix + "experts.down_proj"].rows()
    out = [0.0] * width
    for e, share in zip(used, shares):
        both = times(gate_up[e * 2 * small:(e + 1) * 2 * small], x)
        hidden = [gelu(g) * u for g, u in zip(both[:small], both[small:])]
        factor = share / sum(shares) * weights[prefix + "router.per_expert_scale"].values[e]
        out = add(out, scaled(times(down[e * width:(e + 1) * width], hidden), factor))
    return out


def layer_inputs(c, weights, token, embedding):
    """One row a layer."""
    own, width = c["hidden_size_per_layer_input"], c["hidden_size"]
    table = weights["model.embed_tokens_per_layer.weight"].rows()[token]
    projected = scaled(times(weights["model.per_layer_model_projection.weight"].rows(), embedding), width ** -0.5)
    norm = weights["model.per_layer_projection_norm.weight"].values
    out = []
    for at in range(0, len(table), own):
        part = rms_norm(projected[at:at + own], norm, c["rms_norm_eps"])
        out.append(scaled(add(part, scaled(table[at:at + own], own ** 0.5)), 2 ** -0.5))
    return out


def forward(c, weights, tokens):
    eps, own = c["rms_norm_eps"], c["hidden_size_per_layer_input"]
    norm = lambda name, x: rms_norm(x, weights[name + ".weight"].values, eps)
    embedding = weights["model.embed_tokens.weight"].rows()
    rows = [scaled(embedding[token], math.sqrt(c["hidden_size"])) for token in tokens]
    inputs = [layer_inputs(c, weights, t, x) for t, x in zip(tokens, rows)] if own else []
    stored = {}
    for i in range(c["num_hidden_layers"]):
        prefix = f"model.layers.{i}."
        attended = attend(c, weights, i, [norm(prefix + "input_layernorm", x) for x in rows], stored)
        rows = [add(x, norm(prefix + "post_attention_layernorm", y)) for x, y in zip(rows, attended)]
        for t, x in enumerate(rows):
            y = mlp(weights, prefix + "mlp.", norm(prefix + "pre_feedforward_layernorm", x))
            if c["enable_moe_block"]:
                z = mixture(c, weights, prefix, x, norm(prefix + "pre_feedforward_layernorm_2", x))
                y = add(norm(prefix + "post_feedforward_layernorm_1", y), norm(prefix + "post_feedforward_layernorm_2", z))
            x = add(x, norm(prefix + "post_feedforward_layernorm", y))
            if own:
                gate = map(gelu, times(weights[prefix + "per_layer_input_gate.weight"].rows(), x))
                gated = [g * v for g, v in zip(gate, inputs[t][i])]
                y = times(weights[prefix + "per_layer_projection.weight"].rows(), gated)
                x = add(x, norm(prefix + "post_per_layer_input_norm", y))
            rows[t] = scaled(x, weights[prefix + "layer_scalar"].values[0])
    cap = c["final_logit_softcapping"]
    return [[cap * math.tanh(v / cap) for v in times(embedding, norm("model.norm", x))] for x in rows]


def greedy(run, tokens):
    tokens, out, gap = list(tokens), [], math.inf
    for _ in range(GREEDY):
        last = run(tokens)[-1]
        best = sorted(range(len(last)), key=lambda i: -last[i])
        gap = min(gap, last[best[0]] - last[best[1]])
        out.append(best[0])
        tokens.append(best[0])
    return out, gap


# ---- files -----------------------------------------------------------------------------------------------------------
GGUF_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight", "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight", "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight", "self_attn.k_norm.weight": "attn_k_norm.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight", "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight", "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "layer_scalar": "layer_output_scale.weight", "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight", "post_per_layer_input_norm.weight": "post_norm.weight",
    "router.proj.weight": "ffn_gate_inp.weight", "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale", "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight", "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
}


def gguf_tensors(weights, names):
    out = {}
    for name, array in weights.items():
        if name.startswith("model.layers."):
            _, _, layer, part = name.split(".", 3)
            out[f"blk.{layer}.{names[part]}"] = array
        else:
            out[names[name]] = array
    return out


def rope_freqs(c):
    """Divisors of the frequencies of layers that see all keys: those that stand still have a huge one."""
    dim = c["global_head_dim"]
    moving = int(c["rope_parameters"][FULL]["partial_rotary_factor"] * dim) // 2
    return Array([dim // 2], lambda i: 1.0 if i < moving else 1e30)


def gguf_keys(c):
    sizes = [layer_sizes(c, i) for i in range(c["num_hidden_layers"])]
    keys = [("general.architecture", "string", "gemma4"), ("general.name", "string", "tiny random")]
    number = lambda name, value: keys.append((f"gemma4.{name}", "uint32", value))
    listed = lambda name, values: (number(name, values[0]) if len(set(values)) == 1 else
                                   keys.append((f"gemma4.{name}", "int32[]", values)))
    number("block_count", c["num_hidden_layers"])
    number("context_length", c["max_position_embeddings"])
    number("embedding_length", c["hidden_size"])
    listed("feed_forward_length", [inner for _, _, inner, _ in sizes])
    number("attention.head_count", c["num_attention_heads"])
    listed("attention.head_count_kv", [kv_heads for _, kv_heads, _, _ in sizes])
    for name in ("key", "value"):
        number(f"attention.{name}_length", c["global_head_dim"])
        number(f"attention.{name}_length_swa", c["head_dim"])
    number("attention.sliding_window", c["sliding_window"])
    number("attention.shared_kv_layers", c["num_kv_shared_layers"])
    number("embedding_length_per_layer_input", c["hidden_size_per_layer_input"])
    number("rope.dimension_count", c["global_head_dim"])
    number("rope.dimension_count_swa", c["head_dim"])
    keys.append(("gemma4.attention.sliding_window_pattern", "bool[]", [t == WINDOW for t in c["layer_types"]]))
    if c["enable_moe_block"]:
        number("expert_count", c["num_experts"])
        number("expert_used_count", c["top_k_experts"])
        number("expert_feed_forward_length", c["moe_intermediate_size"])
    for name, value in (("attention.layer_norm_rms_epsilon", c["rms_norm_eps"]),
                        ("final_logit_softcapping", c["final_logit_softcapping"]),
                        ("rope.freq_base", c["rope_parameters"][FULL]["rope_theta"]),
                        ("rope.freq_base_swa", c["rope_parameters"][WINDOW]["rope_theta"])):
        keys.append((f"gemma4.{name}", "float32", value))
    return keys + gguf_metadata()


def multimodal(text, weights, model_type, architecture):
    """The folder of a model with a vision part, which the engine leaves out."""
    named = {name.replace("model.", "model.language_model.", 1): array for name, array in weights.items()}
    named["model.vision_tower.patch_embedder.input_proj.weight"] = Array([4, 12], lambda i: 0.01 * i)
    named["model.embed_vision.embedding_projection.weight"] = Array([32, 4], lambda i: 0.01 * i)
    outer = {"architectures": [architecture], "model_type": model_type, "image_token_id": 5, "text_config": text,
             "tie_word_embeddings": True, "torch_dtype": "float32",
             "vision_config": {"model_type": model_type + "_vision", "hidden_size": 4}}
    return {**outer, "text_config": {k: v for k, v in text.items() if k != "architectures"}}, named


def write_case(name, note, c, weights, keys, tensors, tokens, logits, continuation):
    folder = GOLDEN / name
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    write_json(folder / "config.json", c)
    write_json(folder / "generation_config.json",
               {"_from_model_config": True, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD})
    write_tokenizer(folder)
    write_safetensors(folder / "model.safetensors", weights)
    write_gguf(folder / "model.gguf", keys, tensors)
    flat = [v for row in logits for v in row]
    write_json(folder / "expected.json",
               {"note": note, "tokens": tokens, "shape": [len(logits), VOCAB_SIZE], "greedy": continuation,
                "logits": base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()})


def make(name):
    c, seed, length, note = CASES[name]
    weights, source = make_weights(c, seed), random.Random(seed + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(length - 1)]
    ROUTER_GAPS.clear()
    logits = forward(c, weights, tokens)
    changed = tokens[:2] + [(tokens[2] + 1) % (VOCAB_SIZE - 4)] + tokens[3:]
    other = forward(c, weights, changed)
    assert other[:2] == logits[:2], "a later token reached an earlier logit"
    reach = max(abs(a - b) for a, b in zip(other[-1], logits[-1]))
    assert reach > 0.01, f"{name}: token 2 changes the last logits by {reach:.5f}: choose another seed"
    continuation, gap = greedy(lambda t: forward(c, weights, t), tokens)
    assert gap > MIN_GREEDY_GAP, f"{name}: greedy gap {gap:.4f}: choose another seed"
    assert min(ROUTER_GAPS, default=1) > MIN_ROUTER_GAP, f"{name}: router gap {min(ROUTER_GAPS):.5f}"
    assert len(set(continuation)) > 2, f"{name}: dull continuation {continuation}"
    keys, tensors = gguf_keys(c), gguf_tensors(weights, GGUF_NAMES)
    tensors["rope_freqs.weight"] = rope_freqs(c)
    folder_config, folder_weights = c, weights
    if c["use_bidirectional_attention"]:
        folder_config, folder_weights = multimodal(c, weights, "gemma4", "Gemma4ForConditionalGeneration")
    write_case(name, note, folder_config, folder_weights, keys, tensors, tokens, logits, continuation)
    print(f"{name}: largest logit {max(max(map(abs, row)) for row in logits):.2f}, greedy gap {gap:.3f}, router gap "
          f"{min(ROUTER_GAPS, default=0):.4f}, token 2 changes the last logits by {reach:.3f}; {continuation}")


def main():
    for name in sys.argv[1:] or CASES:
        make(name)


if __name__ == "__main__":
    main()
