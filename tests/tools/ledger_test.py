#!/usr/bin/env python3
"""The ledger of proofs, on a temporary tree with a program in place of millrace: tools/prove stores what it measures,
and tools/check_proofs finds a missing entry or result, a wrong page, and a direction that no longer holds.

Usage: ledger_test.py [unittest options]
"""

import importlib.machinery
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
from ledger import entries, figures, pages  # noqa: E402

_LOADER = importlib.machinery.SourceFileLoader("check_proofs", os.path.join(TOOLS, "check_proofs"))
check_proofs = importlib.util.module_from_spec(importlib.util.spec_from_loader("check_proofs", _LOADER))
_LOADER.exec_module(check_proofs)

MILLRACE = """#!/usr/bin/env python3
import json, os, sys
here = os.path.dirname(os.path.abspath(__file__))
words = sys.argv[1:]
if words == ["--version"]:
    print("millrace 1.2.3 (0123456789ab)")
elif words[0] == "techniques":
    print(open(os.path.join(here, "techniques.json")).read())
elif words[0] == "bench":
    print(json.dumps([{"cpu_info": "Toy", "isa": "ref", "cores": 2}]))
else:
    values = json.load(open(os.path.join(here, "values.json")))
    values["calls"] = values.get("calls", 0) + 1
    json.dump(values, open(os.path.join(here, "values.json"), "w"))
    print(json.dumps(values[words[1]]))
"""

ENTRY = """
title = "Policies"
[every]
baseline_name = "plain"
baseline = "{millrace} measure plain"
member = "{millrace} measure {name}"
[every.figures.cost]
kind = "quality"
better = "lower"
path = "cost"
[member.quick]
what = "It is one. It is two. It is three."
claim = "It costs less."
claims = { cost = "better" }
"""


def technique(name, family="policy", **more):
    return {"family": family, "name": name, "summary": f"does {name}", "paper": None, "lossless": True, "options": [],
            "test": "tests/quick_test.cc", "proof": "", **more}


