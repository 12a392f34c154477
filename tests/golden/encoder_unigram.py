"""A small Unigram tokenizer of XLM-RoBERTa's kind in both file kinds, and what it makes of a text or a pair. Needs only
Python. Sources: Kudo 2018 (arXiv:1804.10959), the segmentation with the highest sum of scores, here by Viterbi's algorithm
over characters; SentencePiece's character map, a double array of bytes (Aoe 1989) and the replacements, zero-terminated.
"""
import base64
import random
import struct

SPACE = "\u2581"
SPECIALS = ["<s>", "<pad>", "</s>", "<unk>"]
BOS, PAD, EOS, UNK = range(4)

# What published maps do, too: compatibility forms, ligatures, spaces of all kinds, and characters that vanish.
CHARACTER_MAP = {"\t": " ", "\n": " ", "\r": " ", "\u00a0": " ", "\u3000": " ", "\u2003": " ", "\ufb01": "fi", "\ufb02": "fl",
                 "\u2126": "\u03a9", "\u212b": "\u00c5", "\u00bd": "1\u20442", "\u2026": "...", "e\u0301": "\u00e9",
                 "u\u0308": "\u00fc", "\u200b": " ", "\u0000": "", "\u00ad": "",
                 **{chr(0xff01 + i): chr(0x21 + i) for i in range(94)}}

WORDS = ("the mill turn turned turns river water wheel rain corn was ground and for need needs race eau fleuve moulin Wasser "
         "M\u00fchle caf\u00e9 \u6c34 \u6c34\u8eca \u0432\u043e\u0434\u0430 in er en fi fl on a").split()
PARTS = "s ed ing er en le in re ur el il ou au \u00fch \u0432\u043e \u0434\u0430 \u6c34 \u8eca 12 20 ...".split()
LETTERS = ("abcdefghijklmnopqrstuvwxyzMRWTABCHE0123456789.,:;!?'-()\u2044\u00e9\u00fc\u00df\u00c5\u03a9\u0432\u043e\u0434\u0430"
           "\u6c34")


def vocabulary():
    source = random.Random(77)
    scores = {SPACE: -3.1}
    for word in WORDS:
        scores.setdefault(SPACE + word, round(-4 - source.random() * 5, 4))
    for part in PARTS:
        scores.setdefault(part, round(-4 - source.random() * 4, 4))
    for letter in LETTERS:
        scores.setdefault(letter, round(-6 - source.random() * 4, 4))
    for word in ("turne", SPACE + "wat", SPACE + "ri", "ver", "heel"):  # compete with the pieces above
        scores.setdefault(word, round(-5 - source.random() * 3, 4))
    return [(special, 0.0) for special in SPECIALS] + list(scores.items()) + [("<mask>", 0.0)]


VOCAB = vocabulary()
MASK = len(VOCAB) - 1
IDS = {piece: i for i, (piece, _) in enumerate(VOCAB) if 4 <= i < MASK}
UNKNOWN_SCORE = min(VOCAB[i][1] for i in IDS.values()) - 10


def normalize(text):
    """Replaces the longest keys from left to right."""
    longest, out, at = max(map(len, CHARACTER_MAP)), "", 0
    while at < len(text):
        key = next((text[at:at + n] for n in range(longest, 0, -1) if text[at:at + n] in CHARACTER_MAP), None)
        out += text[at] if key is None else CHARACTER_MAP[key]
        at += len(key or " ")
    return out


def segment(word):
    best = [(0.0, 0, None)] + [None] * len(word)
    for start in range(len(word)):
        if best[start] is None:
            continue
        offers = [(end, VOCAB[IDS[word[start:end]]][1], IDS[word[start:end]]) for end in range(start + 1, len(word) + 1)
                  if word[start:end] in IDS]
        if word[start] not in IDS:
            offers.append((start + 1, UNKNOWN_SCORE, UNK))
        for end, score, token in offers:
            if best[end] is None or best[start][0] + score > best[end][0]:
                best[end] = (best[start][0] + score, start, token)
    ids, end = [], len(word)
    while end:
        _, start, token = best[end]
        if not (token == UNK and ids and ids[-1] == UNK):  # unknown characters in a row are one token
            ids.append(token)
        end = start
    return ids[::-1]


def unigram(text):
    return [token for word in normalize(text).split(" ") if word for token in segment(SPACE + word)]


# ---- files -----------------------------------------------------------------------------------------------------------
def double_array(keys):
    """Units of 32 bits: label, has_leaf << 8, offset << 10; a leaf's unit is its value with the highest bit set."""
    tree = {}
    for key, value in keys.items():
        node = tree
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, queue, bases = {0: 0}, [(0, tree)], set()  # a base of its own for each node: readers check labels alone
    while queue:
        place, node = queue.pop(0)
        base = next(b for b in range(1, 1 << 20)
                    if b not in bases and all(b ^ label not in units for label in node) and (place ^ b) < 1 << 21)
        bases.add(base)
        units[place] |= (place ^ base) << 10 | (256 if 0 in node else 0)
        for label, child in node.items():
            units[base ^ label] = label if label else 1 << 31 | child
            if label:
                queue.append((base ^ label, child))
    size = (max(units) | 255) + 1
    return [units.get(i, 0) for i in range(size)]


