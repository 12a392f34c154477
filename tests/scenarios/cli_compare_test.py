#!/usr/bin/env python3
"""millrace compare: its table, JSON, report and pictures, and that a run continues.

Usage: cli_compare_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from cli import BINARY, LLAMA, millrace, write

TEXT = "".join(f"The number {i * 37} comes after another one. " for i in range(400))
SMALL = ("-m", LLAMA, "-t", "1", "-c", "512", "--prompt", "24", "--generate", "4", "--repeat", "2", "--items", "2")
FAKE_BENCH = """#!/bin/sh
echo '[{"n_prompt": 24, "n_gen": 0, "avg_ts": 1000}, {"n_prompt": 0, "n_gen": 4, "avg_ts": 50}]'
"""
FAKE_PERPLEXITY = """#!/bin/sh
echo >>"$0.calls"
echo '[1]64.0000,[2]64.0000,'
"""
FAKE_SERVER = """#!/usr/bin/env python3
import http.server, json, sys

class Handler(http.server.BaseHTTPRequestHandler):
    def reply(self, value):
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def do_GET(self):
        self.reply({"status": "ok"})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        assert asked["temperature"] == 0 and asked["max_tokens"] > 0
        words = asked["messages"][-1]["content"]
        self.reply({"choices": [{"message": {"role": "assistant", "content": words}}]})
    def log_message(self, *arguments):
        pass

