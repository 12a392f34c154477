"""Encoders through the binary: `millrace embed`, and a server's embeddings and rankings in each API's shape, against the
vectors and scores of an independent reference (tests/golden/make_encoders.py).

Usage: encoders_test.py MILLRACE SOURCE_DIR [unittest arguments]
"""

import array
import base64
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process

MILLRACE, SOURCE = sys.argv[1], sys.argv[2]


def golden(name):
    return os.path.join(SOURCE, "tests", "golden", "encoders", name)


def reference(name):
    with open(os.path.join(golden(name), "encoded.json"), encoding="utf-8") as file:
        out = json.load(file)
    if "vectors" in out:
        flat, width = array.array("f", base64.b64decode(out["vectors"])).tolist(), out["width"]
        out["vectors"] = [flat[at:at + width] for at in range(0, len(flat), width)]
    return out


def embed(*words):
    return subprocess.run([MILLRACE, "embed", *words], capture_output=True, text=True, timeout=120, check=False)


def vectors_of(done):
    return [json.loads(line)["embedding"] for line in done.stdout.splitlines()]


class Server(server_process.Server):
    def __init__(self, name, *flags):
        super().__init__(MILLRACE, "-m", golden(name), *flags)

    def post(self, path, body):
        status, text = self.ask("POST", path, body)
        return status, json.loads(text)


