#!/usr/bin/env python3
"""Models and messages without flags, the commands help and version, further flags of other engines, and the config file
that is read where none is named.

Usage: cli_names_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the built-in and the tiny golden models only.
"""

import json
import os
import pty
import subprocess
import sys
import tempfile
import unittest

from cli import BINARY, LLAMA, millrace, write

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402

SHORT = ("-n", "6", "-t", "1", "--temp", "0")


def ask(*arguments, stdin=b""):
    """The JSON that `run` prints."""
    done = millrace("run", *arguments, *SHORT, "--json", stdin=stdin)
    if done.returncode:
        raise AssertionError(done.stderr.decode())
    return json.loads(done.stdout)


def in_chat(*turns):
    """The golden model's template, written by hand."""
    return "<|bos|>" + "".join(f"<|turn|>{role}\n{text}<|eos|>\n" for role, text in turns) + "<|turn|>assistant\n"


class ModelWords(unittest.TestCase):
    def refused(self, *arguments, code=2):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        return done.stderr.decode()

    def test_a_message_goes_through_the_template(self):
        by_hand = lambda *turns: ask("-m", LLAMA, "-p", in_chat(*turns), "--no-special")["prompt_tokens"]
        one = by_hand(("user", "ab cd"))
        self.assertEqual(ask(LLAMA, "ab cd")["prompt_tokens"], one)
        self.assertEqual(ask(LLAMA, "ab", "cd")["prompt_tokens"], one)
        self.assertEqual(ask("-m", LLAMA, "ab cd")["prompt_tokens"], one)
        self.assertEqual(ask(LLAMA, stdin=b"ab cd\n")["prompt_tokens"], one)
        self.assertEqual(ask(LLAMA, "ab cd", "--system", "be brief")["prompt_tokens"], by_hand(("system", "be brief"), ("user", "ab cd")))
        self.assertEqual(ask(LLAMA, "ab", stdin=b"text\n")["prompt_tokens"], by_hand(("user", "text\n\nab")))
        done = millrace("run", LLAMA, "ab cd", *SHORT)
        self.assertEqual(done.stdout.decode(), ask(LLAMA, "ab cd")["text"] + "\n")  # the message is not repeated

    def test_p_continues_a_text(self):
        plain = ask("-m", LLAMA, "-p", "ab")
        self.assertEqual(ask(LLAMA, "-p", "ab")["tokens"], plain["tokens"])
        self.assertEqual(millrace("run", LLAMA, "-p", "ab", *SHORT).stdout.decode(), "ab" + plain["text"] + "\n")
        self.assertEqual(millrace("run", LLAMA, "-p", "ab", "--no-display-prompt", *SHORT).stdout.decode(), plain["text"] + "\n")

    def test_what_does_not_go_together(self):
        self.assertIn("'ab' is not expected here", self.refused("run", LLAMA, "ab", "-p", "cd"))
        self.assertIn("there is no message", self.refused("run", LLAMA))
        self.assertIn("--system", self.refused("run", "-m", LLAMA, "-p", "ab", "--system", "x"))
        self.assertIn("-m names the model", self.refused("chat", LLAMA, "-m", LLAMA))
        self.assertIn("--document", self.refused("run", LLAMA, "ab", "--document", LLAMA))

    def test_a_repeatable_flag_takes_one_value(self):
        self.assertEqual(ask("--stop", "X", LLAMA, "ab")["prompt_tokens"], ask(LLAMA, "ab", "--stop", "X")["prompt_tokens"])
        self.assertEqual(ask("--choice", "a,b", LLAMA, "ab")["text"], ask(LLAMA, "ab", "--choice", "a,b")["text"])
        done = millrace("chat", "--stop", "X", LLAMA, *SHORT, stdin=b"ab cd\n")
        self.assertEqual(done.stdout.decode(), ask(LLAMA, "ab cd")["text"] + "\n")
        models = lambda server, key: server.ask("GET", "/v1/models", headers={"Authorization": "Bearer " + key})
        with server_process.Server(BINARY, "--api-key", "k", "stories", model=None) as server:
            self.assertEqual([one["id"] for one in json.loads(models(server, "k")[1])["data"]], ["stories"])
            self.assertEqual(models(server, "stories")[0], 401)
        with server_process.Server(BINARY, "-m", "lab", "stories", model=None) as server:
            self.assertEqual([one["id"] for one in json.loads(server.ask("GET", "/v1/models")[1])["data"]], ["lab", "stories"])

    def test_flags_that_a_conversation_does_not_use(self):
        for name, *values in (("--json",), ("--json-schema", "{}"), ("--choice", "a,b"), ("--answers", "2"), ("--kv-save", "x"), ("--ignore-eos",),
                              ("--document", LLAMA)):
            screen, terminal = pty.openpty()
            try:
                done = subprocess.run([BINARY, "run", LLAMA, name, *values], stdin=terminal, capture_output=True, text=True, timeout=120, check=False)
            finally:
                os.close(screen)
                os.close(terminal)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(f"run: {name}: needs a message after the model, or -p TEXT", done.stderr)

    def test_words_without_text(self):
        self.assertIn("write one after lab, or pipe it in", self.refused("run", "", ""))
        self.assertIn("Usage: millrace serve [MODEL...] [FLAGS]", millrace("serve", "--help").stdout.decode())

    def test_unknown_models(self):
        self.assertIn("did you mean lab?", self.refused("run", "lba", "hello", code=3))
        self.assertIn("/nonexistent/x.gguf: no such file", self.refused("run", "/nonexistent/x.gguf", "hello", code=3))
        self.assertIn("a text to continue is -p TEXT", self.refused("run", "Once upon a time", code=3))
        self.assertIn("no such file", self.refused("serve", "mine=nonexistent", code=3))

    def test_chat_and_serve(self):
        done = millrace("chat", LLAMA, *SHORT, stdin=b"ab cd\n")
        self.assertEqual(done.stdout.decode(), ask(LLAMA, "ab cd")["text"] + "\n")
        with server_process.Server(BINARY, "mine=" + LLAMA, "stories", model=None) as server:
            self.assertEqual([one["id"] for one in json.loads(server.ask("GET", "/v1/models")[1])["data"]], ["mine", "stories"])

    def test_help_and_version(self):
        self.assertEqual(millrace("help").stdout, millrace("--help").stdout)
        self.assertEqual(millrace("help", "run").stdout, millrace("run", "--help").stdout)
        self.assertEqual(millrace("help", "trace", "stats").stdout, millrace("trace", "stats", "--help").stdout)
        self.assertIn("did you mean run?", self.refused("help", "rum"))
        self.assertEqual(millrace("version").stdout, millrace("--version").stdout)

    def test_the_built_in_model_introduces_itself_in_a_terminal(self):
        screen, terminal = pty.openpty()
        try:
            subprocess.run([BINARY, "run", "-m", "lab", "-p", "a", "-n", "1", "-t", "1"], stderr=terminal, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL,
                           timeout=120, check=True)
            shown = os.read(screen, 65536).decode()
        finally:
            os.close(screen)
            os.close(terminal)
        self.assertRegex(shown, r"lab is a demonstration with 4 M parameters: it .*\. A real model: millrace run qwen3:0\.6b\r\n")
        self.assertNotIn("demonstration", millrace("run", "-m", "lab", "-p", "a", "-n", "1", "-t", "1").stderr.decode())


