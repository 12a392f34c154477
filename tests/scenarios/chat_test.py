#!/usr/bin/env python3
"""millrace chat as people and scripts use it: piped in line by line, and typed into a pseudo-terminal.

Usage: chat_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import fcntl
import json
import os
import pty
import re
import select
import shutil
import signal
import string
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unicodedata
import unittest
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402

BINARY, SOURCE = sys.argv[1], sys.argv[2]
FOLDER = os.path.join(SOURCE, "tests/golden/llama3")
MODEL = os.path.join(FOLDER, "model.gguf")
PATIENCE = 60


def chat(script, *flags, model=MODEL, folder=None):
    done = subprocess.run([BINARY, "chat", "-m", model, "-t", "1", *flags], input=script.encode(), capture_output=True, timeout=PATIENCE, check=False, cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Screen:
    """The rows that a terminal shows after what was written to it."""

    def __init__(self, columns, text):
        self.columns, self.cells, self.row, self.column = columns, [[]], 0, 0
        for one in re.finditer(r"\x1b\[(\??)(\d*)[\d;]*([A-Za-z@])|\x1b[()]?.|[\s\S]", text):
            if one[3] and not one[1]:
                self.control(one[3], int(one[2] or 0))
            elif one[0][0] != "\x1b":
                self.put(one[0])

    def here(self):
        while len(self.cells) <= self.row:
            self.cells.append([])
        cells = self.cells[self.row]
        cells.extend(" " * (self.column - len(cells)))
        return cells

    def put(self, character):
        if character == "\n":
            self.row += 1
        elif character == "\r":
            self.column = 0
        elif character == "\b":
            self.column = max(0, min(self.column, self.columns - 1) - 1)
        elif character >= " ":
            width = 2 if unicodedata.east_asian_width(character) in "WF" else 1
            if self.column + width > self.columns:  # the row is full: the character begins the next one
                self.row, self.column = self.row + 1, 0
            self.here()[self.column:self.column + width] = [character, ""][:width]
            self.column += width

    def control(self, letter, count):
        self.column = min(self.column, self.columns - 1) if letter in "ABCDGHPX@" else self.column
        if letter == "A":
            self.row = max(0, self.row - max(1, count))
        elif letter == "B":
            self.row += max(1, count)
        elif letter == "C":
            self.column = min(self.columns - 1, self.column + max(1, count))
        elif letter == "D":
            self.column = max(0, self.column - max(1, count))
        elif letter == "G":
            self.column = max(1, count) - 1
        elif letter in "JK":
            del self.here()[self.column:]
            if letter == "J":
                del self.cells[self.row + 1:]
        elif letter == "P":
            del self.here()[self.column:self.column + max(1, count)]
        elif letter == "@":
            self.here()[self.column:self.column] = " " * max(1, count)
        elif letter not in "mhl":
            raise ValueError(f"the screen does not know {letter!r}")

    def rows(self):
        return ["".join(cells).rstrip() for cells in self.cells]


class Piped(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def path(self, name):
        return os.path.join(self.folder, name)

    def saved(self, script, *flags, model=MODEL):
        """The conversation after a script."""
        code, _, errors = chat(f"{script}\n/save {self.path('saved.json')}\n", *flags, model=model)
        self.assertEqual(code, 0, errors)
        with open(self.path("saved.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_each_line_is_a_turn_and_the_output_bare(self):
        code, out, errors = chat("ab\n\ncd", "-n", "6", "--seed", "3")
        self.assertEqual(code, 0, errors)
        turns = self.saved("ab\n\ncd", "-n", "6", "--seed", "3")
        self.assertEqual([turn["role"] for turn in turns], ["user", "assistant"] * 2)
        self.assertEqual([turn["content"] for turn in turns[::2]], ["ab", "cd"])
        answers = [turn["content"] for turn in turns[1::2]]
        self.assertEqual(out, "".join(text if text.endswith("\n") else text + "\n" for text in answers))

    def test_the_model_sees_the_whole_conversation(self):
        turns = self.saved("ab\ncd", "-n", "8", "--temp", "0", "--system", "be brief")
        self.assertEqual(turns[0], {"role": "system", "content": "be brief"})
        prompt = "<|bos|>" + "".join(f"<|turn|>{t['role']}\n{t['content']}<|eos|>\n" for t in turns[:-1]) + "<|turn|>assistant\n"
        done = subprocess.run([BINARY, "run", "-m", MODEL, "-t", "1", "-p", prompt, "-n", "8", "--temp", "0", "--no-special", "--json"],
                              capture_output=True, timeout=PATIENCE, check=True)
        self.assertEqual(json.loads(done.stdout)["text"], turns[-1]["content"])

    def test_a_lab_models_roles_are_control_tokens(self):
        """Of a lab model that has seen nothing yet: in the terminal, over HTTP, and from tokens written by hand."""
        letters = string.ascii_letters
        pieces = ["\u2581", *letters, *("\u2581" + one for one in letters), *(a + b for a in letters for b in letters)]
        with open(self.path("pieces"), "w", encoding="utf-8") as file:
            file.write("".join(piece + "\n" for piece in pieces[:250]))
        model = self.path("lab.gguf")
        train = [BINARY, "train-lab", "--out", self.path("run")]
        for flags in (["--size", "lab-draft", "--tokens", "0", "--items", "1", "--threads", "1", "--vocabulary", self.path("pieces"),
                       "--vocabulary-size", "512"], ["--export", model]):
            subprocess.run([*train, *flags], check=True, capture_output=True, timeout=PATIENCE)

        def ids(text):
            done = subprocess.run([BINARY, "tokenize", "-m", model, "--no-bos", "--json", text], check=True, capture_output=True)
            return json.loads(done.stdout)["tokens"]

        system, user, assistant, end = 509, 510, 511, 2
        self.assertEqual(ids("<|system|><|user|><|assistant|></s>"), [system, user, assistant, end])
        turns = self.saved("ab cd", "-n", "6", "--temp", "0", "--system", "be brief", model=model)
        self.assertEqual([turn["role"] for turn in turns], ["system", "user", "assistant"])
        prompt = [1, system, *ids("be brief"), end, user, *ids("ab cd"), end, assistant]
        done = subprocess.run([BINARY, "run", "-m", model, "-t", "1", "--prompt-tokens", ",".join(map(str, prompt)), "-n", "6", "--temp", "0",
                               "--json"], check=True, capture_output=True, timeout=PATIENCE)
        self.assertEqual(json.loads(done.stdout)["text"], turns[-1]["content"])
        with server_process.Server(BINARY, "-m", model) as server:
            status, text = server.ask("POST", "/v1/chat/completions", {"messages": turns[:-1], "max_tokens": 6, "temperature": 0})
            self.assertEqual(status, 200, text)
            answer = json.loads(text)
            self.assertEqual(answer["choices"][0]["message"]["content"], turns[-1]["content"])
            self.assertEqual(answer["usage"]["prompt_tokens"], len(prompt))

    def test_backslash_continues_a_line(self):
        self.assertEqual(self.saved("ab\\\ncd", "-n", "1")[0]["content"], "ab\ncd")

    def test_three_quotes_enclose_a_message(self):
        self.assertEqual(self.saved('"""\nWhat is\n38 + 96?\n"""', "-n", "1")[0]["content"], "What is\n38 + 96?")
        self.assertEqual(self.saved('"""ab\n\ncd"""', "-n", "1")[0]["content"], "ab\n\ncd")
        self.assertEqual(self.saved('"""ab"""', "-n", "1")[0]["content"], "ab")
        self.assertEqual(self.saved('"""\n/help me\n"""', "-n", "1")[0]["content"], "/help me")
        self.assertEqual(self.saved('/set system """\nbe\nkind"""\nab', "-n", "1")[0], {"role": "system", "content": "be\nkind"})
        self.assertEqual(len(self.saved('""""""\nab', "-n", "1")), 2)  # an empty one is none
        code, out, errors = chat('"""\nab', "-n", "4", "--logit-bias", "125:-inf")  # the end of the input closes it
        self.assertEqual(code, 0, errors)
        self.assertTrue(out)
        self.assertIn('"""', chat("/help\n")[1])

    def test_two_slashes_begin_a_message(self):
        self.assertEqual(self.saved("//help me", "-n", "1")[0]["content"], "/help me")

    def test_save_and_load(self):
        first = self.saved("ab\ncd", "-n", "8", "--system", "x")
        shutil.copy(self.path("saved.json"), self.path("first.json"))
        self.assertEqual(self.saved(f"/load {self.path('first.json')}"), first)
        longer = self.saved("ab\ncd\nef", "-n", "8", "--system", "x")
        self.assertEqual(self.saved(f"/load {self.path('first.json')}\nef", "-n", "8"), longer)

    def test_bad_files_do_not_end_the_chat(self):
        bad = {"none.json": None, "cut.json": "[{", "number.json": "7", "role.json": '[{"role": "pirate", "content": "x"}]',
               "content.json": '[{"role": "user", "content": 3}]', "late.json": '[{"role":"user","content":"a"},{"role":"system","content":"b"}]'}
        for name, text in bad.items():
            if text is not None:
                with open(self.path(name), "w", encoding="utf-8") as file:
                    file.write(text)
        script = "ab\n" + "".join(f"/load {self.path(name)}\n" for name in bad) + f"/load {self.folder}\n/load\n/save /nonexistent/x\n/tokens\n"
        code, out, errors = chat(script, "-n", "4")
        self.assertEqual(code, 0, errors)
        for name in bad:
            self.assertIn(self.path(name) + ":", errors)
        self.assertIn("pirate", errors)
        self.assertIn("/nonexistent/x: cannot be written", errors)
        self.assertIn("in 2 messages", out)  # what was said before is still there

    def test_regen_and_seeds(self):
        def last(script):
            turns = self.saved(script, "-n", "12", "--seed", "3")
            self.assertEqual(len(turns), 2)
            return turns[1]["content"]
        answer = last("ab")
        self.assertEqual(last("ab\n/regen 3"), answer)
        self.assertEqual(last("ab\n/regen 8\n/regen 3"), answer)
        self.assertEqual(last("ab\n/set seed 3\n/regen"), answer)
        other = last("ab\n/regen")
        self.assertNotEqual(other, answer)
        self.assertEqual(last("ab\n/regen 4"), other)
        self.assertEqual(last("ab\n/set seed 4\n/regen"), other)
        self.assertIn("/regen", chat("/regen\n")[2])
        self.assertIn("'x'", chat("ab\n/regen x\n", "-n", "1")[2])

    def test_tokens_and_reset(self):
        _, out, _ = chat("/tokens\nab\n/tokens\n/reset\n/tokens\n", "-n", "4", "--temp", "0")
        counts = [int(n) for n in re.findall(r"^(\d+) of 512 tokens", out, re.MULTILINE)]
        turns = self.saved("ab", "-n", "4", "--temp", "0")
        text = "<|bos|>" + "".join(f"<|turn|>{t['role']}\n{t['content']}<|eos|>\n" for t in turns)
        done = subprocess.run([BINARY, "tokenize", "-m", MODEL, "--stdin", "--no-bos", "--json"], input=text.encode(), capture_output=True,
                              timeout=PATIENCE, check=True)
        self.assertEqual(counts, [0, len(json.loads(done.stdout)["tokens"]), 0])

    def test_set(self):
        greedy = self.saved("ab", "-n", "8", "--temp", "0")
        self.assertEqual(self.saved("/set temp 0\n/set n 8\nab"), greedy)
        self.assertEqual(self.saved("/set system be kind\nab", "-n", "1")[0], {"role": "system", "content": "be kind"})
        code, out, errors = chat("/set temperature warm\n/set nonsense 1\n/set n x\n/set top_p 7\n/set banned_tokens 99999\n/set trim 2\n/set temp\n/set\n")
        self.assertEqual(code, 0)
        self.assertEqual(len(errors.splitlines()), 7, errors)
        for part in ("'warm'", "nonsense", "'x'", "top_p", "99999", "trim"):
            self.assertIn(part, errors)
        self.assertRegex(out, r"(?m)^ *temperature +0\.8")

    def test_set_understands_ollama(self):
        greedy = self.saved("ab", "-n", "8", "--temp", "0")
        self.assertEqual(self.saved("/set parameter temperature 0\n/set parameter num_predict 8\nab"), greedy)
        self.assertRegex(chat("/set verbose\nab\n", "-n", "1")[2], r"prompt \d+ tokens")
        self.assertEqual(chat("/set verbose\n/set quiet\n/set nowordwrap\n/set wordwrap\n/set nohistory\n/set history\n/set noformat\n")[1:], ("", ""))
        self.assertRegex(chat("/set parameter stop a \"b\"\n/set parameter repeat_last_n 7\n/set parameter\n")[1], r"(?m)^ *stop +a b$")
        refused = {"parameter num_ctx 4096": "-c 4096", "parameter num_thread 2": "-t 2", "format json": "--json-object", "think": "template",
                   "parameter": "", "nonsense 1": "unknown setting; /set lists them", "temperatur 1": "did you mean temperature?"}
        for words, advice in refused.items():
            code, _, errors = chat(f"/set {words}\n")
            self.assertEqual(code, 0)
            self.assertIn(advice, errors)
            self.assertEqual(len(errors.splitlines()), 1 if advice else 0, errors)
            self.assertNotIn("millrace techniques", errors)

    def test_the_system_prompt_is_shown_and_cleared(self):
        self.assertEqual(self.saved('/set system ""\nab', "-n", "1", "--system", "be brief")[0]["role"], "user")
        self.assertEqual(self.saved('/set system "be kind"\nab', "-n", "1")[0]["content"], "be kind")
        self.assertEqual(chat("/set system\n/show system\n", "--system", "be brief")[1], "be brief\nbe brief\n")
        self.assertIn("no system prompt", chat("/set system\n")[1])

    def test_show(self):
        def shown(what, *flags, model=MODEL):
            code, out, errors = chat(f"/show {what}\n", *flags, model=model)
            self.assertEqual((code, errors), (0, ""))
            return out
        info = shown("info", "--system", "be brief", "-c", "100")
        for fact in (r"architecture +llama", r"parameters +\d+\.\d M", r"context length +512, of which this chat has 100", r"embedding length +\d+", "be brief"):
            self.assertRegex(info, fact)
        with open(os.path.join(FOLDER, "tokenizer_config.json"), encoding="utf-8") as file:
            self.assertEqual(shown("template").rstrip("\n"), json.load(file)["chat_template"].rstrip("\n"))
        self.assertEqual(shown("modelfile").splitlines()[0], "FROM " + MODEL)
        self.assertEqual(chat("/show modelfile\n", model="stories")[1].splitlines()[0], "FROM stories")
        self.assertRegex(shown("parameters", "--top-k", "7", "-n", "9"), r"n +9\n[\s\S]*top_k +7\n")
        self.assertIn("no license", shown("license"))
        self.assertIn("/show template", shown(""))
        self.assertIn("did you mean info?", chat("/show inf\n")[2])

    def test_the_model_of_a_modelfile_is_shown(self):
        with open(self.path("Modelfile"), "w", encoding="utf-8") as file:
            file.write(f"FROM {MODEL}\nPARAMETER top_k 7\nSYSTEM You are a pirate.\nLICENSE free\n")
        with unittest.mock.patch.dict(os.environ, MILLRACE_MODELS=self.path("models")):
            subprocess.run([BINARY, "create", "pirate", "-f", self.path("Modelfile")], check=True, capture_output=True, timeout=PATIENCE)
            code, out, errors = chat("/show info\n/show license\n/show modelfile\n/show parameters\n", model="pirate")
        self.assertEqual((code, errors), (0, ""))
        for part in (r"name +pirate\n", r"top_k +7\n", r"  System\n    You are a pirate\.\n", r"(?m)^free$", r"(?m)^PARAMETER top_k 7$", r"Of the model:\n  top_k +7\n"):
            self.assertRegex(out, part)

    def test_names_of_models_are_no_files(self):
        code, out, errors = chat("ab\n/save mymodel\n/save talk.json\n/load llama3.2\n/load mymodel\n", "-n", "1", folder=self.folder)
        self.assertEqual(code, 0)
        self.assertIn("Saved 2 messages to mymodel, a file that /load reads; `millrace create` makes models.\n", out)
        self.assertIn("Saved 2 messages to talk.json.\n", out)
        self.assertIn("Loaded 2 messages from mymodel", out)
        self.assertRegex(errors, r"/load llama3\.2: there is no such file.*`millrace run llama3\.2`")

    def test_read_and_switches(self):
        with open(self.path("a.txt"), "w", encoding="utf-8") as file:
            file.write("one\ntwo\n")
        self.assertEqual(self.saved(f"/read {self.path('a.txt')}", "-n", "1")[0]["content"], "one\ntwo")
        self.assertEqual(self.saved(f"/read {self.path('a.txt')} and?", "-n", "1")[0]["content"], "one\ntwo\n\nand?")
        errors = chat("/read\n/read /nonexistent\n/set trim maybe\n/hepl\n")[2].splitlines()
        self.assertEqual(len(errors), 4, errors)
        self.assertIn("did you mean /help?", errors[3])
        for word in ("true", "on", "yes", "1"):
            self.assertRegex(chat(f"/set trim {word}\n/set\n")[1], r"trim +on")
        self.assertRegex(chat("/set timings true\n/set timings false\n/set\n")[1], r"timings +off")

    def test_json_errors_are_in_words(self):
        with open(self.path("cut.json"), "w", encoding="utf-8") as file:
            file.write('[\n{"role": ')
        errors = chat(f"/load {self.path('cut.json')}\n")[2]
        self.assertRegex(errors, r"cut\.json: not valid JSON at line 2, column 10: unexpected end of input")
        self.assertNotIn("json.exception", errors)

    def test_words_of_ollama(self):
        code, out, errors = chat("/?\n/clear\n/bye\nab\n")
        self.assertEqual((code, errors), (0, ""))
        self.assertIn("/reset", out)
        self.assertIn("Conversation cleared", out)

    def test_unknown_command_and_exit(self):
        code, out, errors = chat("/nonsense\n/exit\nab\n")
        self.assertEqual((code, out), (0, ""))
        self.assertIn("/nonsense: unknown command; /help", errors)
        self.assertIn("/regen", chat("/help\n")[1])

    def test_prefix_is_reused_between_turns(self):
        _, _, errors = chat("abcdefghijklmnopqrstuvwxyz0123456789\nab\n", "-n", "4", "--timings", "--temp", "0")
        cached = [int(n) for n in re.findall(r"(\d+) from the cache", errors)]
        self.assertEqual(len(cached), 2)
        self.assertEqual(cached[0], 0)
        self.assertGreaterEqual(cached[1], 32)

    def test_full_context(self):
        code, out, errors = chat("a1" * 300 + "\n/tokens\nab\n", "-n", "4")
        self.assertRegex(errors, r"context: the conversation has \d{3} tokens.*context of 512; /reset")
        self.assertIn("0 of 512 tokens", out)  # the message was taken back
        self.assertEqual(code, 0)
        self.assertEqual(chat("a1" * 300 + "\n", "-n", "4")[0], 2)
        self.assertRegex(chat("ab\n", "-n", "-1", "--logit-bias", "125:-inf")[2], r"generated tokens fill the context of 512")

    def test_trim_drops_the_oldest_turns_and_says_so(self):
        script = "".join(f"{i} " + "ab" * 50 + "\n" for i in range(8))
        _, _, errors = chat(script, "-n", "4")
        self.assertIn("leaves no room", errors)
        code, _, errors = chat(script, "-n", "4", "--trim")
        self.assertEqual(code, 0)
        self.assertNotIn("leaves no room", errors)
        self.assertIn("dropped the", errors)
        turns = self.saved(script.rstrip("\n"), "-n", "4", "--trim")
        self.assertLess(len(turns), 16)
        self.assertEqual(turns[0]["role"], "user")
        self.assertTrue(turns[-2]["content"].startswith("7 "))

    def test_model_without_a_template_continues_the_text(self):
        plain = self.path("plain")
        shutil.copytree(FOLDER, plain, ignore=shutil.ignore_patterns("*.gguf"))
        with open(os.path.join(plain, "tokenizer_config.json"), encoding="utf-8") as file:
            config = json.load(file)
        del config["chat_template"]
        with open(os.path.join(plain, "tokenizer_config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        code, _, errors = chat("ab\ncd\n", "-n", "6", model=plain)
        self.assertEqual(code, 0)
        self.assertEqual(errors.count("no chat template"), 1)
        turns = self.saved("ab\ncd", "-n", "6", "--temp", "0", model=plain)
        self.assertIn("truncated after n = 6", chat("ab\n", "-n", "6", "--logit-bias", "125:-inf", model=plain)[2])
        prompt = "ab" + turns[1]["content"] + "\ncd"
        done = subprocess.run([BINARY, "run", "-m", plain, "-t", "1", "-p", prompt, "-n", "6", "--temp", "0", "--json"], capture_output=True,
                              timeout=PATIENCE, check=True)
        self.assertEqual(json.loads(done.stdout)["text"], turns[3]["content"])


class Terminal(unittest.TestCase):
    """Types into a pseudo-terminal and waits for what the screen shows."""

    def start(self, *flags, model=MODEL, columns=0):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        pid, self.screen = pty.fork()
        if pid == 0:
            modes = termios.tcgetattr(0)  # as terminals do: a key typed before the editor is up erases whole characters
            modes[0] |= 0o40000  # IUTF8
            termios.tcsetattr(0, termios.TCSANOW, modes)
            environment = dict(os.environ, TERM="xterm", LC_ALL="C.UTF-8", HOME=self.folder)
            if columns:
                fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            os.execve(BINARY, [BINARY, "chat", "-m", model, "-t", "1", *flags], environment)
        self.pid, self.shown, self.written, self.code = pid, "", "", None
        self.addCleanup(self.stop)
        self.wait_for("> ")

    def stop(self):
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.screen)

    def type(self, text):
        self.shown = ""
        os.write(self.screen, text.encode())

    def wait_for(self, pattern):
        end = time.monotonic() + PATIENCE
        while not re.search(pattern, self.shown):
            ready, _, _ = select.select([self.screen], [], [], max(0, end - time.monotonic()))
            try:
                data = os.read(self.screen, 65536) if ready else b""
            except OSError:  # the other side is closed
                data = b""
            if not data:
                self.fail(f"waited for {pattern!r}, the screen shows {self.shown[-2000:]!r}")
            self.shown += data.decode(errors="replace")
            self.written += data.decode(errors="replace")

    def resize(self, columns):
        fcntl.ioctl(self.screen, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def say(self, text):
        self.type(text + "\r")
        self.wait_for(r"\?2004l[\s\S]*\?2004h[\s\S]*> ")

    def messages(self):
        path = os.path.join(self.folder, "now.json")
        self.type(f"/save {path}\r")
        self.wait_for(r"Saved \d+ messages[\s\S]*> ")
        with open(path, encoding="utf-8") as file:
            return [turn["content"] for turn in json.load(file) if turn["role"] == "user"]

    def leave(self, keys="\x04", code=0):
        self.type(keys)
        end = time.monotonic() + PATIENCE
        while self.code is None and time.monotonic() < end:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
            elif select.select([self.screen], [], [], 0.05)[0]:
                try:
                    os.read(self.screen, 65536)
                except OSError:
                    pass
        self.assertEqual(self.code, code)

    def test_history_and_editing(self):
        self.start("-n", "2")
        self.say("first")
        self.say("second")
        self.say("\x1b[A\x1b[A")          # up, up: the line before the last
        self.say("\x1b[A\x1b[A\x1b[B\x7fX")  # up, up, down, backspace, X
        self.assertEqual(self.messages(), ["first", "second", "first", "firsX"])
        self.leave()

    def test_utf8(self):
        self.start("-n", "1")
        self.say("Größe 中文 🎉Z\x7f\x7f!")
        self.assertEqual(self.messages(), ["Größe 中文 !"])
        self.leave("/exit\r")

    def test_keys_edit_what_readers_see_as_one_character(self):
        self.start("-n", "1")
        self.say("a\U0001F468\u200D\U0001F469\u200D\U0001F467Z\x7f\x7fb")  # backspace takes the whole family
        self.say("xe\u0301y\x1b[D\x1b[D!")  # left, left: over y, over e with its accent
        self.say("ae\u0301b\x1b[D\x1b[D\x1b[3~")  # delete
        self.assertEqual(self.messages(), ["ab", "x!e\u0301y", "ab"])
        self.leave()

    def test_tab_completes(self):
        self.start("-n", "1")
        self.type("/hel\t\r")
        self.wait_for(r"this list[\s\S]*> ")
        with open(os.path.join(self.folder, "letter.txt"), "w", encoding="utf-8") as file:
            file.write("dear\nreader\n")
        self.type(f"/read {self.folder}/let\t")
        self.wait_for(r"ter\.txt ")
        self.type("and you\r")
        self.wait_for(r"\?2004h[\s\S]*> ")
        self.type("/set tri\ttrue\r")
        self.wait_for(r"\?2004h[\s\S]*> ")
        self.type("/s\t")
        self.wait_for(r"/save  /set")
        self.type("\x15")  # Ctrl-U
        self.assertEqual(self.messages(), ["dear\nreader\n\nand you"])
        self.leave()

    def test_control_r_searches_as_in_bash(self):
        self.start("-n", "1")
        for line in ("alpha one", "beta two", "alpha three"):
            self.say(line)
        self.type("\x12alpha")
        self.wait_for(r"\(reverse-i-search\)`alpha': alpha three")
        self.type("\x12")
        self.wait_for(r"alpha': alpha one")
        self.say("")  # Enter runs it
        self.type("\x12two")
        self.wait_for(r"`two': beta two")
        self.say("\x1b[C!")  # an arrow key takes it into the line
        self.type("draft\x12zzz")
        self.wait_for(r"failed reverse-i-search")
        self.type("\x07")  # Ctrl-G brings the line back
        self.wait_for("draft")
        self.say("")
        self.assertEqual(self.messages(), ["alpha one", "beta two", "alpha three", "alpha one", "beta two!", "draft"])
        self.leave()

    def test_bracketed_paste_is_one_message(self):
        self.start("-n", "1")
        self.say("say \x1b[200~one\rtwo\n/three\x1b[201~ end")
        self.assertEqual(self.messages(), ["say one\ntwo\n/three end"])
        self.say("\x1b[A\x1b[A")  # recalled whole
        self.assertEqual(self.messages(), ["say one\ntwo\n/three end"] * 2)
        self.leave()

    def test_backslash_continues(self):
        self.start("-n", "1")
        self.type("one\\\r")
        self.wait_for(r"\. ")
        self.say("two")
        self.assertEqual(self.messages(), ["one\ntwo"])
        self.leave()

    def test_interrupt_at_the_prompt_clears_the_line(self):
        self.start("-n", "1")
        self.type("half a line")
        self.wait_for("half a line")
        self.type("\x03")
        self.wait_for(r"\^C[\s\S]*> ")
        self.say("whole")
        self.assertEqual(self.messages(), ["whole"])
        self.leave()

    def test_the_first_line_names_the_model_as_it_was_typed(self):
        self.start("-n", "1", model="stories")
        self.assertRegex(self.written, r"stories, context \d+ tokens\. /help")
        self.leave()

    def test_the_first_line_says_that_there_is_a_system_prompt(self):
        self.start("-n", "1", "--system", "be brief")
        self.assertRegex(self.written, r"context 512 tokens, with a system prompt\. /help")
        self.leave()

    def test_set_says_what_is_set(self):
        self.start("-n", "1")
        for words, answer in (("parameter temperature 0", "Set temperature to 0."), ("n 3", "Set n to 3."), ("verbose", "Set timings to on."),
                              ("system be kind", "Set the system prompt."), ('system ""', "Cleared the system prompt."), ("nohistory", "Set history to off.")):
            self.type(f"/set {words}\r")
            self.wait_for(re.escape(answer) + r"[\s\S]*> ")
        self.say("not remembered")
        self.type("\x1b[A")  # up
        self.wait_for("nohistory")
        self.type("\x15")
        self.assertEqual(self.messages(), ["not remembered"])
        self.leave()

    def test_the_prompt_is_drawn_once(self):
        """Ctrl-C in a line and at an empty prompt, and a window that changes its size."""
        long = "a line that is longer than the window has columns, and so it fills more than two rows of it!!"
        self.start("-n", "1", columns=40)
        for text, keys in (("half a line", ""), (long, ""), (long, "\x01"), (long[:38], ""), ("\u4e2d" * 28 + "end", "\x1b[D\x1b[D")):
            self.type(text)
            self.wait_for(re.escape(text[-3:]))
            self.type(keys + "\x03")
            self.wait_for(r"\^C[\s\S]*\?2004h[\s\S]*> ")
        self.type("again")
        self.wait_for("again")
        self.shown = ""
        self.resize(60)
        self.wait_for("again")
        self.type("\x03")
        self.wait_for(r"\^C[\s\S]*\?2004h[\s\S]*> ")
        self.type("\x03")
        self.wait_for(r"leaves the chat\.[\s\S]*> ")
        rows = Screen(40, self.written).rows()
        shown = "\n".join(rows[rows.index("> half a line^C"):])
        self.assertEqual(shown.count(">"), 8, shown)
        wrapped = ["> " + long[:38], long[38:78], long[78:] + "^C"]
        self.assertEqual(shown.split("\n")[1:7], [row.rstrip() for row in wrapped * 2])
        self.assertTrue(shown.endswith("> again^C\n> ^C\nCtrl-C again, Ctrl-D or /exit leaves the\n chat.\n>"), shown)
        self.leave("\x03")

    def test_the_prompt_is_drawn_once_after_a_resize_in_an_answer(self):
        self.start("-n", "-1", "--logit-bias", "125:-inf", "-c", "30000", columns=80)
        self.type("go on\r")
        self.wait_for(r"\?2004l[^\x1b]{20}")  # the answer has begun
        self.resize(60)
        self.type("\x03")
        self.wait_for(r"interrupted[\s\S]*\?2004h[\s\S]*> ")
        self.type("x")
        self.wait_for("x")
        rows = Screen(80, self.written.split("millrace: interrupted")[-1]).rows()
        self.assertEqual(rows[-1], "> x")
        self.leave("\x7f\x04")

    def test_interrupt_at_an_empty_prompt_says_how_to_leave(self):
        self.start("-n", "1")
        self.type("\x03")
        self.wait_for(r"Ctrl-C again, Ctrl-D or /exit leaves the chat\.[\s\S]*> ")
        self.say("still here")  # the next one is then the first again
        self.type("\x03")
        self.wait_for(r"leaves the chat\.[\s\S]*> ")
        self.assertEqual(self.messages(), ["still here"])
        self.type("\x03")
        self.wait_for(r"leaves the chat\.[\s\S]*> ")
        self.leave("\x03")

    def test_what_is_typed_during_an_answer_appears_at_the_next_prompt(self):
        self.start("-n", "-1", "--logit-bias", "125:-inf", "-c", "30000")
        self.type("go on\r")
        self.wait_for(r"\?2004l[^\x1b]{20}")  # the answer has begun
        os.write(self.screen, "typed ahÖad".encode())
        before = len(self.shown)
        self.wait_for(rf"\A[\s\S]{{{before + 2000}}}")  # the answer goes on
        self.assertNotIn("typed", self.shown)
        os.write(self.screen, b"\x03")
        self.wait_for(r"interrupted[\s\S]*\?2004h[\s\S]*> [\s\S]*typed ahÖad")
        self.assertNotIn("typed", self.shown.split("?2004h")[0])
        self.type("\x15/reset\r")
        self.wait_for(r"Conversation cleared")
        self.say("/set n 1")
        self.say("and echoed again")
        self.assertEqual(self.messages(), ["and echoed again"])
        self.leave()

    def answer(self, columns):
        """The first answer of the model of stories in a terminal of so many columns."""
        self.start("-n", "120", "--temp", "0", model="stories", columns=columns)
        self.type("Once upon a time\r")
        self.wait_for(r"\?2004l\r*\n?[\s\S]*\?2004h")
        shown = self.shown
        self.leave("\x04")
        return shown.split("?2004l", 1)[1].split("\x1b[?2004h")[0].replace("\r", "").split("\nmillrace:")[0].strip("\n")

    def check_lines(self, columns):
        whole = chat("Once upon a time\n", "-n", "120", "--temp", "0", model="stories")[1].rstrip("\n")
        self.assertGreater(max(map(len, whole.split("\n"))), 80)  # piped, lines stay as they are
        answer = self.answer(columns)
        self.assertEqual(answer.split(), whole.split())
        lines = answer.split("\n")
        self.assertGreater(len(lines), 3)
        self.assertLessEqual(max(map(len, lines)), columns)

    def test_answers_are_broken_at_words(self):
        self.check_lines(30)

    def test_answers_are_broken_at_words_of_a_wider_terminal(self):
        self.check_lines(60)

    def test_a_signal_that_ends_it_leaves_the_terminal_as_it_was(self):
        modes = termios.ECHO | termios.ICANON
        self.start("-n", "-1", "--logit-bias", "125:-inf", "-c", "30000")
        self.type("go on\r")
        self.wait_for(r"\?2004l[^\x1b]{20}")  # the answer has begun
        self.assertEqual(termios.tcgetattr(self.screen)[3] & modes, 0)
        os.kill(self.pid, signal.SIGTERM)
        self.leave("", -signal.SIGTERM)
        self.assertEqual(termios.tcgetattr(self.screen)[3] & modes, modes)

    def test_interrupt_stops_the_answer_only(self):
        # Without its end token the small model would write many thousand tokens.
        self.start("-n", "-1", "--logit-bias", "125:-inf", "-c", "30000")
        for _ in range(3):
            self.type("go on\r")
            self.wait_for(r"\?2004l[^\x1b]{20}")  # the answer has begun
            self.type("\x03")
            self.wait_for(r"interrupted[\s\S]*\?2004h[\s\S]*> ")
        self.say("/reset")
        self.say("/set n 1")
        self.say("after")
        self.assertEqual(self.messages(), ["after"])
        self.leave()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
