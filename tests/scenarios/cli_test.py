#!/usr/bin/env python3
"""What people and scripts rely on at the command line: exit codes, files that are refused, the forms of what reads a model.

Usage: cli_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
import unittest

from cli import BINARY, FOLDER, LLAMA, SOURCE, millrace, write


class ExitCodes(unittest.TestCase):
    def expect(self, code, *arguments, message=""):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertIn(message, done.stderr.decode() + done.stdout.decode())

    def test_help_teaches_by_example(self):
        listing = millrace("--help").stdout.decode()
        commands = [line.split()[0] for line in listing.split("\nFlags:")[0].splitlines() if line.startswith("  ")]
        self.assertIn("run", commands)
        for command in commands:
            done = millrace(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn(f"millrace {command}", done.stdout.decode(), f"{command} --help has no example")

    def test_usage(self):
        self.expect(2)
        self.expect(2, "nonsense")
        self.expect(2, "run", "--nonsense")
        self.expect(2, "run", "-m", LLAMA, "-p", "a", "--top-p", "7", message="run: --top-p: must be between 0 and 1, got 7")
        self.expect(2, "run", "-m", LLAMA, "--prompt-tokens", "1,99999", message="99999")
        self.expect(2, "run", "-m", LLAMA, "--prompt-tokens", "1", "-f", "/nonexistent", message="--file")

    def test_bad_files(self):
        self.expect(3, "run", "-m", "/nonexistent.gguf", "-p", "a", message="/nonexistent.gguf")
        with tempfile.TemporaryDirectory() as folder:
            self.expect(3, "run", "-m", write(folder, "bad.gguf", "these are not weights"), "-p", "a", message="bad.gguf")
            with open(LLAMA, "rb") as file:
                whole = file.read()
            cut = os.path.join(folder, "cut.gguf")
            with open(cut, "wb") as file:
                file.write(whole[: len(whole) // 2])
            self.expect(3, "inspect", cut, message="cut.gguf")
            self.expect(3, "run", "-m", LLAMA, "-f", os.path.join(folder, "none.txt"), message="none.txt")

    def test_built_in_models(self):
        models = json.loads(millrace("models", "--json").stdout)["models"]
        names = [model["name"] for model in models]
        self.assertIn("stories", names)
        self.assertEqual(len([model for model in models if model["default"]]), 1)
        self.assertLessEqual(sum(model["bytes"] for model in models), 24_000_000)
        for model in models:
            self.assertIn(model["name"], millrace("models").stdout.decode())
            self.assertEqual(json.loads(millrace("inspect", model["name"], "--json").stdout)["parameters"], model["parameters"])
        self.expect(2, "run", "-m", "storeis", "-p", "a",
                    message="storeis: no such file, and no model has that name; did you mean stories?")
        self.expect(2, "inspect", "nonesuch", message="nonesuch: no such file, and no model has that name; `millrace list`")
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.gguf")
            self.expect(0, "convert", "stories-draft", out)
            with open(os.path.join(SOURCE, "models/millrace-stories-1m-draft.gguf"), "rb") as shipped, open(out, "rb") as written:
                self.assertEqual(len(written.read()), len(shipped.read()))
            os.mkdir(os.path.join(folder, "stories"))  # ./stories is the folder
            done = subprocess.run([os.path.abspath(BINARY), "tokenize", "-m", "stories", "a"], cwd=folder, capture_output=True, check=False)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            done = subprocess.run([os.path.abspath(BINARY), "tokenize", "-m", "./stories", "a"], cwd=folder, capture_output=True, check=False)
            self.assertEqual(done.returncode, 3, done.stderr.decode())

    def test_unsupported(self):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "config.json", json.dumps({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}))
            with open(os.path.join(FOLDER, "model.safetensors"), "rb") as file:
                data = file.read()
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(data)
            self.expect(4, "inspect", folder, message="T5ForConditionalGeneration")
        self.expect(4, "run", "-m", LLAMA, "-p", "a", "--kv-format", "q9_9", message="q9_9")

    def test_unknown_architectures_are_described(self):
        with open(LLAMA, "rb") as file:
            data = file.read().replace(b"llama", b"heron")
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "heron.gguf")
            with open(path, "wb") as file:
                file.write(data)
            self.expect(4, "run", "-m", path, "-p", "a", message="'heron' is not known; the nearest is llama, and no tensor or field differs")
            done = millrace("inspect", path, "--json", "--tensors")
            self.assertEqual(done.returncode, 4, done.stderr.decode())
            described = json.loads(done.stdout)
            self.assertIs(described["known"], False)
            self.assertEqual(described["nearest"]["architecture"], "llama")
            self.assertEqual({block["built"] for block in described["blocks"]}, {"as in llama"})
            self.assertGreater(len(described["tensors"]), 10)
            text = millrace("inspect", path).stdout.decode()
            self.assertIn("heron, not known; the nearest is llama", text)
            self.assertRegex(text, r"  attention: \d+ heads, \d+ KV heads.* \(as in llama\)")

    def test_resources(self):
        self.expect(5, "run", "-m", LLAMA, "-p", "a", "-c", "2000000000", "--kv-tokens", "1000000000000", message="KV cache")


class ConfigValues(unittest.TestCase):
    """Values of a config.json that parse, but that no logits can be right with: refused, never run."""

    def expect(self, code, model, change, message):
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(SOURCE, "tests/golden", model)
            for name in os.listdir(source):
                if name != "model.gguf":
                    shutil.copy(os.path.join(source, name), folder)
            with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
                config = json.load(file)
            config.update(change(config))
            write(folder, "config.json", json.dumps(config))
            done = millrace("run", "-m", folder, "-p", "ab", "-n", "1", "-t", "1")
            self.assertEqual(done.returncode, code, done.stderr.decode())
            self.assertIn(message, done.stderr.decode())

    def test_other_gpt2_activations(self):
        self.expect(4, "gpt2", lambda _: {"activation_function": "relu"}, "relu")
        self.expect(4, "gpt2", lambda _: {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx")
        self.expect(0, "gpt2", lambda _: {"activation_function": "gelu_pytorch_tanh"}, "tok/s")

    def test_scales_that_are_not_finite(self):
        self.expect(3, "gemma2", lambda _: {"query_pre_attn_scalar": 0}, "scale")
        self.expect(3, "gemma2", lambda _: {"query_pre_attn_scalar": -1}, "scale")

    def test_rope_factors_of_zero(self):
        def zeros(config):
            scaling = dict(config["rope_scaling"])
            scaling["long_factor"] = [0] * len(scaling["long_factor"])
            return {"rope_scaling": scaling}

        self.expect(3, "phi3_longrope_long", zeros, "rope frequency factor")


class StoredNumbers(unittest.TestCase):
    def test_nan_in_an_embedding_of_its_own(self):
        """An untied embedding is never packed, so it once went unchecked."""
        with open(os.path.join(SOURCE, "tests/golden/llama/model.safetensors"), "rb") as file:
            data = bytearray(file.read())
        (header_bytes,) = struct.unpack_from("<Q", data, 0)
        header = json.loads(data[8 : 8 + header_bytes])
        begin = header["model.embed_tokens.weight"]["data_offsets"][0]
        struct.pack_into("<f", data, 8 + header_bytes + begin, float("nan"))
        with tempfile.TemporaryDirectory() as folder:
            source = os.path.join(SOURCE, "tests/golden/llama")
            for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
                shutil.copy(os.path.join(source, name), folder)
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(data)
            done = millrace("run", "-m", folder, "-p", "ab", "-n", "1", "-t", "1")
            self.assertEqual(done.returncode, 3, done.stderr.decode())
            self.assertIn("model.embed_tokens.weight", done.stderr.decode())


    def test_convert_falls_back_by_name_or_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            out = os.path.join(folder, "out.gguf")
            done = millrace("convert", LLAMA, out, "--format", "q4_k", "--json")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            report = json.loads(done.stdout)
            self.assertNotIn("q4_k", report["formats"])
            self.assertEqual(len(report["fallbacks"]), report["formats"]["q5_0"]["tensors"])
            self.assertEqual({one["format"] for one in report["fallbacks"]}, {"q5_0"})
            plain = os.path.getsize(LLAMA)
            self.assertLess(report["bytes"], plain / 2)
            done = millrace("convert", LLAMA, out, "--format", "q4_k", "--force")
            self.assertIn("falls back to q5_0: blk.0.attn_q.weight", done.stdout.decode())
            self.assertIn(f"{len(report['fallbacks'])} matrices fell back from q4_k", done.stdout.decode())
            self.assertEqual(millrace("run", "-m", out, "-p", "ab", "-n", "2", "-t", "1").returncode, 0)
            # A llama2.c checkpoint of 36 columns: no whole blocks of anything.
            dim, ffn, vocab, context = 36, 50, 40, 16
            values = vocab * dim + 3 * dim + 4 * dim * dim + 3 * dim * ffn + 2 * context * dim // 2 // 2
            narrow = os.path.join(folder, "narrow.bin")
            with open(narrow, "wb") as file:
                file.write(struct.pack("<7i", dim, ffn, 1, 2, 2, vocab, context) + struct.pack(f"<{values}f", *[0.5] * values))
            none = os.path.join(folder, "none.gguf")
            done = millrace("convert", narrow, none, "--format", "q4_k", "--tokenizer", "none")
            self.assertEqual(done.returncode, 4, done.stdout.decode())
            self.assertIn("--format q4_k: no matrix of", done.stderr.decode())
            self.assertFalse(os.path.exists(none))
            self.assertEqual(millrace("convert", narrow, none, "--tokenizer", "none").returncode, 0)


class Text(unittest.TestCase):
    def test_tokenize_forms(self):
        done = millrace("tokenize", "-m", LLAMA, "--stdin", "--json", stdin=b"a bc")
        result = json.loads(done.stdout)
        self.assertEqual(list(result), ["tokens", "pieces"])
        self.assertEqual("".join(result["pieces"]), "a bc")
        ids = ",".join(map(str, result["tokens"]))
        self.assertEqual(millrace("tokenize", "-m", LLAMA, "--decode", ids).stdout, b"a bc")
        self.assertEqual(millrace("tokenize", "-m", os.path.join(FOLDER, "tokenizer.json"), "--decode", ids).stdout, b"a bc")
        self.assertEqual(millrace("tokenize", "-m", LLAMA, "--decode", "5000").returncode, 2)
        self.assertEqual(millrace("tokenize", "-m", LLAMA).returncode, 2)

    def test_template(self):
        with tempfile.TemporaryDirectory() as folder:
            context = write(folder, "context.json", json.dumps({"messages": [{"role": "user", "content": "hé"}], "bos_token": "<s>"}))
            good = write(folder, "good.jinja", "{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}{% endfor %}")
            self.assertEqual(millrace("template", "--template", good, "--context", context).stdout.decode(), "<s>[user] hé")
            bad = write(folder, "bad.jinja", "{{ raise_exception('roles must alternate') }}")
            done = millrace("template", "--template", bad, "--context", context)
            self.assertEqual(done.returncode, 3)
            self.assertIn("roles must alternate", done.stderr.decode())
            self.assertEqual(millrace("template", "--template", write(folder, "broken.jinja", "{% for %}"), "--context", context).returncode, 3)
            self.assertEqual(millrace("template", "-m", LLAMA, "--context", write(folder, "no.json", "{")).returncode, 3)

    def test_inspect(self):
        gguf = json.loads(millrace("inspect", LLAMA, "--json", "-c", "1000").stdout)
        hf = json.loads(millrace("inspect", FOLDER, "--json", "--tensors").stdout)
        for key in ("architecture", "layers", "width", "heads", "kv_heads", "vocabulary", "context"):
            self.assertEqual(gguf[key], hf[key], key)
        self.assertEqual(gguf["memory"]["kv_f16"], 1000 * 2 * 2 * gguf["layers"] * gguf["kv_heads"] * gguf["head_dim"])
        self.assertEqual(sum(group["bytes"] for group in hf["groups"].values()), sum(tensor["bytes"] for tensor in hf["tensors"]))

    def test_inspect_shows_what_layers_share(self):
        expected = {"llama": None, "gemma4": None, "gemma4_e": {"read_earlier_keys": 4, "input_dims": 8},
                    "gemma3n": {"read_earlier_keys": 2, "input_dims": 8, "residual_streams": 4}}
        for name, parts in expected.items():
            folder = os.path.join(SOURCE, "tests/golden", name)
            for path in (folder, os.path.join(folder, "model.gguf")):
                shown = json.loads(millrace("inspect", path, "--json").stdout)
                self.assertEqual(shown.get("layer_parts"), parts, path)
                self.assertEqual("layer_inputs" in shown["groups"], parts is not None, path)
        path = os.path.join(SOURCE, "tests/golden/gemma3n/model.gguf")
        text = millrace("inspect", path).stdout.decode()
        self.assertIn("2 of 5 read the keys and values of earlier ones; each has an input of 8 dims of the token; 4 residual streams", text)
        self.assertNotIn("read the keys", millrace("inspect", LLAMA).stdout.decode())

    def test_techniques(self):
        rows = json.loads(millrace("techniques", "--json").stdout)
        for row in rows:
            self.assertEqual(list(row),
                             ["family", "name", "summary", "paper", "lossless", "options", "test", "proof"])
            self.assertTrue(row["summary"], row)
            self.assertTrue(row["test"], row)
            if row["paper"]:
                self.assertEqual(list(row["paper"]), ["authors", "title", "year", "text"])
                self.assertIn(row["paper"]["title"], row["paper"]["text"])
        lossless = {(row["family"], row["name"]): row["lossless"] for row in rows}
        self.assertIs(lossless["kv_format", "f32"], True)
        self.assertIs(lossless["kv_format", "q8_0"], False)
        self.assertIsNone(lossless["trace_format", "mooncake"])
        names = {(row["family"], row["name"]) for row in rows}
        for wanted in (("format", "q4_k"), ("arch", "gemma3"), ("sampler", "min_p"), ("kv_format", "q8_0")):
            self.assertIn(wanted, names)
        self.assertEqual(len(names), len(rows))


class Lab(unittest.TestCase):
    def test_items_are_answered_and_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            items = millrace("lab", "generate", "--n", "24", "--seed", "4", "--split", "held_out")
            self.assertEqual(items.returncode, 0, items.stderr.decode())
            rows = [json.loads(line) for line in items.stdout.decode().splitlines()]
            self.assertEqual(len(rows), 24)
            self.assertEqual([row["task"] for row in rows[:12]], [row["task"] for row in rows[12:]])
            for row in rows:
                self.assertEqual(list(row), ["task", "prompt", "messages", "answer"])
            again = millrace("lab", "generate", "--n", "24", "--seed", "4", "--split", "held_out")
            self.assertEqual(items.stdout, again.stdout)
            path = write(folder, "items.jsonl", items.stdout.decode())
            good = write(folder, "good.jsonl", items.stdout.decode())
            scores = json.loads(millrace("lab", "check", "--items", path, "--answers", good, "--json").stdout)
            self.assertEqual([(one["items"], one["score"], one["right"]) for one in scores["tasks"]], [(2, 1.0, 1.0)] * 12)
            wrong = write(folder, "wrong.jsonl", '{"answer": "no"}\n' * 24)
            scores = json.loads(millrace("lab", "check", "--items", path, "--answers", wrong, "--json").stdout)
            self.assertEqual([one["score"] for one in scores["tasks"]], [0.0] * 12)

    def test_a_batch_answers_the_requests(self):
        with tempfile.TemporaryDirectory() as folder:
            form = ("lab", "generate", "--task", "copy", "--n", "3")
            items = write(folder, "items.jsonl", millrace(*form).stdout.decode())
            requests = write(folder, "requests.jsonl", millrace(*form, "--requests", "--max-tokens", "4").stdout.decode())
            results = os.path.join(folder, "results.jsonl")
            done = millrace("batch", "-m", LLAMA, "-i", requests, "-o", results, "-t", "1")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            table = millrace("lab", "check", "--items", items, "--answers", results)
            self.assertEqual(table.returncode, 0, table.stderr.decode())
            self.assertIn("| copy | all | 3 | 0.0 % | 0.0 % |", table.stdout.decode())

    def test_errors(self):
        for arguments, code, message in (
                (("generate", "--task", "poem"), 2, "--task poem: no such task; there are needle, multidoc"),
                (("generate", "--split", "test"), 2, "split: must be train or held_out, not 'test'"),
                (("generate", "--least-length", "900", "--most-length", "800"), 2, "--least-length 900 is more than --most-length 800"),
                (("check",), 2, "lab check: needs --items"),
                (("check", "--items", "/nonexistent", "--answers", "x"), 3, "/nonexistent")):
            done = millrace("lab", *arguments)
            self.assertEqual(done.returncode, code, done.stderr.decode())
            self.assertIn(message, done.stderr.decode())


class Compress(unittest.TestCase):
    def compress(self, folder, *arguments, code=0):
        done = millrace("compress", *arguments, "-t", "2")
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done

    def test_the_form_that_scripts_use(self):
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "text.txt", "Once upon a time there was a little dog. " * 40)
            out, report = os.path.join(folder, "out.gguf"), os.path.join(folder, "report.json")
            self.compress(folder, LLAMA, out, "--pass", "wanda:sparsity=0.25", "--pass", "gptq:format=q4_0", "--calibrate", text,
                          "--report", report)
            with open(report, encoding="utf-8") as file:
                rows = json.load(file)
            self.assertEqual(rows["passes"], ["wanda:sparsity=0.25", "gptq:format=q4_0"])
            self.assertEqual(rows["calibration"]["text"], text)
            self.assertGreater(rows["calibration"]["tokens"], 100)
            layers = [row for row in rows["matrices"] if row["name"].startswith("blk.")]
            self.assertEqual(len(layers), 14)
            for row in layers:
                self.assertEqual([one["action"] for one in row["passes"]], ["pruned", "quantized"])
                self.assertGreaterEqual(row["zeros"], 0.25)
                self.assertEqual(row["format"], "q4_0")
            self.assertEqual(millrace("run", "-m", out, "-p", "ab", "-n", "2", "-t", "1").returncode, 0)
            done = self.compress(folder, LLAMA, out, "--pass", "wanda", "--calibrate", text, "--force", "--json")
            self.assertEqual(json.loads(done.stdout)["output"], out)

    def test_plans_fixed_formats_and_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "text.txt", "Once upon a time there was a little dog. " * 40)
            out, report = os.path.join(folder, "out.gguf"), os.path.join(folder, "report.txt")
            arguments = [LLAMA, out, "--pass", "gptq", "--keep", "blk.0.attn_*=q8_0", "--calibrate", text]
            planned = json.loads(self.compress(folder, *arguments, "--dry-run", "--json").stdout)
            self.assertFalse(os.path.exists(out))
            self.assertEqual(planned["dry_run"], {"estimated": False})
            self.assertIn("nothing is written", self.compress(folder, *arguments, "--dry-run").stdout.decode())
            done = json.loads(self.compress(folder, *arguments, "-c", "32", "--held-out", "0.25", "--evaluate", text,
                                            "--report", report, "--json").stdout)
            self.assertEqual([row["bytes"] for row in done["matrices"]], [row["bytes"] for row in planned["matrices"]])
            self.assertEqual(done["bits_per_weight"], planned["bits_per_weight"])
            self.assertGreater(done["held_out"]["tokens"], 0)
            self.assertIn("rounded_held_out_error", done["matrices"][0])
            self.assertGreater(done["evaluation"]["perplexity"], 1)
            self.assertLessEqual(done["evaluation"]["same_top"], 1)
            speed = done["evaluation"]["speed_on_this_machine"]
            self.assertEqual((speed["prompt_tokens"], speed["generated_tokens"]), (32, 32))  # all of a window
            for name in ("prefill", "decode", "reference_prefill", "reference_decode"):
                rates = speed[f"{name}_tokens_per_s"]
                self.assertTrue(0 < rates["lowest"] <= rates["median"] <= rates["highest"], name)
            with open(report, encoding="utf-8") as file:
                shown = file.read()
            self.assertIn("bits a weight", shown)
            self.assertIn("embedding table: q4_0, 0.00 MB, ", shown)
            self.assertEqual(done["table"], planned["table"])
            self.assertIn("median of 5 rounds in turns: prefill of 32 tokens", shown)
            shown = json.loads(millrace("inspect", out, "--tensors", "--json").stdout)
            self.assertEqual(shown["compressed"]["keep"], ["blk.0.attn_*=q8_0"])
            formats = {row["name"]: row["format"] for row in shown["tensors"]}
            self.assertEqual(formats["blk.0.attn_q.weight"], "q8_0")
            self.assertEqual(formats["blk.1.attn_q.weight"], "q4_0")

    def test_a_killed_run_continues(self):
        stories = os.path.join(SOURCE, "models/millrace-stories-6m.gguf")
        with tempfile.TemporaryDirectory() as folder:
            whole, out = os.path.join(folder, "whole.gguf"), os.path.join(folder, "out.gguf")
            self.compress(folder, stories, whole, "--pass", "rtn:format=q3_k")
            command = [BINARY, "compress", stories, out, "--pass", "rtn:format=q3_k", "--resume", "-t", "2"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                while running.poll() is None and not os.path.exists(out + ".partial/block-1"):
                    time.sleep(0.002)
                running.kill()
            self.assertFalse(os.path.exists(out))
            done = json.loads(self.compress(folder, *command[2:-2], "--json").stdout)
            self.assertGreaterEqual(done["resumed_blocks"], 2)
            table = done["table"]  # also the head, so it stays in 8 bits
            self.assertEqual((table["name"], table["format"], table["tied"]), ("token_embd.weight", "q8_0", True))
            self.assertEqual(table["same"], {"format": "q3_k", "bytes": 4096 * 110})
            self.assertAlmostEqual(table["share"], table["bytes"] / done["output_bytes"])
            self.assertFalse(os.path.exists(out + ".partial"))
            with open(whole, "rb") as want, open(out, "rb") as got:
                self.assertTrue(want.read() == got.read())

    def test_errors(self):
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "text.txt", "Once upon a time there was a little dog. " * 40)
            out = os.path.join(folder, "out.gguf")
            for code, message, arguments in (
                (2, "--pass: is missing", (LLAMA, out)),
                (2, "--pass gptq: needs a calibration text; give one with --calibrate", (LLAMA, out, "--pass", "gptq")),
                (2, "pass: unknown 'even'; available: gptq, squeezellm, rtn", (LLAMA, out, "--pass", "even", "--calibrate", text)),
                (3, "/nonexistent.txt", (LLAMA, out, "--pass", "gptq", "--calibrate", "/nonexistent.txt")),
                (3, "/nonexistent.gguf", ("/nonexistent.gguf", out, "--pass", "gptq", "--calibrate", text)),
                (2, "tokens do not fill a window of", (LLAMA, out, "--pass", "gptq", "--calibrate", write(folder, "short.txt", "a"))),
                (5, "memory: ", (LLAMA, out, "--pass", "gptq", "--calibrate", text, "--memory", "1M")),
            ):
                self.assertIn(message, self.compress(folder, *arguments, code=code).stderr.decode())
                self.assertFalse(os.path.exists(out))


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
