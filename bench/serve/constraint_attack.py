#!/usr/bin/env python3
"""Measures how a server's clients are affected when others request constraints that are expensive to compile.

Streams of the embedded model run and /health is polled all the time. After a quiet period, attackers send the schemas and
grammars that take longest to compile, wait a moment and disconnect. Reports latencies of /health and gaps between the
streams' tokens (inter-token latency, ITL) before and during the attack, the peak resident memory, and the CPU time used
after the last attacker left.

Usage: constraint_attack.py MILLRACE [--seconds 20] [--streams 8] [--attackers 4] [--same] [--only KINDS] [--plain] [--json FILE] [further flags of serve]
"""

import argparse
import json
import multiprocessing
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time

TICKS = os.sysconf("SC_CLK_TCK")


def doubling(rules):
    return "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1} r{i + 1}\n" for i in range(rules)) + f'r{rules} ::= ""\n'


def optional_schema(count, salt):
    return {"type": "object", "properties": {f"p{salt}_{i}": {"type": ["string", "integer", "null"][i % 3]} for i in range(count)}, "additionalProperties": False}


def attacks(draw, fresh, only):
    """Fields of a request; with `fresh`, each text is new, so that caches do not help."""
    for fields in all_attacks(draw, fresh):
        if not only or next(iter(fields)) in only:
            yield fields


def all_attacks(draw, fresh):
    salt = draw.randrange(10**9) if fresh else 0
    tail = f"|{salt}" if fresh else ""
    yield {"guided_regex": "((a{0,3}){0,200}){50}" + tail}
    for count in (800, 1500, 3000):
        yield {"guided_json": optional_schema(count, salt)}
    yield {"guided_grammar": doubling(37) + (f'other{salt} ::= "x"\n' if fresh else "")}


class Share:
    """Measurements of the threads of one process. Measuring threads have their own process, so that busy attackers do not hold
    their interpreter lock."""

    def __init__(self, stop):
        self.lock = threading.Lock()
        self.stopped = stop
        self.seen = []  # (when, seconds)
        self.failures = []
        self.answers = {}

    @property
    def stop(self):
        return self.stopped.is_set()

    def note(self, seconds):
        with self.lock:
            self.seen.append((time.monotonic(), seconds))


def start(threads, stop):
    """Starts a process with these threads, each (function, arguments...); returns it and a queue for its measurements."""
    out = multiprocessing.Queue()

    def work():
        share = Share(stop)
        running = [threading.Thread(target=function, args=(share, *arguments), daemon=True) for function, *arguments in threads]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        out.put((share.seen, share.failures, share.answers))

    process = multiprocessing.Process(target=work, daemon=True)
    process.start()
    return process, out


def connect(port, timeout):
    return socket.create_connection(("127.0.0.1", port), timeout=timeout)


def post(path, body):
    data = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode() + data


