#!/usr/bin/env python3
"""Weights that live on the disk: a model larger than its budget answers like one in memory, and stays within the budget as
the kernel counts it; a server whose file is cut off or damaged fails the requests concerned and lives.

Usage: offload_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]
"""

import json
import os
import re
import shutil
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402
import memory_test  # noqa: E402
from memory_test import BINARY, MIB, SOURCE, run  # noqa: E402

EXPERTS = os.path.join(SOURCE, "models/millrace-lab-experts-2m.gguf")
STORIES = os.path.join(SOURCE, "models/millrace-stories-6m.gguf")


class Larger(unittest.TestCase):
    """120 million weights of 16 bits."""

    def test_the_budget_is_kept_and_the_tokens_are_the_same(self):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.gguf")
            memory_test.LAYERS = 16
            memory_test.write_model(model)
            prompt = ",".join(str(1 + i * 7 % 15000) for i in range(300))
            common = ("run", "-m", model, "--prompt-tokens", prompt, "-n", "6", "--temp", "0", "--ignore-eos", "-t", "2", "-c", "512", "--json")
            code, wanted, message, free = run(*common)
            self.assertEqual(code, 0, message)
            budget = 185 * MIB
            self.assertGreater(free, budget)
            flags = (*common, "--memory", str(budget), "--batch-tokens", "128", "--use")
            for source in ("weights=stream", "weights=stream:ahead=0"):
                with self.subTest(source=source):
                    code, result, message, _ = run(*flags, source)  # the first one packs
                    self.assertEqual(code, 0, message)
                    code, result, message, peak = run(*flags, source)
                    self.assertEqual(code, 0, message)
                    self.assertEqual(result["tokens"], wanted["tokens"])
                    self.assertLessEqual(peak, budget)
                    self.assertGreater(os.path.getsize(model + ".millrace-packed"), result["memory"]["accounts"]["weights"]["bytes"])
            # Without a choice, the fastest source of the plan runs; `resident` keeps the error.
            code, result, message, peak = run(*flags[:-1])
            self.assertEqual(code, 0, message)
            self.assertIn("note: weights=", message)
            self.assertIn("the weights need", message)
            self.assertEqual(result["tokens"], wanted["tokens"])
            self.assertLessEqual(peak, budget)
            code, _, message, _ = run(*flags, "weights=resident")
            self.assertEqual(code, 5, message)
            self.assertIn("memory: weights needs", message)
            code, result, message, peak = run(*flags, "weights=flexgen:streams=4,prompt=300,generated=8")
            self.assertEqual(code, 0, message)
            self.assertIn("note: weights: block of", message)
            self.assertEqual(result["tokens"], wanted["tokens"])
            self.assertLessEqual(peak, budget)
            code, _, message, _ = run(*flags, "weights=stream:memory=1M")
            self.assertEqual(code, 5, message)
            self.assertIn("weights stream: ", message)
            self.assertNotIn("is enough for the weights", message)  # the option forbids it
            small = (*common, "--memory", "120MB", "--batch-tokens", "128", "--use", "weights=stream")
            code, _, message, _ = run(*small)
            self.assertEqual(code, 5, message)
            enough = re.search(r"--memory (\d+MB) is enough for the weights", message)
            self.assertTrue(enough, message)
            code, _, message, _ = run(*common, "--memory", enough[1], "--batch-tokens", "128", "--use", "weights=stream")
            self.assertNotIn("weights stream: ", message)
            self.assertIn(code, (0, 5), message)  # keys and values may need more, and say how much


