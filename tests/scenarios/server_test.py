"""millrace serve as an operator runs it: addresses, keys, signals. The APIs themselves are tested in tests/server/.

Usage: server_test.py MILLRACE SOURCE_DIR [unittest arguments]
"""

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process

MILLRACE, SOURCE = sys.argv[1], sys.argv[2]


def Server(*flags):
    return server_process.Server(MILLRACE, *flags)


def copies_in_memory(pid, text):
    """How often a text is in the memory of another process."""
    found = 0
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "rb") as memory:
        for line in maps:
            span, access = line.split()[:2]
            begin, end = (int(one, 16) for one in span.split("-"))
            if "w" not in access or end - begin > 1 << 28:
                continue
            try:
                memory.seek(begin)
                found += memory.read(end - begin).count(text)
            except OSError:  # unmapped since, or of the kernel
                pass
    return found


def refused(*flags):
    return subprocess.run([MILLRACE, "serve", "--port", "0", *flags], capture_output=True, text=True, timeout=120)


class Serve(unittest.TestCase):
    def test_a_public_address_needs_keys(self):
        done = refused("--host", "0.0.0.0")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--api-key", done.stderr)
        self.assertEqual(refused("--host", "example.com", "--allow-public").returncode, 2)
        self.assertEqual(refused("--host", "0.0.0.0", "--api-key-file", "/nowhere").returncode, 3)
        with Server("--host", "0.0.0.0", "--api-key", "k") as server:
            self.assertEqual(server.request("GET", "/v1/models").status, 401)
            self.assertEqual(server.request("GET", "/v1/models", headers={"x-api-key": "k"}).status, 200)

    def test_a_port_in_use(self):
        with Server() as server:
            done = subprocess.run([MILLRACE, "serve", "-m", "stories", "--port", str(server.port)], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 6)
            self.assertIn(str(server.port), done.stderr)

    def test_names_and_aliases(self):
        with Server("--name", "mine", "--alias", "gpt-4o") as server:
            body = {"model": "gpt-4o", "prompt": "One day", "max_tokens": 1}
            self.assertEqual(json.load(server.request("POST", "/v1/completions", body))["model"], "mine")
            self.assertEqual(server.request("POST", "/v1/completions", {**body, "model": "other"}).status, 404)
        with Server("--alias", "*") as server:
            self.assertEqual(server.request("POST", "/v1/completions", {**body, "model": "other"}).status, 200)

    def test_a_name_does_not_depend_on_the_other_models(self):
        """-m alone decides the name; its other names answer and are not listed."""
        llama = SOURCE + "/tests/golden/llama/model.gguf"
        listed = json.loads(subprocess.run([MILLRACE, "models", "--json"], capture_output=True, text=True, timeout=120, check=True).stdout)["models"]
        self.assertIn("lab", [one["name"] for one in listed])
        for flags, names in ((("-m", "lab"), ["lab"]), (("-m", "millrace-lab"), ["lab"]), (("-m", "lab", "-m", "stories"), ["lab", "stories"]),
                             (("-m", "lab", "-m", llama), ["lab", "model"]), (("-m", llama), ["model"]), (("-m", "mine=lab"), ["mine"])):
            with Server(*flags) as server:
                self.assertEqual([one["id"] for one in json.load(server.request("GET", "/v1/models"))["data"]], names, flags)
                self.assertEqual([one["name"] for one in json.load(server.request("GET", "/api/tags"))["models"]], names, flags)
                self.assertIn("millrace: %s at " % ", ".join(names), server.line)
                ask = lambda model: server.request("POST", "/v1/completions", {"model": model, "prompt": "a", "max_tokens": 1})
                if {"lab", "millrace-lab", "mine=lab"} & set(flags):
                    for other in ("lab", "millrace-lab", "millrace-lab-4m", "lab:latest"):
                        answer = ask(other)
                        self.assertEqual(answer.status, 200, (flags, other))
                        self.assertEqual(json.load(answer)["model"], names[0])
                if llama in flags:  # "tiny random" is its name in its file, known once it is loaded
                    self.assertEqual(json.load(ask("model"))["model"], "model")
                    self.assertEqual(json.load(ask("tiny random"))["model"], "model")
                self.assertEqual(ask("stories-draft").status, 404)

    def test_the_command_that_chats_with_the_first_model(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "my model.gguf")
            os.symlink(os.path.abspath(SOURCE + "/tests/golden/llama/model.gguf"), path)
            for flags, chat in ((("-m", "mine=lab"), ", or chat in the terminal: millrace chat lab"), (("-m", path), f", or chat in the terminal: millrace chat '{path}'"),
                                (("--models-dir", folder), "")):
                with Server(*flags) as server:
                    self.assertEqual(server.process.stdout.readline(), f"Open http://127.0.0.1:{server.port}/ in a browser{chat}\n")

    def test_a_server_without_models_has_watchers(self):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--models-dir", folder) as server:
                self.assertEqual(server.request("GET", "/live").status, 200)
                self.assertEqual(server.ask("GET", "/live?model=other")[0], 404)

    def test_a_ranker_is_checked_at_the_start(self):
        done = refused("-m", "stories", "--ranker", "other", "--load-on-demand")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--ranker: unknown 'other'; available: qwen3", done.stderr)

    def test_several_models(self):
        golden = SOURCE + "/tests/golden/%s/model.gguf"
        names = lambda server: [one["id"] for one in json.load(server.request("GET", "/v1/models"))["data"]]
        ask = lambda server, model: json.load(server.request("POST", "/v1/completions", {"model": model, "prompt": [1, 2, 3], "max_tokens": 2}))
        with Server("-m", "one=" + golden % "llama", "-m", golden % "qwen2", "--model-alias", "model=second") as server:
            self.assertEqual(names(server), ["one", "model", "second"])
            self.assertEqual(ask(server, "second")["model"], "model")
            self.assertEqual(ask(server, "one")["model"], "one")
            metrics = server.request("GET", "/metrics").read().decode()
            for model in ("one", "model"):
                self.assertIn('millrace_generated_tokens_total{model_name="%s"} 2' % model, metrics)
        with tempfile.TemporaryDirectory() as folder:
            path = folder + "/models.toml"
            with open(path, "w") as file:
                file.write('[fast]\npath = "%s"\nalias = ["a", "b"]\ncontext = 64\n[good]\npath = "%s"\npreload = true\n' % (golden % "llama", golden % "qwen2"))
            with Server("--models-file", path) as server:
                self.assertEqual(names(server), ["fast", "a", "b", "good"])
                states = [one["status"]["value"] for one in json.load(server.request("GET", "/models"))["data"]]
                self.assertEqual(states, ["unloaded", "loaded"])
                self.assertEqual(ask(server, "b")["model"], "fast")
                self.assertEqual(json.load(server.request("GET", "/v1/models/fast"))["max_model_len"], 64)
            for wrong in ("[x]\ncontext = 64\n", "[x]\npath = 'a'\nnonsense = 1\n", "path = 'a'\n", ""):
                with open(path, "w") as file:
                    file.write(wrong)
                done = refused("--models-file", path)
                self.assertEqual(done.returncode, 2, wrong + done.stderr)
                self.assertIn(path, done.stderr)
        done = refused("-m", golden % "llama", "-m", golden % "qwen2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'model'", done.stderr)

    def test_the_first_sigterm_lets_streams_finish(self):
        with Server() as server:
            answer = server.request("POST", "/v1/completions", {"prompt": "One day", "max_tokens": 400, "ignore_eos": True, "stream": True})
            first = answer.readline()
            server.process.send_signal(signal.SIGTERM)
            rest = answer.read()
            self.assertTrue(first.startswith(b"data: "))
            self.assertTrue(rest.endswith(b"data: [DONE]\n\n"))
            self.assertEqual(server.process.wait(60), 0)

    def test_the_second_one_does_not(self):
        with Server("--ping-seconds", "1000", "--drain-timeout", "1000") as server:
            ask = {"prompt": "One day", "max_tokens": -1, "ignore_eos": True, "stream": True, "n": 64}
            answer = server.request("POST", "/v1/completions", ask)
            answer.readline()
            server.process.send_signal(signal.SIGTERM)
            server.process.send_signal(signal.SIGINT)
            self.assertEqual(server.process.wait(60), 0)

    def test_signals_while_the_model_loads(self):
        # Nothing was printed yet: the model is still being loaded, or the server has just begun.
        for which in (signal.SIGTERM, signal.SIGINT):
            process = subprocess.Popen([MILLRACE, "serve", "-m", "stories", "--port", "0", "-t", "1"], stdout=subprocess.PIPE)
            while True:  # until it takes signals by itself
                with open(f"/proc/{process.pid}/status") as status:
                    if int(re.search(r"SigBlk:\t(\w+)", status.read()).group(1), 16) & (1 << (which - 1)):
                        break
            process.send_signal(which)
            self.assertEqual(process.wait(60), 0)
            process.stdout.close()

    def test_sampling_flags_are_the_defaults(self):
        with Server("--temp", "0", "-s", "5") as server:
            body = {"prompt": "One day", "max_tokens": 12}
            first = server.request("POST", "/v1/completions", body)
            self.assertEqual(first.headers["Millrace-Seed"], "5")
            self.assertEqual(json.load(first)["choices"], json.load(server.request("POST", "/v1/completions", {**body, "temperature": 0}))["choices"])


