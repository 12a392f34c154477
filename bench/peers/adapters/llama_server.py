"""llama-server: how long from the start of the program to the first token. llama-bench stands in where no server was
built: one token and the end of the program."""

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request

from . import Figure, NotMeant, PeerError, run

TOOL = "llama-server"


class LlamaServer:
    def __init__(self, folder):
        self.path = os.path.join(folder, TOOL)
        self.stand_in = os.path.join(folder, "llama-bench")

    def variants(self):
        return [[]]  # repacking costs a load more than it gives

    def check(self, case):
        if case.kind != "load":
            raise NotMeant(f"{TOOL} only answers how long a load takes")
        if not os.path.exists(self.path) and not os.path.exists(self.stand_in):
            raise PeerError(f"neither {TOOL} nor llama-bench in {os.path.dirname(self.path)}")

    def measure(self, cases, switches, timeout):
        case = cases[0]
        if not os.path.exists(self.path):
            output = run([self.stand_in, "-m", case.model, "-t", str(case.threads), "-p", "0", "-n", "1", "-r", "1", "-o", "json",
                          *switches], timeout)
            return {case: Figure(output.seconds, {"by": "llama-bench", "peak_bytes": output.peak_bytes})}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command = [self.path, "-m", case.model, "-t", str(case.threads), "-c", "512", "--host", "127.0.0.1", "--port", str(port),
                   "-ctk", case.kv, "-ctv", case.kv, *switches]
        began = time.monotonic()
        with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            try:
                reply = first_completion(f"http://127.0.0.1:{port}", began + timeout, process)
            finally:
                process.terminate()
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    process.kill()
        return {case: Figure(reply["at"] - began, {"by": TOOL, "timings": reply["timings"]})}


def first_completion(address, deadline, process):
    """Asks for one token until the server answers. `at`: when it did."""
    body = json.dumps({"prompt": "a", "n_predict": 1, "cache_prompt": False}).encode()
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise PeerError(f"{TOOL}: ended with {process.returncode} before it answered")
        request = urllib.request.Request(address + "/completion", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return {"timings": timings(json.load(answer)), "at": time.monotonic()}
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.005)  # 503 while it loads
    raise PeerError(f"{TOOL}: gave no answer in time")


def timings(reply):
    """Tokens a second of prompt and generation, from a /completion reply."""
    said = reply.get("timings", {})
    return {"prompt": said.get("prompt_per_second"), "generated": said.get("predicted_per_second")}
