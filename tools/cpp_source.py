"""C++ source text for the checks: lists the files, and strips comments, strings and macros.

Stripped text is replaced by spaces, so that line numbers stay the same.
"""

import os
import re

SOURCE_FOLDERS = ("include", "src", "apps", "tests", "fuzz", "bench", "examples")

_TOKEN = re.compile(
    r'R"(?P<tag>[^()\\\s]{0,16})\(.*?\)(?P=tag)"'  # raw string
    r'|//[^\n]*|/\*.*?\*/'                        # comments
    r'|"(?:\\.|[^"\\\n])*"'                       # string
    r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'",     # character (not the ' of 1'000)
    re.S)


def _blank(text):
    return re.sub(r"[^\n]", " ", text)


def strip_comments(text):
    """Comments become spaces; strings stay."""
    def replace(match):
        return _blank(match.group(0)) if match.group(0)[:2] in ("//", "/*") else match.group(0)
    return _TOKEN.sub(replace, text)


def strip_code(text):
    """Comments, strings and characters become spaces; so do preprocessor lines with their continuations."""
    text = _TOKEN.sub(lambda match: _blank(match.group(0)), text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: _blank(match.group(0)), text, flags=re.M)


def source_files(root, folders=SOURCE_FOLDERS):
    """Paths relative to root, with forward slashes, sorted."""
    found = []
    for folder in folders:
        for where, subfolders, names in os.walk(os.path.join(root, folder)):
            subfolders[:] = sorted(name for name in subfolders if name != "build")
            found += [os.path.relpath(os.path.join(where, name), root) for name in names
                      if name.endswith((".cc", ".h"))]
    return sorted(path.replace(os.sep, "/") for path in found)


def read(root, path):
    with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
        return file.read()
