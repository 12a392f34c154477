"""Faults: the server is killed and restarted, its disk is full, its memory is exhausted, clients flood it.

Usage: server_faults_test.py MILLRACE SOURCE_DIR [unittest arguments]
"""

import json
import os
import re
import resource
import socket
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process

MILLRACE, SOURCE = sys.argv[1], sys.argv[2]
STORY = "Once upon a time there was a little cat who lived in a big house. " * 8
ASK = {"prompt": STORY, "max_tokens": 24, "temperature": 0.8, "seed": 7, "ignore_eos": True, "logprobs": 2}


class Server(server_process.Server):
    def __init__(self, *flags):
        super().__init__(MILLRACE, *flags)

    def complete(self, body):
        return self.ask("POST", "/v1/completions", body)

    def answer(self, body):
        status, text = self.complete(body)
        assert status == 200, (status, text)
        return json.loads(text)["choices"]

    def metric(self, name):
        found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", self.ask("GET", "/metrics")[1], re.M)
        return float(found.group(1))

    def idle(self):
        """True once nothing runs and every block is free or the prefix cache's."""
        for _ in range(6000):
            if self.metric("millrace_requests_running") + self.metric("millrace_requests_waiting") == 0:
                return abs(self.metric("millrace_kv_cache_usage_ratio") - self.metric("millrace_prefix_cache_ratio")) < 1e-9
        return False


class Faults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.store = os.path.join(self.folder.name, "kv")

    def small_cache(self):
        # Some 70 blocks, so that one prompt displaces another to the disk.
        return ["--kv-ssd", self.store, "--kv-ssd-size", "64M", "--kv-tokens", "1024", "-c", "512", "--max-streams", "2"]

    def churn(self, server, count=6):
        for i in range(count):
            server.answer({"prompt": f"Tale {i}. " + STORY, "max_tokens": 2})

    def test_killed_under_load_and_started_again(self):
        with Server() as server:
            expected = server.answer(ASK)
        with Server(*self.small_cache()) as server:
            self.assertEqual(server.answer(ASK), expected)
            self.churn(server)
            with socket.create_connection(("127.0.0.1", server.port)) as stream:
                body = json.dumps({"prompt": STORY, "max_tokens": -1, "ignore_eos": True, "stream": True}).encode()
                stream.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                self.assertTrue(stream.recv(1000))
                server.process.kill()
                server.process.wait(60)
        for _ in range(2):
            with Server(*self.small_cache()) as server:
                self.assertEqual(server.answer(ASK), expected)
                self.churn(server)
                self.assertEqual(server.answer(ASK), expected)
                self.assertEqual(server.stop(), 0)

    def test_a_file_that_may_not_grow(self):
        with Server() as server:
            expected = server.answer(ASK)

        with Server("--log-level", "off", *self.small_cache()) as server:  # its log is a file too
            resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (100000, 100000))  # as good as a full disk: writes fail
            for _ in range(2):
                self.churn(server)
                self.assertEqual(server.answer(ASK), expected)
            self.assertTrue(server.idle())
            self.assertEqual(server.stop(), 0)

    def test_ten_thousand_short_connections(self):
        with Server("--max-connections", "256") as server:
            def visit(kinds):
                for kind in kinds:
                    with socket.create_connection(("127.0.0.1", server.port), timeout=60) as client:
                        if kind % 3 == 0:
                            client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
                            client.recv(2000)
                        elif kind % 3 == 1:
                            client.sendall(b"POST /v1/comp")

            threads = [threading.Thread(target=visit, args=(range(i, 10000, 4),)) for i in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
            self.assertFalse(any(thread.is_alive() for thread in threads))
            self.assertEqual(server.ask("GET", "/health")[0], 200)
            files = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            self.assertLess(files, 256 + 64)
            self.assertEqual(server.stop(), 0)

    def test_a_flood_of_requests_is_refused_and_served(self):
        with Server("--max-streams", "2", "--queue", "4") as server:
            statuses, lock = [], threading.Lock()

            def ask():
                for _ in range(5):
                    status, _ = server.complete({"prompt": "One day", "max_tokens": 20, "ignore_eos": True})
                    with lock:
                        statuses.append(status)

            threads = [threading.Thread(target=ask) for _ in range(24)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
            self.assertEqual(len(statuses), 120)
            self.assertEqual(set(statuses) - {200, 429}, set())
            self.assertIn(200, statuses)
            self.assertTrue(server.idle())
            self.assertEqual(server.stop(), 0)

    def test_half_open_clients_are_cut(self):
        with Server("--read-timeout", "0.2", "--idle-timeout", "0.2", "--max-connections", "64") as server:
            halves = [socket.create_connection(("127.0.0.1", server.port), timeout=60) for _ in range(50)]
            for i, half in enumerate(halves):
                half.sendall(b"POST /v1/completions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{"[:i])
            for half in halves:
                while half.recv(4096):
                    pass
                half.close()
            self.assertEqual(server.ask("GET", "/health")[0], 200)

    def test_a_memory_budget_that_is_reached(self):
        flags = ["--max-streams", "4", "--queue", "10000"]
        with Server("--memory", "1G", *flags) as server:  # what all but the KV cache takes depends on the build
            accounts = dict(re.findall(r'^millrace_memory_bytes\{.*account="(.+)"\} (\d+)$', server.ask("GET", "/metrics")[1], re.M))
            self.assertIn("KV", accounts)
            fixed = sum(int(size) for name, size in accounts.items() if name not in ("KV", "KV tables", "prefix index", "answers"))
        budget = (fixed + (18 << 20)) * 32 // 25  # 7 of 32 parts are for answers
        with Server("--memory", str(budget), *flags) as server:
            statuses, lock = [], threading.Lock()

            def ask(i):
                body = {"prompt": [1] * 400, "max_tokens": 100, "n": 64, "ignore_eos": True, "timeout": 0.5}
                status, text = server.complete(body)
                with lock:
                    statuses.append((status, text[:200]))

            threads = [threading.Thread(target=ask, args=(i,)) for i in range(16)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
            self.assertEqual({status for status, _ in statuses} - {200, 429, 504}, set(), statuses)
            self.assertIsNone(server.process.poll())
            self.assertEqual(len(server.answer({"prompt": "One day", "max_tokens": 4})), 1)
            self.assertTrue(server.idle())
            self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
