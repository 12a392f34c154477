"""Nodes with roles: prompts computed on one node, answers generated on another, blocks kept on a third. Every answer equals the one of a
single process, whatever happens to a node between the ticket and the pull, to what it sends, or in the middle of an answer.

Usage: cluster_roles_test.py MILLRACE [unittest arguments]
"""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cluster_test
import server_process

MILLRACE = sys.argv[1]
TRANSPORTS = ("tcp", "shm")


def story(number):
    """A prompt of some 200 tokens that no other request begins with."""
    return f"Tale {number}. " + "Once upon a time there was a little cat who lived in a big house. " * 12


def completion(number, **more):
    return {"prompt": story(number), "max_tokens": 24, "temperature": 0.9, "seed": 5, "logprobs": 2, **more}


def metrics(text):
    """The sum of each metric over its labels."""
    sums = {}
    for name, value in re.findall(r"^(\w+)(?:\{[^}]*\})? ([-+\d.e]+)$", text, re.M):
        sums[name] = sums.get(name, 0) + float(value)
    return sums


class Node(server_process.Server):
    """A server with a role, at whose router's place the test is."""

    def __init__(self, role, transport, *flags):
        super().__init__(MILLRACE, "--role", role, "--transport", transport, *flags, model=None if role == "store" else "stories")

    def metrics(self):
        return metrics(self.ask("GET", "/metrics")[1])

    def ticket(self, body, path="/v1/completions"):
        status, text = self.ask("POST", path, body, {"Millrace-Prefill": "1"})
        assert status == 200, (status, text)
        ticket = json.loads(text)["ticket"]
        return ticket and ticket.replace("from=-:", "from=127.0.0.1:")

    def answer(self, body, ticket=None, path="/v1/completions"):
        status, text = self.ask("POST", path, body, {"Millrace-Blocks": ticket} if ticket else {})
        assert status == 200, (status, text)
        return cluster_test.plain(json.loads(text))

    def pulled(self):
        return self.metrics()["millrace_kv_store_hit_tokens_total"]

    def expect_balance(self, test, held=None):
        found = self.metrics()
        parts = [found[f"millrace_transfer_{part}_bytes"] for part in ("free", "held", "idle")]
        test.assertEqual(sum(parts), found["millrace_transfer_capacity_bytes"])
        if held is not None:
            test.assertEqual(parts[1], held)


class Relay:
    """Passes bytes on to a port; at byte `at` of what comes back it cuts, stalls, or damages the stream."""

    def __init__(self, port, at, what):
        self._to, self._at, self._what = port, at, what
        self.reached = threading.Event()
        self._listens = socket.create_server(("127.0.0.1", 0))
        self.port = self._listens.getsockname()[1]
        self._open = [self._listens]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self._open:
            one.close()

    def _accept(self):
        while True:
            try:
                client = self._listens.accept()[0]
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._to))
            self._open += [client, server]
            threading.Thread(target=self._pass, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, True), daemon=True).start()

    def _pass(self, source, sink, back):
        passed = 0
        try:
            while data := source.recv(1 << 16):
                if back and passed <= self._at < passed + len(data):
                    here = self._at - passed
                    self.reached.set()
                    if self._what == "damage":
                        data = data[:here] + bytes([data[here] ^ 1]) + data[here + 1:]
                    else:
                        sink.sendall(data[:here])
                        if self._what == "stall":
                            return
                        break
                sink.sendall(data)
                passed += len(data)
        except OSError:
            pass
        for one in (source, sink):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


