#!/usr/bin/env python3
"""Writes tests/golden/document_encoders/cepe: a tiny Llama with a document encoder and cross-attention, in the layout of the published
checkpoints, and the logits that tests expect. Needs only Python. Same seeds, same files.

The reference follows Yen, Gao and Chen 2024 (arXiv:2402.16617, section 2) in plain Python floats (float64). It computes
every token of a prompt anew: nothing is stored between tokens, layers or documents.
"""
import math
import pathlib
import random

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE, write_tokenizer
from make_draft_heads import Drawn, add, floats, mix, rotate, write_tensors
from make_mamba import rms_norm, silu, times, write_json

ROOT = pathlib.Path(__file__).resolve().parent / "document_encoders" / "cepe"
PIECE = 16             # tokens that the encoder reads at once, its start token included
DOCUMENTS = (37, 9)    # tokens: the first one is cut into three pieces, the last of which is not whole
PROMPT, GREEDY = 12, 8
MIN_GAP = 0.02         # between the two likeliest tokens: rounding must not choose another one

ENCODER = {
    "architectures": ["LlamaForMLM"], "model_type": "llama", "bos_token_id": BOS, "eos_token_id": EOS,
    "pad_token_id": PAD, "hidden_act": "silu", "hidden_size": 24, "intermediate_size": 20, "num_attention_heads": 3,
    "num_hidden_layers": 2, "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
    "tie_word_embeddings": True, "vocab_size": VOCAB_SIZE,
}
CONFIG = {
    "architectures": ["LlamaForCausalContextLM"], "model_type": "llama", "bos_token_id": BOS, "eos_token_id": EOS,
    "pad_token_id": PAD, "hidden_act": "silu", "hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2,
    "num_key_value_heads": 1, "num_hidden_layers": 3, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32", "vocab_size": VOCAB_SIZE,
    "do_cross_attention": True, "encode_mode": "context_only", "encoder_hidden_size": 24, "encoder_is_model": False,
    "num_cross_attn_hidden_states": 1, "num_cross_attn_layers": 2, "encoder_config": ENCODER,
}


