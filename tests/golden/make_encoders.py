#!/usr/bin/env python3
"""Writes tests/golden/encoders: tiny encoders and cross-encoders in both file kinds, with the hidden states, vectors and
scores that they should give. Needs only Python. Same seeds, same files.

The reference computes all tokens of a text at once in plain Python floats (float64). Sources:
  bert        Devlin et al. 2019 (arXiv:1810.04805): sums of three embeddings, attention without a mask, a LayerNorm
              behind each sum, GELU by the error function; the pooler and classifier of a sequence
  roberta     Liu et al. 2019 (1907.11692): no types, positions count from the padding token's id plus one
Texts are tokenized here by a few lines of their own: longest prefixes for WordPiece.
"""
import base64
import math
import pathlib
import random
import struct

from golden_tokenizer import MERGES, TOKENS as BPE_TOKENS, gguf_metadata, tokenizer_json
from make_mamba import Array, times, write_gguf, write_json, write_safetensors

ROOT = pathlib.Path(__file__).resolve().parent / "encoders"
TEXTS = ["the mill turns", "The river turned the wheel, and corn was ground.", "rain", "Mills need water: a race!"]
QUERY = "water for mills"

# ---- WordPiece -------------------------------------------------------------------------------------------------------
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["the", "mill", "turn", "river", "wheel", "and", "water", "rain", "for"]
PIECES = ["##s", "##ed", "##ing"]
SPECIALS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
VOCAB = SPECIALS + list(".,:!?") + list(LETTERS) + ["##" + c for c in LETTERS] + WORDS + PIECES[1:]


def wordpiece(text):
    ids, word = [], ""
    for c in text.lower() + " ":
        if c.isalpha():
            word += c
            continue
        at = 0
        while at < len(word):
            end = max(e for e in range(at + 1, len(word) + 1) if ("##" if at else "") + word[at:e] in VOCAB)
            ids.append(VOCAB.index(("##" if at else "") + word[at:end]))
            at = end
        word = ""
        if c != " ":
            ids.append(VOCAB.index(c))
    return ids


def special(token, index):
    return {"id": index, "content": token, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": True}


def wordpiece_folder():
    piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
    text = lambda which, kind: {"Sequence": {"id": which, "type_id": kind}}
    used = {name: {"id": name, "ids": [VOCAB.index(name)], "tokens": [name]} for name in ("[CLS]", "[SEP]")}
    return {
        "version": "1.0", "truncation": None, "padding": None,
        "added_tokens": [special(token, i) for i, token in enumerate(SPECIALS)],
        "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True,
                       "strip_accents": None, "lowercase": True},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "TemplateProcessing", "single": [piece("[CLS]"), text("A", 0), piece("[SEP]")],
                           "pair": [piece("[CLS]"), text("A", 0), piece("[SEP]"), text("B", 1),
                                    {"SpecialToken": {"id": "[SEP]", "type_id": 1}}], "special_tokens": used},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                  "max_input_chars_per_word": 100, "vocab": {token: i for i, token in enumerate(VOCAB)}},
    }


def wordpiece_keys():
    """As llama.cpp's converter: a mark before words in place of ## before the others."""
    stored = [t if t in SPECIALS else t[2:] if t.startswith("##") else "\u2581" + t for t in VOCAB]
    return [("tokenizer.ggml.model", "string", "bert"), ("tokenizer.ggml.pre", "string", "default"),
            ("tokenizer.ggml.token_type_count", "uint32", 2), ("tokenizer.ggml.tokens", "string[]", stored),
            ("tokenizer.ggml.token_type", "int32[]", [3 if t in SPECIALS else 1 for t in VOCAB]),
            ("tokenizer.ggml.unknown_token_id", "uint32", UNK), ("tokenizer.ggml.padding_token_id", "uint32", PAD),
            ("tokenizer.ggml.seperator_token_id", "uint32", SEP), ("tokenizer.ggml.cls_token_id", "uint32", CLS),
            ("tokenizer.ggml.mask_token_id", "uint32", MASK)]


class WordPiece:
    size, separator, pad = len(VOCAB), SEP, PAD
    folder, keys = staticmethod(wordpiece_folder), staticmethod(wordpiece_keys)
    config = {"tokenizer_class": "BertTokenizer", "cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]",
              "unk_token": "[UNK]", "mask_token": "[MASK]", "do_lower_case": True, "model_max_length": 64}

    @staticmethod
    def text(text):
        return [CLS] + wordpiece(text) + [SEP]

    @staticmethod
    def pair(first, second):
        return [CLS] + wordpiece(first) + [SEP] + wordpiece(second) + [SEP]


# ---- byte-level BPE, with the golden models' tokens ------------------------------------------------------------------
BOS, EOS, BPE_PAD = len(BPE_TOKENS) - 4, len(BPE_TOKENS) - 3, len(BPE_TOKENS) - 2


