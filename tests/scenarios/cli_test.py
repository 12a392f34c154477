#!/usr/bin/env python3
"""What people and scripts rely on at the command line: exit codes, exact output forms, config files, signals.

Usage: cli_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest

BINARY, SOURCE = sys.argv[1], sys.argv[2]
LLAMA = os.path.join(SOURCE, "tests/golden/llama3/model.gguf")
FOLDER = os.path.join(SOURCE, "tests/golden/llama3")


def millrace(*arguments, stdin=b""):
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=120, check=False)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class ExitCodes(unittest.TestCase):
    def expect(self, code, *arguments, message=""):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertIn(message, done.stderr.decode() + done.stdout.decode())

    def test_help_teaches_by_example(self):
        listing = millrace("--help").stdout.decode()
        commands = [line.split()[0] for line in listing.split("Subcommands:")[1].split("\n\n")[0].splitlines() if line.strip()]
        self.assertIn("run", commands)
        for command in commands:
            done = millrace(command, "--help")
            self.assertEqual(done.returncode, 0, command)
            self.assertIn(f"millrace {command}", done.stdout.decode(), f"{command} --help has no example")

    def test_usage(self):
        self.expect(2)
        self.expect(2, "nonsense")
        self.expect(2, "run", "--nonsense")
        self.expect(2, "run", "-m", LLAMA, "-p", "a", "--top-p", "7", message="top_p")
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

    def test_unsupported(self):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, "config.json", json.dumps({"architectures": ["T5ForConditionalGeneration"], "model_type": "t5"}))
            with open(os.path.join(FOLDER, "model.safetensors"), "rb") as file:
                data = file.read()
            with open(os.path.join(folder, "model.safetensors"), "wb") as file:
                file.write(data)
            self.expect(4, "inspect", folder, message="T5ForConditionalGeneration")
        self.expect(4, "run", "-m", LLAMA, "-p", "a", "--kv-format", "q9_9", message="q9_9")

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


class Run(unittest.TestCase):
    def run_json(self, *arguments, stdin=b""):
        done = millrace("run", "-m", LLAMA, "--json", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout.decode().strip().splitlines()[-1])

    def test_json_form(self):
        result = self.run_json("-p", "ab", "-n", "5", "--temp", "0", "--ignore-eos")
        self.assertEqual(list(result)[:4], ["prompt_tokens", "tokens", "text", "finish_reason"])
        self.assertEqual(len(result["tokens"]), 5)
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(result["timings"]["generated_tokens"], 5)
        again = self.run_json("--prompt-tokens", ",".join(map(str, result["prompt_tokens"])), "-n", "5", "--temp", "0", "--ignore-eos")
        self.assertEqual(again["tokens"], result["tokens"])

    def test_seed_decides(self):
        first = self.run_json("-p", "ab", "-n", "20", "-s", "3", "--temp", "1", "--ignore-eos")
        self.assertEqual(first["tokens"], self.run_json("-p", "ab", "-n", "20", "-s", "3", "--temp", "1", "--ignore-eos", "-t", "2")["tokens"])
        self.assertNotEqual(first["tokens"], self.run_json("-p", "ab", "-n", "20", "-s", "4", "--temp", "1", "--ignore-eos")["tokens"])

    def test_prompts_from_anywhere(self):
        expected = self.run_json("-p", "abc", "-n", "2", "--temp", "0")["prompt_tokens"]
        self.assertEqual(self.run_json("-n", "2", "--temp", "0", stdin=b"abc")["prompt_tokens"], expected)
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "prompt.txt", "abc")
            self.assertEqual(self.run_json("-n", "2", "--temp", "0", "-f", path)["prompt_tokens"], expected)

    def test_answers_keep_their_constraint(self):
        for seed in "1", "2", "3":
            common = ["-p", "ab", "-n", "200", "--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0", "-s", seed]
            result = self.run_json(*common, "--choice", "yes,no,not at all")
            self.assertIn(result["text"], ("yes", "no", "not at all"))
            self.assertEqual(result["finish_reason"], "stop")
            self.assertRegex(self.run_json(*common, "--regex", "[0-9]{2,4}-x")["text"], "^[0-9]{2,4}-x$")
            schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": 5, "maximum": 99}, "s": {"type": "string", "maxLength": 4},
                                                       "l": {"type": "array", "items": {"enum": [True, None]}, "maxItems": 3}},
                      "required": ["n", "s", "l"], "additionalProperties": False}
            for ignore in [], ["--ignore-eos"], ["--min-tokens", "40"]:
                result = self.run_json(*common, "--json-schema", json.dumps(schema), *ignore)
                value = json.loads(result["text"])
                self.assertEqual(list(value), ["n", "s", "l"])
                self.assertTrue(5 <= value["n"] <= 99 and len(value["s"]) <= 4 and len(value["l"]) <= 3, result["text"])
                self.assertEqual(result["finish_reason"], "stop")
            with tempfile.TemporaryDirectory() as folder:
                path = write(folder, "list.gbnf", 'root ::= item item\nitem ::= "- " [a-c]{1,3} "\\n"\n')
                self.assertRegex(self.run_json(*common, "--grammar", path)["text"], r"^(- [a-c]{1,3}\n){2}$")

    def test_constraints_that_cannot_be_kept_are_refused(self):
        for arguments, code, words in ((["--regex", "(?=a)b"], 4, b"look-ahead"), (["--regex", "(a"], 2, b"not closed"),
                                       (["--json-schema", '{"contains": {}}'], 4, b"/contains"), (["--json-schema", "/nowhere.json"], 3, b"nowhere"),
                                       (["--constraint-trigger", "x"], 2, b"needs one of"), (["--json-object", "--regex", "a"], 2, b"")):
            done = millrace("run", "-m", LLAMA, "-p", "ab", *arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            self.assertIn(words, done.stderr)

    def test_stop_string_never_shows(self):
        text = self.run_json("-p", "ab", "-n", "30", "--temp", "0", "--ignore-eos")["text"]
        stop = text[4:6]
        result = self.run_json("-p", "ab", "-n", "30", "--temp", "0", "--ignore-eos", "--stop", stop)
        self.assertEqual(result["finish_reason"], "stop")
        self.assertEqual(result["text"], text[: text.index(stop)])

    def test_several_answers(self):
        several = self.run_json("-p", "ab", "-n", "6", "-s", "3", "--temp", "1", "--ignore-eos", "--n", "2")
        self.assertEqual(len(several["answers"]), 2)
        self.assertEqual(several["tokens"], several["answers"][0]["tokens"])
        second = self.run_json("-p", "ab", "-n", "6", "-s", "4", "--temp", "1", "--ignore-eos")
        self.assertEqual(several["answers"][1]["tokens"], second["tokens"])
        best = self.run_json("-p", "ab", "-n", "6", "-s", "3", "--temp", "1", "--ignore-eos", "--best-of", "4", "--logprobs", "0")
        self.assertNotIn("answers", best)
        self.assertAlmostEqual(best["score"], sum(token["logprob"] for token in best["logprobs"]) / 6, places=5)
        beams = self.run_json("-p", "ab", "-n", "6", "--ignore-eos", "--beams", "4", "--n", "3", "--length-penalty", "0")
        scores = [answer["score"] for answer in beams["answers"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(len({tuple(answer["tokens"]) for answer in beams["answers"]}), 3)
        done = millrace("run", "-m", LLAMA, "-p", "ab", "--beams", "2", "--n", "3")
        self.assertIn("beams", done.stderr.decode())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--- 2", millrace("run", "-m", LLAMA, "-p", "ab", "-n", "3", "--n", "2").stdout.decode())

    def test_timing_line(self):
        done = millrace("run", "-m", LLAMA, "-p", "ab", "-n", "4", "--temp", "0", "--ignore-eos")
        self.assertTrue(done.stdout.decode().startswith("ab"))
        self.assertRegex(done.stderr.decode(), r"prompt \d+ tokens, [\d.]+ tok/s \| generated 4 tokens, [\d.]+ tok/s \| first token .* GB/s")

    def test_config_file_holds_every_flag(self):
        with tempfile.TemporaryDirectory() as folder:
            config = write(folder, "millrace.toml",
                           f'[run]\nmodel = "{LLAMA}"\nprompt = "ab"\nmax-tokens = 3\ntemp = 0\njson = true\nignore-eos = true\n')
            for arguments in (["--config", config, "run"], ["run", "--config", config]):
                done = millrace(*arguments)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                lines = done.stdout.decode().splitlines()
                self.assertEqual(len(lines), 1)
                self.assertEqual(len(json.loads(lines[0])["tokens"]), 3)
            self.assertEqual(len(json.loads(millrace("--config", config, "run", "-n", "2").stdout)["tokens"]), 2)
            typo = write(folder, "typo.toml", "[run]\nmax-tokns = 3\n")
            done = millrace("--config", typo, "run", "-m", LLAMA, "-p", "a")
            self.assertEqual(done.returncode, 2)
            self.assertIn("max-tokns", done.stdout.decode() + done.stderr.decode())

    def test_interrupt_stops_cleanly(self):
        process = subprocess.Popen([BINARY, "run", "-m", LLAMA, "-p", "ab", "-n", "-1", "--ignore-eos", "-c", "200000", "--no-prefix-cache"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        process.stdout.read(20)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)
        self.assertIn(b"generated", error)
        self.assertTrue(out.endswith(b"\n"))

    def test_a_closed_pipe_ends_it(self):
        process = subprocess.Popen([BINARY, "run", "-m", LLAMA, "-p", "ab", "-n", "-1", "--ignore-eos", "-c", "200000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        process.stdout.read(10)
        process.stdout.close()
        for _ in range(600):
            if process.poll() is not None:
                break
            time.sleep(0.1)
        else:
            process.kill()
            self.fail("still running after its reader went away")
        self.assertNotEqual(process.returncode, -signal.SIGSEGV)

    def test_packed_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            model = shutil.copy(LLAMA, folder)
            wanted = millrace("run", "-m", LLAMA, "-p", "ab", "-n", "8", "-t", "1").stdout
            arguments = ("run", "-m", model, "-p", "ab", "-n", "8", "-t", "1")

            def expect(message, *more):
                done = millrace(*arguments, *more)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                self.assertEqual(done.stdout, wanted)
                if message:
                    self.assertIn(message, done.stderr.decode())
                else:
                    self.assertNotIn("warning", done.stderr.decode())

            expect("")
            self.assertEqual(os.listdir(folder), ["model.gguf"])
            expect("", "--packed-cache")
            cache = os.path.join(folder, "model.gguf.millrace-packed")
            before = os.stat(cache)
            expect("", "--packed-cache", "--verify-packed-cache")
            self.assertEqual(os.stat(cache).st_mtime_ns, before.st_mtime_ns)
            write(folder, "model.gguf.millrace-packed", "not a cache")
            expect("warning", "--packed-cache")
            self.assertEqual(os.path.getsize(cache), before.st_size)
            other = os.path.join(folder, "other")
            config = write(folder, "config.toml", f'[run]\npacked-cache = "{other}"\n')
            expect("", "--config", config)
            self.assertEqual(os.path.getsize(other), before.st_size)

    def test_memory_that_no_machine_has_is_refused_with_numbers(self):
        done = millrace("run", "-m", LLAMA, "-p", "ab", "-n", "1", "--kv-tokens", str(10**12))
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stderr.decode(), r"KV cache of \d+ tokens: needs [0-9.]+ GB of memory, .* has [0-9.]+ .B left")


class Bench(unittest.TestCase):
    def bench(self, *arguments):
        done = millrace("bench", *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_work_is_counted_from_the_files(self):
        tensors = json.loads(millrace("inspect", LLAMA, "--json", "--tensors").stdout)
        matrices = [t for t in tensors["tensors"] if len(t["shape"]) > 1 and t["name"] != "token_embd.weight"]
        weights = sum(t["bytes"] for t in matrices)
        values = sum(t["shape"][0] * t["shape"][1] for t in matrices)
        heads = tensors["heads"] * tensors["head_dim"] * tensors["layers"]
        kv_bytes = 2 * 2 * tensors["kv_heads"] * tensors["head_dim"] * tensors["layers"]
        records = self.bench("-m", LLAMA, "-p", "0", "-n", "1", "-d", "3", "-b", "1,2", "-r", "1", "-t", "1")
        for record, streams in zip(records, (1, 2)):
            self.assertEqual((record["n_gen"], record["n_depth"], record["n_streams"]), (1, 3, streams))
            work = record["gb_per_s"] * record["avg_ns"], record["gop_per_s"] * record["avg_ns"]
            self.assertAlmostEqual(work[0] / (weights + streams * 4 * kv_bytes), 1, places=6)
            self.assertAlmostEqual(work[1] / (streams * (2 * values + 4 * 4 * heads)), 1, places=6)
            self.assertEqual(record["roof_fraction"], max(record["bandwidth_fraction"], record["compute_fraction"]))

    def test_roof(self):
        roof = self.bench("--roof", "-t", "1")
        self.assertEqual([row["threads"] for row in roof["roofs"]], [1])
        for key in ("read_gb_per_s", "l3_gb_per_s", "l2_gb_per_s", "f32_gflop_per_s"):
            self.assertGreater(roof["roofs"][0][key], 0, key)


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

    def test_techniques(self):
        rows = json.loads(millrace("techniques", "--json").stdout)
        for row in rows:
            self.assertEqual(list(row), ["family", "name", "summary", "paper", "options"])
            self.assertTrue(row["summary"], row)
        names = {(row["family"], row["name"]) for row in rows}
        for wanted in (("format", "q4_k"), ("arch", "gemma3"), ("sampler", "min_p"), ("kv_format", "q8_0")):
            self.assertIn(wanted, names)
        self.assertEqual(len(names), len(rows))


class Workload(unittest.TestCase):
    MOONCAKE = "".join(json.dumps({"timestamp": 50 * i, "input_length": 40, "output_length": 3, "hash_ids": [i % 2]}) + "\n" for i in range(6))

    def run_json(self, *arguments):
        done = millrace(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_trace_stats(self):
        with tempfile.TemporaryDirectory() as folder:
            stats = self.run_json("trace", "stats", write(folder, "t.jsonl", self.MOONCAKE))
            self.assertEqual(stats["requests"], 6)
            self.assertAlmostEqual(stats["arrivals"]["rate"], 20)
            self.assertAlmostEqual(stats["reuse"]["ratio_blocks"], 4 / 6)
            self.assertIn("66.67 % of the blocks", millrace("trace", "stats", os.path.join(folder, "t.jsonl")).stdout.decode())
            bad = millrace("trace", "stats", write(folder, "bad.jsonl", self.MOONCAKE + "{}"))
            self.assertEqual(bad.returncode, 3)
            self.assertIn("bad.jsonl:7: timestamp: is missing", bad.stderr.decode())
        self.assertEqual(millrace("trace", "stats", "/nowhere").returncode, 2)
        self.assertEqual(millrace("trace").returncode, 2)

    def test_trace_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "t.jsonl", self.MOONCAKE)
            rows = self.run_json("trace", "cache", path, "--policy", "lru,lfu", "--capacity", "1,unlimited", "--nodes", "2")
            self.assertEqual([(row["policy"], row["capacity_blocks"]) for row in rows], [("lru", 1), ("lfu", 1), ("lru", "unlimited"), ("lfu", "unlimited")])
            self.assertAlmostEqual(rows[0]["local"]["ratio_blocks"], 4 / 6)  # each node sees one of the two prompts
            self.assertAlmostEqual(rows[2]["global"]["ratio_blocks"], 4 / 6)
            self.assertEqual(millrace("trace", "cache", path, "--policy", "fifo").returncode, 2)
            self.assertEqual(millrace("trace", "cache", path, "--capacity", "0").returncode, 2)

    def test_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            path, report = write(folder, "t.jsonl", self.MOONCAKE), os.path.join(folder, "r.html")
            result = self.run_json("replay", "--trace", path, "--in-process", "-m", LLAMA, "--report", report, "--good-e2e", "60000", "--max-streams", "1")
            self.assertEqual((result["completed"], result["failed"], result["output_tokens"]), (6, 0, 18))
            self.assertGreater(result["cached_tokens"], 0)  # equal hashes were equal prompts
            self.assertEqual(result["goodput"]["good_requests"], 6)
            self.assertGreaterEqual(result["seconds"], 0.25)  # the last one was due then
            with open(report, encoding="utf-8") as file:
                self.assertIn("</html>", file.read())
        closed = self.run_json("replay", "--trace", "gen:requests=5,rate=0.001,prompt=fixed:9,output=fixed:4", "--in-process", "-m", LLAMA, "--closed-loop", "2")
        self.assertEqual((closed["completed"], closed["output_tokens"]), (5, 20))
        refused = millrace("replay", "--trace", "gen:requests=2,rate=100,prompt=fixed:9000", "--in-process", "-m", LLAMA, "--json")
        self.assertEqual((refused.returncode, json.loads(refused.stdout)["failed"]), (1, 2))
        self.assertEqual(millrace("replay", "--trace", "gen:requests=2", "-m", LLAMA).returncode, 2)
    def test_recorded_plans(self):
        load = ["replay", "--in-process", "-m", LLAMA, "--kv-tokens", "208", "--context", "128", "--max-streams", "3", "--batch-tokens", "24", "--trace"]
        trace = "gen:requests=9,rate=2000,prompt=fixed:40,output=fixed:30"
        with tempfile.TemporaryDirectory() as folder:
            plans, again = os.path.join(folder, "plans"), os.path.join(folder, "again")
            first = self.run_json(*load, trace, "--policy", "fcfs:reserve=prompt", "--record-plans", plans)
            second = self.run_json(*load, trace, "--policy", "priority", "--replay-plans", plans, "--record-plans", again)
            for name in ("completed", "failed", "output_tokens", "cached_tokens", "steps"):
                self.assertEqual(second[name], first[name], name)
            with open(plans, encoding="utf-8") as one, open(again, encoding="utf-8") as other:
                text = one.read()
                self.assertEqual(other.read(), text)
            self.assertIn("admit 9", text)
            lines = text.splitlines()
            short, broken = write(folder, "short", "\n".join(lines[:-3]) + "\n"), write(folder, "broken", "\n".join([*lines[:5], "run away", *lines[5:]]))
            for path, asked, message in ((short, trace, "ends after"), (broken, trace, "line 6 of"), (plans, trace.replace("fixed:40", "fixed:47"), "line "),
                                         (plans, trace.replace("=9", "=7"), "line "), (plans, trace.replace("fixed:30", "fixed:20"), "line "),
                                         (plans, trace.replace("=9", "=10"), "ends after"), (os.path.join(folder, "none"), trace, "cannot be read")):
                done = millrace(*load, asked, "--replay-plans", path)
                self.assertEqual(done.returncode, 2, message)
                self.assertIn(message, done.stderr.decode())
            self.assertEqual(millrace(*load, trace, "--replay-plans", plans, "--closed-loop", "2").returncode, 2)

    def test_replay_prediction(self):
        table = {"kind": "piecewise", "tokens": {"at": [1, 100], "seconds": [0.001, 0.01]}}
        with tempfile.TemporaryDirectory() as folder:
            cost, report = write(folder, "cost.json", json.dumps(table)), os.path.join(folder, "r.html")
            load = ["replay", "--trace", "gen:requests=4,rate=100,prompt=fixed:40,output=fixed:6", "--in-process", "-m", LLAMA, "--predict", cost]
            result = self.run_json(*load, "--report", report)
            self.assertEqual(result["predicted"]["output_tokens"], 24)
            # One prompt, then five decodes, at the least; nobody else's clock comes into it.
            self.assertGreater(result["predicted"]["e2el_ms"]["mean"], 4.5 + 5)
            self.assertEqual(result["predicted"]["ttft_ms"], self.run_json(*load)["predicted"]["ttft_ms"])
            self.assertIn("ttft_mean", result["predicted_over_measured"])
            with open(report, encoding="utf-8") as file:
                self.assertIn("predicted / measured", file.read())
            self.assertIn("predicted", millrace(*load).stdout.decode())
            self.assertEqual(millrace(*load[:-1], os.path.join(folder, "none.json")).returncode, 2)

    def test_replay_over_http(self):
        nobody = ["replay", "--trace", "gen:requests=2,rate=100", "--url"]
        refused = millrace(*nobody, "http://127.0.0.1:1", "--json")
        self.assertEqual(refused.returncode, 1)
        [(error, count)] = json.loads(refused.stdout)["errors"].items()
        self.assertEqual((error.split(":")[0], count), ("connect", 2))
        self.assertEqual(millrace(*nobody, "localhost:80").returncode, 2)
        self.assertEqual(millrace(*nobody, "https://localhost").returncode, 4)
        self.assertEqual(millrace(*nobody, "http://127.0.0.1:1", "--api", "soap").returncode, 2)
        self.assertEqual(millrace(*nobody, "http://127.0.0.1:1", "--in-process").returncode, 2)

    def test_calibrate(self):
        with tempfile.TemporaryDirectory() as folder:
            cost = os.path.join(folder, "cost.json")
            result = self.run_json("bench", "-m", LLAMA, "--calibrate", "-o", cost, "-u", "16", "-b", "4", "-d", "64", "--seconds", "0")
            self.assertEqual((result["kind"], result["made_by"]["held_out_steps"], result["made_by"]["rounds"]), ("piecewise", 20, 2))
            self.assertGreater(result["swap_bandwidth"], 0)
            self.assertGreater(result["disk_bandwidth"], 0)
            self.assertEqual(os.listdir(folder), ["cost.json"])  # what the disk was tried with is gone
            self.assertEqual(result["tokens"]["at"][-1], 16)
            with open(cost, encoding="utf-8") as file:
                self.assertEqual(json.load(file), result)
            done = self.run_json("simulate", "--trace", "gen:requests=9,rate=5,prompt=fixed:30,output=fixed:5", "--cost", cost)
            self.assertEqual(done[0]["completed"], 9)
            self.assertEqual(millrace("bench", "-m", LLAMA, "--calibrate", "-u", "60000").returncode, 2)
        self.assertEqual(millrace("bench", "-m", LLAMA, "-o", "xml").returncode, 2)


class Simulate(unittest.TestCase):
    LOAD = ["simulate", "--trace", "gen:requests=60,rate=20,prompt=fixed:200,output=fixed:30,prefix_tokens=160,prefix_groups=3"]

    def run_json(self, *arguments):
        done = millrace(*self.LOAD, *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_policies_side_by_side(self):
        names = ["fcfs", "stall_free:tbt_ms=50", "orca"]
        rows = self.run_json("--cost", "llama-7b-a100", *[flag for name in names for flag in ("--policy", name)])
        self.assertEqual([row["policy"] for row in rows], names)
        for row in rows:
            self.assertEqual((row["completed"], row["refused"], row["unfinished"]), (60, 0, 0))
        table = millrace(*self.LOAD, "--cost", "llama-7b-a100").stdout.decode().splitlines()
        self.assertEqual(len(table), 3)
        self.assertTrue(table[2].startswith("| fcfs | 60 | 0 |"))

    def test_nodes_add_up(self):
        for route in ("in_turn", "prefix", "least_loaded"):
            [row] = self.run_json("--cost", "llama-7b-a100", "--nodes", "3", "--route", route)
            self.assertEqual(len(row["nodes"]), 3)
            for field in ("completed", "prompt_tokens", "cached_tokens", "steps"):
                self.assertEqual(sum(node[field] for node in row["nodes"]), row[field], field)
        self.assertIn("| fcfs: node |", millrace(*self.LOAD, "--nodes", "2").stdout.decode())

    def test_the_same_again(self):
        first, second = self.run_json(), self.run_json()
        for row in first + second:
            del row["wall_seconds"]
        self.assertEqual(first, second)

    def test_usage(self):
        for arguments, message in ((["--policy", "nobody"], "nobody"), (["--cost", "/nowhere.json"], "/nowhere.json"), (["--route", "home"], "home"),
                                   (["--nodes", "0"], "nodes"), (["--nodes", "2", "--record-plans", "/tmp/x"], "one node")):
            done = millrace(*self.LOAD, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(message, done.stderr.decode())
        with tempfile.TemporaryDirectory() as folder:
            bad = write(folder, "bad.json", json.dumps({"kind": "piecewise", "tokens": {"at": [2, 1], "seconds": [1, 1]}}))
            done = millrace(*self.LOAD, "--cost", bad)
            self.assertEqual(done.returncode, 2)
            self.assertIn("bad.json: tokens", done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