def charsmap():
    strings, keys = b"", {}
    for key, value in CHARACTER_MAP.items():
        if "\0" in key:
            continue  # a leaf's label
        keys[key.encode()] = len(strings)
        strings += value.encode() + b"\0"
    units = double_array(keys)
    return struct.pack(f"<I{len(units)}I", 4 * len(units), *units) + strings


def special(token, index, lstrip=False):
    return {"id": index, "content": token, "single_word": False, "lstrip": lstrip, "rstrip": False, "normalized": False,
            "special": True}


class Unigram:
    size, separator, pad = len(VOCAB), EOS, PAD
    config = {"tokenizer_class": "XLMRobertaTokenizer", "bos_token": "<s>", "eos_token": "</s>", "cls_token": "<s>",
              "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>",
              "mask_token": special("<mask>", MASK, True), "model_max_length": 64}
    texts = ["the mill turns", "The river turned the wheel, and corn was ground.", "rain  \t\n water ",
             "\uff37ater \ufb01ne caf\u00e9 cafe\u0301 M\u00fchle \u2026 12:20", "\u6c34\u8eca \u0432\u043e\u0434\u0430\u3000\u6c34 eau",
             "Wasser \U0001f30a\U0001f30a! \u00a0needs\u00adrace"]

    @staticmethod
    def folder():
        piece = lambda name: {"SpecialToken": {"id": name, "type_id": 0}}
        text = lambda which: {"Sequence": {"id": which, "type_id": 0}}
        used = {name: {"id": name, "ids": [i], "tokens": [name]} for name, i in (("<s>", BOS), ("</s>", EOS))}
        single = [piece("<s>"), text("A"), piece("</s>")]
        return {
            "version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [special(token, i) for i, token in enumerate(SPECIALS)] + [special("<mask>", MASK, True)],
            "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap()).decode()},
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "WhitespaceSplit"}, {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True}]},
            "post_processor": {"type": "TemplateProcessing", "single": single,
                               "pair": single + [piece("</s>"), text("B"), piece("</s>")], "special_tokens": used},
            "decoder": {"type": "Metaspace", "replacement": SPACE, "add_prefix_space": True},
            "model": {"type": "Unigram", "unk_id": UNK, "vocab": [list(entry) for entry in VOCAB]},
        }

    @staticmethod
    def keys():
        """As llama.cpp's converter in 2024, which does not say that pairs have two separators."""
        types = [3, 3, 3, 2] + [1] * (len(VOCAB) - 5) + [3]
        return [("tokenizer.ggml.model", "string", "t5"), ("tokenizer.ggml.pre", "string", "default"),
                ("tokenizer.ggml.tokens", "string[]", [piece for piece, _ in VOCAB]),
                ("tokenizer.ggml.scores", "float32[]", [score for _, score in VOCAB]),
                ("tokenizer.ggml.token_type", "int32[]", types),
                ("tokenizer.ggml.add_space_prefix", "bool", True), ("tokenizer.ggml.token_type_count", "uint32", 1),
                ("tokenizer.ggml.remove_extra_whitespaces", "bool", True),
                ("tokenizer.ggml.precompiled_charsmap", "uint8[]", charsmap()),
                ("tokenizer.ggml.bos_token_id", "uint32", BOS), ("tokenizer.ggml.eos_token_id", "uint32", EOS),
                ("tokenizer.ggml.unknown_token_id", "uint32", UNK),
                ("tokenizer.ggml.seperator_token_id", "uint32", EOS), ("tokenizer.ggml.padding_token_id", "uint32", PAD),
                ("tokenizer.ggml.cls_token_id", "uint32", BOS), ("tokenizer.ggml.mask_token_id", "uint32", MASK),
                ("tokenizer.ggml.add_bos_token", "bool", True), ("tokenizer.ggml.add_eos_token", "bool", True)]

    @staticmethod
    def text(text):
        return [BOS] + unigram(text) + [EOS]

    @staticmethod
    def pair(first, second):
        return [BOS] + unigram(first) + [EOS, EOS] + unigram(second) + [EOS]

    @staticmethod
    def vectors():
        """Texts of random pieces, letters and characters that the map replaces, with their tokens."""
        source, out = random.Random(78), []
        pool = [piece.replace(SPACE, " ") for piece, _ in VOCAB[4:-1]] + list(CHARACTER_MAP)[:14] + [" ", "  ", "\U0001f30a", "\u0416"]
        for _ in range(120):
            text = "".join(source.choice(pool) for _ in range(source.randrange(1, 14))).replace("\0", "")
            out.append([text, Unigram.text(text)])
        return out
