"""millrace itself: its bench command, and for a load the first byte that its run command prints."""

import json
import os
import subprocess
import time

from . import Figure, PeerError, median

FACTS = ("roof_fraction", "bandwidth_fraction", "compute_fraction", "roof_gb_per_s", "gb_per_s", "gop_per_s", "isa")


class Millrace:
    def __init__(self, binary):
        self.path = binary

    def variants(self):
        return [[]]

    def check(self, case):
        if not os.path.exists(self.path):
            raise PeerError(f"no {self.path}")

    @staticmethod
    def environment(case):
        return {"MILLRACE_ISA": case.isa} if case.isa else {}

    def command(self, cases, switches):
        first = cases[0]
        prompts = sorted({c.prompt for c in cases if c.kind == "prefill"})
        lengths = sorted({c.generate for c in cases if c.kind != "prefill"})
        depth = first.depth if first.kind != "batched" else first.prompt
        return [self.path, "bench", "-m", first.model, "-t", str(first.threads), "--kv-format", first.kv, "-o", "json",
                "-p", ",".join(map(str, prompts or [0])), "-n", ",".join(map(str, lengths or [0])), "-d", str(depth),
                "-b", ",".join(str(s) for s in sorted({c.streams for c in cases})),
                "-r", str(min(c.repetitions for c in cases)), *(["--alike"] if first.alike else []), *switches]

    def parse(self, cases, output):
        try:
            records = json.loads(output.stdout)
        except json.JSONDecodeError as error:
            raise PeerError(f"millrace bench: printed no JSON ({error})") from error
        figures = {}
        for case in cases:
            wanted = (0, case.generate, case.prompt, case.streams) if case.kind == "batched" else (
                case.prompt, case.generate, case.depth, case.streams)
            for record in records:
                if (record["n_prompt"], record["n_gen"], record["n_depth"], record["n_streams"]) == wanted:
                    facts = {key: record[key] for key in FACTS if key in record}
                    figures[case] = Figure(median(record["samples_ts"]), dict(facts, peak_bytes=output.peak_bytes))
        return figures

    def first_token(self, cases, timeout):
        case = cases[0]
        began = time.monotonic()
        command = [self.path, "run", "-m", case.model, "-t", str(case.threads), "-c", "512", "-p", "a", "-n", "4"]
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=dict(os.environ, **self.environment(case))) as process:
            first = process.stdout.read(1)
            seconds = time.monotonic() - began
            try:
                _, errors = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired as error:
                process.kill()
                raise PeerError("millrace run: took too long") from error
        if process.returncode != 0 or not first:
            raise PeerError(f"millrace run: {errors.decode('utf-8', 'replace').strip()[-160:]}")
        return {case: Figure(seconds)}