def draw(seed):
    drawn = Drawn(seed)
    width, read = CONFIG["hidden_size"], ENCODER["hidden_size"]
    norms = ["input_layernorm", "post_attention_layernorm"]
    drawn.matrix("model.embed_tokens.weight", VOCAB_SIZE, width, 4.0)
    for i in range(CONFIG["num_hidden_layers"]):
        drawn.layer(f"model.layers.{i}.", CONFIG, norms, width)
        if i < CONFIG["num_hidden_layers"] - CONFIG["num_cross_attn_layers"]:
            continue
        cross = f"model.layers.{i}.cross_attn."
        drawn.matrix(cross + "q_proj.weight", width, width, 1.6)
        drawn.matrix(cross + "k_proj.weight", width // 2, read, 1.6)
        drawn.matrix(cross + "v_proj.weight", width // 2, read, 1.2)
        drawn.matrix(cross + "o_proj.weight", width, width, 1.2)
        drawn.vector(cross + "layernorm.weight", width, 0.3, 1.0)
    drawn.vector("model.norm.weight", width, 0.3, 1.0)
    drawn.matrix("lm_head.weight", VOCAB_SIZE, width, 4.0)
    drawn.matrix("encoder.embed_tokens.weight", VOCAB_SIZE, read, 4.0)
    for i in range(ENCODER["num_hidden_layers"]):
        drawn.layer(f"encoder.layers.{i}.", dict(ENCODER, num_key_value_heads=3), norms, read)
    drawn.vector("encoder.norm.weight", read, 0.3, 1.0)
    return drawn.tensors


# ---- the reference: rows of all tokens, layer by layer ---------------------------------------------------------------
def heads(x, size):
    return [x[i:i + size] for i in range(0, len(x), size)]


def attention(queries, keys, values, output, sees, size):
    """Heads of each token. `sees(t)`: the keys that token t sees, as a slice."""
    group, out = len(queries[0]) // len(keys[0]), []
    for t, query in enumerate(queries):
        mixed = []
        for h, one in enumerate(query):
            mixed += mix(one, [key[h // group] for key in keys[sees(t)]],
                         [value[h // group] for value in values[sees(t)]], size)
        out.append(times(output, mixed))
    return out


def self_attention(config, tensors, prefix, rows, causal):
    size = config["hidden_size"] // config["num_attention_heads"]
    product = lambda name, x: heads(times(tensors[f"{prefix}self_attn.{name}_proj.weight"].rows(), x), size)
    turned = lambda name: [[rotate(head, t, config["rope_theta"]) for head in product(name, x)]
                           for t, x in enumerate(rows)]
    return attention(turned("q"), turned("k"), [product("v", x) for x in rows],
                     tensors[f"{prefix}self_attn.o_proj.weight"].rows(),
                     lambda t: slice(0, t + 1) if causal else slice(None), size)


def mlp(tensors, prefix, x):
    matrix = lambda name: tensors[f"{prefix}mlp.{name}_proj.weight"].rows()
    return times(matrix("down"), [silu(g) * u for g, u in zip(times(matrix("gate"), x), times(matrix("up"), x))])


def run_layers(config, tensors, prefix, tokens, causal, cross=None):
    """Of all tokens: the final hidden states. `cross(layer, rows)` gives what is added behind self-attention."""
    table, eps = tensors[prefix + "embed_tokens.weight"].rows(), config["rms_norm_eps"]
    norm = lambda name, rows: [rms_norm(x, tensors[prefix + name + ".weight"].values, eps) for x in rows]
    sums = lambda rows, others: [add(x, y) for x, y in zip(rows, others)]
    rows = [table[token] for token in tokens]
    for i in range(config["num_hidden_layers"]):
        layer = f"{prefix}layers.{i}."
        rows = sums(rows, self_attention(config, tensors, layer, norm(f"layers.{i}.input_layernorm", rows), causal))
        if cross:
            rows = sums(rows, cross(i, rows))
        normed = norm(f"layers.{i}.post_attention_layernorm", rows)
        rows = sums(rows, [mlp(tensors, layer, x) for x in normed])
    return norm("norm", rows)


def pieces_of(documents, start):
    first = [BOS] if start else []
    each = PIECE - len(first)
    return [first + document[i:i + each] for document in documents for i in range(0, len(document), each)]


def logits_of(tensors, tokens, pieces):
    states = [row for piece in pieces for row in run_layers(ENCODER, tensors, "encoder.", piece, False)]
    size = CONFIG["hidden_size"] // CONFIG["num_attention_heads"]

    def cross(layer, rows):
        prefix = f"model.layers.{layer}.cross_attn."
        if not states or prefix + "q_proj.weight" not in tensors:
            return [[0.0] * len(rows[0])] * len(rows)
        product = lambda name, x: heads(times(tensors[prefix + name + "_proj.weight"].rows(), x), size)
        normed = [rms_norm(x, tensors[prefix + "layernorm.weight"].values, CONFIG["rms_norm_eps"]) for x in rows]
        return attention([product("q", x) for x in normed], [product("k", h) for h in states],
                         [product("v", h) for h in states], tensors[prefix + "o_proj.weight"].rows(),
                         lambda t: slice(None), size)

    hidden = run_layers(CONFIG, tensors, "model.", tokens, True, cross)
    return [times(tensors["lm_head.weight"].rows(), h) for h in hidden]


def continued(tensors, tokens, pieces):
    out = []
    while len(out) < GREEDY:
        row = logits_of(tensors, tokens + out, pieces)[-1]
        best, second = sorted(row, reverse=True)[:2]
        if best - second < MIN_GAP:
            return None
        out.append(row.index(best))
    return out


def case(tensors, source, start, documents):
    while True:
        drawn = [[source.randrange(120) for _ in range(count)] for count in documents]
        tokens = [BOS] + [source.randrange(120) for _ in range(PROMPT - 1)]
        pieces = pieces_of(drawn, start)
        greedy = continued(tensors, tokens, pieces)
        if greedy:
            return {"start": start, "piece": PIECE, "documents": drawn, "tokens": tokens, "greedy": greedy,
                    "logits": floats(logits_of(tensors, tokens, pieces))}


def main():
    tensors, source = draw(91), random.Random(92)
    ROOT.mkdir(parents=True, exist_ok=True)
    write_json(ROOT / "config.json", CONFIG)
    write_tensors(ROOT / "model.safetensors", tensors)
    write_tokenizer(ROOT)
    cases = [case(tensors, source, start, documents) for start, documents in ((True, DOCUMENTS), (False, DOCUMENTS),
                                                                              (True, (1,)), (True, ()))]
    write_json(ROOT / "expected.json", {"cases": cases})


if __name__ == "__main__":
    main()
