#!/usr/bin/env python3
"""tools/test_labels finds each labelled test and refuses labels that would leave out nothing. Run by CTest."""

import os
import subprocess
import sys
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "test_labels")


class LabelsTest(unittest.TestCase):
    def run_tool(self, text, label="once"):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(f"{root}/src/kv")
            with open(f"{root}/src/kv/pool_test.cc", "w", encoding="utf-8") as file:
                file.write(text)
            done = subprocess.run([sys.executable, TOOL, label, "--root", root], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout.strip(), done.stderr

    def test_every_kind_of_test(self):
        status, out, _ = self.run_tool(
            "// label(once): slow\nTEST(Pool, Fills) {\n}\n// label(once): slow\n// A comment.\nTEST_F(PoolOf, Empties) {\n}\n"
            "// label(once): slow\nTEST_P(Pools, Share) {\n}\n// label(once /5 /iq1_*): slow\nTEST_P(Pools, Split) {\n}\n"
            "TEST(Pool, Runs) {\n}\n// label(arm-slow): slow\nTEST(Pool, Waits) {\n}\n")
        self.assertEqual((status, out), (0, "Pool.Fills:PoolOf.Empties:*/Pools.Share/*:*/Pools.Split/5:*/Pools.Split/iq1_*"))

    def test_a_label_without_a_test_or_a_reason_or_of_another_name(self):
        good = "// label(once): slow\nTEST(Pool, Fills) {\n}\n"
        for bad in ("// label(once): slow\nint x;\n", "// label(once)\nTEST(Pool, Runs) {\n}\n", "// label(often): slow\nTEST(Pool, Runs) {\n}\n"):
            status, _, errors = self.run_tool(good + bad)
            self.assertEqual(status, 1, bad)
            self.assertIn("src/kv/pool_test.cc:4", errors)

    def test_a_tree_without_the_label(self):
        self.assertEqual(self.run_tool("TEST(Pool, Runs) {\n}\n")[0], 1)


if __name__ == "__main__":
    unittest.main()
