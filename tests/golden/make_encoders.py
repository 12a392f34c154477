#!/usr/bin/env python3
"""Writes tests/golden/encoders: tiny encoders and cross-encoders in both file kinds, with the hidden states, vectors and
scores that they should give. Needs only Python. Same seeds, same files.

The reference computes all tokens of a text at once in plain Python floats (float64). Sources:
  bert        Devlin et al. 2019 (arXiv:1810.04805): sums of three embeddings, attention without a mask, a LayerNorm
              behind each sum, GELU by the error function; the pooler and classifier of a sequence
  roberta     Liu et al. 2019 (1907.11692): no types, positions count from the padding token's id plus one
  modern-bert Warner et al. 2024 (2412.13663): norms before blocks, GeGLU, rotations (Su et al. 2021, halves), layers with
              a window of local_attention / 2 keys on each side and a base of their own
  nomic-bert  Nussbaum et al. 2024 (2402.01613): bert with rotations and SwiGLU
  jina-bert   Guenther et al. 2023 (2310.19923): bert with ALiBi (Press et al. 2022, 2108.12409) in both directions, GeGLU
  gemma-embedding  Vera et al. 2025 (2509.20354): Gemma 3 (2503.19786) with windows on both sides, and dense layers behind
              the mean
  eurobert    Boizard et al. 2025 (2503.05500): RMS norms before blocks, grouped queries, SwiGLU
  nomic-bert-moe  Nussbaum and Duderstadt 2025 (2502.07972), in encoder_experts.py
  jina-bert-v3  Sturua et al. 2024 (2409.10173): XLM-RoBERTa with rotations; without the adapters that its folder holds
Its code is in encoder_reference.py, the tokenizers are in encoder_tokenizers.py: a few lines of their own, which take the
longest prefixes for WordPiece; and in encoder_unigram.py.
"""
import base64
import math
import pathlib
import random
import struct
import sys

import encoder_experts
from encoder_reference import (bert_hidden, euro_hidden, gelu, gemma_hidden, jina_hidden, layer_norm, linear, modern_hidden,
                               nomic_hidden)
from encoder_tokenizers import BOS, BPE_PAD, EOS, Bpe, RobertaBpe, WordPiece
from encoder_unigram import Unigram
from make_mamba import Array, times, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent / "encoders"
TEXTS = ["the mill turns", "The river turned the wheel, and corn was ground.", "rain", "Mills need water: a race!"]
QUERY = "water for mills"


# ---- weights ---------------------------------------------------------------------------------------------------------
class Weights(dict):
    def __init__(self, seed):
        super().__init__()
        self.source = random.Random(seed)

    def matrix(self, name, rows, cols, gain, bias=False):
        self[name + ".weight"] = Array([rows, cols], lambda _: self.source.gauss(0, gain / math.sqrt(cols)))
        if bias:
            self[name + ".bias"] = Array([rows], lambda _: self.source.gauss(0, 0.3))

    def norm(self, name, width, bias=True):
        self[name + ".weight"] = Array([width], lambda _: self.source.gauss(1, 0.2))
        if bias:
            self[name + ".bias"] = Array([width], lambda _: self.source.gauss(0, 0.2))


def bert_weights(settings, seed):
    w, width = Weights(seed), settings["hidden_size"]
    for name, rows in (("word", settings["vocab_size"]), ("position", settings["max_position_embeddings"]),
                       ("token_type", settings["type_vocab_size"])):
        w.matrix(f"embeddings.{name}_embeddings", rows, width, 0.7 * math.sqrt(width))
    w.norm("embeddings.LayerNorm", width)
    for layer in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            w.matrix(f"{at}attention.self.{name}", width, width, 1.2 if name == "value" else 1.6, True)
        w.matrix(at + "attention.output.dense", width, width, 1.2, True)
        w.norm(at + "attention.output.LayerNorm", width)
        w.matrix(at + "intermediate.dense", settings["intermediate_size"], width, 1.4, True)
        w.matrix(at + "output.dense", width, settings["intermediate_size"], 1.4, True)
        w.norm(at + "output.LayerNorm", width)
    return w