def bpe(text):
    """Words begin with their space; letters, digits and signs are apart. Merges by rank."""
    words, kind = [], None
    for i, c in enumerate(text):
        own = "letter" if c.isalpha() else "digit" if c.isdigit() else "space" if c == " " else "sign"
        if own == "space" or (own != kind and not (kind == "space")):
            words.append("")
        words[-1] += "\u0120" if c == " " else c
        kind = own
    ids = []
    for word in words:
        parts = list(word)
        while True:
            ranks = [(MERGES.index(f"{a} {b}"), i) for i, (a, b) in enumerate(zip(parts, parts[1:]))
                     if f"{a} {b}" in MERGES]
            if not ranks:
                break
            _, at = min(ranks)
            parts[at:at + 2] = ["".join(parts[at:at + 2])]
        ids += [BPE_TOKENS.index(part) for part in parts]
    return ids


def bpe_folder():
    out = tokenizer_json()
    out["post_processor"] = {"type": "RobertaProcessing", "sep": ["<|eos|>", EOS], "cls": ["<|bos|>", BOS],
                             "trim_offsets": True, "add_prefix_space": False}
    return out


def bpe_keys(pre):
    fixed = [(key, kind, value) for key, kind, value in gguf_metadata()
             if not key.endswith(("chat_template", "add_bos_token", "add_eos_token", "ggml.pre"))]
    return fixed + [("tokenizer.ggml.pre", "string", pre), ("tokenizer.ggml.token_type_count", "uint32", 1),
                    ("tokenizer.ggml.cls_token_id", "uint32", BOS), ("tokenizer.ggml.seperator_token_id", "uint32", EOS),
                    ("tokenizer.ggml.add_bos_token", "bool", True), ("tokenizer.ggml.add_eos_token", "bool", True),
                    ("tokenizer.ggml.add_sep_token", "bool", True)]


class RobertaBpe:
    size, separator, pad = len(BPE_TOKENS), EOS, 1
    folder = staticmethod(bpe_folder)
    config = {"tokenizer_class": "RobertaTokenizer", "bos_token": "<|bos|>", "eos_token": "<|eos|>",
              "cls_token": "<|bos|>", "sep_token": "<|eos|>", "pad_token": "<|pad|>", "model_max_length": 64}

    @staticmethod
    def keys():
        return bpe_keys("roberta-bpe")

    @staticmethod
    def text(text):
        return [BOS] + bpe(text) + [EOS]

    @staticmethod
    def pair(first, second):
        return [BOS] + bpe(first) + [EOS, EOS] + bpe(second) + [EOS]


# ---- the reference ---------------------------------------------------------------------------------------------------
def add(x, y):
    return [a + b for a, b in zip(x, y)]


def linear(weights, name, x):
    y = times(weights[name + ".weight"].rows(), x)
    return add(y, weights[name + ".bias"].values) if name + ".bias" in weights else y


def layer_norm(weights, name, x, eps):
    mean = sum(x) / len(x)
    scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + eps)
    bias = weights[name + ".bias"].values if name + ".bias" in weights else [0.0] * len(x)
    return [(v - mean) * scale * w + b for v, w, b in zip(x, weights[name + ".weight"].values, bias)]


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def attend(q, k, v, heads, bias=lambda head, i, j: 0.0):
    """Rows of all heads; bias is added to scores, -inf hides a key."""
    dim, out = len(q[0]) // heads, []
    for i, row in enumerate(q):
        mixed = []
        for head in range(heads):
            part = slice(head * dim, (head + 1) * dim)
            scores = [sum(a * b for a, b in zip(row[part], key[part])) / math.sqrt(dim) + bias(head, i, j)
                      for j, key in enumerate(k)]
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            mixed += [sum(s * value[head * dim + d] for s, value in zip(shares, v)) / sum(shares) for d in range(dim)]
        out.append(mixed)
    return out


def bert_hidden(settings, weights, tokens, separator):
    eps, first = settings["layer_norm_eps"], settings.get("position_offset", 0)
    types, table = [], weights["embeddings.token_type_embeddings.weight"].rows()
    for token in tokens:
        types.append(0 if len(table) < 2 or separator not in tokens[:len(types)] else 1)
    words, places = (weights[f"embeddings.{n}_embeddings.weight"].rows() for n in ("word", "position"))
    x = [layer_norm(weights, "embeddings.LayerNorm", add(add(words[token], places[first + i]), table[kind]), eps)
         for i, (token, kind) in enumerate(zip(tokens, types))]
    for layer in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = ([linear(weights, f"{at}attention.self.{n}", row) for row in x] for n in ("query", "key", "value"))
        mixed = attend(q, k, v, settings["num_attention_heads"])
        x = [layer_norm(weights, at + "attention.output.LayerNorm",
                        add(row, linear(weights, at + "attention.output.dense", m)), eps) for row, m in zip(x, mixed)]
        inner = [[gelu(u) for u in linear(weights, at + "intermediate.dense", row)] for row in x]
        x = [layer_norm(weights, at + "output.LayerNorm", add(row, linear(weights, at + "output.dense", u)), eps)
             for row, u in zip(x, inner)]
    return x


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
    def __init__(self, settings, seed, tokenizer, pooling, weights, hidden, gguf, keys, arch, labels=None, names=None):
        self.settings, self.seed, self.tokenizer, self.pooling = settings, seed, tokenizer, pooling
        self.make_weights, self.hidden, self.gguf, self.keys, self.arch = weights, hidden, gguf, keys, arch
        self.labels, self.names = labels, names or (lambda weights: weights)


