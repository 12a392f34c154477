#!/usr/bin/env python3
"""Writes tests/golden/gemma3n: a tiny model in Gemma 3n's layout, in both file kinds. Needs only Python. Same seeds, same
files.

The reference computes all tokens at once in plain Python floats (float64). Its formulas are those of Transformers'
published Gemma 3n (modeling_gemma3n.py) in our own words: four residual streams that are predicted before a layer and
corrected after it (AltUp), a low-rank matrix pair next to attention (LAuReL), gates of which only values far above their
mean remain, an input for each layer, and last layers that read the keys and values of earlier ones. Its attention,
rotations and layer inputs are those of make_gemma4.py.
"""
import math
import random
import statistics

import make_gemma4 as gemma4
from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, gguf_metadata
from make_gemma4 import FULL, WINDOW, add, gelu, greedy, layer_inputs, scaled
from make_mamba import Array, rms_norm, times

TYPES = [WINDOW, WINDOW, FULL, WINDOW, FULL]
RANK = 64  # GGUF has no key for it
MIN_SQUARE = 1e-5
TABLE_ROWS = VOCAB_SIZE - 2  # the last tokens have no row in the table of layer inputs
SEED, LENGTH = 71, 40
NOTE = "four residual streams, a low-rank pair next to attention, two layers with cut gates, two that read others' keys"

CONFIG = {
    "activation_sparsity_pattern": [0.9, 0.8, 0.0, 0.0, 0.0], "altup_active_idx": 0, "altup_coef_clip": 120.0,
    "altup_correct_scale": True, "altup_lr_multiplier": 1.0, "altup_num_inputs": 4,
    "architectures": ["Gemma3nForCausalLM"], "attention_bias": False, "attention_dropout": 0.0, "bos_token_id": BOS,
    "eos_token_id": EOS, "pad_token_id": PAD, "final_logit_softcapping": 30.0, "head_dim": 16,
    "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32, "hidden_size_per_layer_input": 8,
    "initializer_range": 0.02, "intermediate_size": [48] * len(TYPES), "laurel_rank": RANK, "layer_types": TYPES,
    "max_position_embeddings": 128, "model_type": "gemma3n_text", "num_attention_heads": 4,
    "num_hidden_layers": len(TYPES), "num_key_value_heads": 2, "num_kv_shared_layers": 2, "rms_norm_eps": 1e-6,
    "rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 8,
    "tie_word_embeddings": True, "torch_dtype": "float32", "use_cache": True, "vocab_size": VOCAB_SIZE,
    "vocab_size_per_layer_input": TABLE_ROWS,
}
# The same sizes under the names that make_gemma4.py reads.
SIZES = {**CONFIG, "global_head_dim": 16, "attention_k_eq_v": False, "use_double_wide_mlp": False, "intermediate_size": 48,
         "rope_parameters": {FULL: {"rope_theta": CONFIG["rope_theta"]}, WINDOW: {"rope_theta": 10000.0}}}
WIDTH, STREAMS, OWN = CONFIG["hidden_size"], CONFIG["altup_num_inputs"], CONFIG["hidden_size_per_layer_input"]