def modern_weights(settings, seed):
    w, width, inner = Weights(seed), settings["hidden_size"], settings["intermediate_size"]
    w.matrix("embeddings.tok_embeddings", settings["vocab_size"], width, math.sqrt(width))
    w.norm("embeddings.norm", width, False)
    for layer in range(settings["num_hidden_layers"]):
        at = f"layers.{layer}."
        if layer:
            w.norm(at + "attn_norm", width, False)
        w.matrix(at + "attn.Wqkv", 3 * width, width, 1.5)
        w.matrix(at + "attn.Wo", width, width, 1.5)
        w.norm(at + "mlp_norm", width, False)
        w.matrix(at + "mlp.Wi", 2 * inner, width, 1.5)
        w.matrix(at + "mlp.Wo", width, inner, 1.5)
    w.norm("final_norm", width, False)
    return w


def typed_weights(settings, seed, width):
    w = Weights(seed)
    for name, rows in (("word", settings["vocab_size"]), ("token_type", settings["type_vocab_size"])):
        w.matrix(f"embeddings.{name}_embeddings", rows, width, 0.9 * math.sqrt(width))
    return w


def nomic_weights(settings, seed):
    width, inner = settings["n_embd"], settings["n_inner"]
    w = typed_weights(settings, seed, width)
    w.norm("emb_ln", width)
    for layer in range(settings["n_layer"]):
        at = f"encoder.layers.{layer}."
        w.matrix(at + "attn.Wqkv", 3 * width, width, 1.5)
        w.matrix(at + "attn.out_proj", width, width, 1.5)
        w.norm(at + "norm1", width)
        for name, rows, cols in (("fc11", inner, width), ("fc12", inner, width), ("fc2", width, inner)):
            w.matrix(at + "mlp." + name, rows, cols, 1.5)
        w.norm(at + "norm2", width)
    return w


def jina_weights(settings, seed):
    width, inner = settings["hidden_size"], settings["intermediate_size"]
    w = typed_weights(settings, seed, width)
    w.norm("embeddings.LayerNorm", width)
    for layer in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        for name in ("query", "key", "value"):
            w.matrix(f"{at}attention.self.{name}", width, width, 1.3, True)
        w.matrix(at + "attention.output.dense", width, width, 1.4, True)
        w.norm(at + "attention.output.LayerNorm", width)
        w.matrix(at + "mlp.gated_layers", 2 * inner, width, 1.5)
        w.matrix(at + "mlp.wo", width, inner, 1.5, True)
        w.norm(at + "mlp.layernorm", width)
    return w


def euro_weights(settings, seed):
    w, width, inner = Weights(seed), settings["hidden_size"], settings["intermediate_size"]
    kv = width // settings["num_attention_heads"] * settings["num_key_value_heads"]
    w.matrix("embed_tokens", settings["vocab_size"], width, 0.6 * math.sqrt(width))
    for layer in range(settings["num_hidden_layers"]):
        at = f"layers.{layer}."
        for name, rows in (("q", width), ("k", kv), ("v", kv), ("o", width)):
            w.matrix(f"{at}self_attn.{name}_proj", rows, width, 1.5)
        for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            w.matrix(f"{at}mlp.{name}_proj", rows, cols, 1.4)
        w.norm(at + "input_layernorm", width, False)
        w.norm(at + "post_attention_layernorm", width, False)
    w.norm("norm", width, False)
    return w


def gemma_weights(settings, seed):
    w, width, inner = Weights(seed), settings["hidden_size"], settings["intermediate_size"]
    q, dim = settings["num_attention_heads"] * settings["head_dim"], settings["head_dim"]

    def norm(name, size):
        w[name + ".weight"] = Array([size], lambda _: w.source.gauss(0, 0.2))

    w.matrix("embed_tokens", settings["vocab_size"], width, 0.7)
    for layer in range(settings["num_hidden_layers"]):
        at = f"layers.{layer}."
        for name, rows, cols in (("q", q, width), ("k", dim, width), ("v", dim, width), ("o", width, q)):
            w.matrix(f"{at}self_attn.{name}_proj", rows, cols, 1.5)
        norm(at + "self_attn.q_norm", dim)
        norm(at + "self_attn.k_norm", dim)
        for name, rows, cols in (("gate", inner, width), ("up", inner, width), ("down", width, inner)):
            w.matrix(f"{at}mlp.{name}_proj", rows, cols, 1.4)
        for name in ("input", "post_attention", "pre_feedforward", "post_feedforward"):
            norm(f"{at}{name}_layernorm", width)
    norm("norm", width)
    return w


