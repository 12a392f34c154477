#!/usr/bin/env python3
"""Writes tests/golden/reranker/tokens: a tiny Qwen3-Reranker as it is published, a decoder without a ranking head, in both
file kinds, with the prompts and the scores of its recipe: make_token_ranker.py. Needs only Python. Same seeds, same files.

The reference computes all tokens at once in plain Python floats (float64). Sources: Yang et al. 2025 (arXiv:2505.09388) for
Qwen3: RMS norms before blocks and of each head's queries and keys, rotations in halves, grouped queries, SwiGLU; Zhang et
al. 2025 (2506.05176) for the prompt and the score, the softmax of "yes" and "no".
"""
import math
import pathlib
import random

import golden_tokenizer as base
from encoder_reference import add, attend, linear, rms_norm, rotate, silu
from make_mamba import Array, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent / "reranker" / "tokens"
INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"
OWN_INSTRUCTION = "Find what turns {query}"
QUERY = "water for the {document}"
DOCUMENTS = ["A race brings it to the mill.", "an old house on a hill", "no", "Yes: 42!\n\n<|im_end|>", ""]
PREFIX = ("<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct "
          "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n")
SUFFIX = "<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"

MERGES = base.MERGES + ["y es", "n o"]
SPECIALS = base.SPECIALS + ["<|im_start|>", "<|im_end|>", "<think>", "</think>"]
TOKENS = base.ALPHABET + [pair.replace(" ", "") for pair in MERGES] + SPECIALS
IDS = {text: i for i, text in enumerate(TOKENS)}
YES, NO = IDS["yes"], IDS["no"]
FIRST = len(TOKENS) - len(SPECIALS)
BOS, EOS, PAD = FIRST, FIRST + 1, FIRST + 2

CONFIG = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "attention_bias": False, "attention_dropout": 0.0,
          "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD, "head_dim": 16, "hidden_act": "silu",
          "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 48, "max_position_embeddings": 512,
          "max_window_layers": 2, "num_attention_heads": 2, "num_hidden_layers": 2, "num_key_value_heads": 1,
          "rms_norm_eps": 1e-6, "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": None,
          "tie_word_embeddings": True, "torch_dtype": "float32", "use_cache": True, "use_sliding_window": False,
          "vocab_size": len(TOKENS)}


def prompt(query, document, instruction=INSTRUCTION):
    text = f"{PREFIX}<Instruct>: {instruction}\n<Query>: {query}\n<Document>: {document}{SUFFIX}"
    return base.tokenize(text, TOKENS, MERGES, SPECIALS)


def make_weights(seed):
    source, out, width = random.Random(seed), {}, CONFIG["hidden_size"]
    q, kv = (CONFIG["head_dim"] * CONFIG[f"num_{name}_heads"] for name in ("attention", "key_value"))

    def matrix(name, rows, cols, gain):
        out[name + ".weight"] = Array([rows, cols], lambda _: source.gauss(0, gain / math.sqrt(cols)))

    def norm(name, size):
        out[name + ".weight"] = Array([size], lambda _: source.gauss(1, 0.2))

    matrix("model.embed_tokens", CONFIG["vocab_size"], width, 2.0)
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for name, rows, cols in (("q", q, width), ("k", kv, width), ("v", kv, width), ("o", width, q)):
            matrix(f"{at}self_attn.{name}_proj", rows, cols, 1.5)
        for name in ("q", "k"):
            norm(f"{at}self_attn.{name}_norm", CONFIG["head_dim"])
        for name, rows, cols in (("gate", CONFIG["intermediate_size"], width), ("up", CONFIG["intermediate_size"], width),
                                 ("down", width, CONFIG["intermediate_size"])):
            matrix(f"{at}mlp.{name}_proj", rows, cols, 1.5)
        norm(at + "input_layernorm", width)
        norm(at + "post_attention_layernorm", width)
    norm("model.norm", width)
    return out


def by_head(w, name, row, eps):
    dim = CONFIG["head_dim"]
    return [v for start in range(0, len(row), dim) for v in rms_norm(w, name, row[start:start + dim], eps)]