class Plan(unittest.TestCase):
    def plan(self, model, *flags):
        code, result, message, _ = run("offload", "plan", model, "-t", "2", "--json", *flags)
        return code, result, message

    def test_the_plan_names_the_fastest_source(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(EXPERTS, os.path.join(folder, "model.gguf"))
            code, plan, message = self.plan(model, "--memory", "1G")
            self.assertEqual(code, 0, message)
            self.assertEqual(plan["best"], "resident")
            self.assertEqual([one["weights"] for one in plan["sources"]][:2], ["resident", "mapped"])
            for one in plan["sources"]:
                self.assertTrue(one["runs"], one)
                self.assertGreater(one["decode_tokens_per_s"], 0, one)
                self.assertGreater(one["prefill_tokens_per_s"], 0, one)
            self.assertEqual(sorted(os.listdir(folder)), ["model.gguf", "model.gguf.millrace-packed.costs"])
            with open(os.path.join(folder, "model.gguf.millrace-packed.costs"), encoding="utf-8") as file:
                stored = file.read()
            again = self.plan(model, "--memory", "1G", "--streams", "8")[1]  # by the stored costs
            self.assertEqual(again["read_bytes_per_s"], plan["read_bytes_per_s"])
            with open(os.path.join(folder, "model.gguf.millrace-packed.costs"), encoding="utf-8") as file:
                self.assertEqual(file.read(), stored)

    def test_what_is_wrong_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(STORIES, os.path.join(folder, "model.gguf"))
            for code, words, flags in ((2, "give the memory", ()), (2, "--memory", ("--memory", "many")), (5, "raise it", ("--memory", "1M")),
                                       (2, "--generated: must be from 1 to 63", ("--memory", "1G", "-c", "64", "--generated", "64"))):
                with self.subTest(flags=flags):
                    got, _, message = self.plan(model, *flags)
                    self.assertEqual(got, code, message)
                    self.assertIn(words, message)
            got, _, message = self.plan("stories", "--memory", "1G")
            self.assertEqual(got, 4, message)
            self.assertIn("built-in model", message)


class Profile(unittest.TestCase):
    def test_cold_experts_are_chosen_by_a_profile_and_named_as_lossy(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(EXPERTS, os.path.join(folder, "model.gguf"))
            text, profile = os.path.join(folder, "text.txt"), os.path.join(folder, "model.experts")
            with open(text, "w", encoding="utf-8") as file:
                file.write("Once upon a time there was a little dog. It liked to run and play. " * 40)
            code, result, message, _ = run("offload", "profile", model, "-f", text, "-o", profile, "-c", "64", "-t", "2", "--json")
            self.assertEqual(code, 0, message)
            shares = [result["uses_of_cold_experts"][hot] for hot in ("0.125", "0.25", "0.5", "0.75")]
            self.assertEqual(shares, sorted(shares, reverse=True))
            self.assertLess(shares[-1], 0.25)  # the rarest two of eight experts
            with open(profile, encoding="utf-8") as file:
                stored = json.load(file)
            self.assertEqual(stored["tokens"], result["tokens"])
            for uses in stored["uses"]:
                self.assertEqual(len(uses), 8)
            weights = f"experts:cold=q4_0,hot=0.25,profile={profile}"
            code, _, message, _ = run("run", "-m", model, "--use", "weights=" + weights, "-p", "Once", "-n", "4", "--temp", "0", "--json", "-t", "2")
            self.assertEqual(code, 0, message)
            self.assertRegex(message, r"note: weights: \d+ of \d+ experts are cold, in q4_0 \(lossy\); all experts have ")
            with server_process.Server(BINARY, "-m", model, "--use", "weights=" + weights) as server:
                status, text = server.ask("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
                self.assertEqual(status, 200, text)
                self.assertIn("experts:cold=q4_0,hot=0.25,profile=model.experts", text)
                metrics = dict(re.findall(r"^(millrace_(?:cold_)?experts_run_total)[^ ]* (\S+)$", server.ask("GET", "/metrics")[1], re.M))
                self.assertGreater(float(metrics["millrace_cold_experts_run_total"]), 0)
                self.assertGreater(float(metrics["millrace_experts_run_total"]), float(metrics["millrace_cold_experts_run_total"]))

    def test_what_is_wrong_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            model, text = shutil.copy(STORIES, os.path.join(folder, "model.gguf")), os.path.join(folder, "text.txt")
            with open(text, "w", encoding="utf-8") as file:
                file.write("Once upon a time there was a little dog. " * 60)
            for words, flags in (("give the text", ()), ("give the file to write", ("-f", text)),
                                 ("has no mixture of experts", ("-f", text, "-o", text + ".experts", "-c", "64"))):
                with self.subTest(words=words):
                    code, _, message, _ = run("offload", "profile", model, *flags)
                    self.assertNotEqual(code, 0)
                    self.assertIn(words, message)


class Faults(unittest.TestCase):
    def ask(self, server):
        status, text = server.ask("POST", "/v1/completions", {"prompt": "Once upon a time", "max_tokens": 8, "temperature": 0})
        return status, json.loads(text)["choices"][0]["text"] if status == 200 else text

    def test_the_server_lives(self):
        for source, weights in ((STORIES, "weights=stream:resident=0"), (EXPERTS, "weights=experts:memory=1500K,keep=lru")):
            with self.subTest(weights=weights), tempfile.TemporaryDirectory() as folder:
                model = shutil.copy(source, os.path.join(folder, "model.gguf"))
                cache = model + ".millrace-packed"
                with server_process.Server(BINARY, "-m", model, "--use", weights, "--no-prefix-cache") as server:
                    status, wanted = self.ask(server)
                    self.assertEqual(status, 200, wanted)
                    with open(cache, "rb") as file:
                        good = file.read()
                    os.truncate(cache, (2 << 20) + 4096)
                    status, text = self.ask(server)
                    self.assertGreaterEqual(status, 500)
                    self.assertIn("it was cut off while in use", text)
                    with open(cache, "r+b") as file:
                        file.write(good)
                    self.assertEqual(self.ask(server), (200, wanted))
                    with open(cache, "r+b") as file:
                        for at in range(2 << 20, len(good), 4096):
                            file.seek(at)
                            file.write(bytes([good[at] ^ 1]))
                    status, text = self.ask(server)
                    self.assertGreaterEqual(status, 500)
                    self.assertIn("is damaged between bytes", text)
                    with open(cache, "r+b") as file:
                        file.write(good)
                    self.assertEqual(self.ask(server), (200, wanted))
                    metrics = server.ask("GET", "/metrics")[1]
                    failed = [line for line in metrics.splitlines() if line.startswith("millrace_weight_reads_failed_total")]
                    self.assertGreaterEqual(float(failed[0].split()[-1]), 2)

    def test_a_mapped_file_that_is_cut_off(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(STORIES, os.path.join(folder, "model.gguf"))
            with server_process.Server(BINARY, "-m", model, "--use", "weights=mapped", "--no-prefix-cache") as server:
                self.assertEqual(self.ask(server)[0], 200)
                os.truncate(model + ".millrace-packed", (2 << 20) + 4096)
                for _ in range(2):
                    status, text = self.ask(server)
                    self.assertGreaterEqual(status, 500)
                    self.assertIn("weights can no longer be read", text)
                self.assertEqual(server.ask("GET", "/v1/models")[0], 200)

    def test_a_file_that_is_removed_stays_open(self):
        for weights in ("weights=stream:resident=0", "weights=mapped"):
            with self.subTest(weights=weights), tempfile.TemporaryDirectory() as folder:
                model = shutil.copy(STORIES, os.path.join(folder, "model.gguf"))
                with server_process.Server(BINARY, "-m", model, "--use", weights, "--no-prefix-cache") as server:
                    wanted = self.ask(server)
                    self.assertEqual(wanted[0], 200)
                    os.remove(model + ".millrace-packed")
                    self.assertEqual(self.ask(server), wanted)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