BERT_NAMES = {"embeddings.word_embeddings": "token_embd", "embeddings.position_embeddings": "position_embd",
              "embeddings.token_type_embeddings": "token_types", "embeddings.LayerNorm": "token_embd_norm",
              "attention.self.query": "attn_q", "attention.self.key": "attn_k", "attention.self.value": "attn_v",
              "attention.output.dense": "attn_output", "attention.output.LayerNorm": "attn_output_norm",
              "intermediate.dense": "ffn_up", "output.dense": "ffn_down", "output.LayerNorm": "layer_output_norm",
              "pooler.dense": "cls", "classifier": "cls.output", "classifier.dense": "cls",
              "classifier.out_proj": "cls.output"}


def bert_gguf(settings, weights):
    out, first = {}, settings.get("position_offset", 0)
    for name, array in weights.items():
        base, kind = name.rsplit(".", 1)
        layer = base.removeprefix("encoder.layer.").split(".", 1) if base.startswith("encoder.layer.") else None
        to = f"blk.{layer[0]}.{BERT_NAMES[layer[1]]}" if layer else BERT_NAMES[base]
        if to == "position_embd" and first:  # converters drop the rows before the first position
            rows = array.rows()[first:]
            array = Array([len(rows), len(rows[0])], lambda i: rows[i // len(rows[0])][i % len(rows[0])])
        out[f"{to}.{kind}"] = array
    return out


def renamed(top, block, layers):
    """A converter that only renames."""
    def convert(settings, weights):
        out = {}
        for name, array in weights.items():
            base, kind = name.rsplit(".", 1)
            if base.startswith(layers):
                layer, part = base.removeprefix(layers).split(".", 1)
                out[f"blk.{layer}.{block[part]}.{kind}"] = array
            else:
                out[f"{top[base]}.{kind}"] = array
        return out
    return convert


TYPED_TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
             "emb_ln": "token_embd_norm", "embeddings.LayerNorm": "token_embd_norm"}
modern_gguf = renamed({"embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm",
                       "final_norm": "output_norm", "head.dense": "cls", "head.norm": "cls.norm",
                       "classifier": "cls.output"},
                      {"attn_norm": "attn_norm", "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output",
                       "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up", "mlp.Wo": "ffn_down"}, "layers.")
nomic_gguf = renamed(TYPED_TOP, {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm",
                                 "mlp.fc11": "ffn_up", "mlp.fc12": "ffn_gate", "mlp.fc2": "ffn_down",
                                 "norm2": "layer_output_norm"}, "encoder.layers.")
jina_gguf = renamed(TYPED_TOP, {"attention.self.query": "attn_q", "attention.self.key": "attn_k",
                                "attention.self.value": "attn_v", "attention.output.dense": "attn_output",
                                "attention.output.LayerNorm": "attn_output_norm", "mlp.gated_layers": "ffn_up",
                                "mlp.wo": "ffn_down", "mlp.layernorm": "layer_output_norm"}, "encoder.layer.")
euro_gguf = renamed({"embed_tokens": "token_embd", "norm": "output_norm"},
                    {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
                     "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                     "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
                     "post_attention_layernorm": "ffn_norm"}, "layers.")


gemma_names = renamed({"embed_tokens": "token_embd", "norm": "output_norm"},
                      {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
                       "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
                       "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
                       "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
                       "post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                       "post_feedforward_layernorm": "post_ffw_norm"}, "layers.")


def gemma_gguf(settings, weights):
    """Converters add 1 to the weights of norms."""
    named = gemma_names(settings, weights)
    return {name: Array(a.shape, lambda i, a=a: a.values[i] + 1) if "norm" in name else a for name, a in named.items()}


def gemma_keys(settings):
    arch = "gemma-embedding"
    keys = [key for key in bert_keys(dict(settings, layer_norm_eps=1.0), arch) if not key[0].endswith("epsilon")]
    floats = {"attention.layer_norm_rms_epsilon": settings["rms_norm_eps"], "rope.freq_base": settings["rope_theta"],
              "rope.freq_base_swa": settings["rope_local_base_freq"]}
    counts = {"attention.head_count_kv": settings["num_key_value_heads"], "attention.key_length": settings["head_dim"],
              "attention.value_length": settings["head_dim"], "attention.sliding_window": settings["sliding_window"],
              "dense_2_feat_in": settings["hidden_size"], "dense_2_feat_out": DENSE, "dense_3_feat_in": DENSE,
              "dense_3_feat_out": settings["hidden_size"]}
    return keys + [(f"{arch}.{name}", "float32", value) for name, value in floats.items()] + [
        (f"{arch}.{name}", "uint32", value) for name, value in counts.items()]


def modern_keys(settings):
    arch, floats = "modern-bert", {"attention.layer_norm_epsilon": settings["norm_eps"],
                                   "rope.freq_base": settings["global_rope_theta"],
                                   "rope.freq_base_swa": settings["local_rope_theta"]}
    keys = [key for key in bert_keys(dict(settings, layer_norm_eps=1.0), arch) if not key[0].endswith("epsilon")]
    return keys + [(f"{arch}.{name}", "float32", value) for name, value in floats.items()] + [
        (f"{arch}.attention.sliding_window", "uint32", settings["local_attention"]),
        (f"{arch}.attention.sliding_window_pattern", "uint32", settings["global_attn_every_n_layers"]),
        (f"{arch}.rope.scaling.type", "string", "none"), (f"{arch}.vocab_size", "uint32", settings["vocab_size"]),
        (f"{arch}.hidden_activation", "string", settings["hidden_activation"])]


def nomic_keys(settings):
    named = {"max_position_embeddings": 64, "hidden_size": settings["n_embd"], "num_hidden_layers": settings["n_layer"],
             "intermediate_size": settings["n_inner"], "num_attention_heads": settings["n_head"],
             "layer_norm_eps": settings["layer_norm_epsilon"]}
    return bert_keys(named, "nomic-bert") + [("nomic-bert.rope.freq_base", "float32", settings["rotary_emb_base"])]


def jina_keys(settings):
    return bert_keys(settings, "jina-bert-v2")


def euro_keys(settings):
    keys = [key for key in bert_keys(dict(settings, layer_norm_eps=1.0), "eurobert") if not key[0].endswith("epsilon")]
    return keys + [("eurobert.attention.layer_norm_rms_epsilon", "float32", settings["rms_norm_eps"]),
                   ("eurobert.attention.head_count_kv", "uint32", settings["num_key_value_heads"]),
                   ("eurobert.rope.freq_base", "float32", settings["rope_theta"]),
                   ("eurobert.rope.scaling.type", "string", "none")]


def bert_keys(settings, arch="bert"):
    first = settings.get("position_offset", 0)
    values = [("context_length", settings["max_position_embeddings"] - first),
              ("embedding_length", settings["hidden_size"]), ("block_count", settings["num_hidden_layers"]),
              ("feed_forward_length", settings["intermediate_size"]),
              ("attention.head_count", settings["num_attention_heads"])]
    return [(f"{arch}.{key}", "uint32", value) for key, value in values] + [
        (f"{arch}.attention.layer_norm_epsilon", "float32", settings["layer_norm_eps"]),
        (f"{arch}.attention.causal", "bool", False)]


def bert_config(tokenizer, **changes):
    out = {"architectures": ["BertModel"], "model_type": "bert", "attention_probs_dropout_prob": 0.1,
           "classifier_dropout": None, "gradient_checkpointing": False, "hidden_act": "gelu",
           "hidden_dropout_prob": 0.1, "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 56,
           "layer_norm_eps": 1e-12, "max_position_embeddings": 64, "num_attention_heads": 2, "num_hidden_layers": 3,
           "pad_token_id": tokenizer.pad, "position_embedding_type": "absolute", "torch_dtype": "float32",
           "type_vocab_size": 2, "use_cache": True, "vocab_size": tokenizer.size}
    out.update(changes)
    return out


ROBERTA = {"type_vocab_size": 1, "max_position_embeddings": 66, "layer_norm_eps": 1e-5}


class Case:
    def __init__(self, settings, seed, tokenizer, pooling, weights, hidden, gguf, keys, arch, labels=None, names=None,
                 dense=()):
        self.settings, self.seed, self.tokenizer, self.pooling = settings, seed, tokenizer, pooling
        self.make_weights, self.hidden, self.gguf, self.keys, self.arch = weights, hidden, gguf, keys, arch
        self.labels, self.names, self.dense = labels, names or (lambda weights: weights), dense


def bert_case(settings, seed, tokenizer, pooling, **more):
    return Case(settings, seed, tokenizer, pooling, bert_weights, bert_hidden, bert_gguf, bert_keys, "bert", **more)


MODERN = {"architectures": ["ModernBertModel"], "model_type": "modernbert", "attention_bias": False,
          "classifier_activation": "gelu", "classifier_bias": False, "classifier_pooling": "mean", "decoder_bias": True,
          "deterministic_flash_attn": False, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0,
          "hidden_activation": "gelu", "hidden_size": 32, "initializer_cutoff_factor": 2.0, "intermediate_size": 40,
          "layer_norm_eps": 1e-5, "local_attention": 8, "local_rope_theta": 10000.0, "max_position_embeddings": 64,
          "mlp_bias": False, "norm_bias": False, "norm_eps": 1e-5, "num_attention_heads": 2, "num_hidden_layers": 4,
          "position_embedding_type": "absolute", "sparse_prediction": False, "torch_dtype": "float32",
          "vocab_size": Bpe.size}
NOMIC = {"architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
         "attn_pdrop": 0.0, "causal": False, "dense_seq_output": True, "layer_norm_epsilon": 1e-12,
         "max_trained_positions": 64, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "n_embd": 32, "n_head": 2,
         "n_inner": 48, "n_layer": 3, "n_positions": 64, "pad_vocab_size_multiple": 64, "parallel_block": False,
         "prenorm": False, "qkv_proj_bias": False, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
         "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
         "scale_attn_by_inverse_layer_idx": False, "scale_attn_weights": True, "torch_dtype": "float32",
         "type_vocab_size": 2, "use_rms_norm": False, "use_xentropy": True, "vocab_size": WordPiece.size}
NOMIC_MOE = dict(NOMIC, activation_function="gelu", expert_choice_router=False, ffn_div=1, layer_norm_epsilon=1e-5,
                 mlp_fc1_bias=True, mlp_fc2_bias=True, moe_every_n_layers=2, moe_impl="megablocks",
                 moe_normalize_expert_weights=False, moe_resid_pdrop=0.0, moe_top_k=2, n_layer=4, num_experts=8,
                 num_shared_experts=0, pad_token_id=1, qkv_proj_bias=True, rotary_emb_base=10000,
                 router_aux_loss_coef=0.1, type_vocab_size=1, vocab_size=Unigram.size)
JINA3 = {"architectures": ["XLMRobertaModel"], "model_type": "xlm-roberta", "emb_pooler": None, "layer_norm_eps": 1e-5,
         "load_trained_adapters": True, "lora_adaptations": ["retrieval.query", "text-matching"], "lora_alpha": 1,
         "lora_dropout_p": 0.0, "lora_main_params_trainable": False, "lora_rank": 2, "max_position_embeddings": 66,
         "position_embedding_type": "rotary", "rotary_emb_base": 20000.0, "truncate_dim": None, "type_vocab_size": 1,
         "task_instructions": {"retrieval.query": "query: ", "text-matching": ""}, "use_flash_attn": True}
JINA = {"architectures": ["JinaBertModel"], "alibi_starting_size": 64, "emb_pooler": "mean", "feed_forward_type": "geglu",
        "position_embedding_type": "alibi", "num_attention_heads": 3, "hidden_size": 48, "attn_implementation": None}
EURO = {"architectures": ["EuroBertModel"], "model_type": "eurobert", "attention_bias": False, "clf_pooling": "late",
        "head_dim": 8, "hidden_act": "silu", "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 64,
        "mlp_bias": False, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "pretraining_tp": 1, "rms_norm_eps": 1e-5, "rope_scaling": None, "rope_theta": 250000, "tie_word_embeddings": False,
        "torch_dtype": "float32", "use_cache": False, "vocab_size": Bpe.size}


DENSE = 48
GEMMA = {"architectures": ["Gemma3TextModel"], "model_type": "gemma3_text", "attention_bias": False,
         "attn_logit_softcapping": None, "bos_token_id": BOS, "eos_token_id": EOS, "final_logit_softcapping": None,
         "head_dim": 16, "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 32, "intermediate_size": 48,
         "layer_types": 5 * ["sliding_attention"] + ["full_attention", "sliding_attention"],
         "max_position_embeddings": 64, "num_attention_heads": 3, "num_hidden_layers": 7, "num_key_value_heads": 1,
         "pad_token_id": BPE_PAD, "query_pre_attn_scalar": 16, "rms_norm_eps": 1e-6, "rope_local_base_freq": 10000.0,
         "rope_scaling": None, "rope_theta": 1000000.0, "sliding_window": 9, "torch_dtype": "float32",
         "use_bidirectional_attention": True, "use_cache": True, "vocab_size": Bpe.size}


def prefixed(prefix):
    return lambda weights: {name if name.startswith(("classifier", "head.")) else prefix + name: a
                            for name, a in weights.items()}


CASES = {
    "bert": bert_case(bert_config(WordPiece), 11, WordPiece, "mean"),
    "bert_cls": bert_case(bert_config(WordPiece, num_attention_heads=4, intermediate_size=40, num_hidden_layers=2), 12,
                          WordPiece, "cls"),
    "bert_rank": bert_case(bert_config(WordPiece, architectures=["BertForSequenceClassification"],
                                       id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}), 13, WordPiece, "rank",
                           labels=("pooler.dense", "classifier"), names=prefixed("bert.")),
    "roberta": bert_case(bert_config(RobertaBpe, architectures=["RobertaModel"], model_type="roberta", **ROBERTA), 14,
                         RobertaBpe, "cls"),
    "roberta_rank": bert_case(bert_config(RobertaBpe, architectures=["XLMRobertaForSequenceClassification"],
                                          model_type="xlm-roberta", id2label={"0": "LABEL_0"},
                                          label2id={"LABEL_0": 0}, **ROBERTA), 15, RobertaBpe, "rank",
                              labels=("classifier.dense", "classifier.out_proj"), names=prefixed("roberta.")),
}
CASES.update({
    "modern_bert": Case(MODERN, 16, Bpe, "cls", modern_weights, modern_hidden, modern_gguf, modern_keys, "modern-bert",
                        names=prefixed("model.")),
    "modern_bert_rank": Case(dict(MODERN, architectures=["ModernBertForSequenceClassification"],
                                  id2label={"0": "LABEL_0"}, label2id={"LABEL_0": 0}), 21, Bpe, "rank", modern_weights,
                             modern_hidden, modern_gguf, modern_keys, "modern-bert",
                             labels=("head.dense", "classifier"), names=prefixed("model.")),
    "nomic_bert": Case(NOMIC, 17, WordPiece, "mean", nomic_weights, nomic_hidden, nomic_gguf, nomic_keys, "nomic-bert"),
    "jina_bert": Case(bert_config(WordPiece, **JINA), 18, WordPiece, "mean", jina_weights, jina_hidden, jina_gguf,
                      jina_keys, "jina-bert-v2"),
    "eurobert": Case(EURO, 19, Bpe, "mean", euro_weights, euro_hidden, euro_gguf, euro_keys, "eurobert",
                     names=prefixed("model.")),
    "nomic_bert_moe": Case(NOMIC_MOE, 22, Unigram, "mean",
                           lambda settings, seed: encoder_experts.weights(Weights(seed), settings),
                           encoder_experts.hidden, encoder_experts.gguf,
                           lambda settings: encoder_experts.keys(settings, nomic_keys), "nomic-bert-moe"),
    "jina_bert3": Case(bert_config(Unigram, **JINA3), 25, Unigram, "mean",
                       lambda settings, seed: encoder_experts.weights(Weights(seed), encoder_experts.of_jina(settings)),
                       lambda settings, *rest: encoder_experts.hidden(encoder_experts.of_jina(settings), *rest),
                       lambda settings, w: encoder_experts.gguf(encoder_experts.of_jina(settings), w),
                       lambda settings: bert_keys(dict(settings, position_offset=2), "jina-bert-v3") + [
                           ("jina-bert-v3.rope.freq_base", "float32", settings["rotary_emb_base"])], "jina-bert-v3",
                       names=encoder_experts.jina_names(JINA3)),
    "xlm_roberta": bert_case(bert_config(Unigram, architectures=["XLMRobertaModel"], model_type="xlm-roberta",
                                         **ROBERTA), 23, Unigram, "cls"),
    "xlm_roberta_rank": bert_case(bert_config(Unigram, architectures=["XLMRobertaForSequenceClassification"],
                                              model_type="xlm-roberta", id2label={"0": "LABEL_0"},
                                              label2id={"LABEL_0": 0}, **ROBERTA), 24, Unigram, "rank",
                                  labels=("classifier.dense", "classifier.out_proj"), names=prefixed("roberta.")),
    "gemma_embedding": Case(GEMMA, 20, Bpe, "mean", gemma_weights, gemma_hidden, gemma_gguf, gemma_keys,
                            "gemma-embedding", dense=("2_Dense", "3_Dense")),
})
POOLING_TYPES = {"mean": 1, "cls": 2, "last": 3, "rank": 4}


# ---- files -----------------------------------------------------------------------------------------------------------
def base64_floats(rows):
    flat = [value for row in rows for value in row]
    return base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()


def pool(case, rows, dense):
    pooling = case.pooling
    x = [sum(column) / len(rows) for column in zip(*rows)] if pooling == "mean" else \
        rows[-1] if pooling == "last" else rows[0]
    for name in case.dense:
        x = times(dense[name + ".weight"].rows(), x)
    length = math.sqrt(sum(v * v for v in x))
    return [v / length for v in x]


def score(case, weights, rows):
    dense, out = case.labels
    row = rows[0]
    if case.arch == "modern-bert":  # the mean, a dense layer with GELU, and a norm
        inner = linear(weights, dense, [sum(column) / len(rows) for column in zip(*rows)])
        return linear(weights, out, layer_norm(weights, "head.norm", [gelu(v) for v in inner], 1e-5))[0]
    return linear(weights, out, [math.tanh(v) for v in linear(weights, dense, row)])[0]


def dense_layers(case, width):
    """Of sentence-transformers: the pooled vector becomes wider, and narrower again."""
    layers = Weights(case.seed + 100)
    for i, name in enumerate(case.dense):
        layers.matrix(name, width if i else DENSE, DENSE if i else width, 1.0)
    return layers


def write_modules(folder, case, dense):
    modules = ["models.Transformer", "models.Pooling", *("models.Dense" for _ in case.dense), "models.Normalize"]
    write_json(folder / "modules.json", [
        {"idx": i, "name": str(i), "path": f"{i}_{kind.split('.')[1]}" if i else "",
         "type": f"sentence_transformers.{kind}"} for i, kind in enumerate(modules)])
    for name in case.dense:
        (folder / name).mkdir()
        rows, cols = dense[name + ".weight"].shape
        write_json(folder / name / "config.json", {
            "in_features": cols, "out_features": rows, "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity"})
        write_safetensors(folder / name / "model.safetensors", {"linear.weight": dense[name + ".weight"]})


def write_folder(folder, case, settings, weights, dense):
    for old in sorted(folder.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    write_json(folder / "config.json", {k: v for k, v in settings.items() if k != "position_offset"})
    write_json(folder / "tokenizer.json", case.tokenizer.folder())
    write_json(folder / "tokenizer_config.json", case.tokenizer.config)
    write_safetensors(folder / "model.safetensors", case.names(weights))
    write_modules(folder, case, dense)
    if case.pooling != "rank":
        (folder / "1_Pooling").mkdir()
        write_json(folder / "1_Pooling" / "config.json", {
            "word_embedding_dimension": settings.get("hidden_size") or settings["n_embd"], "pooling_mode_cls_token": case.pooling == "cls",
            "pooling_mode_mean_tokens": case.pooling == "mean", "pooling_mode_max_tokens": False,
            "pooling_mode_lasttoken": case.pooling == "last"})
    keys = [("general.architecture", "string", case.arch), ("general.name", "string", "tiny random")]
    keys += case.keys(settings) + [(f"{case.arch}.pooling_type", "uint32", POOLING_TYPES[case.pooling])]
    tensors = case.gguf(settings, weights)
    tensors.update({f"dense_{name[0]}.weight": dense[name + ".weight"] for name in case.dense})
    write_gguf(folder / "model.gguf", keys + case.tokenizer.keys(), tensors)


def make(name, case):
    settings = dict(case.settings)
    if settings["model_type"] in ("roberta", "xlm-roberta"):
        settings["position_offset"] = case.tokenizer.pad + 1
    weights, width = case.make_weights(settings, case.seed), settings.get("hidden_size") or settings["n_embd"]
    if case.labels:
        modern = case.arch == "modern-bert"
        weights.matrix(case.labels[0], width, width, 1.2, not modern)
        if modern:
            weights.norm("head.norm", width, False)
        weights.matrix(case.labels[1], 1, width, 2.0, True)
    ranks = case.pooling == "rank"
    texts = getattr(case.tokenizer, "texts", TEXTS)
    tokens = [case.tokenizer.pair(QUERY, text) if ranks else case.tokenizer.text(text) for text in texts]
    hidden = [case.hidden(settings, weights, ids, case.tokenizer.separator) for ids in tokens]
    # A late token reaches the first row.
    changed = tokens[1][:-2] + [(tokens[1][-2] + 1) % 90] + tokens[1][-1:]
    other = case.hidden(settings, weights, changed, case.tokenizer.separator)
    reach = max(abs(a - b) for a, b in zip(hidden[1][0], other[0]))
    assert reach > 0.01, f"{name}: the last word changes the first row by {reach:.4f} only"
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    dense = dense_layers(case, width)
    write_folder(folder, case, settings, weights, dense)
    out = {"texts": texts, "tokens": tokens, "pooling": case.pooling, "width": width,
           "hidden": [base64_floats(rows) for rows in hidden]}
    if ranks:
        out["query"], out["scores"] = QUERY, [score(case, weights, rows) for rows in hidden]
    else:
        out["vectors"] = base64_floats(pool(case, rows, dense) for rows in hidden)
    for task, task_name in enumerate(settings.get("lora_adaptations", [])):
        changed = encoder_experts.with_task(settings, weights, task)
        rows = [case.hidden(settings, changed, ids, case.tokenizer.separator) for ids in tokens]
        out.setdefault("tasks", {})[task_name] = [base64_floats(one) for one in rows]
    if hasattr(case.tokenizer, "vectors"):
        out["tokenized"] = case.tokenizer.vectors()
    write_json(folder / "encoded.json", out)
    print(f"{name}: {[len(ids) for ids in tokens]} tokens; first row moves by {reach:.2f}", out.get("scores", ""))


def main():
    for name, case in CASES.items():
        if not sys.argv[1:] or name in sys.argv[1:]:
            make(name, case)


if __name__ == "__main__":
    main()
