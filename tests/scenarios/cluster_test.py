"""millrace cluster: every answer equals the one of a single process, whatever nodes are lost, stopped or drained.

Usage: cluster_test.py MILLRACE [unittest arguments]
"""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process

MILLRACE = sys.argv[1]
STORY = "Once upon a time there was a little cat who lived in a big house. " * 4
VARIES = {"usage", "timings", "id", "created", "created_at", "completed_at", "total_duration", "load_duration", "prompt_eval_duration",
          "eval_duration", "item_id"}


def plain(value):
    """Without what depends on the clock, on caches, or is an id."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in VARIES}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


def runs(pid):
    """False once the process has ended, even if nobody has asked for its exit status."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            return "(zombie)" not in file.read()
    except OSError:
        return False


class Cluster:
    def __init__(self, *flags, nodes=3):
        self._said = tempfile.TemporaryFile()
        self.process = subprocess.Popen([MILLRACE, "cluster", "up", "--json", "--port", "0", "-m", "stories", "--nodes", str(nodes), "-t", "1",
                                         "--node-timeout", "3", *flags], stdout=subprocess.PIPE, stderr=self._said, text=True)
        line = self.process.stdout.readline()
        if not line:
            self.process.wait(60)
            self._said.seek(0)
            raise AssertionError(f"no cluster: {self._said.read().decode()}")
        self.started = json.loads(line)
        self.port = int(self.started["router"].rsplit(":", 1)[1])

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        self.process.stdout.close()
        self._said.close()

    def connection(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connection()
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode(), response.headers
        finally:
            connection.close()

    def nodes(self):
        return {node["name"]: node for node in json.loads(self.ask("GET", "/cluster")[1])["nodes"]}

    def wait_state(self, name, state):
        for _ in range(600):
            if self.nodes()[name]["state"] == state:
                return
            time.sleep(0.1)
        raise AssertionError(f"{name} is never {state}: {self.nodes()[name]}")

    def running_on(self):
        """The node that runs the only request; None if its answer is complete already."""
        return next((node["name"] for node in self.nodes().values() if node["running"]), None)

    def restarts(self):
        return int(re.search(r"^millrace_router_restarts_total (\d+)$", self.ask("GET", "/metrics")[1], re.M).group(1))

    def pid(self, name):
        """Of the process that listens at the node's port now."""
        port = next(node["url"] for node in self.started["nodes"] if node["name"] == name).rsplit(":", 1)[1]
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline", encoding="utf-8") as file:
                    words = file.read().split("\0")
                with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
                    parent = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, ValueError):
                continue
            first = next(node["pid"] for node in self.started["nodes"] if node["name"] == name)
            if parent == self.process.pid and (int(pid) == first or ["--port", port] == words[words.index("--port"):][:2] if "--port" in words else False):
                return int(pid)
        raise AssertionError(f"{name} has no process")


def kill(cluster, name):
    os.kill(cluster.pid(name), signal.SIGKILL)


