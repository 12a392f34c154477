"""The worked examples of docs/how-to-add/: each compiles as it is printed, in the folder that the page names, and takes
at most three files of the product: its own, the header that declares it and builtin.cc.

Usage: recipes_test.py [unittest options]; CXX names the compiler (default: c++)
"""

import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Pages whose example is a whole file. Those of other pages are fragments.
PAGES = ["architecture", "context", "drafter", "format", "kv-codec", "mixer", "pass", "policy", "prefix-evictor",
         "prompt-compressor", "router", "state-evictor", "suite", "tier", "token-evictor", "trace-format", "weight-source"]
MOST_FILES = 3

_EXAMPLE = re.compile(r"`(src/[\w/]+\.cc)`[^\n]*:\n+```cpp\n(.*?)```", re.S)
_REGISTERED_IN = re.compile(r"`((?:[\w]+/)*(?:builtin|factories|records)\.(?:cc|h))`")


def page_text(page):
    with open(os.path.join(ROOT, "docs/how-to-add", page + ".md"), encoding="utf-8") as file:
        return file.read()


class RecipesTest(unittest.TestCase):
    def example(self, page):
        found = _EXAMPLE.search(page_text(page))
        self.assertTrue(found, f"{page}.md: no worked example of a file in src/")
        return found.groups()

    def test_examples_compile(self):
        for page in PAGES:
            path, code = self.example(page)
            self.assertFalse(os.path.exists(os.path.join(ROOT, path)), f"{page}.md: {path} exists, so it is no example")
            with tempfile.TemporaryDirectory() as folder:
                file = os.path.join(folder, os.path.basename(path))
                with open(file, "w", encoding="utf-8") as out:
                    out.write(code)
                done = subprocess.run([os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-DFMT_SHARED",
                                       "-I" + os.path.join(ROOT, "src"), "-I" + os.path.join(ROOT, "include"), file],
                                      capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, f"{page}.md: {path}:\n{done.stderr}")

    def test_a_member_takes_three_files(self):
        for page in PAGES:
            path, _ = self.example(page)
            family = os.path.dirname(path)
            self.assertTrue(os.path.isdir(os.path.join(ROOT, family)), f"{page}.md: no folder {family}")
            files = {os.path.basename(name) for name in _REGISTERED_IN.findall(page_text(page))}
            self.assertIn("builtin.cc", files, f"{page}.md")
            self.assertLessEqual(1 + len(files), MOST_FILES, f"{page}.md: {path} and {sorted(files)}")


if __name__ == "__main__":
    unittest.main()