http.server.HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()
"""


class Compare(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.text = write(self.folder, "text.txt", TEXT)

    def compare(self, *arguments):
        path = os.path.join(self.folder, "result.json")
        done = millrace("compare", *SMALL, "--json", path, *arguments)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        with open(path, encoding="utf-8") as file:
            return json.load(file), done

    def test_forms(self):
        html, svg, png, pdf = (os.path.join(self.folder, "report." + end) for end in ("html", "svg", "png", "pdf"))
        result, done = self.compare("--base", "kv_format=f32", "--with", "kv_format=bf16", "--with", "name=sinks + evictor=streamingllm:sinks=2,window=14",
                                    "--on", "perplexity:32,memory", "--text", self.text,
                                    "--html", html, "--svg", svg, "--png", png, "--picture", pdf)
        self.assertEqual([config["name"] for config in result["configs"]], ["kv_format=f32", "kv_format=bf16", "sinks"])
        self.assertEqual(result["rounds"], 2)
        for config in result["configs"]:
            self.assertEqual([(figure["suite"], figure["metric"]) for figure in config["quality"][:3]],
                             [("perplexity", "perplexity"), ("perplexity", "kl_divergence"), ("perplexity", "same_top_token")])
            self.assertEqual(config["quality"][0]["n"], 2)
            for name in ("prefill_tokens_per_s", "decode_tokens_per_s", "ttft_ms"):
                speed = config["speed"][name]
                self.assertTrue(0 < speed["low"] <= speed["median"] <= speed["high"])
                self.assertEqual(len(speed["rounds"]), 2)
            self.assertGreater(config["memory"]["peak_bytes"], config["memory"]["weights_bytes"])
        plain, small, _ = (config["memory"]["kv_bytes_per_token"] for config in result["configs"])
        self.assertLess(small, plain)
        self.assertIn("| configuration", done.stdout.decode())
        with open(png, "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")
        with open(pdf, "rb") as file:
            self.assertEqual(file.read(5), b"%PDF-")
        with open(svg, encoding="utf-8") as file:
            self.assertIn("<title>perplexity of ", file.read())
        with open(html, encoding="utf-8") as file:
            text = file.read()
        self.assertIn("sinks", text)
        self.assertEqual(text.count("<img class=\"picture-light\""), text.count("<img class=\"picture-dark\""))

    def test_memory_of_formats_with_options(self):
        result, done = self.compare("--with", "kv_format=f16:values=bf16", "--with", "kv_format=f32:values=f16", "--on", "memory")
        plain, same, more = (config["memory"]["kv_bytes_per_token"] for config in result["configs"])
        self.assertEqual(same, plain)
        self.assertEqual(more * 2, plain * 3)
        self.assertIn("of medians of fewer than 6 rounds: lowest to highest", done.stdout.decode())

    def test_memory_has_the_draft_model(self):
        result, _ = self.compare("--with", f"drafter=draft:k=2,model={LLAMA}")
        plain, drafted = (config["memory"] for config in result["configs"])
        self.assertEqual(drafted["weights_bytes"], 2 * plain["weights_bytes"])
        self.assertEqual(drafted["kv_bytes_per_token"], 2 * plain["kv_bytes_per_token"])
        self.assertEqual(drafted["kv_bytes"], 2 * plain["kv_bytes"])
        self.assertGreater(drafted["peak_bytes"], plain["peak_bytes"] + plain["weights_bytes"])

    def test_quality_is_the_same_each_time_and_kept(self):
        journal = os.path.join(self.folder, "journal")
        arguments = ("--with", "kv_format=bf16", "--on", "perplexity:32,lab:copy", "--text", self.text)
        first, _ = self.compare(*arguments)
        second, _ = self.compare(*arguments, "--resume", journal)
        third, done = self.compare(*arguments, "--resume", journal)
        for a, b, c in zip(first["configs"], second["configs"], third["configs"]):
            self.assertEqual(a["quality"], b["quality"])
            self.assertEqual(b["quality"], c["quality"])
            self.assertEqual(b["speed"]["ttft_ms"]["rounds"], c["speed"]["ttft_ms"]["rounds"])  # not measured again
        self.assertIn("values from " + journal, done.stderr.decode())
        refused = millrace("compare", *SMALL, *arguments, "--base", "kv_format=f32", "--resume", journal)
        self.assertEqual(refused.returncode, 2)
        self.assertIn("belongs to another comparison", refused.stderr.decode())

    def test_an_interrupt_leaves_a_partial_table(self):
        journal = os.path.join(self.folder, "journal")
        command = [BINARY, "compare", *SMALL[:-1], "300", "--with", "kv_format=bf16", "--on", "lab:copy",
                   "--resume", journal]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
            until = time.monotonic() + 60
            while time.monotonic() < until and (not os.path.exists(journal) or os.path.getsize(journal) < 4000):
                time.sleep(0.02)
            running.send_signal(signal.SIGINT)
            output, errors = running.communicate(timeout=60)
        self.assertEqual(running.returncode, 130, errors.decode())
        self.assertIn("Interrupted: the figures cover only items that every configuration had measured. "
                      "The same command continues.", output.decode())
        self.assertRegex(output.decode(), r"\| plain +\| +0 ")

    def test_another_engine(self):
        for name, text in (("llama-bench", FAKE_BENCH), ("llama-perplexity", FAKE_PERPLEXITY), ("llama-server", FAKE_SERVER)):
            os.chmod(write(self.folder, name, text), stat.S_IRWXU)
        result, done = self.compare("--with", "name=other + engine=llama_cpp:bin=" + self.folder,
                                    "--on", "perplexity:32,lab:copy,memory", "--text", self.text)
        own, other = result["configs"]
        self.assertEqual([figure["metric"] for figure in other["quality"]], ["perplexity", "score"])
        self.assertEqual(other["quality"][1]["value"], 0)  # it repeats the question
        self.assertAlmostEqual(other["quality"][0]["value"], 64, places=6)
        with open(os.path.join(self.folder, "llama-perplexity.calls"), encoding="utf-8") as calls:
            self.assertEqual(calls.read(), "\n")  # one run scores all windows
        self.assertEqual(other["speed"]["decode_tokens_per_s"]["median"], 50)
        self.assertEqual(other["memory"]["weights_bytes"], os.path.getsize(LLAMA))
        self.assertEqual(len(own["quality"]), 8)
        self.assertIn("memory: other is left out: the memory of another engine is not known", done.stdout.decode())

    def test_errors(self):
        for arguments, message in (
                (("--with", "kv_format=q9"), "configuration kv_format=q9: no such kv_format as 'q9'"),
                (("--with", "plain"), "configuration 'plain' is given twice"),
                (("--with", "tier=ssd"), "tier does not apply to compare"),
                (("--with", "kv_format=bf16", "--on", "speed"), "suite 'speed': there are perplexity"),
                (("--with", "kv_format=bf16", "--on", "choice:/no/file"), "suite choice:/no/file: /no/file: cannot be opened"),
                (("--with", "kv_format=bf16", "--on", "serve:/no/file"), "suite serve:/no/file: /no/file: cannot be opened"),
                (("--base", "engine=llama_cpp:bin=/x", "--with", "plain"), "the base must be a configuration of millrace, ")):
            done = millrace("compare", *SMALL, *arguments)
            self.assertEqual(done.returncode, 3 if "/no/file" in message else 2, arguments)  # an input file is missing
            self.assertIn(message, done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