def stream(port, path, body, at=None):
    """The events of a stream; `at(n)` is called after the n-th."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("POST", path, json.dumps(body))
        response = connection.getresponse()
        assert response.status == 200, (response.status, response.read())
        events = []
        for line in response:
            line = line.decode().strip()
            if not line or line.startswith((":", "event: ping", "event:")):
                continue
            events.append(line.removeprefix("data: "))
            if at:
                at(len(events))
        return [plain(json.loads(event)) if event.startswith("{") else event for event in events]
    finally:
        connection.close()


CHAT = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 400, "temperature": 0.9, "seed": 11, "stream": True, "logprobs": True,
        "ignore_eos": True}
PLAIN = {"prompt": STORY, "max_tokens": 400, "temperature": 0.9, "seed": 5, "stream": True, "ignore_eos": True}
RESPONSES = {"input": STORY, "max_output_tokens": 60, "temperature": 0.7, "seed": 3, "stream": True, "store": False}
MESSAGES = {"messages": [{"role": "user", "content": STORY}], "max_tokens": 60, "stream": True, "temperature": 0}
OLLAMA = {"model": "stories", "prompt": STORY, "options": {"num_predict": 60, "seed": 4, "temperature": 0.8}}
STREAMS = [("/v1/chat/completions", CHAT), ("/v1/completions", PLAIN), ("/v1/responses", RESPONSES), ("/v1/messages", MESSAGES),
           ("/api/generate", OLLAMA)]


class Nodes(unittest.TestCase):
    def test_answers_are_those_of_one_process(self):
        with server_process.Server(MILLRACE) as one, Cluster() as cluster:
            for path, body in STREAMS:
                self.assertEqual(stream(cluster.port, path, body), stream(one.port, path, body), path)
                whole = {**body, "stream": False}
                status, text, headers = cluster.ask("POST", path, whole)
                self.assertEqual(status, 200, text)
                self.assertIn(headers["Millrace-Node"], ("node-1", "node-2", "node-3"))
                self.assertEqual(plain(json.loads(text)), plain(json.loads(one.ask("POST", path, whole)[1])), path)
            for path, body in (("/v1/embeddings", {"input": "a cat"}), ("/tokenize", {"content": "a cat"})):
                self.assertEqual(plain(json.loads(cluster.ask("POST", path, body)[1])), plain(json.loads(one.ask("POST", path, body)[1])))
            self.assertEqual(json.loads(cluster.ask("GET", "/v1/models")[1])["data"][0]["id"], "stories")

    def lose(self, cluster, path, body, kill):
        """The events of a stream whose node is lost in the middle. These models are fast, so it may take several tries."""
        for _ in range(20):
            before = cluster.restarts()
            lost = []

            def at(n):
                if n == 5:
                    lost.append(cluster.running_on())
                    if lost[0]:
                        kill(cluster, lost[0])
            events = stream(cluster.port, path, body, at)
            if lost[0]:
                cluster.wait_state(lost[0], "ready")  # it is started again, or goes on
            if cluster.restarts() > before:
                return events
        raise AssertionError("no answer began again on another node")

    def lose_each(self, kill):
        with server_process.Server(MILLRACE) as one, Cluster() as cluster:
            for path, body in STREAMS[:2]:
                self.assertEqual(self.lose(cluster, path, body, kill), stream(one.port, path, body), path)
            self.assertGreaterEqual(sum(node["failures"] for node in cluster.nodes().values()), 2)

    def test_a_killed_node_is_replaced_in_the_middle_of_an_answer(self):
        self.lose_each(kill)

    def test_a_stopped_node_is_replaced_in_the_middle_of_an_answer(self):
        def stop(cluster, name):
            pid = cluster.pid(name)
            os.kill(pid, signal.SIGSTOP)
            threading.Timer(8, os.kill, (pid, signal.SIGCONT)).start()
        self.lose_each(stop)

    def test_an_answer_without_a_seed_is_repeated_too(self):
        body = {"prompt": STORY, "max_tokens": 400, "temperature": 1.2, "stream": True, "ignore_eos": True}
        with Cluster(nodes=2) as cluster:
            events = self.lose(cluster, "/v1/completions", body, kill)
            self.assertEqual(events[-1], "[DONE]")
            self.assertGreaterEqual(len(events), 400)

    def test_a_drained_node_receives_nothing_new(self):
        with Cluster("--route", "in_turn", nodes=2) as cluster:
            self.assertEqual(subprocess.run([MILLRACE, "cluster", "drain", "node-1", "--url", cluster.started["router"]],
                                            capture_output=True, text=True).stdout, "node-1 receives no new requests\n")
            before = cluster.nodes()["node-1"]["requests"]
            for _ in range(4):
                self.assertEqual(cluster.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": 2})[2]["Millrace-Node"], "node-2")
            self.assertEqual(cluster.nodes()["node-1"]["requests"], before)
            done = subprocess.run([MILLRACE, "cluster", "status", "--url", cluster.started["router"]], capture_output=True, text=True)
            self.assertRegex(done.stdout, r"node-1 +draining")
            subprocess.run([MILLRACE, "cluster", "drain", "--undo", "node-1", "--url", cluster.started["router"]], check=True, capture_output=True)
            used = {cluster.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": 2})[2]["Millrace-Node"] for _ in range(4)}
            self.assertEqual(used, {"node-1", "node-2"})
            self.assertEqual(cluster.ask("POST", "/cluster/drain", {"node": "node-9"})[0], 404)

    def test_what_a_router_does_not_pass_on_is_refused_by_name(self):
        with Cluster(nodes=1) as cluster:
            for method, path, body in (("GET", "/v1/files", None), ("POST", "/v1/batches", {}), ("GET", "/slots", None), ("POST", "/models/load", {})):
                status, text, _ = cluster.ask(method, path, body)
                self.assertIn(status, (400, 404, 501), path)
                self.assertIn("router", text, path)
            status, text, _ = cluster.ask("POST", "/v1/responses", {"input": "A", "previous_response_id": "resp_1"})
            self.assertEqual(status, 400)
            self.assertIn("previous_response_id", text)
            self.assertEqual(cluster.ask("GET", "/nonesuch")[0], 404)
            self.assertEqual(cluster.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": "x"})[0], 400)

    def test_keys_and_an_absent_node(self):
        with tempfile.TemporaryDirectory() as folder:
            keys = os.path.join(folder, "keys")
            with open(keys, "w", encoding="utf-8") as file:
                file.write("first-key\n")
            with Cluster("--api-key-file", keys, nodes=1) as cluster:
                self.assertEqual(cluster.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": 2})[0], 401)
                self.assertEqual(cluster.ask("GET", "/cluster")[0], 401)
                good = {"Authorization": "Bearer first-key"}
                self.assertEqual(cluster.ask("POST", "/v1/completions", {"prompt": "A", "max_tokens": 2}, good)[0], 200)
                self.assertEqual(cluster.ask("GET", "/health/ready")[0], 200)
        router = subprocess.Popen([MILLRACE, "cluster", "route", "--port", "0", "--node", "127.0.0.1:9", "--wait", "1"], stdout=subprocess.PIPE,
                                  text=True)
        try:
            port = int(router.stdout.readline().rsplit(":", 1)[1])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("POST", "/v1/completions", json.dumps({"prompt": "A"}))
            response = connection.getresponse()
            self.assertEqual(response.status, 503)
            self.assertIn("no node of the cluster is ready", response.read().decode())
            connection.close()
        finally:
            router.terminate()
            self.assertEqual(router.wait(60), 0)
            router.stdout.close()

    def test_nodes_end_with_the_cluster(self):
        with Cluster(nodes=2) as cluster:
            pids = [node["pid"] for node in cluster.started["nodes"]]
            cluster.process.kill()
            cluster.process.wait()
            for pid in pids:
                for _ in range(600):
                    if not runs(pid):
                        break
                    time.sleep(0.1)
                else:
                    self.fail(f"node {pid} runs on")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:])
