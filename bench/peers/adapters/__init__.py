"""One file a tool that measures. Each turns cases into a command and its output into figures.

A job is cases that one process can answer: same engine, model, threads and KV type. An adapter has

    check(case)                 raises PeerError where it cannot run the case, NotMeant where it is not for such cases
    command(cases, switches)    the command line, argument by argument
    parse(cases, output)        {case: Figure}; what the tool did not say is left out
"""

import dataclasses
import os
import subprocess
import tempfile
import time


class PeerError(Exception):
    """What a reader of the table needs to know of a tool that gave no figure."""


class NotMeant(PeerError):
    """Another tool or another line of the table is there for this; nothing went wrong."""


@dataclasses.dataclass(frozen=True)
class Case:
    """One line of the table. Depth is what a stream holds before the clock starts."""
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
    rate: float = 0.0    # serve: requests a second whatever comes back; 0: `streams` in flight all the time
    kv: str = "f16"
    isa: str = ""        # held to this instruction set; empty: the best there is
    mixture: bool = False  # of experts: which ones are read depends on the tokens ...
    alike: bool = False    # ... and here every stream has the same

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
        """Of a serve case."""
        return 2 * self.streams if self.rate else 4 * self.streams

    @property
    def repetitions(self):
        """In one process. A long context is its own warm-up and too dear to be filled often; a small model is over before
        a busy system has given it both processors."""
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
        """Cases of one key share a process; a load needs one of its own, and so does each depth."""
        return (self.suite, self.kind == "batched", self.kind == "load", self.rate, self.model, self.depth, self.threads,
                self.kv, self.isa, self.alike)


@dataclasses.dataclass
class Figure:
    value: float                      # in the case's unit
    facts: dict = dataclasses.field(default_factory=dict)  # what else the tool said: fractions of the roof ...


@dataclasses.dataclass
class Output:
    stdout: str
    stderr: str
    log: str = ""         # what the tool wrote into llama.log beside itself
    seconds: float = 0.0  # from start to end
    peak_bytes: int = 0


def run(command, timeout, environment=None):
    """Runs a tool in an empty folder, for some leave logs. Errors: PeerError with the last line it said."""
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
    said = next((line for line in reversed(lines) if "error" in line.lower()), lines[-1] if lines else "no word why")
    return f"ended with {status}: {said[:160]}"


def median(values):
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