def make_weights(seed):
    source, weights = random.Random(seed), {}

    def draw(name, shape, scale, mean=0.0):
        weights[name] = Array(shape, lambda _: source.gauss(mean, scale))

    def matrix(name, rows, cols, gain=1.0):
        draw(name + ".weight", [rows, cols], gain / math.sqrt(cols))

    layers, heads, dim = len(TYPES), CONFIG["num_attention_heads"], CONFIG["head_dim"]
    draw("model.embed_tokens.weight", [VOCAB_SIZE, WIDTH], 0.3)
    draw("model.embed_tokens_per_layer.weight", [TABLE_ROWS, layers * OWN], 0.4)
    matrix("model.per_layer_model_projection", layers * OWN, WIDTH)
    draw("model.per_layer_projection_norm.weight", [OWN], 0.2, 1.0)
    for s in range(STREAMS - 1):
        matrix(f"model.altup_projections.{s}", WIDTH, WIDTH)
        matrix(f"model.altup_unembed_projections.{s}", WIDTH, WIDTH)
    for i in range(layers):
        prefix, (_, kv_heads, inner, stored) = f"model.layers.{i}.", gemma4.layer_sizes(SIZES, i)
        for norm in ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                     "post_feedforward_layernorm"):
            draw(f"{prefix}{norm}.weight", [WIDTH], 0.2, 1.0)
        matrix(prefix + "self_attn.q_proj", heads * dim, WIDTH)
        matrix(prefix + "self_attn.o_proj", WIDTH, heads * dim)
        draw(prefix + "self_attn.q_norm.weight", [dim], 0.1, 0.7)
        if stored == i:
            matrix(prefix + "self_attn.k_proj", kv_heads * dim, WIDTH)
            matrix(prefix + "self_attn.v_proj", kv_heads * dim, WIDTH)
            draw(prefix + "self_attn.k_norm.weight", [dim], 0.1, 0.7)
        for name, rows, cols in (("gate", inner, WIDTH), ("up", inner, WIDTH), ("down", WIDTH, inner)):
            matrix(f"{prefix}mlp.{name}_proj", rows, cols, 1.5)
        matrix(prefix + "per_layer_input_gate", OWN, WIDTH)
        matrix(prefix + "per_layer_projection", WIDTH, OWN)
        draw(prefix + "post_per_layer_input_norm.weight", [WIDTH], 0.2, 0.7)
        matrix(prefix + "laurel.linear_left", RANK, WIDTH)
        matrix(prefix + "laurel.linear_right", WIDTH, RANK)
        draw(prefix + "laurel.post_laurel_norm.weight", [WIDTH], 0.2, 0.5)
        draw(prefix + "altup.correct_output_scale", [WIDTH], 0.3, 1.0)
        draw(prefix + "altup.correction_coefs.weight", [STREAMS, STREAMS], 0.5)
        draw(prefix + "altup.prediction_coefs.weight", [STREAMS * STREAMS, STREAMS], 0.2)
        draw(prefix + "altup.modality_router.weight", [STREAMS, WIDTH], 6.0)
        draw(prefix + "altup.router_norm.weight", [WIDTH], 0.2, 1.0)
    draw("model.norm.weight", [WIDTH], 0.2, 1.0)
    return weights


# ---- the reference ---------------------------------------------------------------------------------------------------
def mean_square(x):
    return sum(v * v for v in x) / len(x)


def like(x, target):
    """x at the magnitude of target."""
    return scaled(x, math.sqrt(mean_square(target) / max(mean_square(x), MIN_SQUARE)))


def routed(weights, prefix, x):
    normed = rms_norm(x, weights[prefix + "router_norm.weight"].values, CONFIG["rms_norm_eps"])
    return [math.tanh(v / WIDTH) for v in times(weights[prefix + "modality_router.weight"].rows(), normed)]


def predict(weights, prefix, streams):
    mix = times(weights[prefix + "prediction_coefs.weight"].rows(), routed(weights, prefix, streams[0]))
    return [[streams[to][d] + sum(mix[to * STREAMS + j] * streams[j][d] for j in range(STREAMS)) for d in range(WIDTH)]
            for to in range(STREAMS)]


def correct(weights, prefix, predicted, x):
    share = times(weights[prefix + "correction_coefs.weight"].rows(), routed(weights, prefix, x))
    change = [a - b for a, b in zip(x, predicted[0])]
    return [add(stream, scaled(change, 1 + s)) for stream, s in zip(predicted, share)]


class Cut:
    kept = dropped = 0


def cut(gate, share):
    middle = sum(gate) / len(gate)
    deviation = math.sqrt(sum((v - middle) ** 2 for v in gate) / len(gate))
    limit = middle + statistics.NormalDist().inv_cdf(share) * deviation
    Cut.kept += sum(v > limit for v in gate)
    Cut.dropped += sum(v <= limit for v in gate)
    return [max(0.0, v - limit) for v in gate]


