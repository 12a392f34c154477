"""Names of tests, as techniques give them: a file of the tree, or Suite.Name of a GoogleTest in it."""

import os
import re

_GTEST = re.compile(r"^(\w+)\.(\w+)$")


def test_exists(root, test):
    """Whether there is such a file or GoogleTest."""
    if test and os.path.isfile(os.path.join(root, test)):
        return True
    named = _GTEST.match(test)
    if not named:
        return False
    wanted = re.compile(rf"TEST(?:_[FP])?\({named.group(1)},\s*{named.group(2)}\)")
    for top in ("src", "tests"):
        for folder, _, files in os.walk(os.path.join(root, top)):
            for name in files:
                if name.endswith("_test.cc") and wanted.search(open(os.path.join(folder, name), encoding="utf-8").read()):
                    return True
    return False