def stream(share, port, seed):
    while not share.stop:
        try:
            with connect(port, 120) as connection:
                connection.sendall(post("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 200, "ignore_eos": True, "stream": True, "seed": seed}))
                before = None
                while not share.stop:
                    data = connection.recv(65536)
                    if not data:
                        break
                    now = time.monotonic()
                    for _ in range(data.count(b"data: {")):
                        if before is not None:
                            share.note(now - before)
                        before = now
        except OSError as error:
            if not share.stop:
                share.failures.append(f"stream: {error}")


def health(share, port):
    while not share.stop:
        began = time.monotonic()
        try:
            with connect(port, 120) as connection:
                connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                while connection.recv(4096):
                    pass
            share.note(time.monotonic() - began)
        except OSError as error:
            share.failures.append(f"health: {error}")
        time.sleep(0.02)


def attack(share, port, seed, fresh, only, plain, until):
    draw = random.Random(seed)
    while not share.stop and time.monotonic() < until:
        for fields in attacks(draw, fresh, only):
            if time.monotonic() >= until:
                break
            kind = next(iter(fields))
            try:
                with connect(port, draw.uniform(0.5, 2.0)) as connection:
                    constraint = {"metadata": fields} if plain else fields
                    connection.sendall(post("/v1/completions", {"prompt": "x", "max_tokens": 4, **constraint}))
                    answer = connection.recv(4096).split(b"\r\n")[0].decode() or "closed"
            except TimeoutError:
                answer = "left"
            except OSError as error:
                answer = type(error).__name__
            with share.lock:
                share.answers[f"{kind}: {answer}"] = share.answers.get(f"{kind}: {answer}", 0) + 1


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] * 1000 if values else float("nan")


def cpu_seconds(pid):
    fields = open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def peak_mib(pid):
    return int(re.search(r"VmHWM:\s+(\d+)", open(f"/proc/{pid}/status").read()).group(1)) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("millrace")
    parser.add_argument("--seconds", type=float, default=20, help="length of the attack, and of the quiet period before it")
    parser.add_argument("--streams", type=int, default=8)
    parser.add_argument("--attackers", type=int, default=4)
    parser.add_argument("--same", action="store_true", help="repeat the same texts")
    parser.add_argument("--only", default="", help="kinds of attack: any of guided_regex,guided_json,guided_grammar")
    parser.add_argument("--plain", action="store_true", help="control run: the same bytes in a field that does not constrain")
    parser.add_argument("--json", default="")
    options, options.flags = parser.parse_known_args()
    server = subprocess.Popen([options.millrace, "serve", "--port", "0", "--max-streams", str(options.streams), "--log-level", "off", *options.flags],
                              stdout=subprocess.PIPE, text=True)
    stop = multiprocessing.Event()
    try:
        found = re.search(r":(\d+)$", server.stdout.readline().strip())
        if not found:
            sys.exit("the server did not start")
        port = int(found.group(1))
        streams = start([(stream, port, i) for i in range(options.streams)], stop)
        prober = start([(health, port)], stop)
        time.sleep(options.seconds)
        quiet_peak = peak_mib(server.pid)
        began = time.monotonic()
        until = began + options.seconds
        only = options.only.split(",") if options.only else []
        attackers = start([(attack, port, i, not options.same, only, options.plain, until) for i in range(options.attackers)], stop)
        answers = attackers[1].get(timeout=options.seconds + 120)[2]
        ended = time.monotonic()
        alive = server.poll() is None
        stop.set()  # end the streams, so that the remaining CPU time is the attack's
        gaps, failures, _ = streams[1].get(timeout=150)
        seconds, missed, _ = prober[1].get(timeout=150)
        after = peak = float("nan")
        if alive and server.poll() is None:
            time.sleep(1.0)
            before = last = cpu_seconds(server.pid)
            for _ in range(60):
                time.sleep(1.0)
                after, last = last, cpu_seconds(server.pid)
                if last - after < 0.05:
                    break
            after = last - before
            peak = peak_mib(server.pid)
        result = {"server alive": alive, "failures": (failures + missed)[:3], "failures in total": len(failures + missed),
                  "peak MiB before": round(quiet_peak), "peak MiB": peak if peak != peak else round(peak),
                  "CPU s after the clients left": round(after, 2), "attackers' answers": dict(sorted(answers.items()))}
        for name, seen in (("health ms", seconds), ("ITL ms", gaps)):
            for phase, values in (("before", [value for when, value in seen if when < began]), ("during", [value for when, value in seen if began <= when < ended])):
                result[f"{name} {phase}"] = {"n": len(values), "p50": round(percentile(values, 0.5), 2), "p99": round(percentile(values, 0.99), 2),
                                             "max": round(percentile(values, 1.0), 1)}
        result["ITL p99 ratio"] = round(result["ITL ms during"]["p99"] / result["ITL ms before"]["p99"], 2)
        for name, value in result.items():
            print(f"{name}: {value}")
        if options.json:
            with open(options.json, "w", encoding="utf-8") as file:
                json.dump(result, file, indent=1)
    finally:
        if server.poll() is None:
            server.send_signal(signal.SIGKILL)
        server.wait()


if __name__ == "__main__":
    main()
