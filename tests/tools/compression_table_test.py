#!/usr/bin/env python3
"""tools/compression_table with a binary that only answers: rows, the front, what is stored, what a second run does."""

import json
import os
import stat
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
from ledger import table_page  # noqa: E402
from ledger.table_rows import NARROW, PLAIN, rows_of  # noqa: E402

# Answers as millrace does; a pass of 3 bits is not supported, and each run is counted.
BINARY = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("millrace 0.1.0")
elif words[0] == "bench":
    print(json.dumps([{"cpu_info": "a processor", "isa": "ref", "cores": 1}]))
elif words[0] == "inspect":
    columns = 192 if "narrow" in words[1] else 512
    print(json.dumps({"tensors": [{"shape": [7]}, {"shape": [64, 256]}, {"shape": [64, columns]}]}))
else:
    with open(sys.argv[0] + ".runs", "a") as runs:
        runs.write(" ".join(words) + "\\n")
    if any("q3_k" in word for word in words):
        sys.exit("no such format here")
    rate = {"median": 50.0}
    print(json.dumps({"bits_per_weight": 4.5, "output_bytes": 900, "input_bytes": 1600, "notes": [], "evaluation": {
        "perplexity": 5.5, "reference_perplexity": 5.0, "kl_divergence": 0.01, "same_top": 0.9,
        "speed_on_this_machine": {"prefill_tokens_per_s": rate, "decode_tokens_per_s": {"median": 100.0},
                                  "reference_prefill_tokens_per_s": rate, "reference_decode_tokens_per_s": rate}}}))
