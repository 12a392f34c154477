"""llama-server: time from program start to the first token (without a server binary, llama-bench generates one token
and its whole run is timed), and many concurrent requests."""

import contextlib
import json
import os
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from . import Figure, NotMeant, PeerError, run
from .completion_load import Load

TOOL = "llama-server"


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


class LlamaServer:
    def __init__(self, folder):
        self.path = os.path.join(folder, TOOL)
        self.stand_in = os.path.join(folder, "llama-bench")

    def variants(self, case=None):
        if not case or case.kind == "load":
            return [[]]  # repacking slows loading down
        output = run(["sh", "-c", '"$0" --help; true', self.path], 60)
        return [["-rtr", "-thp"], []] if "--run-time-repack" in output.stdout + output.stderr else [[]]

    def check(self, case):
        if case.kind not in ("load", "serve"):
            raise NotMeant(f"{TOOL} has no {case.kind} test")
        stand_in = case.kind == "load" and os.path.exists(self.stand_in)
        if not os.path.exists(self.path) and not stand_in:
            raise PeerError(f"no {TOOL} in {os.path.dirname(self.path)}")

    def measure(self, cases, switches, timeout):
        case = cases[0]
        if case.kind == "serve":
            return {case: self._serve(case, switches, timeout)}
        if not os.path.exists(self.path):
            output = run([self.stand_in, "-m", case.model, "-t", str(case.threads), "-p", "0", "-n", "1", "-r", "1", "-o", "json",
                          *switches], timeout)
            return {case: Figure(output.seconds, {"by": "llama-bench", "peak_bytes": output.peak_bytes})}
        began = time.monotonic()
        with self._running(case, ["-c", "512", *switches]) as (port, process):
            reply = first_completion(f"http://127.0.0.1:{port}", began + timeout, process)
        return {case: Figure(reply["at"] - began, {"by": TOOL, "timings": reply["timings"]})}

    def _serve(self, case, switches, timeout):
        each = -(-(case.prompt + case.generate) // 256) * 256
        deadline = time.monotonic() + timeout
        slots = ["-c", str(each * case.streams), "-np", str(case.streams), "-fa", "on", *switches]
        with self._running(case, slots) as (port, process):
            first_completion(f"http://127.0.0.1:{port}", deadline, process)
            load = Load(port, case.requests, case.prompt, case.generate, deadline - time.monotonic())
            seconds = load.open(case.rate) if case.rate else load.closed(case.streams)
        itl = 1e3 * percentile(load.gaps(), 0.99)
        facts = {"itl_p99_ms": itl, "tokens_per_s": load.tokens() / seconds}
        return Figure(itl if case.rate else load.tokens() / seconds, facts)

    @contextlib.contextmanager
    def _running(self, case, switches):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [self.path, "-m", case.model, "-t", str(case.threads), "--host", "127.0.0.1", "--port", str(port),
                   "-ctk", case.kv, "-ctv", case.kv, *switches]
        with tempfile.TemporaryDirectory() as folder, subprocess.Popen(  # an empty folder, because some write log files
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                yield port, process
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()


def first_completion(address, deadline, process):
    """Requests one token until the server answers. `at`: the time of the answer."""
    body = json.dumps({"prompt": "a", "n_predict": 1, "cache_prompt": False}).encode()
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerError(f"{TOOL}: ended with {process.returncode} before answering")
        request = urllib.request.Request(address + "/completion", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return {"timings": timings(json.load(answer)), "at": time.monotonic()}
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.005)  # 503 while it loads
    raise PeerError(f"{TOOL}: timed out")


def timings(reply):
    """Tokens per second of prompt and generation, from a /completion reply."""
    said = reply.get("timings", {})
    return {"prompt": said.get("prompt_per_second"), "generated": said.get("predicted_per_second")}
