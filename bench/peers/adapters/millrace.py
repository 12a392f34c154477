"""millrace itself: the bench command, the run command for the time to its first output byte, and the replay command for
many concurrent requests."""

import json
import os
import subprocess
import time

from . import Figure, PeerError, median, run

FACTS = ("roof_fraction", "bandwidth_fraction", "compute_fraction", "roof_gb_per_s", "gb_per_s", "gop_per_s", "isa")


class Millrace:
    def __init__(self, binary):
        self.path = binary

    def variants(self, _case=None):
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
                "--parallel", ",".join(str(s) for s in sorted({c.streams for c in cases})),
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

    def serve(self, cases, timeout):
        case = cases[0]
        trace = f"gen:requests={case.requests},arrivals=uniform,prompt=fixed:{case.prompt},output=fixed:{case.generate}"
        command = [self.path, "replay", "--in-process", "--json", "-m", case.model, "-t", str(case.threads), "--kv-format", case.kv,
                   "--max-streams", str(case.streams), "--no-prefix-cache",
                   *(["--trace", f"{trace},rate={case.rate}"] if case.rate else ["--trace", trace, "--closed-loop", str(case.streams)])]
        reply = json.loads(run(command, timeout, self.environment(case)).stdout)
        if reply["failed"]:
            raise PeerError(f"millrace replay: {reply['failed']} requests failed: {reply['errors']}")
        facts = {"itl_p99_ms": reply["itl_ms"]["p99"], "tokens_per_s": reply["output_throughput"]}
        return {case: Figure(facts["itl_p99_ms"] if case.rate else facts["tokens_per_s"], facts)}

    def first_token(self, cases, timeout):
        case = cases[0]
        began = time.monotonic()
        # Of a prompt in tokens nothing is printed, so the first byte is the answer's, or the newline after its only token.
        command = [self.path, "run", "-m", case.model, "-t", str(case.threads), "-c", "512", "--prompt-tokens", "1,400", "-n", "1"]
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
