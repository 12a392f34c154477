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

    def test_techniques_are_broken_at_words(self):
        words = millrace("techniques", "--family", "evictor").stdout.decode().split()
        for columns in (60, 80, 120):
            code, text = in_terminal(columns, "techniques", "--family", "evictor")
            self.assertEqual((code, text.split()), (0, words))
            long = [line for line in text.splitlines() if len(line) > columns and len(line.strip().split()) > 2]
            self.assertEqual(long, [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
