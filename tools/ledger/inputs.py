"""Inputs that proofs share, made once by each version of the binary."""

import json
import os

from ledger.entries import INPUT_NAMES


def stories(machine, folder, smoke):
    """Path of a text that the shipped model wrote at temperature 1: no other model predicts it better on average, so
    whatever changes the model's distribution shows as a higher perplexity."""
    return _written(machine, os.path.join(folder, "stories.txt"), smoke, 1)


def calibration(machine, folder, smoke):
    """Path of other such stories."""
    return _written(machine, os.path.join(folder, "calibration.txt"), smoke, 1001)


def _written(machine, path, smoke, seed):
    maker = f"{machine.version} {os.stat(machine.binary).st_mtime_ns}"
    if os.path.exists(path) and _read(path + ".maker") == maker:
        return path
    words = [machine.binary, "run", "-m", os.path.join(machine.root, "models/millrace-stories-6m.gguf"), "--json",
             "-p", "Once upon a time", "-n", "400", "--answers", "16" if smoke else "64", "--seed", str(seed), "--temp", "1",
             "--top-k", "0", "--top-p", "1", "--min-p", "0"]
    texts = texts_of(json.loads(machine.run(words)))
    _write(path + ".maker", "")  # none, should this end between the two files
    _write(path, "\n".join("Once upon a time" + text for text in texts))
    _write(path + ".maker", maker)
    return path


def _read(path):
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


def _write(path, text):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)


def page(machine, folder, smoke):
    """Path of the first 3,000 bytes of the stories, 700 tokens about: a prompt that fits the shipped model."""
    path = os.path.join(folder, "page.txt")
    with open(stories(machine, folder, smoke), encoding="utf-8") as source:
        _write(path, source.read(3000))
    return path


def texts_of(output):
    """The answers in what `run --json` printed, one or several."""
    return [answer["text"] for answer in output.get("answers", [output])]


# Placeholders, made for the proofs that name them.
INPUTS = dict(zip(INPUT_NAMES, (stories, calibration, page), strict=True))