def last_hidden(w, tokens):
    eps, heads, dim = CONFIG["rms_norm_eps"], CONFIG["num_attention_heads"], CONFIG["head_dim"]
    theta, spread = CONFIG["rope_theta"], lambda row: row * (heads // CONFIG["num_key_value_heads"])
    table = w["model.embed_tokens.weight"].rows()
    x = [table[token] for token in tokens]
    causal = lambda head, i, j: -math.inf if j > i else 0.0
    for layer in range(CONFIG["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        normed = [rms_norm(w, at + "input_layernorm", row, eps) for row in x]
        q, k, v = ([linear(w, f"{at}self_attn.{n}_proj", row) for row in normed] for n in "qkv")
        q, k = ([rotate(by_head(w, f"{at}self_attn.{n}_norm", row, eps), i, dim, theta) for i, row in enumerate(rows)]
                for n, rows in (("q", q), ("k", k)))
        mixed = attend(q, [spread(row) for row in k], [spread(row) for row in v], heads, causal)
        x = [add(row, linear(w, at + "self_attn.o_proj", m)) for row, m in zip(x, mixed)]
        normed = [rms_norm(w, at + "post_attention_layernorm", row, eps) for row in x]
        inner = [[silu(g) * u for g, u in zip(linear(w, at + "mlp.gate_proj", row), linear(w, at + "mlp.up_proj", row))]
                 for row in normed]
        x = [add(row, linear(w, at + "mlp.down_proj", u)) for row, u in zip(x, inner)]
    return rms_norm(w, "model.norm", x[-1], eps)


def score(w, tokens):
    hidden, table = last_hidden(w, tokens), w["model.embed_tokens.weight"].rows()
    yes, no = (sum(a * b for a, b in zip(table[token], hidden)) for token in (YES, NO))
    return 1 / (1 + math.exp(no - yes))


# ---- files -----------------------------------------------------------------------------------------------------------
def tokenizer_files():
    whole, config = base.tokenizer_json(), base.tokenizer_config()
    whole["added_tokens"] = [dict(whole["added_tokens"][0], id=FIRST + i, content=text) for i, text in enumerate(SPECIALS)]
    whole["model"].update({"vocab": IDS, "merges": MERGES})
    one = next(iter(config["added_tokens_decoder"].values()))
    config["added_tokens_decoder"] = {str(FIRST + i): dict(one, content=text) for i, text in enumerate(SPECIALS)}
    return whole, config


NAMES = {"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
         "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
         "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
         "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}


def gguf_name(name):
    parts = name.removesuffix(".weight").split(".", 3)
    if parts[1] != "layers":
        return {"embed_tokens": "token_embd", "norm": "output_norm"}[parts[1]] + ".weight"
    return f"blk.{parts[2]}.{NAMES[parts[3]]}.weight"


def gguf_keys():
    counts = {"context_length": "max_position_embeddings", "embedding_length": "hidden_size",
              "block_count": "num_hidden_layers", "feed_forward_length": "intermediate_size",
              "attention.head_count": "num_attention_heads", "attention.head_count_kv": "num_key_value_heads",
              "attention.key_length": "head_dim", "attention.value_length": "head_dim"}
    keys = [("general.architecture", "string", "qwen3"), ("general.name", "string", "tiny random")]
    keys += [(f"qwen3.{key}", "uint32", CONFIG[name]) for key, name in counts.items()]
    keys += [("qwen3.attention.layer_norm_rms_epsilon", "float32", CONFIG["rms_norm_eps"]),
             ("qwen3.rope.freq_base", "float32", CONFIG["rope_theta"])]
    own = {"tokenizer.ggml.tokens": TOKENS, "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": BOS,
           "tokenizer.ggml.token_type": [3 if text in SPECIALS else 1 for text in TOKENS],
           "tokenizer.ggml.eos_token_id": EOS, "tokenizer.ggml.padding_token_id": PAD}
    return keys + [(key, kind, own.get(key, value)) for key, kind, value in base.gguf_metadata()]


def main():
    ROOT.mkdir(parents=True, exist_ok=True)
    weights = make_weights(7011)
    whole, config = tokenizer_files()
    write_json(ROOT / "config.json", CONFIG)
    write_json(ROOT / "tokenizer.json", whole)
    write_json(ROOT / "tokenizer_config.json", config)
    write_safetensors(ROOT / "model.safetensors", weights)
    write_gguf(ROOT / "model.gguf", gguf_keys(), {gguf_name(name): array for name, array in weights.items()})
    pairs = [prompt(QUERY, document) for document in DOCUMENTS]
    scores = [score(weights, tokens) for tokens in pairs]
    assert min(abs(a - b) for i, a in enumerate(scores) for b in scores[:i]) > 1e-3, scores
    own = prompt(QUERY, DOCUMENTS[0], OWN_INSTRUCTION)
    write_json(ROOT / "ranking.json", {"query": QUERY, "documents": DOCUMENTS, "tokens": pairs, "scores": scores,
                                       "instruction": OWN_INSTRUCTION, "own_tokens": own})
    print([round(one, 4) for one in scores], [len(tokens) for tokens in pairs])


if __name__ == "__main__":
    main()