class Settings(unittest.TestCase):
    """What SIGHUP changes."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, 0o600)
        return path

    def read(self, path):
        with open(path) as file:
            return file.read()

    def keys(self, **named):
        return self.write("keys.json", json.dumps({"keys": [{"name": name, "key": key} for name, key in named.items()]}))

    def status(self, server, key):
        return server.request("GET", "/v1/models", headers={"x-api-key": key}).status

    def test_keys(self):
        path = self.keys(alice="a")
        with Server("--api-keys", path) as server:
            self.assertEqual(self.status(server, "a"), 200)
            self.keys(bob="b")
            self.assertEqual(self.status(server, "b"), 401)
            self.assertIn("settings reloaded", server.reload())
            self.assertEqual((self.status(server, "a"), self.status(server, "b")), (401, 200))
            self.write("keys.json", "{")
            self.assertIn("keys.json", server.reload())
            self.assertEqual(self.status(server, "b"), 200)

    def test_a_keys_file_that_others_may_read(self):
        path = self.keys(alice="a")
        os.chmod(path, 0o644)
        with Server("--api-keys", path) as server:
            server.says("chmod")

    def test_a_key_leaves_no_text_in_memory(self):
        path = self.keys(alice="sk-alice-7781-text")
        with open(self.write("plain.txt", "sk-second-5521-text\n"), encoding="utf-8") as file:
            flags = ("--api-keys", path, "--api-key-file", file.name)
        given = [("x-api-key", "sk-alice-7781-text"), ("Authorization", "Bearer sk-second-5521-text"), ("Authorization", "Bearer sk-wrong-1234-text"),
                 ("x-api-key", "sk-wrong-5678-text"), ("Authorization", "Basic sk-basic-9012-text")]
        for flags in (flags, ()):
            with Server(*flags) as server:
                waiting = []  # refused, and not closed by the client yet
                for name, value in given:
                    body = {"prompt": "a", "max_tokens": 3, "stream": True}
                    server.ask("POST", "/v1/completions", body, {name: value, "X-Conversation-Id": "c"})
                    server.ask("GET", "/no-such-path", None, {name: value})
                    for more in ("Content-Length: 99999999\r\n", "not a header\r\n"):  # refused once its head is there
                        client = socket.create_connection(("127.0.0.1", server.port), timeout=60)
                        self.addCleanup(client.close)
                        waiting.append(client)
                        client.sendall(f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n{more}\r\n".encode())
                        while client.recv(4096):
                            pass
                for key in {value.split()[-1] for _, value in given}:
                    self.assertEqual(copies_in_memory(server.process.pid, key.encode()), 0, (flags, key))
                for client in waiting:
                    client.close()

    def test_the_config_file(self):
        path = self.write("config.toml", "[serve]\nmax-body-bytes = 2000\n")
        with Server("--config", path) as server:
            body = {"prompt": "One day", "max_tokens": 1, "user": "a" * 3000}
            self.assertEqual(server.request("POST", "/v1/completions", body).status, 413)
            self.write("config.toml", "[serve]\nmax-body-bytes = 20000\nmax-streams = 3\n")
            said = server.reload()
            self.assertIn("changing --max-streams requires a restart", said)
            self.assertEqual(server.request("POST", "/v1/completions", body).status, 200)
            for text in ("[serve]\nmax-body-bytes = 1\n", "[serve]\nno-such-flag = 1\n", "[serve", "[serve]\napi-key = 'k'\n"):
                self.write("config.toml", text)
                self.assertIn("keeping the old settings", server.reload())
                self.assertEqual(server.request("POST", "/v1/completions", body).status, 200)

    def certificate(self, name):
        cert, key = os.path.join(self.folder.name, "cert.pem"), os.path.join(self.folder.name, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1",
                        "-subj", "/CN=" + name, "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True)
        return cert, key

    def test_certificates(self):
        cert, key = self.certificate("one")
        first = self.read(cert)
        with Server("--tls-cert", cert, "--tls-key", key) as server:
            self.assertIn("https://", server.line)
            self.assertEqual(ssl.get_server_certificate(("127.0.0.1", server.port)).strip(), first.strip())
            self.certificate("two")
            server.reload()
            second = ssl.get_server_certificate(("127.0.0.1", server.port)).strip()
            self.assertEqual(second, self.read(cert).strip())
            self.assertNotEqual(second, first.strip())
            with open(key, "w") as file:
                file.write("nonsense")
            self.assertIn("keeping the old settings", server.reload())
            context = ssl.create_default_context(cafile=cert)
            connection = http.client.HTTPSConnection("127.0.0.1", server.port, context=context, timeout=60)
            connection.request("GET", "/health")
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()
        self.assertEqual(refused("--tls-cert", cert).returncode, 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