class Pulls(unittest.TestCase):
    def both(self, test):
        """Runs test(transport, one, prefill, decode) for every transport."""
        with server_process.Server(MILLRACE) as one:
            for transport in TRANSPORTS:
                with Node("prefill", transport) as prefill, Node("decode", transport) as decode, self.subTest(transport):
                    test(transport, one, prefill, decode)

    def expected(self, one, body, path="/v1/completions"):
        return cluster_test.plain(json.loads(one.ask("POST", path, body)[1]))

    def test_a_prompt_moves_to_the_node_that_generates(self):
        def test(_, one, prefill, decode):
            body = completion(1)
            self.assertEqual(decode.answer(body, prefill.ticket(body)), self.expected(one, body))
            pulled = decode.pulled()
            self.assertGreater(pulled, 150)
            chat = {"messages": [{"role": "user", "content": story(2)}], "max_tokens": 24, "temperature": 0.8, "seed": 3, "logprobs": True}
            path = "/v1/chat/completions"
            self.assertEqual(decode.answer(chat, prefill.ticket(chat, path), path), self.expected(one, chat, path))
            self.assertGreater(decode.pulled(), pulled + 150)
            self.assertGreater(prefill.metrics()["millrace_transfer_read_bytes_total"], 0)
            prefill.expect_balance(self, held=0)
        self.both(test)

    def test_a_node_that_ends_or_stops_between_ticket_and_pull_is_not_missed(self):
        def test(_, one, prefill, decode):
            body, after = completion(1), completion(2)
            ticket = prefill.ticket(body)
            os.kill(prefill.process.pid, signal.SIGSTOP)
            try:
                began = time.monotonic()
                self.assertEqual(decode.answer(body, ticket), self.expected(one, body))
                self.assertLess(time.monotonic() - began, 20)
                self.assertEqual(decode.pulled(), 0)
            finally:
                os.kill(prefill.process.pid, signal.SIGCONT)
            ticket = prefill.ticket(after)
            os.kill(prefill.process.pid, signal.SIGKILL)
            prefill.process.wait()
            self.assertEqual(decode.answer(after, ticket), self.expected(one, after))
        self.both(test)

    def test_damaged_and_truncated_frames_are_computed_instead(self):
        with server_process.Server(MILLRACE) as one, Node("prefill", "tcp") as prefill, Node("decode", "tcp") as decode:
            number = 0
            for what in ("damage", "cut", "stall"):
                for at in (10, 90, 700, 3000, 200_000, 400_001):
                    number += 1
                    body = completion(number)
                    ticket = prefill.ticket(body)
                    port = int(re.search(r"from=127.0.0.1:(\d+)", ticket).group(1))
                    with Relay(port, at, what) as relay, self.subTest(what=what, at=at):
                        answer = decode.answer(body, ticket.replace(f":{port},", f":{relay.port},"))
                        self.assertTrue(relay.reached.is_set())
                        self.assertEqual(answer, self.expected(one, body))
            found = decode.metrics()
            self.assertGreater(found["millrace_kv_store_failed_tokens_total"], 0)
            self.assertGreater(found["millrace_kv_store_corrupt_blocks_total"], 0)
            body = completion(number + 1)
            before = decode.pulled()
            self.assertEqual(decode.answer(body, prefill.ticket(body)), self.expected(one, body))
            self.assertGreater(decode.pulled(), before + 150)

    def test_foreign_tickets_are_refused(self):
        def test(_, one, prefill, decode):
            body, salted, other = completion(1), completion(1, cache_salt="tenant a"), completion(2)
            ticket = prefill.ticket(body)
            self.assertEqual(decode.answer(salted, ticket), self.expected(one, salted))  # another tenant's
            self.assertEqual(decode.answer(other, ticket), self.expected(one, other))    # another prompt's
            self.assertEqual(decode.pulled(), 0)
            forged = re.sub(r"lease=\w+", "lease=0123456789abcdef", ticket)
            self.assertEqual(decode.answer(body, forged), self.expected(one, body))
            self.assertEqual(decode.pulled(), 0)
            self.assertGreater(prefill.metrics()["millrace_transfer_refused_reads_total"], 0)
            self.assertEqual(decode.answer(body, "nonsense"), self.expected(one, body))
        self.both(test)

    def test_another_models_ticket_is_of_no_use(self):
        with Node("prefill", "tcp", "-m", "stories", "--kv-format", "q8_0") as prefill, Node("decode", "tcp") as decode, \
                server_process.Server(MILLRACE) as one:
            body = completion(1)
            self.assertEqual(decode.answer(body, prefill.ticket(body)), self.expected(one, body))
            self.assertEqual(decode.pulled(), 0)

    def test_what_cannot_move_has_no_ticket(self):
        with Node("prefill", "tcp") as prefill:
            self.assertIsNone(prefill.ticket({"prompt": "A", "max_tokens": 2}))
            self.assertIsNone(prefill.ticket({"prompt": [story(1), story(2)], "max_tokens": 2}))
            prefill.expect_balance(self, held=0)
            status, text = prefill.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": "x"}, {"Millrace-Prefill": "1"})
            self.assertEqual(status, 400, text)

    def test_leases_end(self):
        with Node("prefill", "tcp", "--transfer-lease", "0.5") as prefill:
            self.assertIsNotNone(prefill.ticket(completion(1)))
            self.assertGreater(prefill.metrics()["millrace_transfer_held_bytes"], 0)
            for _ in range(100):
                if prefill.metrics()["millrace_transfer_held_bytes"] == 0:
                    break
                time.sleep(0.1)
            prefill.expect_balance(self, held=0)
            self.assertEqual(prefill.metrics()["millrace_transfer_expired_leases_total"], 1)