def bert_case(settings, seed, tokenizer, pooling, **more):
    return Case(settings, seed, tokenizer, pooling, bert_weights, bert_hidden, bert_gguf, bert_keys, "bert", **more)


def prefixed(prefix):
    return lambda weights: {name if name.startswith("classifier") else prefix + name: a for name, a in weights.items()}


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
POOLING_TYPES = {"mean": 1, "cls": 2, "last": 3, "rank": 4}


# ---- files -----------------------------------------------------------------------------------------------------------
def base64_floats(rows):
    flat = [value for row in rows for value in row]
    return base64.b64encode(struct.pack(f"<{len(flat)}f", *flat)).decode()


def pool(rows, pooling):
    x = [sum(column) / len(rows) for column in zip(*rows)] if pooling == "mean" else \
        rows[-1] if pooling == "last" else rows[0]
    length = math.sqrt(sum(v * v for v in x))
    return [v / length for v in x]


def score(case, weights, row):
    dense, out = case.labels
    return linear(weights, out, [math.tanh(v) for v in linear(weights, dense, row)])[0]


def write_folder(folder, case, settings, weights):
    for old in sorted(folder.rglob("*"), reverse=True):
        old.rmdir() if old.is_dir() else old.unlink()
    write_json(folder / "config.json", {k: v for k, v in settings.items() if k != "position_offset"})
    write_json(folder / "tokenizer.json", case.tokenizer.folder())
    write_json(folder / "tokenizer_config.json", case.tokenizer.config)
    write_safetensors(folder / "model.safetensors", case.names(weights))
    if case.pooling != "rank":
        (folder / "1_Pooling").mkdir()
        write_json(folder / "1_Pooling" / "config.json", {
            "word_embedding_dimension": settings["hidden_size"], "pooling_mode_cls_token": case.pooling == "cls",
            "pooling_mode_mean_tokens": case.pooling == "mean", "pooling_mode_max_tokens": False,
            "pooling_mode_lasttoken": case.pooling == "last"})
    keys = [("general.architecture", "string", case.arch), ("general.name", "string", "tiny random")]
    keys += case.keys(settings) + [(f"{case.arch}.pooling_type", "uint32", POOLING_TYPES[case.pooling])]
    write_gguf(folder / "model.gguf", keys + case.tokenizer.keys(), case.gguf(settings, weights))


def make(name, case):
    settings = dict(case.settings)
    if settings["model_type"] in ("roberta", "xlm-roberta"):
        settings["position_offset"] = case.tokenizer.pad + 1
    weights, width = case.make_weights(settings, case.seed), settings["hidden_size"]
    if case.labels:
        weights.matrix(case.labels[0], width, width, 1.2, True)
        weights.matrix(case.labels[1], 1, width, 2.0, True)
    ranks = case.pooling == "rank"
    tokens = [case.tokenizer.pair(QUERY, text) if ranks else case.tokenizer.text(text) for text in TEXTS]
    hidden = [case.hidden(settings, weights, ids, case.tokenizer.separator) for ids in tokens]
    # A late token reaches the first row.
    changed = tokens[1][:-2] + [(tokens[1][-2] + 1) % 90] + tokens[1][-1:]
    other = case.hidden(settings, weights, changed, case.tokenizer.separator)
    reach = max(abs(a - b) for a, b in zip(hidden[1][0], other[0]))
    assert reach > 0.01, f"{name}: the last word changes the first row by {reach:.4f} only"
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    write_folder(folder, case, settings, weights)
    out = {"texts": TEXTS, "tokens": tokens, "pooling": case.pooling, "width": width,
           "hidden": [base64_floats(rows) for rows in hidden]}
    if ranks:
        out["query"], out["scores"] = QUERY, [score(case, weights, rows[0]) for rows in hidden]
    else:
        out["vectors"] = base64_floats(pool(rows, case.pooling) for rows in hidden)
    write_json(folder / "encoded.json", out)
    print(f"{name}: {[len(ids) for ids in tokens]} tokens; first row moves by {reach:.2f}", out.get("scores", ""))


def main():
    for name, case in CASES.items():
        make(name, case)


if __name__ == "__main__":
    main()
