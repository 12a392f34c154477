#!/usr/bin/env python3
"""--picture of the commands that measure: its formats, and what is refused before anything is measured.

Usage: cli_pictures_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

from cli import BINARY, LLAMA, millrace, write

BEGINS = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF-"}
MAPS = {"title": "needles", "x": "tokens", "y": "depth",
        "maps": [{"title": "all <keys>", "rows": ["10 %", "90 %"], "columns": ["100", "200"], "values": [[0.5, 1], [None, 0]]}]}
COMMANDS = {
    "bench": ("bench", "-m", LLAMA, "-t", "1", "-p", "16", "-n", "4", "-r", "2", "--no-roof"),
    "replay": ("replay", "-m", LLAMA, "-t", "1", "--trace", "gen:requests=4,rate=100,prompt=fixed:8,output=fixed:4", "--in-process"),
    "simulate": ("simulate", "--trace", "gen:requests=20,rate=4", "--cost", "llama-7b-a100", "--policy", "fcfs", "--policy", "vtc"),
    "compare": ("compare", "-m", LLAMA, "-t", "1", "-c", "512", "--prompt", "24", "--generate", "4", "--repeat", "2", "--with", "kv_format=bf16"),
}


class Pictures(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def check_file(self, path):
        with open(path, "rb") as file:
            self.assertTrue(file.read().startswith(BEGINS[path.rpartition(".")[2]]), path)

    def test_each_command_draws(self):
        for (name, command), end in zip(COMMANDS.items(), ("png", "svg", "pdf", "svg")):
            path = self.path(f"{name}.{end}")
            done = millrace(*command, "--picture", path, "--picture-theme", "dark")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.check_file(path)

    def test_training_is_drawn(self):
        path = self.path("training.png")
        done = millrace("train-lab", "--out", self.path("run"), "--size", "lab-draft", "--vocabulary-size", "512", "--tokens", "1500",
                        "--batch-tokens", "512", "--first-length", "300", "--last-length", "300", "--items", "1", "--log-every", "1",
                        "--evaluate-every", "1", "--threads", "1", "--picture", path)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        self.check_file(path)

    def test_every_cell_of_wide_maps_is_drawn(self):
        columns, values = [str(n) for n in range(200)], [[n / 200 for n in range(200)]]
        maps = [{"title": f"map {i}", "rows": ["10 %"], "columns": columns, "values": values} for i in range(3)]
        cells, path = write(self.folder, "wide.json", json.dumps({**MAPS, "maps": maps})), self.path("wide.svg")
        done = millrace("lab", "map", "--cells", cells, "--picture", path)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        with open(path, encoding="utf-8") as file:
            boxes = re.findall(r'fill:rgb[^"]*" d="M ([\d.]+) ([\d.]+) L ([\d.]+) \2 L \3 ', file.read())
        ends = [(float(left), float(right)) for left, _, right in boxes if float(right) - float(left) > 0.5]
        self.assertGreaterEqual(len(ends), 3 * 200)
        self.assertLess(max(right for _, right in ends), 960)  # inside of the picture

    def test_maps_are_drawn_and_checked(self):
        cells = write(self.folder, "cells.json", json.dumps(MAPS))
        for end in BEGINS:
            path = self.path("map." + end)
            done = millrace("lab", "map", "--cells", cells, "--picture", path)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.check_file(path)
        with open(self.path("map.svg"), encoding="utf-8") as file:
            self.assertIn("<title>needles</title>", file.read())
        for damaged in ("[]", "{}", json.dumps({**MAPS, "maps": [{**MAPS["maps"][0], "values": [[1]]}]}),
                        json.dumps({**MAPS, "maps": [{**MAPS["maps"][0], "rows": [1, 2]}]}), json.dumps({**MAPS, "maps": [3]})):
            cells = write(self.folder, "cells.json", damaged)
            done = millrace("lab", "map", "--cells", cells, "--picture", self.path("bad.png"))
            self.assertEqual(done.returncode, 3, damaged)
            self.assertIn("cells.json: ", done.stderr.decode())

    def test_curves_of_a_file(self):
        data = write(self.folder, "curves.csv", "tokens,a,b,word\n1000000,1,5,x\n2000000,2,,x\n3000000,4,6,x\n")
        plot = ("plot", data, "--x", "tokens", "--picture")
        for end in BEGINS:
            done = millrace(*plot, self.path(f"curves.{end}"), "--y", "a,b", "--x-scale", "1e-6", "--title", "two curves", "--low", "0", "--high", "8")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.check_file(self.path(f"curves.{end}"))
        with open(self.path("curves.svg"), encoding="utf-8") as file:
            both = file.read()
        self.assertIn("two curves", both)
        millrace(*plot, self.path("one.svg"), "--y", "a", "--x-scale", "1e-6", "--title", "two curves", "--low", "0", "--high", "8")
        with open(self.path("one.svg"), encoding="utf-8") as file:
            self.assertLess(len(file.read()), len(both))
        for code, message, arguments in ((3, "has no column c", (*plot, self.path("x.svg"), "--y", "c")),
                                         (3, "column word has x, which is not a number", (*plot, self.path("x.svg"), "--y", "word")),
                                         (2, "needs --picture", ("plot", data, "--x", "tokens", "--y", "a")),
                                         (3, "nothing.csv", ("plot", "nothing.csv", "--x", "a", "--y", "b", "--picture", self.path("x.svg")))):
            done = millrace(*arguments)
            self.assertEqual(done.returncode, code, done.stderr.decode())
            self.assertIn(message, done.stderr.decode())
        self.assertFalse(os.path.exists(self.path("x.svg")))

    def test_another_ending_is_refused_before_the_run(self):
        for command in COMMANDS.values():
            done = millrace(*command, "--picture", self.path("x.jpeg"))
            self.assertEqual(done.returncode, 2)
            self.assertIn("x.jpeg: the name of a picture ends in .png, .svg or .pdf", done.stderr.decode())
            self.assertEqual(done.stdout, b"")
        done = millrace(*COMMANDS["bench"], "--roof", "--picture", self.path("x.png"))
        self.assertEqual(done.returncode, 2)
        self.assertIn("--picture: draws the speeds of tests", done.stderr.decode())

    def test_without_cairo_the_package_is_named_before_the_run(self):
        flags = [(command, ("--picture", self.path("x.png"))) for command in COMMANDS.values()]
        flags += [(COMMANDS["compare"], ("--html", self.path("x.html"))), (COMMANDS["compare"], ("--svg", self.path("x.svg"))),
                  (COMMANDS["replay"], ("--report", self.path("x.html")))]
        for command, flag in flags:
            done = subprocess.run([BINARY, *command, *flag], env={**os.environ, "MILLRACE_CAIRO": self.folder}, timeout=60,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 4, (command, flag))
            self.assertIn("libpangocairo-1.0-0", done.stderr.decode())
            self.assertEqual(done.stdout, b"")
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
