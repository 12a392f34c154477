"""Hugging Face folders for trials of whole families: a golden model's weights with a longer vocabulary, the family's special tokens, a chat
template and a longer context. Needs only Python."""

import json
import os
import random
import shutil
import struct

GOLDEN_VOCAB = 128  # tests/golden/golden_tokenizer.py
CONTEXT = 8192


def edit_json(path, edit):
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    edit(content)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)


def grow_rows(path, names, rows):
    """Appends random rows to F32 matrices of a safetensors file. A new value is one of the matrix, so that magnitudes stay."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    draw = random.Random(5)
    out, body = {}, bytearray()
    for name, entry in header.items():
        if name == "__metadata__":
            out[name] = entry
            continue
        begin, end = entry["data_offsets"]
        values = data[begin:end]
        if name in names:
            floats = struct.unpack(f"<{len(values) // 4}f", values)
            added = [draw.choice(floats) for _ in range(rows * entry["shape"][1])]
            values += struct.pack(f"<{len(added)}f", *added)
            entry = {**entry, "shape": [entry["shape"][0] + rows, entry["shape"][1]]}
        out[name] = {**entry, "data_offsets": [len(body), len(body) + len(values)]}
        body += values
    text = json.dumps(out).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + bytes(body))


def write(source, folder, specials, ends, template, matrices):
    """Copies the golden folder `source` to `folder`. `specials`: special tokens to add, `ends`: those of them that end an answer, `matrices`:
    tensors with a row for each token."""
    os.makedirs(folder)
    for name in os.listdir(source):
        if name.startswith(("config", "generation", "tokenizer")) or name.endswith(".safetensors"):
            shutil.copy(os.path.join(source, name), folder)
    ids = {text: GOLDEN_VOCAB + i for i, text in enumerate(specials)}
    grow_rows(os.path.join(folder, "model.safetensors"), matrices, len(specials))

    def edit_config(config):
        text = config.get("text_config", config)
        text["vocab_size"] = GOLDEN_VOCAB + len(specials)
        text["max_position_embeddings"] = CONTEXT
        text["eos_token_id"] = ids[ends[0]]
        if "rope_scaling" in text:
            text["rope_scaling"]["factor"] = CONTEXT / text["rope_scaling"]["original_max_position_embeddings"]

    def edit_tokenizer(tokenizer):
        like = tokenizer["added_tokens"][-1]
        tokenizer["added_tokens"] += [{**like, "id": ids[text], "content": text} for text in specials]

    def edit_tokenizer_config(config):
        like = config["added_tokens_decoder"][str(GOLDEN_VOCAB - 1)]
        config["added_tokens_decoder"].update({str(ids[text]): {**like, "content": text} for text in specials})
        config.update(chat_template=template, model_max_length=CONTEXT, eos_token=ends[0])

    edit_json(os.path.join(folder, "config.json"), edit_config)
    edit_json(os.path.join(folder, "tokenizer.json"), edit_tokenizer)
    edit_json(os.path.join(folder, "tokenizer_config.json"), edit_tokenizer_config)
    with open(os.path.join(folder, "generation_config.json"), "w", encoding="utf-8") as file:
        json.dump({"eos_token_id": [ids[text] for text in ends]}, file)
    return folder
