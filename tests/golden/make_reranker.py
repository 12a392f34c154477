#!/usr/bin/env python3
"""Writes the tiny rerankers in tests/golden/reranker with the scores that they should give: make_reranker.py

Needs python3-torch and python3-numpy, as make_golden.py does. The texts are tokenized here by a few lines of their own, and
the last norm's output comes from golden_forward.py, whose output head is made the identity for it.

  yes_no.gguf   as Qwen3-Reranker is converted: labels "yes" and "no", a template for pairs; score: softmax, of "yes"
  dense.gguf    a dense layer with tanh before one label; no template, but a tokenizer that adds BOS and EOS; score: logit
  labels.gguf   labels without a "yes": it classifies, and ranks nothing
  folder/       Qwen3ForSequenceClassification of one label in safetensors; score: logit
"""
import copy
import json
import pathlib
import re

import numpy
import torch

from golden_cases import CASES
from golden_files import write_gguf, write_safetensors_folder
from golden_forward import forward
from golden_gguf import gguf_keys, gguf_tensors
from golden_tokenizer import BOS, EOS, PAD, TOKENS, tokenize, write_tokenizer
from golden_weights import make_weights

ROOT = pathlib.Path(__file__).resolve().parent / "reranker"
TEMPLATE = "<|turn|>Is it so?\n<Query>: {query}\n<Document>: {document}<|eos|>\n<|turn|>"
QUERY = "the hand in {document} and"
DOCUMENTS = ["It is in the other hand.", "an old house on a hill", "and so on and on", "Yes: 42 {query}!\n\nWhat of it?", ""]


def fill(template, query, document):
    return re.sub(r"\{query\}|\{document\}", lambda m: query if m[0] == "{query}" else document, template)


def last_hidden(config, weights, tokens):
    plain = {**config, "tie_word_embeddings": False, "final_logit_softcapping": None}
    return forward(plain, {**weights, "lm_head.weight": torch.eye(config["hidden_size"], dtype=torch.float64)}, tokens)[-1]


def softmax_of_first(logits):
    return torch.softmax(logits, dim=-1)[0]


def case(name, seed, head):
    config = copy.deepcopy(CASES[name].config)
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    arrays = make_weights(config, seed)
    heads = {key: (random.standard_normal(shape) * scale).astype(numpy.float32) for key, (shape, scale) in head.items()}
    return config, arrays, heads, {key: torch.from_numpy(array).to(torch.float64) for key, array in {**arrays, **heads}.items()}


def entry(config, weights, pairs, score):
    hidden = [last_hidden(config, weights, tokens) for tokens in pairs]
    scores = [float(score(weights, x)) for x in hidden]
    assert min(abs(a - b) for i, a in enumerate(scores) for b in scores[:i]) > 1e-3, scores
    return {"tokens": pairs, "scores": scores}


def write(name, config, arrays, heads, extra, drop=()):
    arch = gguf_keys(config, "F32")[0][2]
    keys = [key for key in gguf_keys(config, "F32") if key[0] not in drop]
    keys += [(f"{arch}.pooling_type", "uint32", 4)] + [(key.replace("ARCH", arch), kind, value) for key, kind, value in extra]
    tensors = gguf_tensors(config, arrays, "F32")
    tensors.update({key: (array, "F32") for key, array in heads.items()})
    write_gguf(ROOT / name, keys, tensors)


def main():
    torch.set_num_threads(1)
    (ROOT / "folder").mkdir(parents=True, exist_ok=True)
    cases = {}

    config, arrays, heads, weights = case("qwen3", 7001, {"cls.output.weight": ((2, 32), 0.4)})
    with_template = [tokenize(fill(TEMPLATE, QUERY, document)) for document in DOCUMENTS]
    labels = [("ARCH.classifier.output_labels", "string[]", ["yes", "no"]), ("tokenizer.chat_template.rerank", "string", TEMPLATE)]
    write("yes_no.gguf", config, arrays, heads, labels)
    cases["yes_no.gguf"] = entry(config, weights, with_template, lambda w, x: softmax_of_first(w["cls.output.weight"] @ x))
    write("labels.gguf", config, arrays, heads, [("ARCH.classifier.output_labels", "string[]", ["good", "bad"])])

    dense = {"cls.weight": ((32, 32), 0.3), "cls.bias": ((32,), 0.3), "cls.output.weight": ((1, 32), 0.5), "cls.output.bias": ((1,), 1.0)}
    config, arrays, heads, weights = case("llama", 7002, dense)
    adds = ("tokenizer.ggml.add_bos_token", "tokenizer.ggml.add_eos_token")
    write("dense.gguf", config, arrays, heads, [(key, "bool", True) for key in adds], drop=adds)
    plain = [[BOS] + tokenize(QUERY) + [EOS] + tokenize(document) + [EOS] for document in DOCUMENTS]
    cases["dense.gguf"] = entry(config, weights, plain, lambda w, x: (
        w["cls.output.weight"] @ torch.tanh(w["cls.weight"] @ x + w["cls.bias"]) + w["cls.output.bias"])[0])

    config, arrays, heads, weights = case("qwen3", 7003, {"score.weight": ((1, 32), 0.4)})
    config.update({"architectures": ["Qwen3ForSequenceClassification"], "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}})
    folder = ROOT / "folder"
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD}) + "\n")
    write_tokenizer(folder)
    write_safetensors_folder(folder, {**arrays, **heads}, "F32", 1)
    joined = [tokenize(QUERY) + tokenize(document) for document in DOCUMENTS]
    cases["folder"] = entry(config, weights, joined, lambda w, x: (w["score.weight"] @ x)[0])

    (ROOT / "ranking.json").write_text(json.dumps({"query": QUERY, "documents": DOCUMENTS, "template": TEMPLATE, "cases": cases}) + "\n")
    for name, one in cases.items():
        print(name, [round(score, 4) for score in one["scores"]], [len(tokens) for tokens in one["tokens"]])


if __name__ == "__main__":
    main()
