#!/usr/bin/env python3
"""Keys and values in worker processes, as users run them: the same text as in place, workers at a port, and a server whose
worker is killed in the middle of an answer.

Usage: attention_workers_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402

BINARY, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
RUN = (BINARY, "run", "-m", "stories", "-p", "Once upon a time", "-n", "24", "--temp", "0", "-t", "1", "--logprobs", "3", "--json")


def run(*flags):
    done = subprocess.run([*RUN, *flags], capture_output=True, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout) if done.returncode == 0 else None, done.stderr


def workers_of(parent):
    """Process ids of the attention workers that `parent` has started."""
    found = []
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8") as stat, open(f"/proc/{name}/cmdline", encoding="utf-8") as command:
                if int(stat.read().rsplit(")", 1)[1].split()[1]) == parent and "attention-worker" in command.read():
                    found.append(int(name))
        except (OSError, ValueError, IndexError):
            pass
    return sorted(found)


def has_ended(pid):
    """True once the process is a zombie without other threads, or gone: its files are closed."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "Z" and len(os.listdir(f"/proc/{pid}/task")) == 1
    except OSError:
        return True


class Worker:
    """A worker that waits for engines at a free port."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([BINARY, "attention-worker", "--listen", "127.0.0.1:0", *flags], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.communicate()


class Workers(unittest.TestCase):
    def test_text_and_log_probabilities_are_those_of_attention_in_place(self):
        code, wanted, message = run()
        self.assertEqual(code, 0, message)
        for how in ("count=1", "count=2,batches=2,threads=2", "count=2,transport=socket"):
            with self.subTest(how=how):
                code, result, message = run("--use", f"kernel=fastdecode:{how}")
                self.assertEqual(code, 0, message)
                self.assertEqual((result["tokens"], result["logprobs"]), (wanted["tokens"], wanted["logprobs"]))

    def test_workers_at_a_port_serve_one_engine_after_the_other(self):
        _, wanted, _ = run()
        with Worker() as first, Worker() as second:
            for _ in range(2):
                code, result, message = run("--use", f"kernel=fastdecode:hosts={first.address}+{second.address}")
                self.assertEqual(code, 0, message)
                self.assertEqual(result["tokens"], wanted["tokens"])

    def test_what_does_not_work_names_the_reason(self):
        with Worker("--memory", "1") as small:
            code, _, message = run("--use", f"kernel=fastdecode:hosts={small.address}")
            self.assertEqual(code, 5, message)
            self.assertIn("the limit is 1 MB", message)
        code, _, message = run("--use", "kernel=fastdecode:hosts=127.0.0.1:1")
        self.assertEqual(code, 6, message)
        self.assertIn("attention-worker --listen 127.0.0.1:1", message)
        code, _, message = run("--use", "kernel=fastdecode", "--kv-format", "kivi:bits=2")
        self.assertEqual(code, 4, message)
        self.assertIn("kernel fastdecode does not go with KV format kivi:bits=2", message)
        done = subprocess.run([BINARY, "attention-worker"], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--listen HOST:PORT", done.stderr)


class Faults(unittest.TestCase):
    BODY = {"prompt": "Once upon a time", "max_tokens": 48, "temperature": 0, "ignore_eos": True}

    def ask(self, server):
        status, text = server.ask("POST", "/v1/completions", self.BODY)
        return status, json.loads(text)["choices"][0]["text"] if status == 200 else text

    def metric(self, server, name):
        for line in server.ask("GET", "/metrics")[1].splitlines():
            if line.startswith(name):
                return float(line.split()[-1])
        raise AssertionError(f"no metric {name}")

    def test_a_killed_worker_ends_its_streams_and_the_server_lives(self):
        with server_process.Server(BINARY, "--use", "kernel=fastdecode:count=2") as server:
            status, wanted = self.ask(server)
            self.assertEqual(status, 200, wanted)
            self.assertEqual(self.metric(server, "millrace_attention_workers"), 2)
            self.assertGreater(self.metric(server, "millrace_attention_worker_bytes"), 1 << 20)
            workers = workers_of(server.process.pid)
            self.assertEqual(len(workers), 2)
            # A long answer, in the middle of which a worker is killed.
            results = []
            body = dict(self.BODY, max_tokens=400)
            asking = threading.Thread(target=lambda: results.append(server.ask("POST", "/v1/completions", body)))
            os.kill(workers[0], signal.SIGSTOP)  # so that the answer is not over before
            asking.start()
            time.sleep(0.5)
            os.kill(workers[0], signal.SIGKILL)
            asking.join(timeout=60)
            self.assertEqual(results[0][0], 500, results)
            self.assertIn("attention worker", results[0][1])
            # New streams run on new workers, with the same text.
            self.assertEqual(self.ask(server), (200, wanted))
            self.assertEqual(self.metric(server, "millrace_attention_worker_starts_total"), 2)
            fresh = workers_of(server.process.pid)
            self.assertEqual(len(fresh), 2)
            self.assertFalse(set(fresh) & set(workers))
            # A worker that ends while no stream runs costs none.
            pid = server.process.pid
            os.kill(fresh[1], signal.SIGKILL)
            for _ in range(200):  # the system closes its connection before it is a zombie
                if has_ended(fresh[1]):
                    break
                time.sleep(0.05)
            self.assertEqual(self.ask(server), (200, wanted))
        for _ in range(200):
            if not workers_of(pid):
                break
            time.sleep(0.05)
        self.assertEqual(workers_of(pid), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
