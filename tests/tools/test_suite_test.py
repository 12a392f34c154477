"""Tests of tools/test_suite on a build folder of shell scripts."""

import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


class TestSuite(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.lines = []

    def add(self, name, program, script="exit 0"):
        path = os.path.join(self.folder.name, program)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\necho {name} >>{self.folder.name}/ran\n{script}\n")
        os.chmod(path, 0o755)
        self.lines.append(f'add_test({name} "{path}")\n')

    def run_suite(self, *arguments):
        """(exit status, last line, names of the tests that ran)"""
        with open(os.path.join(self.folder.name, "CTestTestfile.cmake"), "w", encoding="utf-8") as file:
            file.writelines(self.lines)
        ran = os.path.join(self.folder.name, "ran")
        if os.path.exists(ran):
            os.remove(ran)
        result = subprocess.run([os.path.join(ROOT, "tools/test_suite"), self.folder.name, "--jobs", "1", *arguments],
                                capture_output=True, text=True, check=False)
        names = open(ran, encoding="utf-8").read().split() if os.path.exists(ran) else []
        return result.returncode, result.stdout.splitlines()[-1], sorted(names)

    def test_three_thirds_are_all_scripts_and_each_has_every_program(self):
        scripts = ["cli_A", "cli_B", "page_C", "server_D", "server_E"]
        for name in scripts:
            self.add(name, name + ".sh")
        self.add("some_test", "some_test")
        names = [self.run_suite("--third", str(k))[2] for k in range(3)]
        for third in names:
            self.assertEqual(1, third.count("some_test"))
            self.assertLessEqual(len(third), 3)
        self.assertEqual(scripts, sorted(name for third in names for name in third if name != "some_test"))

    def test_a_third_respects_what_else_is_left_out(self):
        for name in ["cli_A", "cli_B", "tools_C"]:
            self.add(name, name + ".sh")
        names = [name for k in range(3) for name in self.run_suite("--third", str(k), "--skip", "^tools_")[2]]
        self.assertEqual(["cli_A", "cli_B"], sorted(names))

    def test_a_failed_script_fails_the_suite(self):
        self.add("cli_A", "cli_A.sh", "exit 1")
        self.add("cli_B", "cli_B.sh")
        self.assertEqual((1, "1 passed, 1 failed, 0 skipped", ["cli_A", "cli_B"]), self.run_suite())

    def test_nothing_to_run_is_a_failure(self):
        self.assertEqual((1, "0 passed, 0 failed, 0 skipped", []), self.run_suite())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]])