class MoreFlags(unittest.TestCase):
    def accepted(self, *arguments):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode()

    def test_of_run(self):
        whole = ask("-m", LLAMA, "-p", "ab", "--ignore-eos")["text"]
        stop = whole[2:4]
        self.assertEqual(ask("-m", LLAMA, "-p", "ab", "--ignore-eos", "-r", stop)["text"], whole[:whole.index(stop)])
        noted = self.accepted("run", "-m", LLAMA, "-p", "ab", *SHORT, "--color", "--log-disable", "-v", "--reasoning-format", "none")
        for flag in ("--color", "--log-disable", "-v", "--reasoning-format"):
            self.assertIn(f"note: {flag}: ignored: ", noted)
        done = millrace("run", "-m", LLAMA, "-p", "ab", "--mmproj", "x.gguf")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--mmproj: models do not read pictures yet", done.stderr.decode())

    def test_of_serve(self):
        for flags in (("--log-disable",), ("-v",), ("--timeout", "30"), ("--api-prefix", "/llm"), ("--no-webui",)):
            self.assertEqual(self.accepted("serve", *flags, "--api-docs"), "", flags)
        self.assertEqual(millrace("serve", "--timeout", "soon", "--api-docs").returncode, 2)
        with server_process.Server(BINARY, "--log-disable") as server:
            self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "a", "max_tokens": 1})[0], 200)
            self.assertEqual(server.stop(), 0)
            self.assertNotIn("POST", server.log)

    def test_no_page(self):
        html = {"Accept": "text/html"}
        with server_process.Server(BINARY, "--no-webui") as server:
            self.assertEqual(server.ask("GET", "/", headers=html), (200, "Ollama is running"))
            self.assertEqual(server.ask("GET", "/favicon.svg")[0], 404)
        with server_process.Server(BINARY, "--no-webui", "--api-key", "k") as server:
            self.assertEqual(server.ask("GET", "/", headers={**html, "Authorization": "Bearer k"})[1], "Ollama is running")


