#!/usr/bin/env python3
"""`millrace index` and `run --retrieve` as scripts use them: incremental reading, kill -9, one writer, errors.

Usage: index_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cli import BINARY as MILLRACE, SOURCE

ENCODER = os.path.join(SOURCE, "tests/golden/encoders/bert")
RANKER = os.path.join(SOURCE, "tests/golden/encoders/bert_rank")
LLAMA = os.path.join(SOURCE, "tests/golden/llama/model.gguf")
WORDS = ("water wheel mill race stone river grain flour miller gate bridge cart horse rain morning village bread oven "
         "bell tower market summer winter field").split()


def text_of(number):
    draw = random.Random(number)
    return "\n\n".join(" ".join(draw.choice(WORDS) for _ in range(60)) + f" document{number}." for _ in range(3))


class Index(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.docs = os.path.join(self.folder, "docs")
        self.index = os.path.join(self.folder, "notes.index")
        os.makedirs(self.docs)

    def write(self, name, text):
        with open(os.path.join(self.docs, name), "w", encoding="utf-8") as file:
            file.write(text)

    def run_index(self, *words, code=0):
        done = subprocess.run([MILLRACE, "index", *words], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return done

    def json_of(self, *words):
        return json.loads(self.run_index(*words, "--json").stdout)

    def add(self, *words):
        return self.json_of("add", self.docs, "--index", self.index, "-t", "1", *words)

    def found(self, question, *words):
        results = self.json_of("search", question, "--index", self.index, *words)["results"]
        return [os.path.basename(one["path"]) for one in results]

    def test_reads_what_changed_and_forgets_what_is_gone(self):
        for number in range(8):
            self.write(f"{number}.txt", text_of(number))
        self.write("page.html", "<h1>Wheels</h1><p>An unusual <b>waterwheel</b>.</p><script>hidden()</script>")
        self.write("picture.png", "no text")
        first = self.add("-m", ENCODER)
        self.assertEqual((first["added"], first["skipped"], first["documents"]), (9, 1, 9))
        self.assertEqual(self.found("waterwheel", "--mode", "text"), ["page.html"])
        self.assertEqual(self.found("hidden", "--mode", "text"), [])
        self.write("3.txt", "An entirely new sentence about lighthouses.")
        os.remove(os.path.join(self.docs, "5.txt"))
        second = self.add()
        self.assertEqual([second[key] for key in ("added", "replaced", "unchanged", "removed")], [0, 1, 7, 1])
        self.assertEqual(self.found("lighthouses", "--mode", "text"), ["3.txt"])
        self.assertEqual(self.found("document5", "--mode", "text"), [])
        self.assertEqual(sorted(self.found("mill", "-k", "3")), sorted(set(self.found("mill", "-k", "3", "--exact"))))
        self.run_index("rm", os.path.join(self.docs, "3.txt"), "--index", self.index)
        self.assertEqual(self.found("lighthouses", "--mode", "text"), [])
        stats = self.json_of("stats", "--check", "--index", self.index)
        self.assertEqual((stats["documents"], stats["rebuilt_graphs"], stats["embedder"]), (7, 0, ENCODER))

    def test_a_binary_file_does_not_end_a_folder(self):
        self.write("a.txt", "The miller opened the gate.")
        self.write("b.txt", "binary\0file")
        self.write("c.txt", "Bread is in the oven.")
        done = self.run_index("add", self.docs, "--index", self.index)
        self.assertIn(f"passed over: {os.path.join(self.docs, 'b.txt')}: is a binary file", done.stderr)
        self.assertEqual(self.found("oven", "--mode", "text"), ["c.txt"])
        self.assertEqual(self.json_of("stats", "--index", self.index)["documents"], 2)
        self.run_index("add", os.path.join(self.docs, "b.txt"), "--index", self.index, code=4)

    def test_a_reranker_sorts_the_candidates(self):
        for number in range(6):
            self.write(f"{number}.txt", text_of(number))
        self.add("-m", ENCODER)
        results = self.json_of("search", "mill race", "--index", self.index, "-k", "3", "--rerank", RANKER)["results"]
        scores = [one["score"] for one in results]
        self.assertEqual(len(scores), 3)
        self.assertEqual(scores, sorted(scores, reverse=True))
        done = self.run_index("search", "mill", "--index", self.index, "--rerank", ENCODER, code=4)
        self.assertIn("no ranking head", done.stderr)

    def test_answers_from_documents_and_names_them(self):
        self.write("a.txt", "The miller opened the gate.")
        self.write("b.txt", "Bread is in the oven.")
        self.add()
        done = subprocess.run([MILLRACE, "run", "-m", LLAMA, "-p", "the gate", "-n", "2", "-t", "1", "--json", "--retrieve",
                               self.index, "--retrieve-k", "1"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = json.loads(done.stdout)
        self.assertEqual([os.path.basename(one["path"]) for one in out["sources"]], ["a.txt"])
        file = os.path.join(self.folder, "same.txt")
        with open(file, "w", encoding="utf-8") as same:
            same.write(f"[{self.docs}/a.txt]\nThe miller opened the gate.\n\n")
        plain = subprocess.run([MILLRACE, "run", "-m", LLAMA, "-p", "the gate", "-n", "2", "-t", "1", "--json", "--document",
                                file], capture_output=True, text=True, timeout=120)
        self.assertEqual(json.loads(plain.stdout)["prompt_tokens"], out["prompt_tokens"])
        self.assertEqual(json.loads(plain.stdout)["tokens"], out["tokens"])

    def test_killed_while_it_reads_loses_nothing(self):
        for number in range(400):
            self.write(f"{number:04}.txt", text_of(number))
        whole = os.path.join(self.folder, "whole.index")
        self.run_index("add", self.docs, "--index", whole, "-m", ENCODER, "-t", "1")
        killed, documents, draw = 0, 0, random.Random(1)
        for _ in range(12):
            process = subprocess.Popen([MILLRACE, "index", "add", self.docs, "--index", self.index, "-m", ENCODER, "-t", "1"],
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.02 + 0.2 * draw.random())
            process.send_signal(signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
            if not os.path.exists(os.path.join(self.index, "index.sqlite")):
                continue
            now = self.json_of("stats", "--check", "--index", self.index)["documents"]
            self.assertGreaterEqual(now, documents)
            documents = now
        self.assertGreater(killed, 0)
        self.assertEqual(self.add("-m", ENCODER)["documents"], 400)
        for index in (whole, self.index):
            self.json_of("stats", "--check", "--index", index)
        for question in ("mill race", "bread oven", "document77"):
            answers = [self.json_of("search", question, "--index", index, "--exact", "--mode", "vector", "-k", "20")["results"]
                       for index in (whole, self.index)]
            self.assertEqual(*answers)

    def test_errors_name_the_thing(self):
        self.write("a.txt", "one")
        self.assertIn("there is none", self.run_index("search", "x", "--index", self.index, code=2).stderr)
        self.add()
        done = self.run_index("search", "x", "--index", self.index, "--mode", "vector", code=2)
        self.assertIn("has no vectors", done.stderr)
        done = self.run_index("add", os.path.join(self.docs, "none"), "--index", self.index, code=3)
        self.assertIn("no such file", done.stderr)
        self.write("a.pdf", "%PDF")
        done = self.run_index("add", os.path.join(self.docs, "a.pdf"), "--index", self.index, code=4)
        self.assertIn("pdftotext", done.stderr)
        with open(os.path.join(self.index, "index.sqlite"), "wb") as file:
            file.write(b"x" * 8192)
        self.assertIn("damaged", self.run_index("stats", "--index", self.index, code=3).stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
