"""llama-bench of llama.cpp and its forks: prompts, and generation at a depth, with one stream."""

import json
import os

from . import Figure, NotMeant, PeerError, median, run

TOOL = "llama-bench"


class LlamaBench:
    def __init__(self, folder):
        self.path = os.path.join(folder, TOOL)
        self._help = None

    def _knows(self, flag):
        if self._help is None:
            output = run([self.path, "--help"], 60)
            self._help = output.stdout + output.stderr
        return flag in self._help

    def variants(self, _case=None):
        """Switch lists worth trying. Repacking and huge pages are off by default where they exist."""
        return [["-rtr", "1", "-thp", "1"], []] if self._knows("-rtr") else [[]]

    def check(self, case):
        if case.kind not in ("prefill", "decode"):
            raise NotMeant(f"{TOOL} has no {case.kind} test")
        if not os.path.exists(self.path):
            raise PeerError(f"no {TOOL} in {os.path.dirname(self.path)}")
        if case.kind == "prefill" and case.depth and not self._knows("--n-depth"):
            raise PeerError(f"this {TOOL} cannot time a prompt at a depth")

    def command(self, cases, switches):
        first = cases[0]
        command = [self.path, "-m", first.model, "-t", str(first.threads), "-fa", "1", "-ctk", first.kv, "-ctv", first.kv,
                   "-o", "json", *switches]
        prompts = [c.prompt for c in cases if c.kind == "prefill"]
        lengths = [c.generate for c in cases if c.kind == "decode"]
        if first.depth and not self._knows("--n-depth"):
            command += ["-p", "0", "-n", "0"]
            for generate in lengths:
                command += ["-gp", f"{first.depth},{generate}"]
        else:
            command += ["-p", ",".join(map(str, prompts or [0])), "-n", ",".join(map(str, lengths or [0]))]
            command += ["-d", str(first.depth)] if first.depth else []
        repetitions = min(c.repetitions for c in cases)
        command += ["-r", str(repetitions)]
        if repetitions == 1:
            command += ["--no-warmup"] if self._knows("--no-warmup") else ["-w", "0"]
        return command

    def parse(self, cases, output):
        try:
            records = json.loads(output.stdout)
        except json.JSONDecodeError as error:
            raise PeerError(f"{TOOL}: printed no JSON ({error})") from error
        figures = {}
        for case in cases:
            for record in records:
                if _is(record, case):
                    speeds = record.get("samples_ts") or [record["avg_ts"]]
                    figures[case] = Figure(median(speeds), {"peak_bytes": output.peak_bytes})
        return figures


def _is(record, case):
    prompt, generate, depth = record["n_prompt"], record["n_gen"], record.get("n_depth", 0)
    if prompt and generate and "@pp" in record.get("test", ""):  # generation after a prompt that is not timed
        prompt, depth = 0, prompt
    return (prompt, generate, depth) == (case.prompt, case.generate, case.depth)
