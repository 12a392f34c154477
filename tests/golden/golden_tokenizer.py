"""A byte-level BPE of 128 tokens, valid in both file kinds.

Its alphabet is printable ASCII, space and newline only (so that embeddings stay small); bytes outside it have no token.
"""
import json
import math
import re

SPECIALS = ["<|bos|>", "<|eos|>", "<|pad|>", "<|turn|>"]
MERGES = ["Ġ t", "h e", "Ġ a", "i n", "r e", "o n", "Ġt he", "e r", "Ġ s", "a t", "Ġ w", "o u", "e n", "n d", "Ġ o",
          "i t", "Ġ h", "e s", "o r", "in g", "Ġ b", "e d", "Ġ f", "Ġa nd", "a l", "a n", "Ġ m", "i s"]
ALPHABET = [chr(c) for c in range(0x21, 0x7F)] + ["Ċ", "Ġ"]  # newline and space in GPT-2's byte alphabet
TOKENS = ALPHABET + [pair.replace(" ", "") for pair in MERGES] + SPECIALS
VOCAB_SIZE = len(TOKENS)
BOS, EOS, PAD, TURN = range(VOCAB_SIZE - 4, VOCAB_SIZE)
CHAT_TEMPLATE = ("{{ bos_token }}{% for message in messages %}<|turn|>{{ message['role'] }}\n"
                 "{{ message['content'] }}<|eos|>\n{% endfor %}"
                 "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}")
NORMAL, CONTROL = 1, 3  # GGUF token types

WORDS = re.compile(r"'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\sA-Za-z0-9]+|\s+(?!\S)|\s+")

assert VOCAB_SIZE == 128


def merge(symbols, ranks):
    while True:
        ranked = [(ranks.get(pair, math.inf), i) for i, pair in enumerate(zip(symbols, symbols[1:]))]
        if not ranked or min(ranked)[0] == math.inf:
            return symbols
        at = min(ranked)[1]
        symbols = symbols[:at] + [symbols[at] + symbols[at + 1]] + symbols[at + 2:]


def tokenize(text, tokens=TOKENS, merges=MERGES, specials=SPECIALS):
    """The ids of a text by BPE. Special tokens in the text are single ids."""
    ids = {piece: i for i, piece in enumerate(tokens)}
    ranks = {tuple(pair.split(" ")): i for i, pair in enumerate(merges)}
    out = []
    for part in re.split("(" + "|".join(map(re.escape, specials)) + ")", text):
        if part in specials:
            out.append(ids[part])
            continue
        for word in WORDS.findall(part):
            out += [ids[piece] for piece in merge(list(word.replace(" ", "Ġ").replace("\n", "Ċ")), ranks)]
    return out


def tokenizer_json():
    added = [{"id": BOS + i, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for i, text in enumerate(SPECIALS)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": {text: i for i, text in enumerate(TOKENS)}, "merges": MERGES},
    }


def tokenizer_config():
    decoder = {str(BOS + i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                              "single_word": False, "special": True} for i, text in enumerate(SPECIALS)}
    return {"add_bos_token": False, "add_eos_token": False, "add_prefix_space": False, "added_tokens_decoder": decoder,
            "bos_token": "<|bos|>", "eos_token": "<|eos|>", "pad_token": "<|pad|>", "chat_template": CHAT_TEMPLATE,
            "clean_up_tokenization_spaces": False, "model_max_length": 128, "tokenizer_class": "GPT2Tokenizer"}


def gguf_metadata():
    """[(key, type, value)], types as golden_gguf.py names them."""
    types = [CONTROL if text in SPECIALS else NORMAL for text in TOKENS]
    return [("tokenizer.ggml.model", "string", "gpt2"), ("tokenizer.ggml.pre", "string", "gpt-2"),
            ("tokenizer.ggml.tokens", "string[]", TOKENS), ("tokenizer.ggml.token_type", "int32[]", types),
            ("tokenizer.ggml.merges", "string[]", MERGES), ("tokenizer.ggml.bos_token_id", "uint32", BOS),
            ("tokenizer.ggml.eos_token_id", "uint32", EOS), ("tokenizer.ggml.padding_token_id", "uint32", PAD),
            ("tokenizer.ggml.add_bos_token", "bool", False), ("tokenizer.ggml.add_eos_token", "bool", False),
            ("tokenizer.chat_template", "string", CHAT_TEMPLATE)]


def write_tokenizer(folder):
    for name, content in (("tokenizer.json", tokenizer_json()), ("tokenizer_config.json", tokenizer_config())):
        text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
        (folder / name).write_text(text + "\n", encoding="utf-8")
