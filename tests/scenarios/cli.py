"""The command line for its tests: the binary under test, the tiny golden model that they use, and a way to call one with the other.

    X_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]
"""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402,F401  it hides the developer's own config file and short names from the tests

BINARY, SOURCE = sys.argv[1], sys.argv[2]
FOLDER = os.path.join(SOURCE, "tests/golden/llama3")
LLAMA = os.path.join(FOLDER, "model.gguf")


def millrace(*arguments, stdin=b""):
    return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=120, check=False)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path
