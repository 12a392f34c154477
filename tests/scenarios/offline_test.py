#!/usr/bin/env python3
"""Work without a server: texts to vectors, files of requests to files of answers.

Usage: offline_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses a tiny golden model only.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

BINARY, SOURCE = sys.argv[1], sys.argv[2]
LLAMA = os.path.join(SOURCE, "tests/golden/llama3/model.gguf")


def millrace(*arguments, stdin=b""):
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=120, check=False)


class Embed(unittest.TestCase):
    def vectors(self, *arguments, stdin=b""):
        done = millrace("embed", "-m", LLAMA, "-t", "1", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_lines_of_json(self):
        lines = self.vectors("the man", "a sea")
        self.assertEqual([line["index"] for line in lines], [0, 1])
        self.assertEqual(self.vectors("a sea")[0]["embedding"], lines[1]["embedding"])
        self.assertEqual(self.vectors("-f", "-", stdin=b"the man\na sea\n"), lines)
        self.assertAlmostEqual(math.hypot(*lines[0]["embedding"]), 1, places=5)

    def test_pooling_and_dimensions(self):
        rows = self.vectors("the man", "--pooling", "none", "--raw")
        self.assertEqual(len(rows), rows[0]["tokens"])
        self.assertEqual(self.vectors("the man", "--pooling", "last", "--raw")[0]["embedding"], rows[-1]["embedding"])
        few = self.vectors("the man", "--dimensions", "4")[0]["embedding"]
        self.assertEqual(len(few), 4)
        self.assertAlmostEqual(math.hypot(*few), 1, places=5)

    def test_table_and_cosines(self):
        table = millrace("embed", "-m", LLAMA, "--format", "table", "the man").stdout.decode().splitlines()
        self.assertEqual(len(table), 2)
        cosines = [[float(word) for word in line.split()] for line in millrace("embed", "-m", LLAMA, "--cosine", "the man", "a sea").stdout.decode().splitlines()]
        self.assertEqual(cosines[0][0], 1)
        self.assertEqual(cosines[0][1], cosines[1][0])
        self.assertLess(cosines[0][1], 1)

    def test_errors(self):
        self.assertEqual(millrace("embed", "-m", LLAMA).returncode, 2)
        self.assertEqual(millrace("embed", "-m", LLAMA, "a", "--dimensions", "100000").returncode, 2)
        self.assertEqual(millrace("embed", "-m", LLAMA, "a", "--cosine", "--pooling", "none").returncode, 2)


class Batch(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.input, self.output = os.path.join(self.folder.name, "in.jsonl"), os.path.join(self.folder.name, "out.jsonl")

    def tearDown(self):
        self.folder.cleanup()

    def write(self, *lines):
        with open(self.input, "w", encoding="utf-8") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))

    def run_batch(self, *arguments):
        return millrace("batch", "-m", LLAMA, "-t", "1", "-i", self.input, "-o", self.output, *arguments)

    def results(self):
        with open(self.output, encoding="utf-8") as file:
            return {line["custom_id"]: line["response"] for line in map(json.loads, file)}

    def line(self, name, **fields):
        return {"custom_id": name, "method": "POST", "url": "/v1/completions", "body": {"prompt": "the man", "max_tokens": 4, "temperature": 0, **fields}}

    def test_answers_every_line(self):
        self.write(self.line("a"), self.line("b", prompt="a sea"), {"custom_id": "c", "url": "/v1/embeddings", "body": {"input": "the man"}})
        done = self.run_batch()
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        results = self.results()
        self.assertEqual(set(results), {"a", "b", "c"})
        alone = json.loads(millrace("run", "-m", LLAMA, "-t", "1", "-p", "the man", "-n", "4", "--temp", "0", "--json").stdout)
        self.assertEqual(results["a"]["body"]["choices"][0]["text"], alone["text"])
        self.assertEqual(len(results["c"]["body"]["data"]), 1)

    def test_refused_lines_are_in_the_output_and_in_the_exit_code(self):
        self.write(self.line("a"), self.line("b", temperature="hot"))
        self.assertEqual(self.run_batch().returncode, 1)
        self.assertEqual(self.results()["b"]["status_code"], 400)

    def test_goes_on_where_it_ended(self):
        self.write(self.line("a"), self.line("b"))
        self.assertEqual(self.run_batch().returncode, 0)
        with open(self.output, encoding="utf-8") as file:
            first = file.readline()
        with open(self.output, "w", encoding="utf-8") as file:
            file.write(first + '{"custom_id": "half')
        self.assertEqual(self.run_batch("--resume").returncode, 0)
        with open(self.output, encoding="utf-8") as file:
            self.assertEqual(file.readline(), first)
        self.assertEqual(set(self.results()), {"a", "b"})

    def test_a_wrong_line_is_named_before_anything_runs(self):
        self.write(self.line("a"), self.line("a"))
        done = self.run_batch()
        self.assertEqual(done.returncode, 2)
        self.assertIn("line 2", done.stderr.decode())
        self.assertFalse(os.path.exists(self.output))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
