"""The tokenizers of the tiny encoders in both file kinds, and what they make of a text or a pair: WordPiece of some hundred
pieces, and the byte-level BPE of the other golden models. Needs only Python.
"""
from golden_tokenizer import MERGES, TOKENS as BPE_TOKENS, gguf_metadata, tokenizer_json

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


class Bpe:
    """One token before a text, one behind it, and one between two texts."""
    size, separator, pad = len(BPE_TOKENS), EOS, BPE_PAD
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "cls_token": "<|bos|>", "sep_token": "<|eos|>",
              "pad_token": "<|pad|>", "model_max_length": 64}

    @staticmethod
    def folder():
        out, piece = tokenizer_json(), lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
        text = lambda which: {"Sequence": {"id": which, "type_id": 0}}
        used = {name: {"id": name, "ids": [BPE_TOKENS.index(name)], "tokens": [name]} for name in ("<|bos|>", "<|eos|>")}
        single = [piece("<|bos|>"), text("A"), piece("<|eos|>")]
        out["post_processor"] = {"type": "TemplateProcessing", "single": single,
                                 "pair": single + [text("B"), piece("<|eos|>")], "special_tokens": used}
        return out

    @staticmethod
    def keys():
        return bpe_keys("gpt-2")

    @staticmethod
    def text(text):
        return [BOS] + bpe(text) + [EOS]

    @staticmethod
    def pair(first, second):
        return [BOS] + bpe(first) + [EOS] + bpe(second) + [EOS]


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