def mlp(weights, prefix, share, x):
    gate, up = (times(weights[f"{prefix}{name}_proj.weight"].rows(), x) for name in ("gate", "up"))
    gate = cut(gate, share) if share > 0 else gate
    return times(weights[prefix + "down_proj.weight"].rows(), [gelu(g) * u for g, u in zip(gate, up)])


def forward(weights, tokens):
    norm = lambda name, x: rms_norm(x, weights[name + ".weight"].values, CONFIG["rms_norm_eps"])
    matrix = lambda name, x: times(weights[name + ".weight"].rows(), x)
    embedding = weights["model.embed_tokens.weight"].rows()
    first = [scaled(embedding[token], math.sqrt(WIDTH)) for token in tokens]
    inputs = [layer_inputs(CONFIG, weights, t if t < TABLE_ROWS else 0, x) for t, x in zip(tokens, first)]
    further = range(STREAMS - 1)
    rows = [[x] + [like(matrix(f"model.altup_projections.{s}", x), x) for s in further] for x in first]
    stored = {}
    for i in range(len(TYPES)):
        prefix = f"model.layers.{i}."
        rows = [predict(weights, prefix + "altup.", streams) for streams in rows]
        normed = [norm(prefix + "input_layernorm", streams[0]) for streams in rows]
        attended = gemma4.attend(SIZES, weights, i, normed, stored)
        for t, streams in enumerate(rows):
            low = matrix(prefix + "laurel.linear_right", matrix(prefix + "laurel.linear_left", normed[t]))
            laurel = add(normed[t], norm(prefix + "laurel.post_laurel_norm", low))
            x = add(streams[0], norm(prefix + "post_attention_layernorm", attended[t]))
            x = scaled(add(x, laurel), 2 ** -0.5)
            share = CONFIG["activation_sparsity_pattern"][i]
            y = mlp(weights, prefix + "mlp.", share, norm(prefix + "pre_feedforward_layernorm", x))
            streams = correct(weights, prefix + "altup.", streams, add(x, norm(prefix + "post_feedforward_layernorm", y)))
            scale = weights[prefix + "altup.correct_output_scale"].values
            gate = matrix(prefix + "per_layer_input_gate", [a * b for a, b in zip(streams[0], scale)])
            y = matrix(prefix + "per_layer_projection", [gelu(g) * v for g, v in zip(gate, inputs[t][i])])
            y = norm(prefix + "post_per_layer_input_norm", y)
            rows[t] = [streams[0]] + [add(stream, y) for stream in streams[1:]]
    out, cap = [], CONFIG["final_logit_softcapping"]
    for streams in rows:
        total = streams[0]
        for s in further:
            total = add(total, like(matrix(f"model.altup_unembed_projections.{s}", streams[s + 1]), streams[0]))
        x = norm("model.norm", scaled(total, 1 / STREAMS))
        out.append([cap * math.tanh(v / cap) for v in times(embedding, x)])
    return out


# ---- files -----------------------------------------------------------------------------------------------------------
NAMES = {**gemma4.GGUF_NAMES, "laurel.linear_left.weight": "laurel_l.weight",
         "laurel.linear_right.weight": "laurel_r.weight", "laurel.post_laurel_norm.weight": "laurel_post_norm.weight",
         "altup.correct_output_scale": "altup_correct_scale.weight",
         "altup.correction_coefs.weight": "altup_correct_coef.weight",
         "altup.prediction_coefs.weight": "altup_predict_coef.weight",
         "altup.modality_router.weight": "altup_router.weight", "altup.router_norm.weight": "altup_router_norm.weight"}


