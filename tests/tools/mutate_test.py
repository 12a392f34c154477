#!/usr/bin/env python3
"""tools/mutate finds the places it says, makes code that compiles and behaves as before, and each of its changes bites.

Run by CTest: a small C++ file is rewritten once, compiled once, and run with each mutant alive.
"""

import importlib.machinery
import importlib.util
import os
import subprocess
import sys
import tempfile
import unittest

TOOLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools")
sys.path.insert(0, TOOLS)
sys.dont_write_bytecode = True

from mutation import rewrite, tree, trial  # noqa: E402

SOURCE = """#include <algorithm>
#include <array>
#include <string>
#include <vector>
namespace {
constexpr int kSize = 4;
static_assert(kSize + 1 == 5);
template <typename T>
constexpr T twice(T x) { return x + x; }
std::array<int, twice(2) + 1> table{};

bool inside(int x, int low, int high) { return x >= low && x < high; }
bool either(bool a, bool b, bool c) {
  if (a || b || c) return true;
  return false;
}
int sum(const std::vector<int>& all) {
  int total = 0;
  for (size_t i = 0; i < all.size(); ++i) total += all[i];
  return total;
}
int nearest(int x, int low, int high) {
  auto clamp = [&](int y) {
    if (y == low) return low;
    return std::min<int>(std::max(y, low), high);
  };
  switch (x) {
    case 1 + 1: x = 20; break;
    default: break;
  }
  return clamp(x);
}
std::string word(int x) { return x == 0 ? "none" : "some"; }
}  // namespace
"""

CHECKS = """
#include <cstdlib>
int main(int, char** words) {
  mutant::alive = std::atoi(words[1]);
  const bool good = inside(1, 1, 3) && inside(2, 1, 3) && !inside(3, 1, 3) && !inside(0, 1, 3) && either(true, false, false) &&
                    either(false, true, false) && either(false, false, true) && !either(false, false, false) && sum({3, 4}) == 7 &&
                    nearest(2, 1, 30) == 20 && nearest(0, 1, 9) == 1 && nearest(3, 1, 9) == 3 && nearest(10, 1, 9) == 9 && nearest(5, 5, 5) == 5 &&
                    word(0) == "none" && word(1) == "some" && table.size() == 5;
  return good ? 0 : 1;
}
"""

# Of the lambda's early return nothing is seen: what follows it gives the same.
SAME = {"drop: return low", "drop: break"}