class Encoders(unittest.TestCase):
    def expect_near(self, got, want, bound=2e-4):
        self.assertEqual(len(got), len(want))
        for a, b in zip(got, want):
            self.assertEqual(len(a), len(b))
            self.assertLess(max(abs(x - y) for x, y in zip(a, b)), bound)

    def test_embed_prints_the_reference_vectors(self):
        for name in ("bert", "gemma_embedding", "nomic_bert_moe", "xlm_roberta", "jina_bert3"):
            expected = reference(name)
            for path in (golden(name), os.path.join(golden(name), "model.gguf")):
                done = embed("-m", path, *expected["texts"])
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_near(vectors_of(done), expected["vectors"])

    def test_prefixes_of_the_folder(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = os.path.join(scratch, "model")
            shutil.copytree(golden("bert"), folder)
            with open(os.path.join(folder, "config_sentence_transformers.json"), "w", encoding="utf-8") as file:
                json.dump({"prompts": {"query": "water ", "document": ""}, "default_prompt_name": None}, file)
            plain = embed("-m", folder, "water turns")
            self.assertEqual(vectors_of(embed("-m", folder, "--prompt-name", "query", "turns")), vectors_of(plain))
            unknown = embed("-m", folder, "--prompt-name", "title", "turns")
            self.assertNotEqual(unknown.returncode, 0)
            self.assertIn("the model has no prompt 'title'; it has query, document", unknown.stderr)

    def test_what_an_encoder_cannot_do(self):
        for command in (["run", "-p", "a"], ["perplexity", "-f", os.path.join(SOURCE, "README.md")]):
            done = subprocess.run([MILLRACE, command[0], "-m", golden("bert"), *command[1:]], capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("encoder", done.stderr)

    def test_each_api_returns_the_reference_vectors(self):
        expected = reference("bert")
        texts, vectors = expected["texts"], expected["vectors"]
        with Server("bert") as server:
            status, out = server.post("/v1/embeddings", {"input": texts})
            self.assertEqual(status, 200, out)
            self.expect_near([one["embedding"] for one in out["data"]], vectors)
            self.assertEqual(out["usage"]["prompt_tokens"], sum(map(len, expected["tokens"])))
            status, short = server.post("/v1/embeddings", {"input": texts[1], "dimensions": 8})
            self.assertEqual(status, 200, short)
            length = sum(v * v for v in vectors[1][:8]) ** 0.5
            self.expect_near([short["data"][0]["embedding"]], [[v / length for v in vectors[1][:8]]], 1e-3)
            status, out = server.post("/api/embed", {"input": texts})
            self.assertEqual(status, 200, out)
            self.expect_near(out["embeddings"], vectors)
            status, out = server.post("/v2/embed", {"texts": texts, "input_type": "search_document",
                                                    "embedding_types": ["float"]})
            self.assertEqual(status, 200, out)
            self.expect_near(out["embeddings"]["float"], vectors)
            self.assertEqual(out["texts"], texts)
            # One text alone has the bits that it has among others.
            alone = server.post("/v2/embed", {"texts": texts[2:3]})[1]["embeddings"]["float"][0]
            self.assertEqual(alone, out["embeddings"]["float"][2])
            status, out = server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
            self.assertGreaterEqual(status, 400)
            self.assertIn("this model is an encoder (bert)", json.dumps(out))

    def test_texts_longer_than_a_step_and_the_context(self):
        with Server("bert", "--batch-tokens", "4", "--max-streams", "3") as server:
            long = "the mill turns " * 15
            status, out = server.post("/v1/embeddings", {"input": [long, "rain"] * 6})
            self.assertEqual(status, 200, out)
            rows = [one["embedding"] for one in out["data"]]
            self.assertEqual(rows[0], rows[10])
            self.assertEqual(rows[1], rows[11])
            status, out = server.post("/v1/embeddings", {"input": long * 2})
            self.assertEqual(status, 400, out)
            status, out = server.post("/api/embed", {"input": long * 2})
            self.assertEqual((status, out.get("truncated")), (200, [0]), out)

    def test_cross_encoders_rank(self):
        for name in ("bert_rank", "roberta_rank", "xlm_roberta_rank"):
            expected = reference(name)
            with Server(name) as server:
                status, out = server.post("/v1/rerank", {"query": expected["query"], "documents": expected["texts"]})
                self.assertEqual(status, 200, out)
                self.assertEqual(out["scored_by"], "ranking_head")
                order = sorted(range(len(expected["scores"])), key=lambda i: -expected["scores"][i])
                self.assertEqual([one["index"] for one in out["results"]], order)
                for one in out["results"]:
                    self.assertAlmostEqual(one["relevance_score"], expected["scores"][one["index"]], delta=1e-3)

    def test_a_decoder_ranks_by_a_recipe(self):
        folder = os.path.join(SOURCE, "tests", "golden", "reranker", "tokens")
        with open(os.path.join(folder, "ranking.json"), encoding="utf-8") as file:
            expected = json.load(file)
        body = {"query": expected["query"], "documents": expected["documents"]}
        order = sorted(range(len(expected["scores"])), key=lambda i: -expected["scores"][i])
        with server_process.Server(MILLRACE, "-m", folder, "--ranker", "qwen3", "--use", "kv_format=f32") as server:
            for path in ("/v1/rerank", "/v2/rerank"):
                status, text = server.ask("POST", path, body)
                out = json.loads(text)
                self.assertEqual(status, 200, out)
                self.assertEqual(out["scored_by"], "token_logits")
                self.assertEqual([one["index"] for one in out["results"]], order)
                for one in out["results"]:
                    self.assertAlmostEqual(one["relevance_score"], expected["scores"][one["index"]], delta=1e-3)
                self.assertEqual(out["usage"]["prompt_tokens"], sum(map(len, expected["tokens"])))
            alone = json.loads(server.ask("POST", "/v2/rerank", dict(body, documents=body["documents"][:1]))[1])
            among = next(one for one in out["results"] if one["index"] == 0)
            self.assertEqual(alone["results"][0]["relevance_score"], among["relevance_score"])
            own = dict(body, documents=body["documents"][:1], instruction=expected["instruction"])
            asked = json.loads(server.ask("POST", "/v2/rerank", own)[1])
            self.assertEqual(asked["usage"]["prompt_tokens"], len(expected["own_tokens"]))
            self.assertNotEqual(asked["results"][0]["relevance_score"], among["relevance_score"])
        with server_process.Server(MILLRACE, "-m", folder) as server:
            status, text = server.ask("POST", "/v1/rerank", body)
            self.assertGreaterEqual(status, 400)
            self.assertIn("--ranker qwen3", text)
        with Server("bert_rank") as server:
            status, out = server.post("/v1/rerank", dict(body, instruction="Find it."))
            self.assertEqual(status, 400, out)
            self.assertIn("instruction", json.dumps(out))

    def test_what_does_not_go_with_an_encoder(self):
        adapter = os.path.join(SOURCE, "tests", "golden", "lora", "llama3", "adapter.gguf")
        for flags, words in ((["--ranker", "qwen3"], ["ranker qwen3", "encoder"]),
                             (["--ranker", "none"], ["ranker", "unknown 'none'"]),
                             (["--drafter", "lookahead"], ["drafter lookahead does not go with this model, an encoder"]),
                             (["--evictor", "window"], ["does not go with this model, an encoder"]),
                             (["--kv-format", "kivi"], ["does not go with this model, an encoder"]),
                             (["--lora", adapter], ["adapters are not applied"])):
            done = subprocess.run([MILLRACE, "serve", "-m", golden("bert"), "--port", "0", *flags], capture_output=True,
                                  text=True, timeout=120, check=False)
            self.assertNotEqual(done.returncode, 0, flags)
            for word in words:
                self.assertIn(word, done.stderr, flags)

    def test_adapters_of_tasks_are_refused(self):
        with Server("jina_bert3") as server:
            status, out = server.post("/v1/embeddings", {"input": "rain", "task": "text-matching"})
            self.assertGreaterEqual(status, 400, out)
            self.assertIn("text-matching", json.dumps(out))
            self.assertEqual(server.post("/v1/embeddings", {"input": "rain"})[0], 200)
        with Server("bert") as server:
            self.assertEqual(server.post("/v1/embeddings", {"input": "rain", "task": "text-matching"})[0], 200)

    def test_converted_files_embed_alike(self):
        expected = reference("xlm_roberta")
        with tempfile.TemporaryDirectory() as scratch:
            for format, bound in ((None, 2e-4), ("q8_0", 0.05)):
                out = os.path.join(scratch, f"{format}.gguf")
                flags = ["--format", format] if format else []
                done = subprocess.run([MILLRACE, "convert", golden("xlm_roberta"), out, *flags], capture_output=True,
                                      text=True, timeout=120, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.expect_near(vectors_of(embed("-m", out, *expected["texts"])), expected["vectors"], bound)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