def gguf_tensors(weights):
    """The matrices of further streams are stacked, and the table has rows of zeros for the last tokens' inputs."""
    out = gemma4.gguf_tensors({k: v for k, v in weights.items() if "altup_" not in k.split(".")[1]}, NAMES)
    for name, stored in (("altup_proj", "altup_projections"), ("altup_unembd_proj", "altup_unembed_projections")):
        values = [v for s in range(STREAMS - 1) for v in weights[f"model.{stored}.{s}.weight"].values]
        out[name + ".weight"] = Array([STREAMS - 1, WIDTH, WIDTH], values.__getitem__)
    table = weights["model.embed_tokens_per_layer.weight"].values
    out["per_layer_token_embd.weight"] = Array([VOCAB_SIZE, len(TYPES) * OWN],
                                               lambda i: table[i] if i < len(table) else 0.0)
    return out


def gguf_keys():
    keys = [("general.architecture", "string", "gemma3n"), ("general.name", "string", "tiny random")]
    cuts = [statistics.NormalDist().inv_cdf(s) if s > 0 else -math.inf for s in CONFIG["activation_sparsity_pattern"]]
    for name, kind, value in (
            ("block_count", "uint32", len(TYPES)), ("context_length", "uint32", CONFIG["max_position_embeddings"]),
            ("embedding_length", "uint32", WIDTH), ("feed_forward_length", "int32[]", CONFIG["intermediate_size"]),
            ("attention.head_count", "uint32", CONFIG["num_attention_heads"]),
            ("attention.head_count_kv", "uint32", CONFIG["num_key_value_heads"]),
            ("attention.key_length", "uint32", CONFIG["head_dim"]),
            ("attention.value_length", "uint32", CONFIG["head_dim"]),
            ("attention.sliding_window", "uint32", CONFIG["sliding_window"]),
            ("attention.sliding_window_pattern", "bool[]", [t == WINDOW for t in TYPES]),
            ("attention.shared_kv_layers", "uint32", CONFIG["num_kv_shared_layers"]),
            ("attention.layer_norm_rms_epsilon", "float32", CONFIG["rms_norm_eps"]),
            ("embedding_length_per_layer_input", "uint32", OWN), ("altup.active_idx", "uint32", 0),
            ("altup.num_inputs", "uint32", STREAMS), ("activation_sparsity_scale", "float32[]", cuts),
            ("final_logit_softcapping", "float32", CONFIG["final_logit_softcapping"]),
            ("rope.freq_base", "float32", CONFIG["rope_theta"]), ("rope.freq_base_swa", "float32", 10000.0)):
        keys.append((f"gemma3n.{name}", kind, value))
    return keys + gguf_metadata()


def main():
    weights, source = make_weights(SEED), random.Random(SEED + 1000)
    tokens = [BOS] + [source.randrange(VOCAB_SIZE - 4) for _ in range(LENGTH - 1)]
    logits = forward(weights, tokens)
    assert Cut.kept and Cut.dropped
    changed = tokens[:2] + [(tokens[2] + 1) % (VOCAB_SIZE - 4)] + tokens[3:]
    other = forward(weights, changed)
    assert other[:2] == logits[:2], "a later token reached an earlier logit"
    reach = max(abs(a - b) for a, b in zip(other[-1], logits[-1]))
    assert reach > 0.01, f"token 2 changes the last logits by {reach:.5f}: choose another seed"
    continuation, gap = greedy(lambda t: forward(weights, t), tokens)
    assert gap > gemma4.MIN_GREEDY_GAP, f"greedy gap {gap:.4f}: choose another seed"
    assert len(set(continuation)) > 2, f"dull continuation {continuation}"
    # Greedy tokens must not be special ones: they have other inputs in the two file kinds.
    assert max(tokens + continuation) < TABLE_ROWS
    folder_config, folder_weights = gemma4.multimodal(CONFIG, weights, "gemma3n", "Gemma3nForConditionalGeneration")
    gemma4.write_case("gemma3n", NOTE, folder_config, folder_weights, gguf_keys(), gguf_tensors(weights), tokens, logits,
                      continuation)
    print(f"gemma3n: largest logit {max(max(map(abs, row)) for row in logits):.2f}, greedy gap {gap:.3f}, kept "
          f"{Cut.kept} of {Cut.kept + Cut.dropped} gates, token 2 changes the last logits by {reach:.3f}; {continuation}")


if __name__ == "__main__":
    main()