def tool():
    loader = importlib.machinery.SourceFileLoader("mutate", os.path.join(TOOLS, "mutate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    loader.exec_module(module)
    return module


class MutateTest(unittest.TestCase):
    def changes(self, line, source=SOURCE):
        return [one.change for one in rewrite.find(source, "a.cc") if one.source.startswith(line)]

    def test_it_finds_what_runs_and_nothing_that_must_be_constant(self):
        self.assertEqual(self.changes("bool inside"), ["return another: x >= low && x < high", ">= -> >", "&& -> ||", "< -> <="])
        self.assertEqual(self.changes("if (a || b"), ["negate: a || b || c", "|| -> &&", "|| -> &&", "drop: return true", "return false"])
        self.assertEqual(self.changes("for (size_t"), ["0 -> 1", "< -> <=", "drop: total += all[i]"])
        self.assertEqual(self.changes("return std::min"), ["min -> max", "max -> min"])
        self.assertEqual(self.changes("return false"), ["return true"])
        self.assertEqual(self.changes("case 1 + 1"), ["drop: x = 20", "20 -> 21"])
        for line in ("constexpr int", "static_assert", "std::array"):
            self.assertEqual(self.changes(line), [])

    def test_declarations_stay(self):
        source = "void f() {\n  Foo x = 1;\n  const auto& y = g();\n  std::vector<int> z(3);\n  MACRO(int a, g());\n  a.b->c[1] = 2;\n  g<int>(1);\n  ++a;\n}\n"
        self.assertEqual([one.change for one in rewrite.find(source, "a.cc") if one.change.startswith("drop")],
                         ["drop: a.b->c[1] = 2", "drop: g<int>(1)", "drop: ++a"])

    def test_each_change_bites_and_none_changes_nothing(self):
        mutants = rewrite.find(SOURCE, "a.cc")
        for number, one in enumerate(mutants, 1):
            one.id = number
        with tempfile.TemporaryDirectory() as folder:
            path, program = os.path.join(folder, "a.cc"), os.path.join(folder, "a")
            with open(path, "w", encoding="utf-8") as file:
                file.write(rewrite.rewrite(SOURCE, mutants) + CHECKS)
            built = subprocess.run(["c++", "-std=c++20", "-fsanitize=bounds", "-D_GLIBCXX_ASSERTIONS", "-w", "-I", os.path.join(TOOLS, "mutation"),
                                    path, "-o", program], capture_output=True, text=True, check=False)
            self.assertEqual(built.returncode, 0, built.stderr)

            def passes(number):
                return subprocess.run([program, str(number)], capture_output=True, check=False).returncode == 0
            self.assertTrue(passes(0))
            survivors = [one for one in mutants if passes(one.id)]
            self.assertEqual([(one.line, one.change) for one in survivors],
                             [(one.line, one.change) for one in survivors if one.change in SAME])
            self.assertEqual(len(mutants), 24)

    def test_lines_stay_where_they_are(self):
        mutants = rewrite.find(SOURCE, "a.cc")
        lines = rewrite.rewrite(SOURCE, mutants).split("\n")
        self.assertEqual(lines[:2], ['#include "mutant.h"', "#line 1"])
        self.assertEqual(len(lines), len(SOURCE.split("\n")) + 2)

    def test_an_error_blames_the_mutants_of_the_lines_it_names(self):
        mutants = tree.rewrite.find(SOURCE, "src/a.cc")
        checkout = tree.Tree("/nowhere", print)
        output = ("../../src/mutant.h: In instantiation of 'lt':\n../../src/a.cc:19:20:   required from here\n"
                  "../../src/mutant.h:30:1: error: no match for 'operator<='\n")
        self.assertEqual({one.line for one in checkout.blamed(output, mutants)}, {19})
        self.assertEqual(checkout.blamed("../../src/a.cc:19:20: warning: odd\n", mutants), [])

    def test_any_number_of_names_reaches_the_test_program(self):
        names = [f"Suite/LongNameOfASuite.LongNameOfACase/{number}" for number in range(10000)]  # 490 KB, 128 KiB fit a variable
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(os.path.join(folder, "bin"))
            path = os.path.join(folder, "bin", "some_test")
            with open(path, "w", encoding="utf-8") as file:  # reads a flag file as GoogleTest does, a flag a line
                file.write(f"""#!{sys.executable}
import os, sys
flags = [one.split("=", 1)[1] for one in sys.argv if one.startswith("--gtest_flagfile=")]
lines = [line for one in flags for line in open(one).read().split("\\n")]
names = [name for line in lines if line.startswith("--gtest_filter=") for name in line.split("=", 1)[1].split(":")]
print("[ RUN      ] " + names[-1], len(names), os.environ["MILLRACE_MUTANT"], os.environ.get("GTEST_FILTER"))
sys.exit(1)
""")
            os.chmod(path, 0o755)
            trials = trial.Trials(folder, 20)
            try:
                cases = [trial.Case("some_test", name, 1e-6, frozenset([7])) for name in names]
                self.assertEqual(trials.attack(7, cases, ""), ("caught", f"{names[-1]} 10000 7 None (failed)"))
                self.assertEqual(os.listdir(trials.scratch), [])
            finally:
                trials.close()

    def test_a_sample_is_the_same_each_time_and_wherever_the_lines_stand(self):
        class Options:
            sample, seed, only, again = 8, 3, [], False
        mutate = tool()

        def sample(source):
            found = rewrite.find(source, "src/a.cc")
            for number, one in enumerate(found, 1):
                one.id = number
            return [one.key() for one in mutate.choose(found, ["src/a.cc"], Options, {})]
        self.assertEqual(len(sample(SOURCE)), 8)
        self.assertEqual(sample(SOURCE), sample("\n\n" + SOURCE))

    def test_a_share_has_an_interval(self):
        low, high = tool().interval(90, 100)
        self.assertAlmostEqual(low, 0.826, 3)
        self.assertAlmostEqual(high, 0.945, 3)


if __name__ == "__main__":
    unittest.main()
