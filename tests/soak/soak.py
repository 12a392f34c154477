#!/usr/bin/env python3
"""A server under mixed load for a while: all of its APIs (mixed.py), clients that leave, read slowly or send garbage, and an
operator who reads its metrics and reloads its settings.

At the end nothing may be left: no stream, no connection, no block that neither is free nor belongs to the prefix cache; every
request ended in one way that both sides know of; and the process did not grow after it had warmed up.

Usage: soak.py MILLRACE [--seconds 20] [--clients 8] [--rest 0] [--any-growth] [--json] [-- further flags of millrace serve]
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process
from mixed import MODELS, MixedKinds

OPENINGS = ["Once upon a time", "One day, a little girl named Lily", "Tom and his dog went to the park", "There was a big tree"]
KEYS = {"keys": [{"name": "alice", "key": "a", "streams": 8}, {"name": "bob", "key": "b", "cache_group": "team"},
                 {"name": "carol", "key": "c", "cache_group": "team", "weight": 2}, {"name": "ops", "key": "o", "role": "admin"}]}


class Counts:
    def __init__(self):
        self.lock = threading.Lock()
        self.values = {}

    def add(self, name, by=1):
        with self.lock:
            self.values[name] = self.values.get(name, 0) + by

    def of(self, name):
        return self.values.get(name, 0)


class Client(MixedKinds, threading.Thread):
    """One request after another until the end, each of a kind that is drawn."""

    def __init__(self, port, seed, until, counts, rest):
        super().__init__(daemon=True)
        self.port, self.draw, self.until, self.counts, self.rest = port, random.Random(seed), until, counts, rest
        self.failure = None

    def run(self):
        kinds = [self.whole, self.whole, self.stream, self.stream, self.leaves_early, self.leaves_while_it_waits, self.dawdles, self.nonsense, self.half_open, *self.kinds()]
        kind = None
        try:
            while time.monotonic() < self.until:
                kind = self.draw.choice(kinds)
                kind()
                time.sleep(self.rest * self.draw.random())
        except Exception as error:  # reported by the main thread
            self.failure = f"{kind.__name__}: {type(error).__name__}: {error}"

    def body(self, **more):
        out = {"prompt": self.draw.choice(OPENINGS) + " " * self.draw.randrange(3) + self.draw.choice(["", " and", " there"]) * self.draw.randrange(8),
               "max_tokens": self.draw.randrange(1, 100), "temperature": self.draw.choice([0, 0.8]), "n": self.draw.choice([1, 1, 1, 2, 4])}
        return {**out, **more}

    def send(self, body, receive_bytes=0):
        """The connection and, once the head is here, the response; a refusal is counted and gives none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.connect()
        if receive_bytes:
            connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Authorization": "Bearer " + self.draw.choice("abc")})
        return connection

    def taken(self, connection):
        response = connection.getresponse()
        if response.status in (200, 204):
            return response
        response.read()
        self.counts.add("refused")
        self.counts.add(f"status {response.status}")
        return None

    def whole(self):
        body = self.body()
        connection = self.send(body)
        response = self.taken(connection)
        if response:
            answers = json.load(response)["choices"]
            assert len(answers) == body["n"] and all(a["finish_reason"] in ("stop", "length") for a in answers), answers
            self.counts.add("whole", len(answers))
        connection.close()

    def stream(self):
        body = self.body(stream=True)
        connection = self.send(body)
        response = self.taken(connection)
        if response:
            text = response.read()
            assert text.endswith(b"data: [DONE]\n\n") and b'"error"' not in text, text[-300:]
            assert text.count(b'"finish_reason":"') == body["n"], text[-300:]
            self.counts.add("whole", body["n"])
        connection.close()

    def leaves_early(self):
        body = self.body(stream=True, max_tokens=-1, ignore_eos=True)
        connection = self.send(body)
        response = self.taken(connection)
        if response:
            response.read(self.draw.randrange(1, 4000))
            self.left(body)
            response.close()
        connection.close()

    def leaves_while_it_waits(self):
        body = self.body()
        connection = self.send(body)
        time.sleep(self.draw.random() * 0.2)
        self.left(body)
        connection.close()

    def left(self, body):
        self.counts.add("left", body["n"])
        self.counts.add("left requests")

    def dawdles(self):
        connection = self.send(self.body(stream=True, max_tokens=60), receive_bytes=4096)
        response = self.taken(connection)
        if response:
            while response.read(512):
                time.sleep(0.01)
            self.counts.add("dawdled")
        connection.close()

    def nonsense(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        body = self.draw.choice(["{", "[]", '{"prompt": 5}', '{"prompt": "a", "n": 1000}', '{"prompt": []}', "\xff" * 100])
        connection.request("POST", "/v1/completions", body.encode("latin-1"), {"Authorization": "Bearer " + self.draw.choice("abcx")})
        response = connection.getresponse()
        response.read()
        assert response.status in (400, 401, 429), response.status
        self.counts.add("refused")
        connection.close()

    def half_open(self):
        with socket.create_connection(("127.0.0.1", self.port)) as half:
            half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Le"[:self.draw.randrange(1, 40)])
        self.counts.add("half open")


class Server(server_process.Server):
    def __init__(self, millrace, first, flags):
        self.folder = tempfile.TemporaryDirectory()
        keys, models = self.folder.name + "/keys.json", self.folder.name + "/models.toml"
        with open(keys, "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            json.dump(KEYS, file)
        with open(models, "w") as file:
            file.write(MODELS.format(first=first.replace("FOLDER", self.folder.name)))
        super().__init__(millrace, "--api-keys", keys, "--models-file", models, "--max-connections-per-address", "0", "--log-level", "error", *flags)

    def metrics(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request("GET", "/metrics", headers={"Authorization": "Bearer o"})
        text = connection.getresponse().read().decode()
        connection.close()
        return {name: float(value) for name, value in re.findall(r"^(millrace_\S+) ([-+0-9.eEinfa]+)$", text, re.M)}

    def rss(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read()).group(1)) * 1024


def total(metrics, name, **labels):
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    return sum(value for key, value in metrics.items() if key.split("{")[0] == name and all(label in key for label in wanted))


def settle(server):
    """Until nothing runs; the last metrics."""
    for _ in range(3000):
        metrics = server.metrics()
        if total(metrics, "millrace_requests_running") == 0 and total(metrics, "millrace_requests_waiting") == 0 and total(metrics, "millrace_connections") <= 1:
            return metrics
        time.sleep(0.02)
    return metrics


def check(metrics, counts, rss):
    """What is wrong, a line each."""
    wrong = []

    def must(good, text):
        if not good:
            wrong.append(text)

    for name in ("millrace_requests_running", "millrace_requests_waiting"):
        must(total(metrics, name) == 0, f"{name} is {total(metrics, name)} at the end")
    must(total(metrics, "millrace_connections") <= 1, f"{total(metrics, 'millrace_connections')} connections are open")
    used, cached = total(metrics, "millrace_kv_cache_usage_ratio"), total(metrics, "millrace_prefix_cache_ratio")
    must(abs(used - cached) < 1e-9, f"blocks: {used} held, of them {cached} by the prefix cache")
    answers = "millrace_answers_finished_total"
    ended = sum(total(metrics, answers, finished_reason=reason) for reason in ("stop", "length", "time_limit"))
    least, most = counts.of("whole") + counts.of("dawdled"), counts.of("whole") + counts.of("left") + 4 * counts.of("dawdled")
    must(least <= ended <= most, f"{ended} answers ended, {least} to {most} were read")
    must(total(metrics, answers, finished_reason="abort") <= counts.of("left requests"), "more requests were aborted than readers left")
    must(total(metrics, answers, finished_reason="error") == 0, "errors")
    refused = total(metrics, "millrace_requests_refused_total")
    must(counts.of("refused") <= refused <= counts.of("refused") + counts.of("left requests"), f"{refused} were refused, {counts.of('refused')} were told")
    if len(rss) >= 8:
        quarter = len(rss) // 4
        warm, end = statistics.median(rss[quarter:2 * quarter]), statistics.median(rss[-quarter:])
        must(end <= warm * 1.03 + (8 << 20), f"the process grew from {warm / 2**20:.1f} to {end / 2**20:.1f} MiB")
    return wrong


def main():
    flags, further = sys.argv[1:], []
    if "--" in flags:
        flags, further = flags[:flags.index("--")], flags[flags.index("--") + 1:]
    parser = argparse.ArgumentParser()
    parser.add_argument("millrace")
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--first", default="", help="settings of the first model in TOML, FOLDER standing for one of the test's own, as 'kv-ssd = \"FOLDER/kv\"'")
    parser.add_argument("--rest", type=float, default=0, help="seconds that a client rests between two requests, at most")
    parser.add_argument("--any-growth", action="store_true", help="of memory is let through: sanitizers keep what was freed")
    parser.add_argument("--json", action="store_true", help="figures as one line of JSON")
    options = parser.parse_args(flags)
    server, counts, rss = Server(options.millrace, options.first, further), Counts(), []
    until = time.monotonic() + options.seconds
    clients = [Client(server.port, seed, until, counts, options.rest) for seed in range(options.clients)]
    for client in clients:
        client.start()
    began = time.monotonic()
    rss_at = {}  # minutes: MiB
    while time.monotonic() < until and server.process.poll() is None:
        time.sleep(max(0.1, options.seconds / 200))
        rss.append(server.rss())
        for minute in (2, 5, 10, 20):
            if time.monotonic() - began > 60 * minute - 4:
                rss_at.setdefault(minute, round(rss[-1] / 2**20, 1))
        server.process.send_signal(signal.SIGHUP)
        counts.add("settings reloaded")
    for client in clients:
        client.join(300)
    wrong = [f"a client failed: {client.failure}" for client in clients if client.failure]
    wrong += ["a client did not end" for client in clients if client.is_alive()]
    if server.process.poll() is None:
        metrics = settle(server)
        wrong += check(metrics, counts, [] if options.any_growth else rss)
        server.process.send_signal(signal.SIGTERM)
        try:
            code = server.process.wait(60)
            wrong += [f"the server ended with {code}"] if code else []
        except subprocess.TimeoutExpired:
            server.process.kill()
            wrong.append("the server did not end")
    else:
        metrics = {}
        wrong.append(f"the server died: {server.process.returncode}")
    figures = {"seconds": options.seconds, **counts.values, "generated_tokens": total(metrics, "millrace_generated_tokens_total"),
               "rss_mib": {"begin": round(rss[0] / 2**20, 1), "warm": round(statistics.median(rss[len(rss) // 4:max(1, len(rss) // 2)] or rss) / 2**20, 1),
                           "end": round(rss[-1] / 2**20, 1), "most": round(max(rss) / 2**20, 1), **{f"minute {minute}": size for minute, size in rss_at.items()}},
               "answers": {reason: total(metrics, "millrace_answers_finished_total", finished_reason=reason) for reason in ("stop", "length", "abort", "error")}}
    for name in ("preemptions", "swapped_out_tokens", "swapped_in_tokens", "prefix_cache_hit_tokens", "kv_store_written_bytes", "kv_store_hit_tokens"):
        figures[name] = total(metrics, f"millrace_{name}_total")
    figures["memory_peak_mib"] = round(total(metrics, "millrace_memory_peak_bytes") / 2**20, 1)
    print(json.dumps(figures) if options.json else "\n".join(f"{key}: {value}" for key, value in figures.items()))
    for line in wrong:
        print("FAILED:", line, file=sys.stderr)
    if wrong:
        print(f"what the server had said at the end:\n{server.log[-4000:]}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