"""


def row(name, size, perplexity, decode, **more):
    return {"name": name, "group": "weights", "bits": 4, "passes": [name], "bits_per_weight": 4.5, "bytes": size,
            "perplexity": perplexity, "reference_perplexity": 5.0, "kl_divergence": 0.1, "same_top": 0.5, "notes": [],
            "input_bytes": 1600, "prefill": {"value": 1.0, "reference": 1.0},
            "decode": {"value": decode, "reference": 1.0}, **more}


class CompressionTable(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.binary = os.path.join(self.root, "millrace")
        with open(self.binary, "w", encoding="utf-8") as file:
            file.write(BINARY)
        os.chmod(self.binary, stat.S_IRWXU)

    def run_tool(self, *arguments, model="model.gguf"):
        words = [sys.executable, os.path.join(TOOLS, "compression_table"), model, "--root", self.root,
                 "--binary", self.binary, "--text", "a.txt", "--calibrate", "b.txt", *arguments]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def runs(self):
        path = self.binary + ".runs"
        if not os.path.exists(path):
            return []
        with open(path, encoding="utf-8") as file:
            return file.read().splitlines()

    def stored(self):
        with open(os.path.join(self.root, "proofs/compression/model.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_rows_have_names_of_their_own_and_plain_rounding_at_each_number_of_bits(self):
        names = [one["name"] for one in rows_of()]
        self.assertEqual(len(names), len(set(names)))
        for name in ("q2_k", "q3_k", "q4_k", "q8_0"):
            self.assertIn(f"{PLAIN},format={name}", names)
        self.assertIn("squeezellm:sparse=0.005,bits=3,format=q3_k", names)
        self.assertIn("rotate:format= + gptq:fit=plain,format=q4_k", names)
        self.assertIn("convert --format iq2_xs", names)

    def test_narrow_models_have_other_formats_of_two_to_four_bits(self):
        names = [one["name"] for one in rows_of(NARROW)]
        self.assertEqual(len(names), len(set(names)))
        for name in ("q2_g64", "q3_g64", "q4_0", "q8_0"):
            self.assertIn(f"{PLAIN},format={name}", names)
        self.assertFalse([name for name in names if "_k" in name or "iq2" in name or "iq4_xs" in name])
        self.run_tool("--only", "obq:*", model="narrow.gguf")
        self.assertEqual([words.split()[4] for words in self.runs()],
                         [f"obq:format={name}" for name in ("q2_g64", "q3_g64", "q4_0", "q8_0")])

    def test_sparse_formats_are_kept_for_the_layers(self):
        self.run_tool("--only", "wanda:pattern=2:4")
        keeps = [words.partition("--keep ")[2].partition(" ")[0] for words in self.runs()]
        self.assertEqual(keeps, ["", "blk.*=q8_4of8", "blk.*=q4_4of8"])

    def test_fixed_formats_are_in_the_command(self):
        self.run_tool("--only", "quip:format=q4_k")
        self.assertEqual(len(self.runs()), 2)
        self.assertNotIn("--keep", self.runs()[0])
        self.assertIn("--keep [to][ou][kt][ep]*=q8_0 --table same --calibrate b.txt --evaluate a.txt", self.runs()[1])

    def test_a_second_run_continues(self):
        done = self.run_tool("--only", "obq:*", "--seconds", "0")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(len(self.runs()), 1)
        self.assertIn("3 rows of model are left", done.stdout)
        self.assertEqual([one["name"] for one in self.stored()["rows"]], ["obq:format=q2_k"])
        self.assertEqual(self.stored()["rows"][0]["decode"], {"value": 100.0, "reference": 50.0})
        done = self.run_tool("--only", "obq:*")
        self.assertEqual(done.returncode, 1)  # that of 3 bits
        self.assertEqual(len(self.runs()), 4)
        self.assertEqual(self.run_tool("--only", "obq:*").returncode, 0)
        self.assertEqual(len(self.runs()), 4)
        self.run_tool("--only", "obq:*", "--again")
        self.assertEqual(len(self.runs()), 8)

    def test_the_page_says_what_the_model_is(self):
        self.run_tool("--only", "obq:format=q4_k", "--about", "A model of a test.")
        self.run_tool("--only", "obq:format=q8_0")  # keeps it
        self.assertEqual(self.stored()["about"], "A model of a test.")
        with open(os.path.join(self.root, "docs/compression-table.md"), encoding="utf-8") as file:
            self.assertIn("one thread.\n\nA model of a test.\n", file.read())

    def test_the_page_says_what_failed(self):
        self.run_tool("--only", "obq:*")
        with open(os.path.join(self.root, "docs/compression-table.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertIn("| `obq:format=q4_k` | 4.50 | 900 | 5.5000 |", text)
        self.assertIn("- `obq:format=q3_k`: no such format here", text)

    def test_the_front(self):
        rows = [row("small", 100, 9.0, 1.0), row("good", 200, 5.0, 1.0), row("worse", 210, 5.1, 1.04),
                row("fast", 220, 5.2, 2.0), row("slow", 200, 4.9, 0.5)]
        self.assertEqual(table_page.front(rows), {"small", "good", "fast", "slow"})

    def test_models_stand_side_by_side(self):
        plain = f"{PLAIN},format=q4_k"
        both = [[row(plain, 100, 6.0, 1.0), row("gptq", 100, 5.4, 1.0)],
                [row(plain, 100, 10.0, 1.0, notes=["x"]), row("gptq", 100, 12.0, 1.0), row("obq", 100, 9.0, 1.0)]]
        results = [{"model": name, "machine": {"cpu": "c", "isa": "i"}, "rows": rows,
                    "settings": {"window": 1, "windows": 1, "texts": "given"}} for name, rows in zip("ab", both)]
        text = table_page.page(results)
        self.assertIn("| passes | a | b |\n|---|---:|---:|\n| `gptq` | -10.0 % | +20.0 % |\n"
                      f"| `{plain}` | +20.0 % of its own | +100.0 % of its own † |\n| `obq` |  | -10.0 % |\n", text)
        self.assertNotIn("The models side by side", table_page.page(results[:1]))

    def test_narrow_models_stand_beside_wide_ones(self):
        both = [[row("gptq:format=q3_k", 100, 5.4, 1.0, bits=3)], [row("gptq:format=q3_g64", 100, 9.0, 1.0, bits=3)]]
        text = table_page.page([{"model": name, "machine": {"cpu": "c", "isa": "i"}, "rows": rows,
                                 "settings": {"window": 1, "windows": 1, "texts": "given"}}
                                for name, rows in zip("ab", both)])
        side = text.partition("side by side")[2].partition("## a")[0]
        self.assertEqual(side.count("| `gptq:format=q3_k` |"), 1)
        self.assertNotIn("| `gptq:format=q3_g64`", side)

    def test_the_order_of_the_papers(self):
        rows = [row(name, 100, perplexity, 1.0, bits=3) for name, perplexity in
                ((f"{PLAIN},format=q3_k", 6.0), ("gptq:fit=plain,format=q3_k", 5.5), ("awq:fit=plain,format=q3_k", 6.5),
                 ("rotate:format= + gptq:fit=plain,format=q3_k", 6.001))]
        rows += [row(name + table_page.LAYERS, 100, perplexity, 1.0, bits=3, group="layers") for name, perplexity in
                 ((f"{PLAIN},format=q3_k", 5.8), ("gptq:fit=plain,format=q3_k", 5.9))]
        text = table_page.page([{"model": "m", "machine": {"cpu": "c", "isa": "i"}, "rows": rows,
                                 "settings": {"window": 1, "windows": 1, "texts": "given"}}])
        self.assertIn("| plain rounding | 5.8000, 4.50 bits | 6.0000, 4.50 bits |", text)
        self.assertIn("| GPTQ | 5.9000, 4.50 bits: worse | 5.5000, 4.50 bits: better |", text)
        self.assertIn("| AWQ |  | 6.5000, 4.50 bits: worse |", text)
        self.assertIn("| QuaRot |  | 6.0010, 4.50 bits: alike |", text)
        self.assertIn("| `gptq:fit=plain,format=q3_k` | 4.50 | 100 | 5.5000 | -8.3 % |", text)


if __name__ == "__main__":
    unittest.main()
