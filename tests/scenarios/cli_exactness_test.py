#!/usr/bin/env python3
"""millrace exactness: against small servers with known faults, and against millrace itself.

Usage: cli_exactness_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]
"""

import contextlib
import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from cli import BINARY, SOURCE, millrace
from server_process import Server

FAST = ("--tokens", "4", "--words", "24", "--timeout", "60s")


class FakeServer:
    """A server with OpenAI's API. `fault(call)` says whether an answer is wrong; `refuse(path, body, headers)` returns (status, message)
    or None. A call has body, stream, batched, seen (how often its prompt came before). `reasoning`: chats have a reasoning, and a fault
    changes that instead of the tokens. `busy`: calls next to others have status 429."""

    def __init__(self, fault=lambda call: False, refuse=lambda path, body, headers: None, logprobs=True, reasoning=False, busy=False):
        self.fault, self.refuse, self.logprobs, self.reasoning, self.busy = fault, refuse, logprobs, reasoning, busy
        self.lock, self.flying, self.seen, self.bodies = threading.Lock(), [], {}, []
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def send(self, status, kind, text):
                data = text.encode()
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # an interrupted check hangs up
                    self.send_response(status)
                    self.send_header("Content-Type", kind)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def refused(self, body):
                refusal = fake.refuse(self.path, body, self.headers)
                if refusal:
                    self.send(refusal[0], "application/json", json.dumps({"error": {"message": refusal[1]}}))
                return refusal

            def do_GET(self):
                if not self.refused(None):
                    self.send(200, "application/json", json.dumps({"data": [{"id": "fake-model"}]}))

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                if not self.refused(body):
                    self.send(*fake.answer(self.path, body))

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def answer(self, path, body):
        chat = path == "/v1/chat/completions"
        prompt = body["messages"][0]["content"] if chat else body["prompt"]
        call = {"body": body, "stream": body.get("stream", False), "batched": False, "seen": 0}
        with self.lock:
            self.bodies.append(body)
            call["seen"] = self.seen.get(prompt, 0)
            self.seen[prompt] = call["seen"] + 1
            for other in self.flying:
                other["batched"] = call["batched"] = True
            self.flying.append(call)
        time.sleep(0.05)
        with self.lock:
            self.flying.remove(call)
        if self.busy and call["batched"]:
            return 429, "application/json", json.dumps({"error": {"message": "one at a time"}})
        wrong = self.fault(call)
        reasoning = f"let {'us' if wrong else 'me'} see" if self.reasoning else None
        wrong = wrong and not self.reasoning
        tokens = [f" {sum(map(ord, prompt)) % 97 + i}{'x' if wrong and i >= 2 else ''}" for i in range(body["max_tokens"])]

        def piece(some, finish, reasoning=None):
            logprobs = None
            if self.logprobs and chat:
                logprobs = {"content": [{"token": token, "logprob": -0.5, "top_logprobs": []} for token in some]}
            elif self.logprobs:
                logprobs = {"tokens": some, "token_logprobs": [-0.5] * len(some), "top_logprobs": [{token: -0.5} for token in some]}
            text = "".join(some)
            holder = {"delta" if call["stream"] else "message": {"content": text, "reasoning_content": reasoning}} if chat else {"text": text}
            return json.dumps({"choices": [{**holder, "logprobs": logprobs, "finish_reason": finish}]})

        if not call["stream"]:
            return 200, "application/json", piece(tokens, "length", reasoning)
        first, *others = tokens
        events = [piece([first], None, reasoning), *(piece([token], None) for token in others), piece([], "length"), "[DONE]"]
        return 200, "text/event-stream", "".join(f"data: {event}\n\n" for event in events)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.http.shutdown()
        self.http.server_close()


