"""Adapters, one file per benchmark tool. Each turns cases into a command and the command's output into figures.

A job is a group of cases that one process can measure: same engine, model, threads and KV type. An adapter has

    check(case)                 raises PeerError if it cannot run the case, NotMeant if it is not meant for such cases
    command(cases, switches)    the command line, argument by argument
    parse(cases, output)        {case: Figure}, without the cases that the tool did not report
"""

import dataclasses
import os
import subprocess
import tempfile
import time


class PeerError(Exception):
    """Why a tool gave no figure; printed below the table."""


class NotMeant(PeerError):
    """Another tool or another line of the table covers this case; not an error."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table. Depth is the number of tokens in a stream's context before timing starts."""
    suite: str
    kind: str            # prefill, decode, batched, load, serve
    shape: str           # llama-1.1b
    format: str          # q4_0
    model: str           # path
    prompt: int = 0
    generate: int = 0
    depth: int = 0
    streams: int = 1
    threads: int = 2
    rate: float = 0.0    # serve: requests per second, open loop; 0: closed loop with `streams` in flight
    kv: str = "f16"
    isa: str = ""        # cap the instruction set; empty: the best available
    mixture: bool = False  # mixture of experts: the tokens decide which experts are read ...
    alike: bool = False    # ... and in this case every stream has the same tokens

    @property
    def test(self):
        if self.kind == "load":
            return "first token"
        if self.kind == "serve":
            return f"ITL p99, {self.rate:g} req/s" if self.rate else f"{self.streams} in flight"
        name = f"pp{self.prompt}" if self.kind == "prefill" else f"tg{self.generate}"
        name += f" @ d{self.depth}" if self.depth else ""
        return name + (f" x{self.streams}" if self.streams > 1 else "") + (" alike" if self.alike else "")

    @property
    def requests(self):
        """Number of requests of a serve case."""
        return 2 * self.streams if self.rate else 4 * self.streams

    @property
    def repetitions(self):
        """Repetitions in one process. A long context is its own warm-up and too expensive to fill often; a small
        model finishes before a busy system has given it both processors."""
        if self.kind == "batched" or self.depth + self.prompt >= 2048:
            return 1
        return 20 if self.suite == "small" else 3

    @property
    def unit(self):
        if self.kind == "serve" and self.rate:
            return "ms"
        return "s" if self.kind == "load" else "t/s"

    @property
    def less_is_better(self):
        return self.unit != "t/s"

    def job_key(self):
        """Cases with the same key share a process; a load needs its own process, and so does each depth."""
        return (self.suite, self.kind == "batched", self.kind == "load", self.rate, self.model, self.depth, self.threads,
                self.kv, self.isa, self.alike)


@dataclasses.dataclass
class Figure:
    value: float                      # in the case's unit
    facts: dict = dataclasses.field(default_factory=dict)  # other results of the tool, such as fractions of the roof


@dataclasses.dataclass
class Output:
    stdout: str
    stderr: str
    log: str = ""         # contents of llama.log, if the tool wrote one
    seconds: float = 0.0  # from start to end
    peak_bytes: int = 0


def run(command, timeout, environment=None):
    """Runs a tool in an empty folder, because some write log files. Errors: PeerError with its last line of output."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.monotonic()
        try:
            process = subprocess.Popen(command, cwd=folder, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env=dict(os.environ, **(environment or {})))
        except OSError as error:
            raise PeerError(f"{os.path.basename(command[0])}: {error.strerror}") from error
        usage, status = _wait(process, began + timeout)
        seconds = time.monotonic() - began
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "replace"))
        log = os.path.join(folder, "llama.log")
        if os.path.exists(log):
            with open(log, encoding="utf-8", errors="replace") as file:
                texts.append(file.read())
        else:
            texts.append("")
    output = Output(*texts, seconds=seconds, peak_bytes=usage.ru_maxrss * 1024)
    if status != 0:
        raise PeerError(f"{os.path.basename(command[0])}: {_last_words(output, status)}")
    return output


def _wait(process, deadline):
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return usage, process.returncode
        if time.monotonic() > deadline:
            process.kill()
            _, _, usage = os.wait4(process.pid, 0)
            process.returncode = -9
            return usage, "took too long"
        time.sleep(0.002)


def _last_words(output, status):
    if isinstance(status, str):
        return status
    lines = [line.strip() for line in (output.stderr or output.stdout).splitlines() if line.strip()]
    said = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no output")
    return f"ended with {status}: {said[:160]}"


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
