"""Runs test programs on mutants: which test cases reach which mutants, then each mutant against those.

A mutant is caught if a test fails, crashes, or exceeds its limits on CPU time, wall time or memory.
"""

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import time

MEMORY = 4 << 30      # bytes that a trial may use
STAGES = (0.05, 0.3, 1.0)  # cumulative CPU seconds: cheap tests run before the others


class Case:
    """A test case: its cost, and the ids that it reaches."""

    __slots__ = ("program", "name", "seconds", "ids")

    def __init__(self, program, name, seconds, ids):
        self.program, self.name, self.seconds, self.ids = program, name, seconds, ids


class Trials:
    def __init__(self, folder, budget, repeat_filter=""):
        self.folder, self.budget, self.filter = folder, budget, repeat_filter
        self.scratch = tempfile.mkdtemp(prefix="mutate-")

    def close(self):
        shutil.rmtree(self.scratch, ignore_errors=True)

    def run(self, program, mutant, tests, processor_seconds, wall_seconds, log=None):
        """'passed', 'failed', 'died', 'time' or 'memory'. `mutant`: environment variables. `tests`: a GoogleTest filter, or
        "" for all; passed in a file, because Linux limits an argument or a variable to 128 KiB, some thousand names."""
        here = tempfile.mkdtemp(dir=self.scratch)
        environment = dict(os.environ, TMPDIR=here, **mutant)
        environment.pop("GTEST_FILTER", None)
        command = [os.path.join(self.folder, "bin", program), "--gtest_fail_fast"]
        flags = here + ".flags"
        if tests:
            with open(flags, "w", encoding="utf-8") as file:
                file.write(f"--gtest_filter={tests}\n")
            command.append(f"--gtest_flagfile={flags}")

        def limits():
            os.setpgid(0, 0)
            limit = max(1, int(processor_seconds + 1))
            resource.setrlimit(resource.RLIMIT_CPU, (limit, limit + 5))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_FSIZE, (MEMORY, MEMORY))
            with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
                file.write("1000")

        with open(log or os.devnull, "wb") as out:
            process = subprocess.Popen(command, cwd=here, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                       stderr=subprocess.STDOUT, preexec_fn=limits)
        end = time.monotonic() + wall_seconds
        verdict, wait = None, 0.002
        while process.poll() is None:
            if time.monotonic() > end:
                verdict = "time"
            elif self.resident(process.pid) > MEMORY:
                verdict = "memory"
            if verdict:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                break
            time.sleep(wait)
            wait = min(0.05, wait * 1.5)
        shutil.rmtree(here, ignore_errors=True)
        if tests:
            os.unlink(flags)
        if verdict:
            return verdict
        if process.returncode == 0:
            return "passed"
        return "time" if process.returncode == -signal.SIGXCPU else "died" if process.returncode < 0 else "failed"

    @staticmethod
    def resident(pid):
        try:
            with open(f"/proc/{pid}/statm", encoding="ascii") as file:
                return int(file.read().split()[1]) * 4096
        except (OSError, IndexError):
            return 0

    def record(self, program):
        """The program's cases with the ids they reach. SystemExit if one fails without a mutant."""
        log = os.path.join(self.scratch, "record")
        output = os.path.join(self.scratch, "output")
        verdict = self.run(program, {"MILLRACE_MUTANT": "record", "MILLRACE_MUTANT_LOG": log}, self.filter, 3600, 3600, output)
        if verdict != "passed":
            with open(output, encoding="utf-8", errors="replace") as file:
                raise SystemExit(f"mutate: {program} {verdict} without a mutant:\n{file.read()[-3000:]}")
        cases = []
        if os.path.exists(log):
            with open(log, encoding="utf-8") as file:
                for line in file:
                    name, seconds, state, ids = line.rstrip("\n").split("\t")
                    if state == "passed":
                        cases.append(Case(program, name, float(seconds), frozenset(map(int, ids.split()))))
            os.unlink(log)
        return cases

    def attack(self, mutant_id, cases, killer):
        """(verdict, tests) for the cases that reach the mutant. Runs the one that caught it last time, then the others
        within the budget, cheapest first."""
        cases = sorted(cases, key=lambda case: (case.name != killer, case.seconds))
        stages, spent = [[] for _ in range(len(STAGES) + 2)], 0.0
        for case in cases:
            if spent > 0 and spent + case.seconds > self.budget:
                break
            spent += case.seconds
            stages[0 if case.name == killer else 1 + sum(spent > limit for limit in STAGES)].append(case)
        for stage in stages:
            for program in sorted({case.program for case in stage}):
                own = [case for case in stage if case.program == program]
                log = os.path.join(self.scratch, f"output-{mutant_id}")
                verdict = self.try_cases(mutant_id, program, own, log)
                name = self.last_case(log)
                os.unlink(log)
                if verdict != "passed":
                    return "caught", f"{name} ({verdict})"
        return "survived", f"{sum(map(len, stages))} of {len(cases)} tests that reach it"

    def try_cases(self, mutant_id, program, cases, log):
        usual = sum(case.seconds for case in cases)
        names = ":".join(case.name for case in cases)
        return self.run(program, {"MILLRACE_MUTANT": str(mutant_id)}, names, 6 * usual + 2, 20 * usual + 30, log)

    @staticmethod
    def last_case(log):
        """The test that ran last; with --gtest_fail_fast, the one that failed."""
        name = "?"
        with open(log, encoding="utf-8", errors="replace") as file:
            for line in file:
                if line.startswith("[ RUN      ] "):
                    name = line[13:].strip()
        return name
