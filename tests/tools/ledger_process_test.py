#!/usr/bin/env python3
"""How the ledger of proofs runs commands: what takes too long ends with all that it started, and texts that proofs share
are those of the binary under test.

Usage: ledger_process_test.py [unittest options]
"""

import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools"))
from ledger import entries, inputs, process, runner  # noqa: E402


class ProcessTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def run_shell(self, script, limit):
        return process.output_of(["sh", "-c", script], self.folder, limit)

    def test_output_and_errors(self):
        self.assertEqual(self.run_shell("echo 1", process.Limit()), "1\n")
        with self.assertRaisesRegex(entries.LedgerError, "exit status 3: no"):
            self.run_shell("echo no >&2; exit 3", process.Limit())

    def test_a_command_that_takes_too_long_ends_with_its_children(self):
        began = time.monotonic()
        with self.assertRaisesRegex(entries.LedgerError, "ended after 1 s"):
            self.run_shell("sleep 300 & echo $! >child; wait", process.Limit(1))
        self.assertLess(time.monotonic() - began, 60)
        with open(os.path.join(self.folder, "child"), encoding="ascii") as file:
            child = int(file.read())
        for _ in range(500):  # it is gone, or waits for its parent, as soon as the signal arrives
            if not self.is_running(child):
                break
            time.sleep(0.01)
        self.assertFalse(self.is_running(child))

    @staticmethod
    def is_running(pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False

    def test_the_limit_of_a_stage(self):
        with self.assertRaisesRegex(entries.LedgerError, "not begun, since the limit of 0 s for the whole stage is over"):
            self.run_shell("echo 1", process.Limit(0))

    def test_shared_texts_are_of_one_binary(self):
        binary = os.path.join(self.folder, "millrace")
        with open(binary, "w", encoding="utf-8") as file:
            file.write('#!/bin/sh\n[ $1 = --version ] && echo one || [ $1 = bench ] && '
                       'echo \'[{"cpu_info": "c", "isa": "i", "cores": 1}]\' || echo \'{"text": " x"}\'\n')
        os.chmod(binary, 0o755)
        machine = runner.Machine(self.folder, binary)
        path = inputs.stories(machine, self.folder, True)

        def contents():
            with open(path, encoding="utf-8") as file:
                return file.read()
        self.assertEqual(contents(), "Once upon a time x")
        with open(path, "w", encoding="utf-8") as file:
            file.write("kept")
        inputs.stories(machine, self.folder, True)
        self.assertEqual(contents(), "kept")
        machine.version = "two"
        inputs.stories(machine, self.folder, True)
        self.assertEqual(contents(), "Once upon a time x")


if __name__ == "__main__":
    unittest.main()
