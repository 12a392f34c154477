#!/usr/bin/env python3
"""tools/three_models with a binary that only answers: verdicts, what is skipped, what a second run does."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
from ledger import claims_page  # noqa: E402
from ledger.model_claims import CLAIMS  # noqa: E402

# GPTQ's divergence is half of that of plain rounding, but on the model "odd", where it is twice.
BINARY = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("millrace 0.1.0")
elif words[0] == "bench":
    print(json.dumps([{"cpu_info": "a processor", "isa": "ref", "cores": 1}]))
else:
    with open(sys.argv[0] + ".runs", "a") as runs:
        runs.write(" ".join(words) + "\\n")
    gptq = any("gptq" in word for word in words)
    factor = 1 if not gptq else 2 if "odd" in words[1] else 0.5
    if words[0] == "compress":
        print(json.dumps({"bits_per_weight": 4.5, "evaluation": {
            "perplexity": 5.5, "reference_perplexity": 5.0, "kl_divergence": 0.01 * factor}}))
"""


def claim(direction="better"):
    return {"name": "a", "says": "", "beside": "", "baseline": ["one"], "member": ["two", "three"],
            "direction": direction, "why": "because"}


def runs(divergence, bits=4.5):
    return {"one": {"kl_divergence": 0.1, "perplexity": 5.0, "bits_per_weight": 4.5},
            "two + three": {"kl_divergence": divergence, "perplexity": 5.0, "bits_per_weight": bits}}


class ThreeModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.binary = os.path.join(self.root, "millrace")
        with open(self.binary, "w", encoding="utf-8") as file:
            file.write(BINARY)
        os.chmod(self.binary, stat.S_IRWXU)
        for name in ("a.gguf", "b.gguf", "odd.gguf", "c.bin", "text.txt"):
            with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
                file.write(name)

    def model(self, path):
        text = os.path.join(self.root, "text.txt")
        return f"{os.path.splitext(path)[0]}={os.path.join(self.root, path)},{text},{text}"

    def run_tool(self, *arguments):
        words = [sys.executable, os.path.join(TOOLS, "three_models"), "--root", self.root, "--binary", self.binary,
                 *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def count(self):
        with open(self.binary + ".runs", encoding="utf-8") as file:
            return len(file.read().splitlines())

    def page(self):
        with open(os.path.join(self.root, "docs/results/three-models.md"), encoding="utf-8") as file:
            return file.read()

    def test_a_claim_holds_on_two_of_three_models(self):
        done = self.run_tool(*map(self.model, ("a.gguf", "b.gguf", "odd.gguf")), "--only", "gptq, 4 bits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| -50.0 %, +0.0 %: yes | -50.0 %, +0.0 %: yes | +100.0 %, +0.0 %: no | yes |", self.page())
        self.assertEqual(self.count(), 6)
        self.run_tool(self.model("a.gguf"), "--only", "gptq, 4 bits", "--about", "a=The first.")
        self.assertEqual(self.count(), 6)  # all of it is stored
        self.assertIn("- **a**: The first. Its own perplexity is 5.000.", self.page())
        self.run_tool(self.model("a.gguf"), "--only", "gptq, 4 bits", "--again")
        self.assertEqual(self.count(), 8)

    def test_absent_models_are_skipped_and_checkpoints_converted(self):
        done = self.run_tool("none=/none.gguf,/a,/b", self.model("c.bin"), "--only", "gptq, 4 bits")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("none: skipped, /none.gguf does not exist", done.stdout)
        self.assertEqual(self.count(), 3)
        self.assertIn("| open: measured on 1 |", self.page())
        with open(os.path.join(self.root, "proofs/three-models.json"), encoding="utf-8") as file:
            self.assertEqual(list(json.load(file)["models"]), ["c"])

    def test_verdicts(self):
        for direction, divergence, expected in (("better", 0.09, True), ("better", 0.0995, False),
                                                ("equal", 0.105, True), ("equal", 0.12, False)):
            self.assertEqual(claims_page.holds(claim(direction), runs(divergence)), expected)
        self.assertIsNone(claims_page.holds(claim(), {}))
        self.assertIsNone(claims_page.holds(claim(), runs(0.01, bits=5.0)))  # a larger file
        self.assertTrue(claims_page.holds(claim(), runs(0.01, bits=3.0)))
        self.assertEqual(claims_page.verdict(claim(), [{"runs": runs(0.2)}] * 2), "no")
        for perplexity, by_both in ((5.04, "yes"), (5.06, "no")):
            found = runs(0.05)
            found["two + three"]["perplexity"] = perplexity
            self.assertEqual(claims_page.verdict(claim(), [{"runs": found}] * 2), "yes")
            self.assertEqual(claims_page.verdict(claim(), [{"runs": found}] * 2, True), by_both)

    def test_wrong_arguments_and_failures_are_named(self):
        for words in ([], ["a=b"], ["--page", "a=b,c,d"], ["a=b,c,d", "--about", "a"]):
            self.assertEqual(self.run_tool(*words).returncode, 2, words)
        with open(self.binary, "w", encoding="utf-8") as file:
            file.write(BINARY.replace("if words[0] == \"compress\"", "sys.exit('no') if True"))
        done = self.run_tool(self.model("a.gguf"), "--only", "gptq, 4 bits")
        self.assertEqual(done.returncode, 1)

    def test_claims_have_names_of_their_own(self):
        names = [one["name"] for one in CLAIMS]
        self.assertEqual(len(names), len(set(names)))
        self.assertTrue(all(one["direction"] in claims_page.LIMITS for one in CLAIMS))


if __name__ == "__main__":
    unittest.main()