class Settings(unittest.TestCase):
    """The config file of the user's folder."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        os.mkdir(os.path.join(self.folder.name, "millrace"))

    def call(self, *arguments):
        return subprocess.run([BINARY, *arguments], capture_output=True, text=True, timeout=120, check=False, input="",
                              env={**os.environ, "XDG_CONFIG_HOME": self.folder.name})

    def tokens(self, *arguments):
        done = self.call("run", "-m", LLAMA, "-p", "ab", "-t", "1", "--json", *arguments)
        self.assertEqual(done.returncode, 0, done.stderr)
        return len(json.loads(done.stdout)["tokens"])

    def test_it_is_read_and_named(self):
        path = os.path.join(self.folder.name, "millrace", "config.toml")
        self.assertIn(f"none: {path}", self.call("doctor", "--quick").stdout)
        write(self.folder.name, "millrace/config.toml", "[run]\nn = 3\nignore-eos = true\n\n[serve]\nport = 1234\n")
        self.assertEqual(self.tokens(), 3)
        self.assertEqual(self.tokens("-n", "2"), 2)
        other = write(self.folder.name, "other.toml", "[run]\nn = 4\nignore-eos = true\n")
        self.assertEqual(self.tokens("--config", other), 4)
        self.assertEqual(self.tokens("--config", "/dev/null", "-n", "5", "--ignore-eos"), 5)
        findings = {one["topic"]: one["text"] for one in json.loads(self.call("doctor", "--quick", "--json").stdout)["findings"]}
        self.assertEqual(findings["config file"], path)
        self.assertIn("0 from " + os.path.join(self.folder.name, "millrace", "short-names.toml"), findings["short names"])
        write(self.folder.name, "millrace/config.toml", "[run]\ntempp = 1\n")
        done = self.call("run", "-m", LLAMA, "-p", "ab")
        self.assertEqual(done.returncode, 2)
        self.assertIn(f"{path}:2: [run] tempp: no such flag", done.stderr)

    def test_a_model_of_the_file_is_replaced(self):
        """MODEL takes precedence over the file, as -m does."""
        text = "".join(f'[{command}]\nmodel = "/nonexistent/x.gguf"\n' for command in ("run", "chat", "serve"))
        path = write(self.folder.name, "millrace/config.toml", text)
        done = self.call("run", LLAMA, "ab", *SHORT, "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["prompt_tokens"], ask(LLAMA, "ab")["prompt_tokens"])
        done = self.call("run", "-m", LLAMA, "ab", *SHORT, "--json")
        self.assertEqual(json.loads(done.stdout)["prompt_tokens"], ask(LLAMA, "ab")["prompt_tokens"])
        self.assertEqual(self.call("chat", LLAMA, *SHORT).returncode, 0)
        self.assertIn("-m names the model", self.call("chat", LLAMA, "-m", LLAMA).stderr)
        self.assertEqual(self.call("run", "-p", "ab").returncode, 3)  # the file's model
        with server_process.Server(BINARY, "--config", path, "mine=" + LLAMA, model=None) as server:
            self.assertEqual([one["id"] for one in json.loads(server.ask("GET", "/v1/models")[1])["data"]], ["mine"])

    def test_a_damaged_file_is_reported(self):
        path = write(self.folder.name, "millrace/config.toml", "[run]\ntempp = 1\n")
        for command in (("help",), ("help", "run"), ("version",), ("completion", "bash"), ("man",), ("--version",), ("--help",), ("run", "--help"), ("run", "--help-all")):
            done = self.call(*command)
            self.assertEqual((done.returncode, done.stderr), (0, ""), command)
        done = self.call("doctor", "--quick", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        found = {one["topic"]: one for one in json.loads(done.stdout)["findings"]}["config file"]
        self.assertEqual(found["level"], "problem")
        self.assertIn(f"{path}:2: [run] tempp: no such flag", found["text"])
        self.assertEqual(self.call("list").returncode, 2)
        self.assertEqual(self.call("run", "-m", LLAMA, "-p", "--help").returncode, 2)  # a value, not a flag


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
