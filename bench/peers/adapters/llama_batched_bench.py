"""llama-batched-bench: concurrently generating streams. Its table goes to stdout, or only to llama.log."""

import os
import re

from . import Figure, NotMeant, PeerError, run

TOOL = "llama-batched-bench"
_ROW = re.compile(r"^(?:\[\d+\]\s*)?\|((?:\s*[\d.]+\s*\|){10})\s*$")


class LlamaBatchedBench:
    def __init__(self, folder):
        self.path = os.path.join(folder, TOOL)
        self._help = None

    def _knows_repacking(self):
        if self._help is None:
            output = run(["sh", "-c", '"$0" --help; true', self.path], 60)
            self._help = output.stdout + output.stderr
        return "--run-time-repack" in self._help

    def variants(self, _case=None):
        return [["-rtr", "-thp"], []] if self._knows_repacking() else [[]]

    def check(self, case):
        if case.kind != "batched":
            raise NotMeant(f"{TOOL} has no {case.kind} test")
        if not os.path.exists(self.path):
            raise PeerError(f"no {TOOL} in {os.path.dirname(self.path)}")
        # The version with repacking feeds token 0 to every stream; the other one draws random tokens.
        if case.mixture and case.alike != self._knows_repacking():
            raise NotMeant(f"the streams of this {TOOL} are {'' if self._knows_repacking() else 'not '}all alike")

    def command(self, cases, switches):
        first = cases[0]
        streams = sorted({c.streams for c in cases})
        each = -(-(first.prompt + first.generate) // 256) * 256  # contexts are allocated in multiples of 256
        return [self.path, "-m", first.model, "-t", str(first.threads), "-fa", "on", "-ctk", first.kv, "-ctv", first.kv,
                "-c", str(each * streams[-1]), "-npp", str(first.prompt), "-ntg", str(first.generate),
                "-npl", ",".join(map(str, streams)), *switches]

    def parse(self, cases, output):
        speeds = {}
        for line in (output.stdout + "\n" + output.log).splitlines():
            match = _ROW.match(line.strip())
            if match:
                cells = [cell.strip() for cell in match.group(1).split("|")]
                speeds[tuple(int(cell) for cell in cells[:3])] = float(cells[7])  # all streams together
        return {case: Figure(speeds[key], {"peak_bytes": output.peak_bytes})
                for case in cases if (key := (case.prompt, case.generate, case.streams)) in speeds}