class Store(unittest.TestCase):
    def test_a_store_node_keeps_blocks_for_others(self):
        for transport in TRANSPORTS:
            with server_process.Server(MILLRACE) as one, Node("store", transport) as store, self.subTest(transport):
                port = int(re.search(r"\([^)]*:(\d+)\)", store.line).group(1))
                flag = f"--kv-store=node:host=127.0.0.1,port={port},transport={transport}"
                body = completion(1)
                expected = cluster_test.plain(json.loads(one.ask("POST", "/v1/completions", body)[1]))
                with Node("mixed", transport, flag) as first:
                    self.assertEqual(first.answer(body), expected)
                    for _ in range(200):
                        if store.metrics()["millrace_transfer_blocks"] >= 10:
                            break
                        time.sleep(0.05)
                with Node("mixed", transport, flag) as second:
                    self.assertEqual(second.answer(body), expected)
                    self.assertGreater(second.pulled(), 100)
                store.expect_balance(self)
                self.assertEqual(store.ask("POST", "/v1/completions", body)[0], 404)
                for stop in (signal.SIGSTOP, signal.SIGKILL):  # a store that stops, then is gone
                    with Node("mixed", transport, flag) as third:
                        os.kill(store.process.pid, stop)
                        self.assertEqual(third.answer(body), expected)
                        os.kill(store.process.pid, signal.SIGCONT)

    def test_a_store_that_ends_in_the_middle_of_a_load(self):
        with server_process.Server(MILLRACE) as one, Node("store", "tcp") as store:
            port = int(re.search(r"\([^)]*:(\d+)\)", store.line).group(1))
            body = completion(1)
            expected = cluster_test.plain(json.loads(one.ask("POST", "/v1/completions", body)[1]))
            with Node("mixed", "tcp", f"--kv-store=node:host=127.0.0.1,port={port}") as first:
                first.answer(body)
            with Relay(port, 300_000, "stall") as relay:
                with Node("mixed", "tcp", f"--kv-store=node:host=127.0.0.1,port={relay.port}") as second:
                    def kill():
                        if relay.reached.wait(60):
                            store.process.kill()
                    threading.Thread(target=kill, daemon=True).start()
                    self.assertEqual(second.answer(body), expected)
                    self.assertTrue(relay.reached.is_set())

    def test_a_store_has_neither_a_model_nor_tls(self):
        for flags, message in ((("-m", "stories"), "has no model"), (("--tls-cert", "a", "--tls-key", "b"), "has no TLS"),
                               (("--transfer-memory", "1K"), "at least 1M"), (("--transfer-host", "0.0.0.0"), "--transfer-key-file")):
            done = subprocess.run([MILLRACE, "serve", "--role", "store", "--port", "0", *flags], capture_output=True, text=True, timeout=60,
                                  check=False)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(message, done.stderr)

    def test_other_stores_do_not_move_blocks_between_nodes(self):
        done = subprocess.run([MILLRACE, "serve", "--role", "decode", "-m", "stories", "--port", "0", "--kv-store", "redis"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("store 'node'", done.stderr)

    def test_another_clusters_key_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = []
            for name in ("a", "b"):
                keys.append(os.path.join(folder, name))
                with open(keys[-1], "w", encoding="utf-8") as file:
                    file.write(name * 20 + "\n")
            with Node("store", "tcp", "--transfer-key-file", keys[0]) as store:
                port = int(re.search(r"\([^)]*:(\d+)\)", store.line).group(1))
                command = [MILLRACE, "serve", "-m", "stories", "--port", "0", f"--kv-store=node:host=127.0.0.1,port={port}"]
                done = subprocess.run([*command, "--transfer-key-file", keys[1]], capture_output=True, text=True, timeout=120, check=False)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("another cluster's key", done.stderr)


class Roles(unittest.TestCase):
    def start(self, *flags):
        return cluster_test.Cluster("--prefill", "1", "--decode", "2", *flags, nodes=0)

    def node_metrics(self, cluster):
        """Of each role; the nodes accept only the router's key."""
        sums = {}
        for node in cluster.started["nodes"]:
            with open(f"/proc/{cluster.pid(node['name'])}/cmdline", encoding="utf-8") as file:
                words = file.read().split("\0")
            with open(words[words.index("--api-key-file") + 1], encoding="utf-8") as file:
                key = file.readline().strip()
            connection = cluster_test.http.client.HTTPConnection("127.0.0.1", int(node["url"].rsplit(":", 1)[1]), timeout=60)
            connection.request("GET", "/metrics", headers={"Authorization": f"Bearer {key}"})
            found = metrics(connection.getresponse().read().decode())
            connection.close()
            role = sums.setdefault(node["role"], {})
            for name, value in found.items():
                role[name] = role.get(name, 0) + value
        return sums

    def pid_of(self, cluster, name):
        """Of the node's process, once it runs: it may have to be started again."""
        for _ in range(200):
            try:
                return cluster.pid(name)
            except AssertionError:
                time.sleep(0.1)
        raise AssertionError(f"{name} is not started again")

    def expect_balance(self, cluster):
        for role, found in self.node_metrics(cluster).items():
            if "millrace_transfer_capacity_bytes" in found:
                parts = sum(found[f"millrace_transfer_{part}_bytes"] for part in ("free", "held", "idle"))
                self.assertEqual(parts, found["millrace_transfer_capacity_bytes"], role)

    def test_answers_are_those_of_one_process(self):
        for flags in ((), ("--store", "1"), ("--transport", "tcp")):
            with server_process.Server(MILLRACE) as one, self.start(*flags) as cluster, self.subTest(flags=flags):
                roles = sorted(node["role"] for node in cluster.started["nodes"])
                self.assertEqual(roles, ["decode", "decode", "prefill"] + ["store"] * ("--store" in flags))
                for number, (path, body) in enumerate(cluster_test.STREAMS):
                    text = json.loads(json.dumps(body).replace(cluster_test.STORY, story(number)))
                    self.assertEqual(cluster_test.stream(cluster.port, path, text), cluster_test.stream(one.port, path, text), path)
                found = self.node_metrics(cluster)
                self.assertGreater(found["decode"]["millrace_kv_store_hit_tokens_total"], 500)
                self.assertGreater(found["prefill"]["millrace_transfer_read_blocks_total"], 30)
                router = metrics(cluster.ask("GET", "/metrics")[1])
                self.assertEqual(router["millrace_router_prefills_total"], len(cluster_test.STREAMS))
                for node in cluster.nodes().values():
                    self.assertEqual(node["state"], "ready")
                    self.assertGreater(node["requests"] + (node["role"] != "prefill"), 0)
                self.expect_balance(cluster)

    def test_lost_nodes_of_each_role(self):
        with server_process.Server(MILLRACE) as one, self.start("--store", "1") as cluster:
            names = {role: [node["name"] for node in cluster.started["nodes"] if node["role"] == role] for role in ("prefill", "decode", "store")}
            number = 100
            for role in ("prefill", "store"):
                for stop in (signal.SIGKILL, signal.SIGSTOP):
                    pid = self.pid_of(cluster, names[role][0])
                    os.kill(pid, stop)
                    number += 1
                    body = completion(number)
                    try:
                        status, text, _ = cluster.ask("POST", "/v1/completions", body)
                    finally:
                        if stop == signal.SIGSTOP:
                            os.kill(pid, signal.SIGCONT)
                    self.assertEqual(status, 200, text)
                    expected = cluster_test.plain(json.loads(one.ask("POST", "/v1/completions", body)[1]))
                    self.assertEqual(cluster_test.plain(json.loads(text)), expected, role)
                    cluster.wait_state(names[role][0], "ready")
            for _ in range(20):  # these models are fast, so it may take several tries
                number += 1
                body = {**completion(number), "max_tokens": 400, "stream": True, "ignore_eos": True}
                before, killed = cluster.restarts(), []

                def at(n):
                    if n == 5:
                        killed.extend(name for name, node in cluster.nodes().items() if node["running"] and name in names["decode"])
                        for name in killed:
                            cluster_test.kill(cluster, name)
                events = cluster_test.stream(cluster.port, "/v1/completions", body, at)
                self.assertEqual(events, cluster_test.stream(one.port, "/v1/completions", body))
                for name in killed:
                    cluster.wait_state(name, "ready")
                if cluster.restarts() > before:
                    break
            else:
                self.fail("no answer began again on another node")
            self.expect_balance(cluster)

    def test_prompts_that_the_decode_node_knows_are_not_sent_to_another(self):
        with self.start() as cluster:
            body = completion(1)
            first = cluster.ask("POST", "/v1/completions", body)[1]
            again = cluster.ask("POST", "/v1/completions", body)[1]
            self.assertEqual(cluster_test.plain(json.loads(first)), cluster_test.plain(json.loads(again)))
            self.assertEqual(metrics(cluster.ask("GET", "/metrics")[1])["millrace_router_prefills_total"], 1)

    def test_headers_of_nodes_are_not_a_clients(self):
        with self.start() as cluster:
            status, text, _ = cluster.ask("POST", "/v1/completions", completion(1), {"Millrace-Prefill": "1"})
            self.assertEqual(status, 200)
            self.assertIn("choices", json.loads(text))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
