#!/usr/bin/env python3
"""Tables in terminals of several widths, and piped.

Usage: cli_tables_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import unicodedata
import unittest

from cli import BINARY, LLAMA, millrace

SIMULATE = ("simulate", "--trace", "gen:requests=20,rate=4", "--cost", "llama-7b-a100", "--policy", "fcfs", "--policy", "stall_free:tbt_ms=50")
BENCH = ("bench", "-m", LLAMA, "-p", "8", "-n", "1", "-r", "1", "-t", "1", "--no-roof")
COMPARE = ("compare", "-m", LLAMA, "-t", "1", "--with", "name=四位的缓存 与一个很长的名字 + kv_format=bf16", "--on", "memory", "--repeat", "1", "--prompt", "8",
           "--generate", "4")


WIDTHS = (40, 60, 80, 120)


def columns_of(text):
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)


def in_terminal(columns, *arguments, environment=None):
    """What a command prints on a terminal of so many columns."""
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=terminal, stderr=subprocess.DEVNULL, env=environment) as process:
        os.close(terminal)
        shown = b""
        while select.select([screen], [], [], 120)[0]:
            try:
                data = os.read(screen, 65536)
            except OSError:  # the other side is closed
                break
            shown += data
        code = process.wait(timeout=120)
    os.close(screen)
    return code, shown.decode().replace("\r\n", "\n")


class Tables(unittest.TestCase):
    def check(self, *arguments, first, narrow=(60, 80, 120, 200), environment=None):
        """The table fits; what is left out is named, and --wide shows it."""
        dropped = []
        for columns in narrow:
            code, text = in_terminal(columns, *arguments, environment=environment)
            self.assertEqual(code, 0, text)
            table = [line for line in text.splitlines() if line.startswith("|")] or text.splitlines()
            self.assertLessEqual(max(map(columns_of, table)), columns, text)
            dropped.append("Not shown in" in " ".join(text.split()))
            if dropped[-1]:
                self.assertIn("--wide or --json", " ".join(text.split()))
                self.assertIn(f" {first}", " ".join(text.split()).split("columns:")[1])
                self.assertNotIn("Not shown", in_terminal(columns, *arguments, "--wide", environment=environment)[1])
        self.assertEqual(dropped, sorted(dropped, reverse=True))  # a wider terminal shows at least as much
        return dropped

    def test_simulate(self):
        self.assertEqual(self.check(*SIMULATE, first="held mean / most"), [True, True, True, False])
        self.assertNotIn("Not shown", millrace(*SIMULATE).stdout.decode())

    def test_bench(self):
        self.assertEqual(self.check(*BENCH, first="size"), [True, True, True, False])
        self.assertNotIn("Not shown", millrace(*BENCH).stdout.decode())

    def test_compare(self):
        self.assertTrue(self.check(*COMPARE, first="peak, MB", narrow=(60, 200))[0])
        for columns in (60, 120):
            shown = in_terminal(columns, *COMPARE)[1]
            self.assertIn("四位的缓存", shown)
        piped = millrace(*COMPARE).stdout.decode()
        self.assertNotIn("Not shown", piped)
        self.assertIn("peak, MB", piped)

    def test_lists(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "MILLRACE_MODELS": os.path.join(folder, "models"), "HF_HOME": folder}
            with open(os.path.join(folder, "Modelfile"), "w", encoding="utf-8") as file:
                file.write("FROM lab\n")
            made = subprocess.run([BINARY, "create", "a-model-with-a-long-name:of-many-words", "-f", file.name], env=environment, capture_output=True, check=False)
            self.assertEqual(made.returncode, 0, made.stderr)
            self.assertEqual(self.check("list", first="MODIFIED", environment=environment), [True, False, False, False])
        self.assertEqual(self.check("models", first="CHAT TEMPLATE", narrow=(40, 60, 80)), [True, False, False])

    def fits(self, *arguments, code=0, environment=None):
        """Every line fits terminals of every width, and each says as much as the piped text, but for dropped columns."""
        for columns in WIDTHS:
            status, text = in_terminal(columns, *arguments, environment=environment)
            self.assertEqual(status, code, text)
            wide = [line for line in text.splitlines() if columns_of(line) > columns]
            self.assertEqual(wide, [], f"{arguments} in {columns} columns")
        return text

    def test_trace(self):
        load = ("gen:requests=200,rate=4,prefix_groups=4,prefix_tokens=256,prefix_share=0.8",)
        self.assertEqual(self.check("trace", "stats", *load, first="p90", narrow=WIDTHS), [True, True, False, False])
        self.assertEqual(self.check("trace", "cache", *load, "--capacity", "100,unlimited", first="tokens", narrow=WIDTHS),
                         [True, False, False, False])
        self.assertEqual(self.check("trace", "cache", *load, "--nodes", "4", "--capacity", "100", first="max/mean", narrow=WIDTHS),
                         [True, True, True, False])
        self.fits("trace", "stats", *load)
        self.fits("trace", "cache", *load, "--nodes", "4", "--capacity", "100")
        piped = millrace("trace", "cache", *load, "--nodes", "4", "--capacity", "100").stdout.decode()
        self.assertIn("max/mean", piped)

    def test_inspect(self):
        self.check("inspect", LLAMA, first="tensors", narrow=(40, 120))
        self.check("inspect", LLAMA, "--tensors", first="offset", narrow=(60, 120))
        for arguments in (("inspect", LLAMA), ("inspect", LLAMA, "--tensors"), ("inspect", "lab")):
            self.fits(*arguments)
        piped = millrace("inspect", LLAMA, "--tensors").stdout.decode()
        self.assertIn("offset", piped)
        self.assertEqual(len([line for line in piped.splitlines() if line.startswith("blk.0.attn_q.weight ")]), 1)

    def test_perplexity(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "text.txt")
            with open(path, "w", encoding="utf-8") as file:
                file.write("Once upon a time there was a little mill by a stream. " * 8)
            saved = os.path.join(folder, "logits")
            arguments = ("perplexity", "-m", LLAMA, "-f", path, "--all", "-t", "1", "--by-position", "16")
            self.assertEqual(millrace(*arguments, "--save-logits", saved).returncode, 0)
            text = self.fits(*arguments, "--kl-divergence", saved)
            for word in ("PPL = ", "from position", "KL divergence: mean", "same top token"):
                self.assertIn(word, text)

    def test_doctor_and_show(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {**os.environ, "MILLRACE_MODELS": os.path.join(folder, "models"), "HF_HOME": folder}
            for columns in WIDTHS:
                code, text = in_terminal(columns, "doctor", "--quick", environment=environment)
                self.assertEqual(code, 0, text)
                # The version is one word, and a folder's name may be longer than a narrow terminal.
                self.assertEqual([line for line in text.splitlines()[1:] if columns_of(line) > columns], [])
                self.assertIn("instruction set", text)
            self.fits("show", "lab", environment=environment)

    def test_the_roof_and_a_compression(self):
        self.fits("bench", "--roof", "-t", "1")
        with tempfile.TemporaryDirectory() as folder:
            arguments = ("compress", LLAMA, os.path.join(folder, "out.gguf"), "--pass", "rtn:format=q8_0")
            self.check(*arguments, "--dry-run", first="bytes", narrow=(60, 200))
            self.check(*arguments, "--force", first="size", narrow=(60, 200))

    def test_help_says_what_is_dropped(self):
        for command, order in ((("models",), "CHAT TEMPLATE; PARAMETERS; SIZE; CONTEXT"), (("list",), "MODIFIED; LAST USED; SIZE"),
                               (("ps",), "UNLOADED AT; CONTEXT; SIZE"), (("inspect",), "tensors; parameters"),
                               (("trace", "stats"), "p90; p50; max; p99"), (("bench",), "size; params; type_k"),
                               (("simulate",), "held mean / most; preempted"), (("replay",), "p90, ms; p50, ms"),
                               (("compare",), "peak, MB; prefill tokens/s"), (("exactness",), "ways whose answers are all the same, the last one first"),
                               (("compress",), "size; zeros; rounding")):
            text = " ".join(millrace(*command, "--help-all").stdout.decode().split())
            self.assertIn("a narrow terminal drops, in this order: " + order, text, command)

    def test_techniques_are_broken_at_words(self):
        words = millrace("techniques", "--family", "evictor").stdout.decode().split()
        for columns in (60, 80, 120):
            code, text = in_terminal(columns, "techniques", "--family", "evictor")
            self.assertEqual((code, text.split()), (0, words))
            long = [line for line in text.splitlines() if len(line) > columns and len(line.strip().split()) > 2]
            self.assertEqual(long, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