class Exactness(unittest.TestCase):
    def check(self, server, *flags, code=0):
        done = millrace("exactness", "--url", server.url, *FAST, *flags)
        self.assertEqual(done.returncode, code, done.stdout.decode() + done.stderr.decode())
        return done.stdout.decode() if code in (0, 7) else done.stderr.decode()

    def differing(self, server, *flags):
        result = json.loads(self.check(server, "--json", *flags, code=7))
        return {way["name"] for way in result["ways"] if way["example"]}

    def test_an_exact_server(self):
        with FakeServer() as server:
            table = self.check(server)
            self.assertIn("model fake-model", table)
            self.assertIn("36 answers, all with the same tokens, text and log-probabilities as the first one", table)
            self.assertIn("note: no restart", table)
            self.assertTrue(any(body.get("cache_prompt") is False for body in server.bodies))
            result = json.loads(self.check(server, "--json", "--api", "chat"))
            self.assertEqual((result["different"], result["failed"], result["same"]), (0, 0, 36))

    def test_faults_are_found(self):
        with FakeServer(lambda call: call["batched"]) as server:
            self.assertIn("batch", self.differing(server))
        with FakeServer(lambda call: call["stream"]) as server:
            self.assertEqual(self.differing(server), {"streamed"})
            table = self.check(server, code=7)
            self.assertIn("tokens from 2", table)
            self.assertIn("curl -s " + server.url + "/v1/completions", table)
        with FakeServer(lambda call: call["seen"] > 0 and call["body"].get("cache_prompt", True)) as server:
            self.assertIn("again", self.differing(server))

    def test_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            restarted = os.path.join(folder, "restarted")
            with FakeServer(lambda call: os.path.exists(restarted)) as server:
                self.assertEqual(self.differing(server, "--restart-command", f"touch {restarted}"), {"restarted"})
            with FakeServer() as server:
                self.assertIn("42 answers, all", self.check(server, "--restart-command", "true"))
                self.assertIn("--restart-command: exit status 3: no luck", self.check(server, "--restart-command", "echo no luck >&2; exit 3", code=2))
                self.assertIn("standard input has ended", self.check(server, "--restart-pause", code=2))
                done = millrace("exactness", "--url", server.url, *FAST, "--restart-pause", stdin=b"ready\n")
                self.assertEqual((done.returncode, b"42 answers, all" in done.stdout), (0, True), done.stderr.decode())

    def test_differences_are_reported_when_later_requests_fail(self):
        with FakeServer(lambda call: call["seen"] == 2, busy=True) as server:
            result = json.loads(self.check(server, "--json", "--rounds", "4", code=7))
            self.assertFalse(result["complete"])
            self.assertGreater(result["different"], 0)
            self.assertIn("stopped before the end: 8 requests in a row failed; the last one: the server is busy", "".join(result["notes"]))
        with FakeServer(busy=True) as server:
            done = millrace("exactness", "--url", server.url, *FAST, "--rounds", "4")
            self.assertEqual(done.returncode, 5, done.stderr.decode())
            self.assertIn("8 requests in a row failed", done.stderr.decode())
            self.assertRegex(done.stdout.decode(), r"\d+ requests failed; stopped by an error")

    def test_differences_are_reported_when_the_restart_fails(self):
        for flags, message in (
            (("--restart-command", "echo no luck >&2; exit 3"), "note: stopped before the end: --restart-command: exit status 3: no luck"),
            (("--restart-command", "STOP", "--restart-wait", "1s"), "not ready 1 s after the restart"),
        ):
            with tempfile.TemporaryDirectory() as folder:
                stopped = os.path.join(folder, "stopped")
                flags = [f"touch {stopped}" if flag == "STOP" else flag for flag in flags]
                with FakeServer(lambda call: call["stream"], lambda *_: (503, "loading") if os.path.exists(stopped) else None) as server:  # pylint: disable=cell-var-from-loop
                    table = self.check(server, *flags, code=7)
                    self.assertIn("DIFFERS", table)
                    self.assertIn(message, table)

    def interrupt_in_restart(self, server, started, code, *flags):
        """Sends Ctrl-C once `started(process)` has returned. The process must end soon, with this exit status and a table."""
        command = [BINARY, "exactness", "--url", server.url, *FAST, *flags]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            try:
                started(process)
                process.send_signal(signal.SIGINT)
                process.wait(timeout=30)  # the restart may take 300
            finally:
                process.kill()
            table = process.stdout.read().decode()
            self.assertEqual(process.returncode, code, table)
            self.assertIn("interrupted before the end", table)
            self.assertIn("after load", table)

    def test_an_interrupted_restart_keeps_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            stopped, polled = os.path.join(folder, "stopped"), threading.Event()

            def loading(path, body, _):
                if not os.path.exists(stopped):
                    return None
                polled.set()
                return 503, "loading"

            def wait_for_poll(_):
                self.assertTrue(polled.wait(60))

            with FakeServer(refuse=loading) as server:
                self.interrupt_in_restart(server, wait_for_poll, 130, "--restart-command", f"touch {stopped}")
        with FakeServer(lambda call: call["stream"]) as server:
            self.interrupt_in_restart(server, self.wait_for_prompt, 7, "--restart-pause")

    def wait_for_prompt(self, process):
        said = b""
        while b"press Enter: " not in said:
            byte = process.stderr.read(1)
            self.assertTrue(byte, said)
            said += byte

    def test_a_difference_of_reasoning_is_shown(self):
        with FakeServer(lambda call: call["stream"], reasoning=True) as server:
            table = self.check(server, "--api", "chat", code=7)
            self.assertIn("reasoning from byte 4", table)
            self.assertIn('byte 4 of the reasoning: "me see"', table)
            self.assertIn('byte 4 of the reasoning: "us see"', table)

    def test_what_a_server_lacks_is_said(self):
        with FakeServer(logprobs=False) as server:
            table = self.check(server)
            self.assertIn("returns no log-probabilities", table)
            self.assertIn("with the same text as the first one", table)

        def strict(path, body, _):
            if path == "/v1/completions":
                return 404, "no such page"
            return (400, "unknown field cache_prompt") if body and "cache_prompt" in body else None

        with FakeServer(refuse=strict) as server:
            table = self.check(server)
            self.assertIn("requests are chats of one message", table)
            self.assertIn("refuses cache_prompt", table)
            self.assertNotIn("uncached ", table.split("note:")[0])

    def test_errors_name_the_cause(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            done = millrace("exactness", "--url", f"127.0.0.1:{unused.getsockname()[1]}")
            self.assertEqual(done.returncode, 6)
        with FakeServer(refuse=lambda path, body, headers: None if headers.get("Authorization") == "Bearer right" else (401, "wrong key")) as server:
            self.assertIn("set --key or MILLRACE_API_KEY", self.check(server, "--key", "wrong", code=2))
            self.assertIn("36 answers, all", self.check(server, "--key", "right"))
        with FakeServer(refuse=lambda path, body, _: (404, "no such model") if body and body["model"] != "fake-model" else None) as server:
            self.assertIn("--model other: the server has no such model or API: HTTP 404: no such model; the server lists fake-model",
                          self.check(server, "--model", "other", code=2))
        with FakeServer(refuse=lambda path, body, _: (500, "on fire") if body and body["max_tokens"] == 4 else None) as server:
            self.assertIn("the server failed: HTTP 500: on fire", self.check(server, code=1))
        done = millrace("exactness", "--url", "ftp://x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--url: expected http", done.stderr.decode())

    def test_millrace_itself(self):
        for flags in (("--api", "completions", "--rounds", "2"), ("--api", "chat")):
            with Server(BINARY) as real:
                done = millrace("exactness", "--url", f"http://127.0.0.1:{real.port}/v1", "--json", "--tokens", "12", *flags)
                self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())
                result = json.loads(done.stdout)
                again = next(way for way in result["ways"] if way["name"] == "again")
                self.assertGreater(again["cached_tokens"], 100)
                self.assertEqual(next(way for way in result["ways"] if way["name"] == "uncached")["cached_tokens"], 0)
                self.assertTrue(result["requests"][0]["answer"]["tokens"])

    def test_a_recurrent_model(self):
        with Server(BINARY, model=os.path.join(SOURCE, "tests/golden/mamba/model.gguf")) as real:
            done = millrace("exactness", "--url", f"http://127.0.0.1:{real.port}", "--tokens", "8")
            self.assertEqual(done.returncode, 0, done.stdout.decode() + done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
