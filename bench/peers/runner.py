"""Runs the engines alternately, A B A B, so that a slow phase of the machine affects all of them, and keeps every sample."""

import contextlib
import fcntl

import adapters
from adapters.llama_batched_bench import LlamaBatchedBench
from adapters.llama_bench import LlamaBench
from adapters.llama_server import LlamaServer
from adapters.millrace import Millrace


class Peer:
    """An engine in a build folder, with one tool per kind of case."""

    def __init__(self, name, folder, avx2=False):
        self.name = name
        self.avx2 = avx2  # built for AVX2: compared in the suite avx2 only
        self.tools = [LlamaBench(folder), LlamaBatchedBench(folder), LlamaServer(folder)]

    def tool(self, case):
        """The tool for a case. Errors: PeerError with the reason if no tool can run it; NotMeant if none is meant for it."""
        if self.avx2 != (case.isa == "avx2"):
            raise adapters.NotMeant("built for another instruction set")
        problem = None
        for tool in self.tools:
            try:
                tool.check(case)
                return tool
            except adapters.PeerError as error:
                if problem is None or not isinstance(error, adapters.NotMeant):
                    problem = error
        raise problem

    def variants(self, cases):
        return self.tool(cases[0]).variants(cases[0])

    def measure(self, cases, switches, timeout):
        tool = self.tool(cases[0])
        if hasattr(tool, "measure"):
            return tool.measure(cases, switches, timeout)
        return tool.parse(cases, adapters.run(tool.command(cases, switches), timeout))


class Ours(Peer):
    def __init__(self, binary):
        super().__init__("millrace", ".")
        self.tools = [Millrace(binary)]

    def tool(self, case):
        self.tools[0].check(case)
        return self.tools[0]

    def measure(self, cases, switches, timeout):
        tool = self.tool(cases[0])
        if cases[0].kind == "load":
            return tool.first_token(cases, timeout)
        if cases[0].kind == "serve":
            return tool.serve(cases, timeout)
        return tool.parse(cases, adapters.run(tool.command(cases, switches), timeout, tool.environment(cases[0])))


class Results:
    """Samples by case, engine and switches; failures by case and engine."""

    def __init__(self):
        self.samples = {}  # (case, engine) -> {switches: [Figure, ...]}, one figure per round
        self.failures = {}

    def add(self, case, engine, switches, figure):
        self.samples.setdefault((case, engine), {}).setdefault(" ".join(switches), []).append(figure)

    def best(self, case, engine):
        """(switches, figures) of the variant with the best median, or None."""
        variants = self.samples.get((case, engine))
        if not variants:
            return None
        sign = -1 if case.less_is_better else 1
        return max(variants.items(), key=lambda item: sign * adapters.median([figure.value for figure in item[1]]))


@contextlib.contextmanager
def held(path):
    """Holds a file lock, for machines that are shared with other measurements."""
    if not path:
        yield
        return
    with open(path, "a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def jobs_of(cases):
    jobs = {}
    for case in cases:
        jobs.setdefault(case.job_key(), []).append(case)
    return list(jobs.values())


def run_job(cases, engines, options, results, say):
    """Runs every engine with every variant in the first round, then only with the best ones."""
    for number in range(options.rounds):
        with held(None if options.lock_each else options.lock):
            for engine in engines:
                _take_turn(number, cases, engine, options, results, say)


def _take_turn(number, cases, engine, options, results, say):
    if number > 0 and any((case, engine.name) in results.failures for case in cases):
        return
    try:
        variants = engine.variants(cases)[:1 if options.one_variant else None]
        if number > 0:
            winners = [best[0] for case in cases if (best := results.best(case, engine.name))]
            variants = [switches for switches in variants if " ".join(switches) in winners]
    except adapters.NotMeant:
        return
    except adapters.PeerError as error:
        for case in cases:
            results.failures[case, engine.name] = str(error)
        return
    problem = None
    for switches in variants:
        say(f"round {number + 1}/{options.rounds}  {cases[0].suite} {cases[0].shape} {cases[0].format}  {engine.name} {' '.join(switches)}")
        try:
            with held(options.lock if options.lock_each else None):
                figures = engine.measure(cases, switches, options.timeout)
        except adapters.PeerError as error:
            problem = str(error)
            continue
        for case in cases:
            if case in figures:
                results.add(case, engine.name, switches, figures[case])
            else:
                problem = "gave no figure for this test"
    for case in cases:
        if problem and (case, engine.name) not in results.samples:
            results.failures[case, engine.name] = problem