class LedgerCase(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        self.write("tests/quick_test.cc", "TEST(Quick, Works) {}\n")
        self.write("bin/millrace", MILLRACE)
        os.chmod(os.path.join(self.root, "bin/millrace"), 0o755)
        self.techniques(technique("quick"))
        self.values(plain={"cost": 10}, quick={"cost": 8})
        self.write("proofs/entries/policy.toml", ENTRY)

    def write(self, path, text):
        path = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def change(self, path, old, new):
        self.assertIn(old, self.read(path))
        self.write(path, self.read(path).replace(old, new))

    def techniques(self, *all_of_them):
        self.write("bin/techniques.json", json.dumps(all_of_them))

    def values(self, **values):
        self.write("bin/values.json", json.dumps(values))

    def run_tool(self, tool, *arguments):
        done = subprocess.run([sys.executable, os.path.join(TOOLS, tool), *arguments, "--binary",
                               os.path.join(self.root, "bin/millrace")], capture_output=True, text=True, check=False)
        self.assertNotIn("Traceback", done.stderr)
        return done.returncode, done.stdout + done.stderr

    def prove(self, *arguments):
        return self.run_tool("prove", "--root", self.root, *arguments)

    def assert_proves(self, *arguments):
        status, output = self.prove(*arguments)
        self.assertEqual(status, 0, output)
        return output

    def assert_checks(self, *arguments):
        status, output = self.run_tool("check_proofs", self.root, *arguments)
        self.assertEqual(status, 0, output)
        return output

    def assert_finds(self, text, *arguments):
        status, output = self.run_tool("check_proofs", self.root, *arguments)
        self.assertEqual(status, 1, output)
        self.assertIn(text, output)

    def stored(self, name="quick"):
        return json.loads(self.read(f"proofs/results/{name}.json"))


class ProveTest(LedgerCase):
    def test_the_result_has_figures_version_machine_and_commands(self):
        self.assertIn("cost better. It holds here.", self.assert_proves("quick"))
        result = self.stored()
        self.assertEqual(result["version"], "millrace 1.2.3 (0123456789ab)")
        self.assertEqual(result["machine"], {"cpu": "Toy", "isa": "ref", "cores": 2})
        self.assertEqual(result["member"]["commands"], ["millrace measure quick"])
        (figure,) = result["figures"]
        self.assertEqual((figure["baseline"]["median"], figure["member"]["median"], figure["direction"]), (10, 8, "better"))
        page = self.read("docs/techniques/quick.md")
        self.assertIn("| cost | lower | 10 | 8 | -20 % | better |", page)
        self.assertIn("It holds here.", page)
        self.assertIn("cost -20 %", self.read("docs/techniques/README.md"))

    def test_all_continues_where_it_stopped(self):
        self.assert_proves("--all")
        before = json.loads(self.read("bin/values.json"))["calls"]
        self.assert_proves("--all")
        self.assertEqual(json.loads(self.read("bin/values.json"))["calls"], before)
        self.change("proofs/entries/policy.toml", "measure {name}", "measure {name} --more")
        self.assert_proves("--all")
        self.assertEqual(json.loads(self.read("bin/values.json"))["calls"], before + 2)

    def test_texts_need_no_new_run(self):
        self.assert_proves("--all")
        self.change("proofs/entries/policy.toml", "It costs less.", "It costs much less.")
        self.assert_finds("docs/techniques/quick.md: is not what its result says")
        self.assertIn("2 pages", self.assert_proves("--pages"))
        self.assert_checks()

    def test_names_that_families_share(self):
        self.techniques(technique("quick"), technique("quick", family="store"))
        self.write("proofs/entries/store.toml", ENTRY)
        self.assert_proves("--all")
        self.assertEqual(self.stored("store-quick")["family"], "store")
        self.assertEqual(self.stored("policy-quick")["family"], "policy")
        self.assert_checks()

    def test_a_name_that_becomes_shared(self):
        self.assert_proves("--all")
        self.techniques(technique("quick"), technique("quick", family="store"))
        self.write("proofs/entries/store.toml", ENTRY)
        self.assert_proves("store=quick")
        self.assertEqual(self.stored("policy-quick")["family"], "policy")
        self.assert_checks()

    def test_mistakes_are_named(self):
        self.assertIn("no technique 'slow'", self.prove("slow")[1])
        self.values(plain={"cost": 10}, quick={"price": 8})
        status, output = self.prove("quick")
        self.assertEqual(status, 1)
        self.assertIn("FAILED: figure 'cost': no 'cost' in the output", output)
        self.change("proofs/entries/policy.toml", "{name}", "{nam}")
        self.assertIn("unknown placeholder {nam}", self.prove("quick")[1])


class ProofsTest(LedgerCase):
    def test_a_ledger_that_agrees(self):
        self.assert_proves("--all")
        self.assertIn("proven again: quick", self.assert_checks())

    def test_a_member_without_entry_or_result(self):
        self.assert_finds("policy=quick: no result; run tools/prove quick")
        self.assert_proves("--all")
        self.techniques(technique("quick"), technique("slow"))
        self.assert_finds("policy=slow: no entry in proofs/entries/policy.toml")

    def test_a_test_that_does_not_exist(self):
        self.assert_proves("--all")
        self.techniques(technique("quick", test="Quick.Fails"))
        self.assert_finds("policy=quick: no such test: 'Quick.Fails'")

    def test_a_changed_program(self):
        self.write("tools/ledger/programs/measure", "print(1)\n")
        self.change("proofs/entries/policy.toml", '"{millrace} measure plain"', '"{millrace} measure plain {programs}/measure"')
        self.assert_proves("--all")
        self.assert_checks()
        self.write("tools/ledger/programs/measure", "print(2)\n")
        self.assert_finds("the result is of another entry; run tools/prove")

    def test_a_test_that_did_not_run(self):
        self.techniques(technique("quick", test="tests/fast/quick_test.cc"))
        self.write("tests/fast/quick_test.cc", "TEST(Quick, Works) {}\n")
        self.assert_proves("--all")
        case = {"name": "Works", "classname": "Quick", "file": "/b/tests/fast/quick_test.cc", "status": "RUN",
                "result": "COMPLETED"}

        def report(*cases):
            self.write("test-results/fast_test.json", json.dumps({"testsuites": [{"testsuite": cases}]}))
        report(case)
        self.assert_checks("--again", "0")
        report({**case, "file": "/b/tests/fast/slow_test.cc"})
        self.assert_finds("its test proves nothing: fast_test ran without a case of tests/fast/quick_test.cc", "--again", "0")
        report({**case, "failures": [{"failure": "no"}]})
        self.assert_finds("Quick.Works of tests/fast/quick_test.cc failed", "--again", "0")
        report({**case, "result": "SKIPPED"})
        self.assert_finds("all cases of tests/fast/quick_test.cc were skipped", "--again", "0")
        report({**case, "status": "NOTRUN"})
        self.assert_checks("--again", "0")

    def test_a_wrong_page(self):
        self.assert_proves("--all")
        self.change("docs/techniques/quick.md", "-20 %", "-90 %")
        self.assert_finds("docs/techniques/quick.md: is not what its result says; run tools/prove --pages")

    def test_what_belongs_to_no_member(self):
        self.assert_proves("--all")
        self.write("proofs/results/slow.json", "{}")
        self.assert_finds("proofs/results/slow.json: no technique of this name")
        os.remove(os.path.join(self.root, "proofs/results/slow.json"))
        self.write("docs/techniques/slow.md", "# slow\n")
        self.assert_finds("docs/techniques/slow.md: no technique of this name")

    def test_a_result_of_another_entry_or_without_version(self):
        self.assert_proves("--all")
        self.change("proofs/results/quick.json", "millrace 1.2.3 (0123456789ab)", "today's")
        self.assert_finds("the result names no version: 'today's'")
        self.change("proofs/entries/policy.toml", "measure plain", "measure plain --more")
        self.assert_finds("the result is of another entry")

    def test_a_claim_that_does_not_hold_needs_a_reason(self):
        self.values(plain={"cost": 10}, quick={"cost": 12})
        self.assert_proves("--all")
        self.assert_finds("It does not hold here: cost is worse, not better. The entry does not say why")
        self.change("proofs/entries/policy.toml", "claims = {", 'why = "It is slow."\nclaims = {')
        self.assert_proves("--pages")
        self.assert_checks()
        self.assertIn("cost is worse, not better. It is slow.", self.read("docs/techniques/quick.md"))

    def test_a_contradicted_direction(self):
        self.assert_proves("--all")
        self.values(plain={"cost": 10}, quick={"cost": 12})
        self.assert_finds("quick: cost in a short run: worse beside its baseline (+20 %), but stored as better")
        self.assert_checks("--again", "0")

    def test_a_member_without_effect(self):
        self.assert_proves("--all")
        self.values(plain={"cost": 10}, quick={"cost": 10})
        self.assert_finds("quick: cost in a short run: equal beside its baseline (0), but stored as better")

    def test_a_smoke_tolerance(self):
        self.change("proofs/entries/policy.toml", 'path = "cost"', 'path = "cost"\nsmoke_tolerance = 0.1')
        self.assert_proves("--all")
        self.values(plain={"cost": 10}, quick={"cost": 9.5})
        self.assert_checks()
        self.values(plain={"cost": 10}, quick={"cost": 10})
        self.assert_finds("quick: cost in a short run: equal beside its baseline (0), but stored as better")

    def test_a_direction_edited_by_hand(self):
        self.values(plain={"cost": 10}, quick={"cost": 12})
        self.change("proofs/entries/policy.toml", "claims = {", 'why = "It is slow."\nclaims = {')
        self.assert_proves("--all")
        self.change("proofs/results/quick.json", '"direction": "worse"', '"direction": "better"')
        self.assert_proves("--pages")
        self.assert_finds("policy=quick: cost: direction is stored as 'better', but its values make it 'worse'", "--again", "0")

    def test_a_round_edited_by_hand(self):
        self.change("proofs/entries/policy.toml", 'path = "cost"', 'path = "cost"\ntimed = true')
        self.assert_proves("--all")
        self.assert_checks("--again", "0")
        result = self.stored()
        result["figures"][0]["member"]["rounds"] = [12, 12, 12, 12, 12]
        self.write("proofs/results/quick.json", json.dumps(result))
        self.assert_finds("cost: direction is stored as 'better', but its values make it 'worse'", "--again", "0")
        del result["figures"][0]["member"]["rounds"]
        self.write("proofs/results/quick.json", json.dumps(result))
        self.assert_finds("cost: no values of all rounds", "--again", "0")

    def test_times_of_a_busy_machine_or_of_another_deny_nothing(self):
        self.change("proofs/entries/policy.toml", 'path = "cost"', 'path = "cost"\ntimed = true')
        self.assert_proves("--all")
        for change in ({"busy": True}, {"busy": False}, {"busy": False, "machine": {"cpu": "Toy", "isa": "ref", "cores": 4}}):
            stored = {**self.stored(), **change}
            turned = {**self.stored(), "busy": False}
            figure = stored["figures"][0]
            turned["figures"] = [{**figure, "direction": "worse"}]
            entry = entries.entry_of({"policy": entries.read_toml(os.path.join(self.root, "proofs/entries/policy.toml"))},
                                     technique("quick"))
            found = check_proofs.denials(entry, stored, turned)
            self.assertEqual(bool(found), change == {"busy": False}, change)
            self.assertEqual(check_proofs.denials(entry, {**stored, "busy": False}, {**turned, "busy": True}), [])

    def test_a_busy_result_denies_no_claim_but_says_so(self):
        self.change("proofs/entries/policy.toml", 'path = "cost"', 'path = "cost"\ntimed = true')
        self.values(plain={"cost": 10}, quick={"cost": 12})
        self.assert_proves("--all")
        result = {**self.stored(), "busy": True, "load_of_others": 0.5}
        self.write("proofs/results/quick.json", json.dumps(result))
        self.assert_proves("--pages")
        self.assert_checks("--again", "0")
        page = self.read("docs/techniques/quick.md")
        self.assertIn("| worse\\* |", page)
        self.assertIn("while other programs used 50%", page)
        self.assertIn("Whether all of it holds here is unclear: cost is worse on a busy machine.", page)
        self.write("proofs/results/quick.json", json.dumps({**result, "busy": False}))
        self.assert_finds("busy is stored as False, with other programs on 0.5", "--again", "0")
        self.write("proofs/results/quick.json", json.dumps({**result, "busy": False, "load_of_others": 0}))
        self.assert_finds("It does not hold here: cost is worse, not better. The entry does not say why", "--again", "0")

    def test_unclear_figures_on_pages(self):
        self.change("proofs/entries/policy.toml", 'path = "cost"', 'path = "cost"\ntimed = true')
        self.assert_proves("--all")
        entry = {"claims": {"cost": "better"}}
        rounds = [([{"v": 10}], [{"v": value}]) for value in (2, 3, 20)]
        figure = figures.measured("cost", {"kind": "speed", "better": "lower", "path": "v", "timed": True}, rounds)
        self.assertEqual(figure["direction"], "unclear")
        self.assertEqual(pages.verdict(entry, {"busy": False, "figures": [figure]}),
                         ("Whether all of it holds here is unclear: cost is unclear.", "unclear"))

    def test_a_picture_where_something_is_paid(self):
        self.change("proofs/entries/policy.toml", "[member.quick]",
                    '[every.figures.bytes]\nkind = "memory"\nbetter = "lower"\npath = "bytes"\n[member.quick]\n'
                    'larger = "It costs a tenth there."')
        path = "proofs/pictures/quick.svg"
        self.values(plain={"cost": 10, "bytes": 100}, quick={"cost": 8, "bytes": 400})
        self.assert_proves("--all")
        page = self.read("docs/techniques/quick.md")
        self.assertIn("![quick](../../proofs/pictures/quick.svg)\n\n## On a larger model\n\nIt costs a tenth there.\n", page)
        drawn = self.read(path)
        self.assertIn(">-20 %, better</text>", drawn)
        self.assertIn(">+300 %, worse</text>", drawn)
        self.assert_checks("--again", "0")
        self.write(path, drawn.replace("300", "200"))
        self.assert_finds(f"{path}: is not what its result says", "--again", "0")
        self.values(plain={"cost": 10, "bytes": 100}, quick={"cost": 8, "bytes": 40})  # nothing to weigh up
        self.assert_proves("quick")
        self.assertNotIn("svg", self.read("docs/techniques/quick.md"))
        self.assertFalse(os.path.exists(os.path.join(self.root, path)))
        self.write(path, drawn)
        self.assert_finds(f"{path}: no technique of this name", "--again", "0")

    def test_what_programs_share(self):
        self.change("proofs/entries/policy.toml", '"{millrace} measure plain"',
                    '"{millrace} measure plain {programs}/measure {programs}/templates/a.jinja"')
        for path in ("measure", "common.py", "templates/a.jinja"):
            self.write("tools/ledger/programs/" + path, "1\n")
            self.assert_proves("--all")
            self.assert_checks("--again", "0")
            self.write("tools/ledger/programs/" + path, "2\n")
            self.assert_finds("the result is of another entry; run tools/prove", "--again", "0")

    def test_a_path_with_spaces(self):
        spaced = os.path.join(self.root, "a folder")
        os.mkdir(spaced)
        for name in ("bin", "proofs", "tests"):
            os.rename(os.path.join(self.root, name), os.path.join(spaced, name))
        self.root = spaced
        self.change("proofs/entries/policy.toml", "measure {name}", "measure {name} {scratch}/x '{programs}/y z'")
        self.assert_proves("--all")
        self.assertEqual(self.stored()["member"]["commands"], ["millrace measure quick SCRATCH/x 'tools/ledger/programs/y z'"])
        self.assert_checks()

    def test_a_proof_that_no_longer_runs(self):
        self.assert_proves("--all")
        self.values(plain={"cost": 10})
        self.assert_finds("quick: short run: ", "--again", "quick")

    def test_no_binary(self):
        done = subprocess.run([sys.executable, os.path.join(TOOLS, "check_proofs"), self.root], capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "check_proofs: no binary built, nothing was checked\n"))
        os.remove(os.path.join(self.root, "bin/millrace"))
        self.assert_finds("check_proofs: no binary ")
        self.assertIn("prove: no binary ", self.prove("quick")[1])

    def test_an_incomplete_entry(self):
        self.change("proofs/entries/policy.toml", "It is one. It is two. It is three.", "It is one.")
        self.assert_finds("policy=quick: entry: 'what' has 1 sentences, not 3")


