#!/usr/bin/env python3
"""tools/lab_card on a made-up run: figures beside targets, what is below them, pictures, and the place in a file."""

import importlib.machinery
import importlib.util
import json
import os
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
_LOADER = importlib.machinery.SourceFileLoader("lab_card", os.path.join(TOOLS, "lab_card"))
lab_card = importlib.util.module_from_spec(importlib.util.spec_from_loader("lab_card", _LOADER))
_LOADER.exec_module(lab_card)

MODEL = {"parameters": 4066560, "context": 2048, "file_bytes": 8200000, "groups": {"all": {"formats": {"f16": 3, "f32": 2}}}}


def task(name, score, **lengths):
    return {"task": name, "items": 100, "score": score, "right": score,
            "lengths": [{"characters": int(length[1:]), "items": 50, "score": one, "right": one} for length, one in lengths.items()]}


class LabCard(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.write("loss.csv", "step,tokens,longest,loss,rate,gradient,tokens_per_second,elapsed_s\n"
                   + "".join(f"{i},{i * 100000},400,{5 - i / 10},1,1,5000,{i * 36}\n" for i in range(1, 21)) + "21,2100")
        self.write("accuracy.csv", "step,tokens,task,characters,items,right,loss,token_accuracy\n"
                   "10,1000000,copy,600,24,6,1,0.5\n20,2000000,copy,600,24,18,1,0.5\n20,2000000,needle,600,24,24,1,1\n"
                   "20,2000000,needle,2000,24,0,1,0\n")
        self.tasks = [task("needle", 0.9, c512=1.0, c16384=0.96), task("copy", 0.5, c256=0.75, c512=0.25), task("summary", 0.25, c512=0.25),
                      task("steps", 0.95, c512=0.95), task("arithmetic", 0.2, c512=0.2)]
        self.write("table.json", json.dumps({"tasks": self.tasks}))
        # In place of millrace: the picture's file receives the arguments of `plot` and the curves.
        self.write("plotter", '#!/bin/sh\nfor one; do case $before in --picture) out=$one;; esac; before=$one; done\n'
                              'echo "$1 $3 $4 $5 $6" "$@" > "$out"; cat "$2" >> "$out"\n')
        self.plotter = os.path.join(self.folder, "plotter")
        os.chmod(self.plotter, 0o755)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, name):
        with open(os.path.join(self.folder, name), encoding="utf-8") as file:
            return file.read()

    def card(self):
        table = lab_card.read_table(os.path.join(self.folder, "table.json"))
        return lab_card.card("millrace-lab", MODEL, self.folder, table, self.folder, self.plotter)

    def test_figures_beside_targets(self):
        text = self.card()
        self.assertIn("| `needle` | 95 % | **96.0 %** | 100.0 % | 96.0 % |\n", text)  # of the longest prompts
        self.assertIn("| `copy` | 95 % | **50.0 %** | 50.0 % |  |\n", text)  # the mean of two lengths
        self.assertIn("| `arithmetic` |  | 20.0 % | 20.0 % |  |\n", text)
        self.assertIn("| parameters | 4,066,560 |\n| number formats | F16, F32 |\n| file | 8.2 MB |\n", text)
        self.assertIn("| updates | 20 |\n| tokens seen | 2.0 M |\n| training time | 0.2 h |\n", text)  # not the torn row
        self.assertIn("| last training loss, nats per token of an answer | 3.450 |\n", text)

    def test_runs_that_continue_each_other_are_one(self):
        rows = lab_card.read_runs(f"{self.folder},{self.folder}", "loss.csv")
        self.assertEqual(([rows[19]["tokens"], rows[20]["tokens"], rows[-1]["tokens"]], rows[-1]["elapsed_s"]),
                         ([2000000, 2100000, 4000000], 1440))
        self.assertEqual(rows[20]["loss"], rows[0]["loss"])
        accuracy = lab_card.read_runs(f"{self.folder},{self.folder}", "accuracy.csv")
        self.assertEqual([(row["task"], row["tokens"]) for row in accuracy][4], ("copy", 3000000))

    def test_what_it_cannot_do(self):
        text = self.card().split("cannot do:")[1]
        self.assertIn("- `copy` is at 50.0 %, below its target of 95 %.\n", text)
        self.assertIn("- `multidoc` was not measured at the length of its target.\n", text)
        self.assertIn("- `summary` is at 25.0 %.\n", text)
        for good in ("needle", "steps", "arithmetic"):
            self.assertNotIn(f"`{good}`", text)
        self.tasks[-1]["score"] = 0.97
        self.write("table.json", json.dumps({"tasks": self.tasks}))
        self.assertIn("Worked steps bring nothing", self.card())

    def test_pictures(self):
        self.card()
        first = {kind: self.read(f"millrace-lab-{kind}.svg") for kind in ("loss", "accuracy")}
        self.assertTrue(first["loss"].startswith("plot --x tokens --y loss "), first["loss"])
        self.assertIn("\ntokens,loss\n0.1,4.9\n", first["loss"])
        self.assertTrue(first["accuracy"].startswith("plot --x tokens --y copy,needle "), first["accuracy"])
        self.assertIn("--low 0 --high 100", first["accuracy"])
        self.assertIn("\ntokens,copy,needle\n1.0,25.0,\n2.0,75.0,\n2.0,,50.0\n", first["accuracy"])  # both lengths of `needle`
        self.write("plotter", "#!/bin/sh\necho no font >&2; exit 4\n")
        with self.assertRaisesRegex(lab_card.CardError, "no font"):
            self.card()

    def test_its_place_in_a_file(self):
        self.write("README.md", "# Models\n\n<!-- card: millrace-lab -->\nold\n<!-- /card -->\nrest\n")
        path = os.path.join(self.folder, "README.md")
        lab_card.put_into(path, "millrace-lab", "new\n")
        self.assertEqual(self.read("README.md"), "# Models\n\n<!-- card: millrace-lab -->\nnew\n<!-- /card -->\nrest\n")
        with self.assertRaisesRegex(lab_card.CardError, "has no <!-- card: other -->"):
            lab_card.put_into(path, "other", "x")

    def test_files_that_say_something_else(self):
        self.write("accuracy.csv", "step,tokens,task,characters,items,right,loss,token_accuracy\n")  # before the first evaluation
        self.assertNotIn("-accuracy.svg", self.card())
        self.write("loss.csv", "step,tokens\n")
        with self.assertRaisesRegex(lab_card.CardError, "loss.csv has no rows yet"):
            self.card()
        self.write("table.json", "[]")
        with self.assertRaisesRegex(lab_card.CardError, "table.json: not what tools/lab_table prints"):
            self.card()


if __name__ == "__main__":
    unittest.main()
