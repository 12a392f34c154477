#!/usr/bin/env python3
"""tools/stage_costs fails a stage that is over its budget by half and names what grew. Run by CTest."""

import importlib.machinery
import importlib.util
import os
import tempfile
import unittest

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "stage_costs")
loader = importlib.machinery.SourceFileLoader("stage_costs", TOOL)
costs = importlib.util.module_from_spec(importlib.util.spec_from_loader("stage_costs", loader))
loader.exec_module(costs)

BUDGETS = {"unit": 2.0, "suite": 1000.0, "suite/compiling millrace_kv": 100.0, "suite/running kv_test": 10.0}


class StageCostsTest(unittest.TestCase):
    def test_a_stage_over_its_budget_by_half_fails(self):
        self.assertTrue(costs.check("suite", 1500, 2.0, {}, BUDGETS)[0])
        self.assertFalse(costs.check("suite", 1501, 2.0, {}, BUDGETS)[0])

    def test_times_count_at_the_speed_of_the_machine(self):
        self.assertTrue(costs.check("suite", 3000, 4.0, {}, BUDGETS)[0])
        self.assertFalse(costs.check("suite", 800, 1.0, {}, BUDGETS)[0])

    def test_a_failure_names_what_grew_most_first(self):
        items = {"compiling millrace_kv": 81.0, "running kv_test": 60.0, "compiling millrace_new": 300.0}
        _, lines = costs.check("suite", 2000, 2.0, items, BUDGETS)
        self.assertEqual([line.strip() for line in lines if line.startswith("  ")],
                         ["compiling millrace_new: 300 s, was 0 s", "running kv_test: 60 s, was 8 s"])

    def test_a_stage_without_a_budget_passes_and_says_so(self):
        fits, lines = costs.check("tsan", 9999, 2.0, {}, BUDGETS)
        self.assertTrue(fits)
        self.assertIn("has no budget", lines[0])

    def test_stored_budgets_are_read_back_at_the_stored_unit(self):
        stored = costs.store("suite", 3000, 4.0, {"running kv_test": 40.0}, dict(BUDGETS, tsan=50.0))
        self.assertNotIn("suite/compiling millrace_kv", stored)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "costs.txt")
            costs.write(path, stored)
            self.assertEqual(costs.read(path), {"unit": 2.0, "suite": 1875.0, "suite/running kv_test": 25.0, "tsan": 50.0})

    def test_the_stored_file_has_a_budget_for_every_stage(self):
        budgets = costs.read(costs.STORED)
        for stage in ("suite", "checks", "asan", "fuzz", "tsan", "arm64"):
            self.assertGreater(budgets.get(stage, 0), 0, stage)

    def test_compilations_and_test_programs_of_a_build_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(f"{folder}/src/CMakeFiles/millrace_kv.dir")
            os.makedirs(f"{folder}/test-results")
            for name in ("a.o", "b.o"):
                with open(f"{folder}/src/CMakeFiles/millrace_kv.dir/{name}", "w", encoding="utf-8"):
                    pass
            with open(f"{folder}/.ninja_log", "w", encoding="utf-8") as file:
                file.write("# ninja log v5\n")
                for begin, end, name in ((0, 2000, "a.o"), (0, 9000, "a.o"), (500, 1500, "b.o"), (0, 7000, "gone.o")):
                    file.write(f"{begin}\t{end}\t1\tsrc/CMakeFiles/millrace_kv.dir/{name}\tffff\n")
            self.assertEqual(costs.compiled(folder), {"compiling millrace_kv": 10.0})
            with open(f"{folder}/test-results/ctest.xml", "w", encoding="utf-8") as file:
                file.write('<testsuite><testcase name="kv_test" time="5.5"/></testsuite>')
            self.assertEqual(costs.tested(folder), {"running kv_test": 5.5})


if __name__ == "__main__":
    unittest.main()