class FiguresTest(unittest.TestCase):
    def measured(self, rounds, short=False, **figure):
        return figures.measured("f", {"kind": "speed", "path": "v", "better": "higher", **figure},
                                [([{"v": a}], [{"v": b}]) for a, b in rounds], short)

    def test_directions(self):
        self.assertEqual(self.measured([(10, 11)])["direction"], "better")
        self.assertEqual(self.measured([(10, 11)], better="lower")["direction"], "worse")
        self.assertEqual(self.measured([(10, 10.5)], tolerance=0.1)["direction"], "equal")
        self.assertEqual(self.measured([(0, 0.5)], better="lower")["direction"], "worse")

    def test_timed_figures_need_rounds_that_agree(self):
        self.assertEqual(self.measured([(10, 12), (10, 13), (10, 12)], timed=True)["direction"], "better")
        self.assertEqual(self.measured([(10, 12), (10, 9), (10, 12)], timed=True)["direction"], "unclear")
        self.assertEqual(self.measured([(10, 3), (10, 10), (10, 20)], timed=True)["direction"], "unclear")
        self.assertEqual(self.measured([(10, 9.7), (10, 10), (10, 10.4)], timed=True)["direction"], "equal")
        self.assertEqual(self.measured([(10, 10.2), (10, 10.3)], timed=True)["direction"], "equal")

    def test_contradictions(self):
        better, equal, worse = (self.measured([(10, value)]) for value in (11, 10, 9))
        for stored in (better, equal, worse):
            for short in (better, equal, worse):
                self.assertEqual(figures.contradicts({}, stored, short), stored is not short)

    def test_contradictions_of_timed_figures(self):
        stored = {value: self.measured([(10, value)], timed=True) for value in (12, 10)}
        short = {value: self.measured([(10, value)], short=True, timed=True) for value in (10, 9.2, 7)}
        unclear = self.measured([(10, 3), (10, 20)], timed=True)
        self.assertFalse(figures.contradicts({}, stored[12], short[9.2]))
        self.assertTrue(figures.contradicts({}, stored[12], short[7]))
        for before, now in ((stored[10], short[7]), (stored[12], short[10]), (stored[12], unclear), (unclear, short[7])):
            self.assertFalse(figures.contradicts({}, before, now))

    def test_contradictions_with_a_smoke_tolerance(self):
        figure = {"smoke_tolerance": 0.1}

        def contradicts(stored, short):
            return figures.contradicts(figure, self.measured([(10, stored)], **figure),
                                       self.measured([(10, short)], short=True, **figure))
        self.assertFalse(contradicts(12, 10.5))
        self.assertTrue(contradicts(12, 10))  # no effect at all
        self.assertFalse(contradicts(10.5, 10))  # too small for a short run
        self.assertFalse(contradicts(10.5, 9.5))
        self.assertTrue(contradicts(10.5, 8))
        self.assertTrue(contradicts(10, 8))

    def test_stored_figures_say_what_their_values_say(self):
        figure = {"kind": "speed", "path": "v", "better": "higher", "timed": True}
        stored = self.measured([(10, 12), (10, 13)], timed=True)
        self.assertEqual(figures.disagreements(figure, stored), [])
        for key, value in (("direction", "worse"), ("change", 0.5), ("timed", False)):
            self.assertEqual(len(figures.disagreements(figure, {**stored, key: value})), 1)
        self.assertEqual(len(figures.disagreements(figure, {**stored, "member": {**stored["member"], "median": 99}})), 1)

    def test_nothing_is_not_the_same_as_nothing(self):
        for value in (None, [], ""):
            with self.assertRaisesRegex(entries.LedgerError, "figure 'f': both sides are"):
                self.measured([(value, value)], same=True)
        with self.assertRaisesRegex(entries.LedgerError, "no 'v' in the output"):
            figures.measured("f", {"kind": "quality", "better": "higher", "path": "v", "same": True}, [([{}], [{}])])
        self.assertEqual(self.measured([([1], [])], same=True)["direction"], "worse")

    def test_the_same_tokens(self):
        same = {"same": True, "path": "v"}
        self.assertEqual(self.measured([([1, 2, 3], [1, 2, 3])], **same)["direction"], "equal")
        part = self.measured([([1, 2, 3, 4], [1, 2, 0, 4])], **same)
        self.assertEqual((part["member"]["median"], part["direction"]), (0.75, "worse"))

    def test_paths_of_each_side_and_ratios(self):
        found = figures.measured("f", {"kind": "memory", "better": "lower", "path": "1:a.0", "baseline_path": "b", "per": "n"},
                                 [([{"b": 8, "n": 2}], [{"n": 2}, {"a": [6]}])])
        self.assertEqual((found["baseline"]["median"], found["member"]["median"]), (4, 3))

    def test_one_command_for_both_sides(self):
        output = [{"configs": [{"quality": [{"metric": "kl", "value": 0}, {"metric": "perplexity", "value": 8}]},
                               {"quality": [{"metric": "perplexity", "value": 9}]}]}]
        figure = {"kind": "quality", "better": "lower", "path": "configs.1.quality.[metric=perplexity].value",
                  "baseline_path": "configs.0.quality.[metric=perplexity].value"}
        found = figures.measured("f", figure, [(output, output)])
        self.assertEqual((found["baseline"]["median"], found["member"]["median"]), (8, 9))

    def test_entries_over_their_family(self):
        family = {"every": {"full": {"a": "1", "b": "2"}, "figures": {"x": {}}}, "member": {
            "q": {"full": {"b": "3"}}, "r": {"replace_figures": True, "figures": {"y": {}}}}}
        merged = entries.entry_of({"f": family}, {"family": "f", "name": "q"})
        self.assertEqual(merged, {"full": {"a": "1", "b": "3"}, "figures": {"x": {}}})
        replaced = entries.entry_of({"f": family}, {"family": "f", "name": "r"})
        self.assertEqual(list(replaced["figures"]), ["y"])
        self.assertIsNone(entries.entry_of({"f": family}, {"family": "f", "name": "s"}))

    def test_numbers(self):
        self.assertEqual([pages.number(value) for value in (1234567, 0.123456, 12.0, 98765.4)],
                         ["1,234,567", "0.1235", "12", "98,765"])


if __name__ == "__main__":
    unittest.main()
