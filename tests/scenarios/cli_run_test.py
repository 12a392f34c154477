#!/usr/bin/env python3
"""millrace run as people and scripts use it: output forms, prompts, constraints, config files, signals.

Usage: cli_run_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models, and the built-in ones for drafts.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from cli import BINARY, LLAMA, SOURCE, millrace, write


def ngram_draft(tokens, n, least, most):
    """What followed the last tokens where they occurred before: the longest match, of equal ones the latest."""
    for length in range(min(n, len(tokens)), least - 1, -1):
        for end in range(len(tokens) - 1, length - 1, -1):
            if tokens[end - length:end] == tokens[-length:]:
                draft = tokens[:]
                for i in range(most):
                    draft.append(draft[end + i])
                return draft[len(tokens):]
    return []


def counted_speculation(prompt, answer, n, least, k):
    counts = {"drafted": 0, "accepted": 0, "target_passes": 1}
    reached, kept = [0] * k, [0] * k  # by position in the draft
    done = 1  # the prompt's step samples the first token
    while done < len(answer):
        draft = ngram_draft(prompt + answer[:done], n, least, min(k, len(answer) - done - 1))
        accepted = 0
        while accepted < len(draft) and draft[accepted] == answer[done + accepted]:
            accepted += 1
        for i in range(len(draft)):
            reached[i] += 1
            kept[i] += i < accepted
        counts["drafted"] += len(draft)
        counts["accepted"] += accepted
        counts["target_passes"] += 1
        done += accepted + 1
    counts["acceptance_by_position"] = [a / b for a, b in zip(kept, reached) if b]
    return counts


class Run(unittest.TestCase):
    def run_json(self, *arguments, stdin=b""):
        done = millrace("run", "-m", LLAMA, "--json", *arguments, stdin=stdin)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout.decode().strip().splitlines()[-1])

    def test_a_plus_joins_drafters_or_numbers_of_an_option(self):
        story = ("run", "-m", "stories", "-t", "1", "-p", "Once", "-n", "4", "--temp", "0", "--json")
        plain = json.loads(millrace(*story).stdout)["text"]
        for drafter in ("self:k=2,attn=1+3-4,mlp=2", "ngram+suffix:k=4"):
            done = millrace(*story, "--drafter", drafter)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertEqual(json.loads(done.stdout)["text"], plain)

    def test_draft_search(self):
        """The found blocks are in a file that the drafter `self` takes; the answer is that of plain decoding."""
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "text.txt", "the cat sat on the mat. the dog ran to the cat. " * 20)
            skips = os.path.join(folder, "skips.json")
            search = ["draft-search", "-m", LLAMA, "-f", text, "-o", skips, "--trials", "6", "--draft-max", "4", "--json"]
            found = [json.loads(millrace(*search, "--method", method).stdout) for method in ("bayes", "random", "bayes")]
            self.assertEqual(found[0], found[2])
            self.assertEqual((found[1]["method"], found[1]["trials"]), ("random", 6))
            with open(skips, encoding="utf-8") as file:
                kept = json.load(file)
            self.assertEqual((kept["file"], kept["layers"]), ("millrace skip set", 2))
            plain = self.run_json("-p", "ab", "-n", "20", "--temp", "0", "--ignore-eos")
            drafted = self.run_json("-p", "ab", "-n", "20", "--temp", "0", "--ignore-eos", "--draft-length", "fixed",
                                    "--drafter", f"self:skip={skips}")
            self.assertEqual(drafted["tokens"], plain["tokens"])
            self.assertGreater(drafted["speculation"]["drafted"], 0)
            self.assertNotIn("auto", drafted["speculation"])
            chosen = self.run_json("-p", "ab", "-n", "20", "--temp", "0", "--ignore-eos", "--drafter", f"self:skip={skips}")
            self.assertEqual(chosen["tokens"], plain["tokens"])
            decided = chosen["speculation"]["auto"]
            self.assertGreater(decided["chosen_steps"] + decided["trial_steps"], 0)
            self.assertGreater(decided["expected_time"], 0)
            self.assertIn("a step with drafted tokens is expected to bring", decided["reason"])
            write(folder, "text.txt", "ab")
            self.assertEqual(millrace(*search).returncode, 2)

    def test_json_form(self):
        result = self.run_json("-p", "ab", "-n", "5", "--temp", "0", "--ignore-eos")
        self.assertEqual(list(result)[:4], ["prompt_tokens", "tokens", "text", "finish_reason"])
        self.assertEqual(len(result["tokens"]), 5)
        self.assertEqual(result["finish_reason"], "length")
        self.assertEqual(result["timings"]["generated_tokens"], 5)
        again = self.run_json("--prompt-tokens", ",".join(map(str, result["prompt_tokens"])), "-n", "5", "--temp", "0", "--ignore-eos")
        self.assertEqual(again["tokens"], result["tokens"])

    def test_use(self):
        plain = ["-p", "ab", "-n", "12", "--ignore-eos", "-s", "3"]
        self.assertEqual(self.run_json(*plain)["applied"], [])
        used = self.run_json(*plain, "--use", "kv_format=f32", "--use", "sampler=temperature:temperature=0.5",
                             "--use", "policy=stall_free:tbt_ms=50,chunk=4")
        flagged = self.run_json(*plain, "--kv-format", "f32", "--temp", "0.5", "--policy", "stall_free:tbt_ms=50,chunk=4")
        self.assertEqual(used["tokens"], flagged["tokens"])
        key = lambda one: (one["family"], one["name"])
        self.assertEqual(sorted(used["applied"], key=key), sorted(flagged["applied"], key=key))
        applied = {key(one): one for one in used["applied"]}
        self.assertEqual(list(applied["policy", "stall_free"]), ["family", "name", "options", "effect"])
        self.assertEqual(applied["policy", "stall_free"]["options"]["chunk"], 4)
        self.assertEqual(applied["kv_format", "f32"]["effect"], "KV cache in f32, 32 bits a value instead of 16 (f16)")
        self.assertEqual(applied["sampler", "temperature"]["effect"], "temperature 0.5 instead of 0.8")

    def test_draft_model(self):
        """Both built-in models: the same answer in fewer passes, by each of the flags."""
        def run(*arguments):
            done = millrace("run", "-m", "stories", "--json", "-p", "Once upon a time", "-n", "40", "--ignore-eos", "-s", "5", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            return json.loads(done.stdout.decode().strip().splitlines()[-1])

        for temperature in "0", "0.7":
            plain = run("--temp", temperature)
            runs = [run("--temp", temperature, "--draft-length", "fixed", *flags) for flags in (
                ["--drafter", "draft:k=3"], ["-md", "stories-draft", "--draft-max", "3"],
                ["--model-draft", os.path.join(SOURCE, "models/millrace-stories-1m-draft.gguf"), "--draft", "3"],
                ["--use", "drafter=draft:k=3,model=millrace-stories-1m-draft"])]
            for drafting in runs:
                self.assertEqual(drafting["tokens"], plain["tokens"])
                self.assertEqual(drafting["speculation"], runs[0]["speculation"])
            counts = runs[0]["speculation"]
            self.assertEqual(counts["accepted"] + counts["target_passes"], 40)
            self.assertGreater(counts["accepted"], 10)
        applied = [one for one in runs[1]["applied"] if one["family"] == "drafter"]
        self.assertEqual(applied[0]["options"], {"k": 3, "branches": 1, "model": "stories-draft"})
        for arguments, error in (
                (["--drafter", "ngram", "--draft-max", "3"], "--draft-max: --drafter is ngram; give only one of them"),
                (["--use", "drafter=ngram", "-md", "a.gguf"],
                 "--use drafter=ngram: --model-draft is draft:model=a.gguf; give only one of them"),
                (["-md", LLAMA], f"drafter draft: {LLAMA} has a vocabulary of 128 tokens, the model has 4096; choose a draft "
                                 "model of the same family")):
            done = millrace("run", "-m", "stories", "-p", "a", "-n", "1", *arguments)
            self.assertEqual(done.returncode, 2, done.stderr.decode())
            self.assertEqual(done.stderr.decode().strip(), "millrace: " + error)

    def test_formats_of_keys_and_values(self):
        plain = ["-p", "ab", "-n", "12", "--ignore-eos", "-s", "3"]
        used = self.run_json(*plain, "--use", "kv_format=f16:values=bf16")
        for flags in (["-ctk", "f16", "-ctv", "bf16"], ["-ctv", "bf16"]):
            named = self.run_json(*plain, *flags)
            self.assertEqual((used["tokens"], used["applied"]), (named["tokens"], named["applied"]), flags)
        self.assertEqual(used["applied"][0]["options"]["values"], "bf16")
        done = millrace("run", "-m", LLAMA, "-p", "a", "--use", "kv_format=f16", "-ctv", "bf16")
        self.assertEqual((done.returncode, done.stderr.decode().strip()),
                         (2, "millrace: --ctv bf16: --use names the formats already; add values=bf16 there"))
        done = millrace("run", "-m", LLAMA, "-p", "a", "--kv-format", "f16:window=f32")
        self.assertEqual((done.returncode, done.stderr.decode().strip()),
                         (4, "millrace: KV format f16:window=f32 does not go with this engine: no layers have blocks of their "
                             "own for a window; omit window=, or give the model a context that is longer than its layers' "
                             "window and a step together"))

    def test_speculation_counts(self):
        """The counts are those of ngram drafts against the plain answer, step by step."""
        base = ["-p", "ab cd ab cd ab c", "-n", "60", "--ignore-eos"]
        for sampling in (["--temp", "0"], ["--temp", "1.5", "-s", "2"]):
            plain = self.run_json(*base, *sampling)
            self.assertNotIn("speculation", plain)
            for branches in (1, 3):
                drafting = self.run_json(*base, *sampling, "--drafter", f"ngram:n=3,min=1,k=4,branches={branches}",
                                         "--draft-length", "fixed")
                self.assertEqual(drafting["tokens"], plain["tokens"])
                counts = drafting["speculation"]
                self.assertEqual(counts["target_passes"] + counts["accepted"], 60)
                self.assertGreater(counts["drafted"], counts["accepted"])
                if branches == 1:
                    self.assertEqual(counts, counted_speculation(plain["prompt_tokens"], plain["tokens"], 3, 1, 4))

    def test_datastore(self):
        """A datastore of the answer drafts it; of another vocabulary, damaged or cut short, it is refused."""
        with tempfile.TemporaryDirectory() as folder:
            store = os.path.join(folder, "texts.store")
            base = ["-p", "ab cd", "-n", "40", "--ignore-eos", "--temp", "0"]
            plain = self.run_json(*base)
            texts = write(folder, "texts.txt", plain["text"])
            done = millrace("datastore", texts, texts, "-m", LLAMA, "-o", store, "--json")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            made = json.loads(done.stdout)
            self.assertEqual((made["texts"], made["bytes"]), (2, 64 + 8 * made["tokens"]))
            self.assertEqual(made["bytes"], os.path.getsize(store))
            drafting = self.run_json(*base, "--draft-length", "fixed", "--drafter", f"rest:file={store},min=1")
            self.assertEqual(drafting["tokens"], plain["tokens"])
            self.assertGreater(drafting["speculation"]["accepted"], 0)
            with open(store, "rb") as file:
                whole = file.read()
            damaged, short = os.path.join(folder, "damaged"), os.path.join(folder, "short")
            for path, content in ((damaged, whole[:70] + bytes([whole[70] ^ 1]) + whole[71:]), (short, whole[:-1])):
                with open(path, "wb") as file:
                    file.write(content)
            for path, model, code, error in (
                    (store, "stories", 2, "was written for a vocabulary of"), (damaged, LLAMA, 3, "is damaged"),
                    (short, LLAMA, 3, "its header promises"), (texts, LLAMA, 3, "too few for a datastore"),
                    (os.path.join(folder, "none"), LLAMA, 3, "none")):
                done = millrace("run", "-m", model, "-p", "a", "-n", "1", "--drafter", f"rest:file={path}")
                self.assertEqual(done.returncode, code, done.stderr.decode())
                self.assertIn(error, done.stderr.decode())
            done = millrace("datastore", os.path.join(folder, "none"), "-m", LLAMA, "-o", store)
            self.assertEqual(done.returncode, 3, done.stderr.decode())

    def test_compressed_prompts(self):
        text, choice = "the cat and the dog sat on a red mat", "selective_context:ratio=0.5,keep_last=2"
        base = ["-n", "4", "--temp", "0", "--ignore-eos"]
        plain = self.run_json("-p", text, *base)
        self.assertNotIn("prompt", plain)
        one = self.run_json("-p", text, *base, "--compress-prompt", choice)
        report = one["prompt"]
        self.assertEqual(report["name"], "selective_context")
        self.assertEqual(report["tokens_before"], len(plain["prompt_tokens"]))
        self.assertEqual(report["tokens_after"], len(one["prompt_tokens"]))
        self.assertLess(report["tokens_after"], report["tokens_before"])
        passes = [applied for applied in one["applied"] if applied["family"] == "prompt"]
        self.assertEqual(passes, report["passes"])
        self.assertEqual(passes[0]["options"]["keep_last"], 2)
        # The tokens that remain are a selection of the prompt's, and the model answers them.
        left = iter(plain["prompt_tokens"])
        self.assertTrue(all(token in left for token in one["prompt_tokens"]))
        ids = ",".join(map(str, one["prompt_tokens"]))
        self.assertEqual(self.run_json("--prompt-tokens", ids, *base)["tokens"], one["tokens"])
        used = self.run_json("-p", text, *base, "--use", "prompt=" + choice)
        self.assertEqual((used["tokens"], used["prompt_tokens"]), (one["tokens"], one["prompt_tokens"]))
        both = millrace("run", "-m", LLAMA, "-p", text, "--use", "prompt=" + choice, "--compress-prompt", "selective_context")
        self.assertEqual(both.returncode, 2)
        self.assertIn(f"--use prompt={choice}: --compress-prompt is selective_context; give only one of them",
                      both.stderr.decode())
        unknown = millrace("run", "-m", LLAMA, "-p", text, "--compress-prompt", "summary")
        self.assertEqual(unknown.returncode, 2)
        self.assertRegex(unknown.stderr.decode(), "prompt: unknown 'summary'; available: .*selective_context")

    def test_stores_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            plain = ["-p", "ab", "-n", "12", "--ignore-eos", "-s", "3", "--block-tokens", "4"]
            first = self.run_json(*plain, "--kv-ssd", os.path.join(folder, "a"), "--kv-ssd-size", "1M")
            named = self.run_json(*plain, "--use", "store=ssd:size=1M,path=" + os.path.join(folder, "b"))
            self.assertEqual(named["tokens"], first["tokens"])
            self.assertEqual(named["applied"][0]["options"]["order"], "arrival")
            self.assertEqual(os.path.getsize(os.path.join(folder, "a")), os.path.getsize(os.path.join(folder, "b")))
            both = millrace("run", "-m", LLAMA, "--kv-ssd", os.path.join(folder, "a"), "--kv-store", "ssd:path=c")
            self.assertEqual(both.returncode, 2)
            self.assertRegex(both.stderr.decode(), r"--kv-ssd is short for --kv-store ssd:path=\S+; give only one of them")

    def test_use_in_a_config_file(self):
        with tempfile.TemporaryDirectory() as folder:
            config = write(folder, "use.toml", '[run]\nuse = ["policy=vtc:prompt_cost=2,answer_cost=3", "kv_format=f32"]\n')
            applied = self.run_json("--config", config, "-p", "ab", "-n", "2")["applied"]
            self.assertEqual([(one["family"], one["name"]) for one in applied], [("kv_format", "f32"), ("policy", "vtc")])
            self.assertEqual(applied[1]["options"]["answer_cost"], 3)

    def test_use_errors(self):
        for arguments, message in (
                (["--use", "policy"], "--use policy: expected FAMILY=NAME[:key=value,...]"),
                (["--use", "policy=vtc", "--use", "policy=vtc"], "--use policy=vtc: policy is chosen already, by policy=vtc"),
                (["--use", "policy=vtc", "--policy", "fcfs"], "--use policy=vtc: --policy is fcfs; give only one of them"),
                (["--use", "sampler=top_k:top_k=3", "--top-k", "4"],
                 "--use sampler=top_k:top_k=3: the flag of top_k is 4; give only one of them"),
                (["--use", "predictor=history"],
                 "--use predictor=history: policy fcfs predicts nothing; use policy=shortest_predicted with it")):
            done = millrace("run", "-m", LLAMA, "-p", "a", "-n", "1", *arguments)
            self.assertEqual((done.returncode, done.stderr.decode().strip()), (2, "millrace: " + message))
        for arguments in (["--use", "policy=vtc", "--policy", "vtc:prompt_cost=1.0"], ["--use", "sampler=top_k:top_k=4", "--top-k", "4"]):
            self.run_json("-p", "a", "-n", "1", *arguments)

    def test_use_in_other_commands(self):
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "text.txt", "abc abd abe " * 20)
            def score(*arguments):
                done = millrace("perplexity", "-m", LLAMA, "-f", text, "--json", *arguments)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                return json.loads(done.stdout)
            plain, flagged, used = score(), score("--kv-format", "f16"), score("--use", "kv_format=f16")
            self.assertEqual(used["nll_sum"], flagged["nll_sum"])
            self.assertEqual(used["applied"], flagged["applied"])
            self.assertEqual((plain["applied"], plain["kv_format"]), ([], "f32"))
            self.assertEqual(plain["kv_bytes_per_token"], 2 * used["kv_bytes_per_token"])
            for mode in (["-c", "16"], ["-c", "16", "--all"], ["-c", "16", "--stride", "5"]):
                parts = score(*mode, "--by-position", "6")
                by_position = parts["by_position"]
                self.assertEqual([part["first"] for part in by_position], [0, 6, 12] if "--all" in mode else [6, 12], mode)
                self.assertEqual(sum(part["tokens"] for part in by_position), parts["tokens"])
                self.assertAlmostEqual(sum(part["nll_mean"] * part["tokens"] for part in by_position), parts["nll_sum"])
                self.assertNotIn("by_position", score(*mode))
            # One window: its parts are the shorter texts'.
            whole = score("-c", "32", "--chunks", "1", "--all", "--by-position", "16")
            start = score("-c", "16", "--chunks", "1", "--all")
            self.assertAlmostEqual(whole["by_position"][0]["nll_mean"], start["nll_mean"], places=9)
            self.assertEqual(whole["by_position"][0]["tokens"], 15)
        done = millrace("perplexity", "-m", LLAMA, "-f", LLAMA, "--use", "policy=vtc")
        self.assertEqual(done.stderr.decode().strip(), "millrace: --use policy=vtc: policy does not apply to perplexity; it "
                         "applies to run, chat, batch, program, serve, replay, simulate")
        done = millrace("simulate", "--trace", "gen:requests=5,rate=4", "--json", "--use", "policy=vtc:answer_cost=3")
        self.assertEqual(json.loads(done.stdout)[0]["policy"], "vtc:answer_cost=3", done.stderr.decode())
        done = millrace("bench", "-m", LLAMA, "-p", "4", "-n", "2", "-r", "1", "--no-roof", "--json", "--use", "kv_format=f32")
        self.assertEqual({row["type_k"] for row in json.loads(done.stdout)}, {"f32"}, done.stderr.decode())

    def test_seed_decides(self):
        first = self.run_json("-p", "ab", "-n", "20", "-s", "3", "--temp", "1", "--ignore-eos")
        self.assertEqual(first["tokens"], self.run_json("-p", "ab", "-n", "20", "-s", "3", "--temp", "1", "--ignore-eos", "-t", "2")["tokens"])
        self.assertNotEqual(first["tokens"], self.run_json("-p", "ab", "-n", "20", "-s", "4", "--temp", "1", "--ignore-eos")["tokens"])

    def test_adapters(self):
        folder = os.path.join(SOURCE, "tests/golden/lora/llama3")
        model = os.path.join(SOURCE, "tests/golden/llama3/model.gguf")

        def tokens(*arguments):
            done = millrace("run", "-m", model, "--json", "-p", "ab", "-n", "12", "--temp", "0", "--ignore-eos", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            return json.loads(done.stdout.decode().strip().splitlines()[-1])["tokens"]

        adapted = tokens("--lora", folder)
        self.assertEqual(tokens("--lora", "named=" + folder + "/adapter.gguf"), adapted)
        self.assertNotEqual(tokens(), adapted)
        done = millrace("run", "-m", model, "-p", "ab", "--lora", os.path.join(SOURCE, "tests/golden/lora/gemma2/adapter.gguf"))
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"is an adapter for gemma2, the model is llama", done.stderr)

    def test_documents_that_an_encoder_reads(self):
        model = os.path.join(SOURCE, "tests/golden/document_encoders/cepe")
        with tempfile.TemporaryDirectory() as folder:
            paths = [write(folder, f"{i}.txt", text) for i, text in enumerate(("the cat sat on a mat\n" * 9, "a dog\n"))]
            words = ["run", "-m", model, "-p", "and then", "-n", "8", "--temp", "0", "--ignore-eos", "--json"]
            for path in paths:
                words += ["--document", path]

            def answer(*more):
                done = millrace(*words, *more)
                self.assertEqual(done.returncode, 0, done.stderr.decode())
                return json.loads(done.stdout.decode().strip().splitlines()[-1])

            plain, read = answer(), answer("--use", f"context=cepe:model={model}")
            self.assertNotEqual(read["tokens"], plain["tokens"])
            self.assertLess(read["timings"]["prompt_tokens"], 10)
            self.assertGreater(plain["timings"]["prompt_tokens"], 50)
            self.assertEqual(read["tokens"], answer("--use", f"context=cepe:model={model}", "-t", "2")["tokens"])
            shutil.copytree(model, os.path.join(folder, "cut"))
            weights = os.path.join(folder, "cut", "model.safetensors")
            os.truncate(weights, os.path.getsize(weights) - 100)
            for choice, code, message in (("cepe", 2, "model=PATH"), (f"cepe:model={folder}/none", 3, "no such file or folder"),
                                          (f"cepe:model={folder}/cut", 3, "model.safetensors"),
                                          (f"cepe:model={model},tokens=300", 5, "there are 19")):
                done = millrace(*words, "--document", write(folder, "long.txt", "the cat sat on a mat\n" * 40), "--use", "context=" + choice)
                self.assertEqual(done.returncode, code, done.stderr.decode())
                self.assertIn(message, done.stderr.decode())

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
                                       (["--json-schema", '{"not": {"uniqueItems": true}}'], 4, b"/not"), (["--json-schema", "/nowhere.json"], 3, b"nowhere"),
                                       (["--constraint-trigger", "x"], 2, b"requires --json-schema"), (["--json-object", "--regex", "a"], 2, b"")):
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
        several = self.run_json("-p", "ab", "-n", "6", "-s", "3", "--temp", "1", "--ignore-eos", "--answers", "2")
        self.assertEqual(len(several["answers"]), 2)
        self.assertEqual(several["tokens"], several["answers"][0]["tokens"])
        second = self.run_json("-p", "ab", "-n", "6", "-s", "4", "--temp", "1", "--ignore-eos")
        self.assertEqual(several["answers"][1]["tokens"], second["tokens"])
        best = self.run_json("-p", "ab", "-n", "6", "-s", "3", "--temp", "1", "--ignore-eos", "--best-of", "4", "--logprobs", "0")
        self.assertNotIn("answers", best)
        self.assertAlmostEqual(best["score"], sum(token["logprob"] for token in best["logprobs"]) / 6, places=5)
        beams = self.run_json("-p", "ab", "-n", "6", "--ignore-eos", "--beams", "4", "--answers", "3", "--length-penalty", "0")
        scores = [answer["score"] for answer in beams["answers"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(len({tuple(answer["tokens"]) for answer in beams["answers"]}), 3)
        done = millrace("run", "-m", LLAMA, "-p", "ab", "--beams", "2", "--answers", "3")
        self.assertIn("beams", done.stderr.decode())
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("--- 2", millrace("run", "-m", LLAMA, "-p", "ab", "-n", "3", "--answers", "2").stdout.decode())

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
        self.assertRegex(done.stderr.decode(), r"KV cache of \d+ tokens: needs [0-9.]+ GB of memory, but .* has only [0-9.]+ .B left")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
