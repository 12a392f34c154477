#!/usr/bin/env python3
"""The C interface, as programs that embed the engine use it: what the library exports, the examples in C and Python, the
same tokens as `millrace run`, wrong calls, and the bounds of what nobody reads.

Usage: capi_test.py MILLRACE SOURCE_FOLDER LIBRARY CC CXX [CLASS]
"""

import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest

MILLRACE, SOURCE, LIBRARY, CC, CXX = sys.argv[1:6]
os.environ["MILLRACE_LIBRARY"] = LIBRARY
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(SOURCE, "examples/python"))
import millrace  # noqa: E402

C_FLAGS = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-I", os.path.join(SOURCE, "include")]
STORY = {"text": "One day", "seed": 7, "max_tokens": 24}


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **more)


def run_json(*flags):
    done = run(MILLRACE, "run", "-m", "stories", "--json", *flags)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def tokens_of(stream):
    return [event.token for event in stream if event.token >= 0]


def without_pooling(folder):
    """Writes the built-in model "stories" with llama.pooling_type = 0 (none). Returns the file's path."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    pooling = text("llama.pooling_type") + struct.pack("<II", 4, 0)  # 4: a 32-bit integer
    key = text("test.filler") + struct.pack("<I", 8)  # 8: a text
    filler = key + text(" " * (-(len(pooling) + len(key) + 8) % 32))  # offsets of tensors are multiples of 32
    with open(os.path.join(SOURCE, "models/millrace-stories-6m.gguf"), "rb") as file:
        data = file.read()
    magic, version, tensors, values = struct.unpack_from("<4sIQQ", data)
    path = os.path.join(folder, "pooling.gguf")
    with open(path, "wb") as file:
        file.write(struct.pack("<4sIQQ", magic, version, tensors, values + 2) + pooling + filler + data[24:])
    return path


def compiled(folder, source, *flags):
    program = os.path.join(folder, os.path.basename(source)[:-2])
    done = run(CC, *C_FLAGS, os.path.join(SOURCE, source), "-o", program, LIBRARY, f"-Wl,-rpath,{os.path.dirname(LIBRARY)}", *flags)
    assert done.returncode == 0, done.stderr
    return program


class Library(unittest.TestCase):
    def test_exports_what_the_stored_list_says(self):
        """A function that disappears from the list breaks programs; a new one needs a new MILLRACE_ABI_VERSION."""
        listed = run("nm", "-D", "--defined-only", "--with-symbol-versions", LIBRARY).stdout.splitlines()
        exported = sorted(" ".join(line.split()[1:]) for line in listed)
        with open(os.path.join(SOURCE, "tests/capi/symbols.txt")) as stored:
            self.assertEqual(exported, sorted(stored.read().splitlines()))

    def test_is_position_independent(self):
        dynamic = run("readelf", "-dW", LIBRARY).stdout
        self.assertIn("[libmillrace.so.0]", dynamic)
        self.assertNotIn("TEXTREL", dynamic)
        self.assertNotIn("libstdc++", run("ldd", LIBRARY).stdout)  # nor through another library

    def test_header_is_c_and_cxx(self):
        header = os.path.join(SOURCE, "include/millrace.h")
        with tempfile.TemporaryDirectory() as folder:
            for compiler, standard, name in ((CC, "-std=c11", "a.c"), (CXX, "-std=c++11", "a.cc")):
                source = os.path.join(folder, name)
                with open(source, "w") as file:
                    file.write(f'#include "{header}"\n#include "{header}"\n')
                done = run(compiler, standard, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", source)
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_wrong_calls(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run(compiled(folder, "tests/capi/wrong_calls.c", "-pthread"))
            self.assertEqual((done.returncode, done.stdout), (0, "ok\n"), done.stderr)


class Examples(unittest.TestCase):
    ARGUMENTS = ["stories", "One day", "seed=7", "max_tokens=24"]

    def check(self, *words):
        expected = run_json("-p", "One day", "-s", "7", "-n", "24")
        done = run(*words, *self.ARGUMENTS)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout, f"{expected['text']}\n[24 tokens]\n")
        failed = run(*words, "/no/such/model")
        self.assertEqual(failed.returncode, 1)
        self.assertRegex(failed.stderr, "MILLRACE_CORRUPT: /no/such/model")

    def test_c(self):
        with tempfile.TemporaryDirectory() as folder:
            program = compiled(folder, "examples/c/generate.c")
            self.check(program)
            refused = run(program, "stories", "One day", *["seed=7"] * 33)
            self.assertEqual((refused.returncode, refused.stderr), (2, "generate: 33 options: at most 32 are possible\n"))

    def test_python(self):
        self.check(sys.executable, "-B", os.path.join(SOURCE, "examples/python/generate.py"))


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = millrace.Model("stories")
        cls.engine = millrace.Engine(cls.model)

    def test_same_tokens_as_run(self):
        for flags, options in ((["-s", "7"], {"seed": 7}), (["--temp", "0"], {"temperature": 0}),
                               (["-s", "3", "--min-p", "0.2", "--top-k", "0"], {"seed": 3, "min_p": 0.2, "top_k": 0}),
                               (["--temp", "0", "--choice", "yes,no"], {"temperature": 0, "choice": ["yes", "no"]}),
                               (["-s", "5", "--stop", "."], {"seed": 5, "stop": "."})):
            expected = run_json("-p", "One day", "-n", "24", *flags)
            answer = list(self.engine.submit(text="One day", max_tokens=24, **options))
            self.assertEqual([event.token for event in answer if event.token >= 0], expected["tokens"], flags)
            self.assertEqual("".join(event.text for event in answer), expected["text"], flags)
            self.assertEqual(answer[-1].finish, expected["finish_reason"], flags)
            self.assertTrue(answer[-1].last)
            self.assertEqual(answer[-1].prompt_tokens, len(expected["prompt_tokens"]))

    def test_same_tokens_from_text_and_from_tokens(self):
        prompt = self.model.tokenize("One day")
        self.assertEqual(tokens_of(self.engine.submit(**STORY)),
                         tokens_of(self.engine.submit(tokens=prompt, seed=7, max_tokens=24)))

    def test_same_tokens_with_techniques(self):
        expected = run_json("-p", "One day", "-s", "7", "-n", "24", "--use", "kv_format=kivi:bits=2")
        engine = millrace.Engine(self.model, use=["kv_format=kivi:bits=2", "policy=vtc"])
        self.assertEqual([(use["family"], use["name"]) for use in engine.techniques()],
                         [("kv_format", "kivi"), ("policy", "vtc")])
        self.assertEqual(tokens_of(engine.submit(**STORY)), expected["tokens"])

    def test_documents_before_a_text(self):
        texts = ["Tom has a red ball. ", "Lily has a blue cup. "]
        with tempfile.TemporaryDirectory() as folder:
            flags = []
            for i, text in enumerate(texts):
                path = os.path.join(folder, f"{i}.txt")
                with open(path, "w") as file:
                    file.write(text)
                flags += ["--document", path]
            for use in ([], ["--use", "context=independent"]):
                expected = run_json("-p", "One day, Tom", "-s", "7", "-n", "24", *flags, *use)
                answer = list(self.engine.submit(text="One day, Tom", seed=7, max_tokens=24, document=texts, use=use[1:]))
                self.assertEqual([event.token for event in answer if event.token >= 0], expected["tokens"], use)
                self.assertEqual(answer[-1].prompt_tokens, len(expected["prompt_tokens"]))
        self.assertNotEqual(tokens_of(self.engine.submit(text="One day, Tom", seed=7, max_tokens=24)), expected["tokens"])
        for wrong, status in (({"tokens": [5]}, "UNSUPPORTED"), ({"text": ""}, "INVALID_ARGUMENT"), ({"messages": []}, "INVALID_ARGUMENT")):
            with self.assertRaises(millrace.MillraceError) as refused:
                self.engine.submit(document=texts, **wrong)
            self.assertEqual(refused.exception.status, "MILLRACE_" + status, wrong)
            self.assertIn("document", str(refused.exception))

    def test_documents_in_a_conversation(self):
        """A document's tokens begin the user's message; its keys depend on it alone."""
        messages = [{"role": "user", "content": "Who has the ball?"}]
        texts = ["Tom has a red ball.\n", "Lily has a blue cup.\n"]
        model = millrace.Model("lab")
        engine = millrace.Engine(model)
        whole = [{"role": "user", "content": "".join(texts) + messages[0]["content"]}]
        tokens = model.tokenize(model.render_chat(whole))
        answer = list(engine.submit(messages=messages, document=texts, temperature=0, max_tokens=8))
        # Documents are tokenized apart, so that a token at each border may be another one.
        self.assertAlmostEqual(answer[-1].prompt_tokens, len(tokens), delta=len(texts))
        self.assertEqual(tokens_of(engine.submit(messages=whole, temperature=0, max_tokens=8)),
                         tokens_of(answer))

    def test_techniques_with_a_path_that_is_not_utf8(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, b"a\xff".decode("utf-8", "surrogateescape"))
            engine = millrace.Engine(self.model, use=f"store=ssd:path={path},size=8M")
            [store] = engine.techniques()
            self.assertIn("a\ufffd", json.dumps(store, ensure_ascii=False))

    def test_log_probabilities(self):
        expected = run_json("-p", "One day", "-s", "7", "-n", "8", "--logprobs", "2")["logprobs"]
        events = [event for event in self.engine.submit(text="One day", seed=7, max_tokens=8, logprobs=2) if event.token >= 0]
        self.assertEqual(len(events), len(expected))
        for event, wanted in zip(events, expected):
            self.assertAlmostEqual(event.logprob, wanted["logprob"], places=5)
            self.assertEqual([token for token, _ in event.top], [top["token"] for top in wanted["top"]])
        self.assertEqual(next(iter(self.engine.submit(**STORY, user_data=0))).user_data, 0)
        without = next(iter(self.engine.submit(**STORY)))
        self.assertNotEqual(without.logprob, without.logprob)  # NaN

    def test_conversation(self):
        messages = [{"role": "user", "content": "Tell a story."}]
        text = self.model.render_chat(messages)
        self.assertIn("Tell a story.", text)
        self.assertEqual(tokens_of(self.engine.submit(messages=messages, seed=7, max_tokens=8)),
                         tokens_of(self.engine.submit(text=text, seed=7, max_tokens=8)))

    def test_several_answers(self):
        expected = run_json("-p", "One day", "-s", "7", "-n", "12", "--answers", "3")["answers"]
        found = {}
        for event in self.engine.submit(text="One day", seed=7, max_tokens=12, answers=3):
            if event.token >= 0:
                found.setdefault(event.answer, []).append(event.token)
        self.assertEqual([found[i] for i in range(3)], [answer["tokens"] for answer in expected])

    def test_streams_in_turn(self):
        """One loop serves every stream; each has the tokens that it has alone."""
        alone = {seed: tokens_of(self.engine.submit(text="One day", seed=seed, max_tokens=16)) for seed in range(1, 6)}
        engine = millrace.Engine(self.model)
        streams = [engine.submit(text="One day", seed=seed, max_tokens=16, user_data=seed) for seed in alone]
        together = {}
        while (event := engine.poll()) is not None:
            if event.token >= 0:
                together.setdefault(event.user_data, []).append(event.token)
        self.assertEqual(together, alone)
        self.assertEqual(len(streams), 5)

    def test_tokens_and_text(self):
        tokens = self.model.tokenize("Once upon a time")
        self.assertEqual(tokens, run_json("-p", "Once upon a time", "-n", "1")["prompt_tokens"])
        self.assertEqual(self.model.detokenize(tokens).strip(), "Once upon a time")
        facts = self.model.describe()
        self.assertEqual((facts["architecture"], facts["warnings"]), ("llama", ""))
        self.assertGreater(facts["vocabulary"], max(tokens))

    def test_texts_with_more_tokens_than_bytes(self):
        """A letter that is not in the vocabulary has a token for each byte. The start token and a space come first."""
        tokens = self.model.tokenize("\ufb2c")
        self.assertGreater(len(tokens), len("\ufb2c".encode()))
        self.assertEqual(self.model.detokenize(tokens).strip(), "\ufb2c")
        self.assertEqual(self.model.detokenize(self.model.tokenize("")).strip(), "")

    def test_embeddings(self):
        texts = ["The cat sat.", "A dog ran."]
        for flags, options in (([], {}), (["--pooling", "mean", "--raw", "--dimensions", "8"], {"pooling": "mean", "raw": True, "dimensions": 8})):
            lines = run(MILLRACE, "embed", "-m", "stories", *flags, *texts).stdout.splitlines()
            for found, line in zip(self.model.embed(texts, **options), lines, strict=True):
                wanted = json.loads(line)["embedding"]
                self.assertEqual(len(found), len(wanted))
                for a, b in zip(found, wanted):
                    self.assertAlmostEqual(a, b, places=5)
        with self.assertRaisesRegex(millrace.MillraceError, "one vector per token"):
            self.model.embed(texts, pooling="none")

    def test_embeddings_of_a_model_that_declares_no_pooling(self):
        with tempfile.TemporaryDirectory() as folder:
            model = millrace.Model(without_pooling(folder))
            with self.assertRaisesRegex(millrace.MillraceError, "one vector per token; choose pooling") as refused:
                model.embed(["The cat sat."])
            self.assertEqual(refused.exception.status, "MILLRACE_UNSUPPORTED")
            [found] = model.embed(["The cat sat."], pooling="last")
        self.assertEqual(found, self.model.embed(["The cat sat."], pooling="last")[0])


class Bounds(unittest.TestCase):
    """What nobody reads takes bounded memory, and what nobody wants ends."""

    @classmethod
    def setUpClass(cls):
        cls.model = millrace.Model("stories")

    def test_unread_events(self):
        engine = millrace.Engine(self.model, unread_events=5)
        endless = engine.submit(text="One day", max_tokens=-1, ignore_eos=True)
        for _ in range(4):  # 16 steps, each of which also has a token for the endless one
            self.assertEqual(len(tokens_of(engine.submit(text="One day", seed=1, max_tokens=4))), 4)
        answer = list(endless)
        self.assertEqual(len(answer), 6)
        self.assertEqual((answer[-1].finish, answer[-1].status), ("error", "MILLRACE_OUT_OF_RESOURCES"))
        self.assertIn("raise unread_events", answer[-1].message)

    def test_open_streams(self):
        engine = millrace.Engine(self.model, open_streams=2)
        streams = [engine.submit(**STORY) for _ in range(2)]
        for stream in streams:
            list(stream)  # ended, but not freed
        with self.assertRaisesRegex(millrace.MillraceError, "open_streams") as refused:
            engine.submit(**STORY)
        self.assertEqual(refused.exception.status, "MILLRACE_OUT_OF_RESOURCES")
        streams.pop()
        del stream
        self.assertEqual(len(tokens_of(engine.submit(**STORY))), 24)

    def test_cancel(self):
        engine = millrace.Engine(self.model)
        stream = engine.submit(text="One day", max_tokens=-1, ignore_eos=True)
        self.assertIsNot(stream.poll(), None)
        stream.cancel()
        self.assertEqual(list(stream)[-1].finish, "cancelled")
        self.assertIsNone(stream.poll(0))

    def test_time_out(self):
        engine = millrace.Engine(self.model, max_streams=1)
        first = engine.submit(text="One day", max_tokens=-1, ignore_eos=True)
        second = engine.submit(**STORY)  # waits for the first
        self.assertEqual(second.poll(20), millrace.TIMEOUT)
        first.cancel()
        self.assertEqual(len(tokens_of(second)), 24)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[6:]])
