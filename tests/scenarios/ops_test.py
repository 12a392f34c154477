"""What operators rely on: ./run, docs/ops, completions, manual page, the Debian package, recordings of a live server.

Usage: ops_test.py MILLRACE SOURCE_DIR BINARY_DIR [TestClass]
"""

import glob
import http.client
import http.server
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process

MILLRACE, SOURCE, BINARY = sys.argv[1], sys.argv[2], sys.argv[3]
OPS = os.path.join(SOURCE, "docs/ops")


def read(*parts):
    with open(os.path.join(*parts), encoding="utf-8") as file:
        return file.read()


def run(*arguments, **options):
    return subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False, **options)


def millrace(*arguments):
    return run(MILLRACE, *arguments)


def Server(*flags, binary=MILLRACE):
    return server_process.Server(binary, *flags)


class RunScript(unittest.TestCase):
    """./run itself, with a build that does nothing and a program that prints its arguments."""

    def run_with(self, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(os.path.join(SOURCE, "run"), folder)
            os.makedirs(os.path.join(folder, "tools"))
            os.makedirs(os.path.join(folder, "build/release/bin"))
            with open(os.path.join(folder, "tools/build.sh"), "w", encoding="utf-8") as file:
                file.write("install_packages() { :; }\nconfigure_release() { :; }\nbuild_release() { :; }\n")
            program = os.path.join(folder, "build/release/bin/millrace")
            with open(program, "w", encoding="utf-8") as file:
                file.write('#!/bin/sh\nfor one; do echo "$one"; done\n')
            os.chmod(program, 0o755)
            return run(os.path.join(folder, "run"), *arguments).stdout.splitlines()

    def test_alone_it_serves(self):
        self.assertEqual(self.run_with(), ["serve"])

    def test_else_it_passes_everything_on(self):
        self.assertEqual(self.run_with("run", "-p", "a b"), ["run", "-p", "a b"])
        self.assertEqual(self.run_with("--help"), ["--help"])

    def test_what_serve_says_first(self):
        with Server() as server:
            second = server.process.stdout.readline()
            self.assertIn(f"http://127.0.0.1:{server.port}/", second)
            self.assertIn("millrace chat", second)
            self.assertEqual(server.ask("GET", "/")[0], 200)
            self.assertEqual(server.stop(), 0)


class Logs(unittest.TestCase):
    def test_json_lines_and_levels(self):
        with Server("--log-format", "json") as server:
            self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "One day", "max_tokens": 2})[0], 200)
            self.assertEqual(server.ask("GET", "/nowhere\\x1b%0aforged")[0], 404)
            self.assertEqual(server.stop(), 0)
        lines = [json.loads(line) for line in server.log.splitlines()]
        self.assertEqual([line["message"] for line in lines], ["serving", "request", "request", "draining", "stopped"])
        self.assertEqual(lines[1]["generated_tokens"], 2)
        self.assertEqual(lines[2]["error"], "not_found")
        with Server("--log-level", "off") as server:
            server.ask("GET", "/nowhere")
            server.stop()
        self.assertEqual(server.log, "")

    def test_what_cannot_be_is_refused(self):
        for flags, code in ((("--otlp-endpoint", "localhost:4318"), 2), (("--otlp-endpoint", "https://localhost/", "--otlp-ca", "/nonexistent"), 3), (("--record", "/nonexistent/file"), 2), (("--log-level", "loud"), 2)):
            done = millrace("serve", "--port", "0", *flags)
            self.assertEqual(done.returncode, code, done.stderr)


class KeptStreams(unittest.TestCase):
    """A stream that outlives its reader is one line of the log, written when its work ends."""

    def lines(self, resume):
        with Server("--log-format", "json", "--stream-grace", "60" if resume else "0.05") as server:
            asked = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 200 if resume else -1, "ignore_eos": True, "stream": True}
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=240)
            connection.request("POST", "/v1/chat/completions", json.dumps(asked), {"X-Conversation-Id": "talk", "X-Request-Id": "first"})
            response = connection.getresponse()
            response.read(300)
            response.close()
            connection.close()
            if resume:
                self.assertTrue(server.ask("GET", "/v1/stream/talk?from=0")[1].endswith("data: [DONE]\n\n"))
            else:
                while json.loads(server.ask("POST", "/v1/streams/lookup", {"conversation_ids": ["talk"]})[1]):
                    pass
            self.assertEqual(server.stop(), 0)
        lines = [json.loads(line) for line in server.log.splitlines()]
        return [line for line in lines if line.get("request_id") == "first"]

    def test_one_that_is_read_on(self):
        lines = self.lines(True)
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual((lines[0]["status"], lines[0]["finish_reason"], lines[0]["resumed"], lines[0]["generated_tokens"]), (200, "length", 1, 200))

    def test_a_stream_that_is_abandoned(self):
        lines = self.lines(False)
        self.assertEqual(len(lines), 1, lines)
        self.assertEqual((lines[0]["status"], lines[0]["finish_reason"], lines[0]["resumed"]), (499, "cancelled", 0))


class Traces(unittest.TestCase):
    """Spans go to a collector that speaks TLS, once its certificate has been verified."""

    def certificate(self, folder, name):
        cert, key = os.path.join(folder, "cert.pem"), os.path.join(folder, "key.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1", "-subj", "/CN=collector",
                        "-addext", "subjectAltName=" + name, "-keyout", key, "-out", cert], check=True, capture_output=True)
        return cert, key

    def spans(self, name, trusted=True):
        """What the collector got, as (path, headers, JSON), and the server's own count of spans that were sent and dropped."""
        got = []

        class Collector(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                got.append((self.path, dict(self.headers), json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
                self.send_response(200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        with tempfile.TemporaryDirectory() as folder, http.server.ThreadingHTTPServer(("127.0.0.1", 0), Collector) as collector:
            cert, key = self.certificate(folder, name)
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(cert, key)
            collector.socket = context.wrap_socket(collector.socket, server_side=True, do_handshake_on_connect=False)
            threading.Thread(target=collector.serve_forever, daemon=True).start()
            variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"https://127.0.0.1:{collector.server_address[1]}", "OTEL_EXPORTER_OTLP_HEADERS": "x-team=a%20b"}
            if trusted:
                variables["OTEL_EXPORTER_OTLP_CERTIFICATE"] = cert
            os.environ.update(variables)
            try:
                with Server("--log-level", "off") as server:
                    self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "One day", "max_tokens": 2})[0], 200)
                    counts = (0, 0)
                    while sum(counts) < 4:  # a request's, and its three parts'
                        text = server.ask("GET", "/metrics")[1]
                        counts = tuple(int(re.search(rf"^millrace_spans_{what}_total (\d+)$", text, re.M).group(1)) for what in ("exported", "dropped"))
            finally:
                for variable in variables:
                    del os.environ[variable]
                collector.shutdown()
        return got, counts

    def test_over_https(self):
        got, counts = self.spans("IP:127.0.0.1")
        self.assertEqual(counts[1], 0)
        path, headers, body = got[0]
        self.assertEqual((path, headers["x-team"]), ("/v1/traces", "a b"))
        self.assertIn("text_completion", json.dumps(body))

    def test_not_to_another_name(self):
        got, counts = self.spans("DNS:elsewhere")
        self.assertEqual((got, counts[0]), ([], 0))

    def test_not_to_an_untrusted_certificate(self):
        got, counts = self.spans("IP:127.0.0.1", trusted=False)
        self.assertEqual((got, counts[0]), ([], 0))


class Replay(unittest.TestCase):
    def record(self, folder, *flags):
        path = os.path.join(folder, "requests.jsonl")
        with Server("--record", path, "--log-level", "off", *flags) as server:
            def client(number):
                chosen = {"seed": number} if number % 2 else {}
                self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": ["Once upon a time", "One day"], "max_tokens": 12, "n": 2, "temperature": 1.1, **chosen})[0], 200)
                self.assertEqual(server.ask("POST", "/completion", {"prompt": "The cat", "n_predict": 9, "stop": ["."], "repeat_penalty": 1.2})[0], 200)
                self.assertEqual(server.ask("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 5, "stream": True, "logit_bias": {"300": 2}})[0], 200)

            clients = [threading.Thread(target=client, args=(number,)) for number in range(4)]
            for one in clients:
                one.start()
            for one in clients:
                one.join()
            self.assertEqual(server.stop(), 0)
        return path

    def replay(self, path, *flags):
        done = millrace("replay", "-m", "stories", "--recording", path, "-t", "1", "--json", *flags)
        return done, json.loads(done.stdout) if done.stdout else {}

    def test_every_stream_comes_again_bit_for_bit(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.record(folder, "--record-prompts")
            for flags in (("--speed", "0"), ("--speed", "5", "--max-streams", "2", "--batch-tokens", "16")):
                done, told = self.replay(path, *flags)
                self.assertEqual((done.returncode, told["requests"], told["same"], told["different"], told["failed"]), (0, 16, 24, 0, 0), done.stdout + done.stderr)
            with Server("--max-streams", "3", "--log-level", "off") as server:
                done, told = self.replay(path, "--speed", "0", "--url", f"http://127.0.0.1:{server.port}")
                self.assertEqual((done.returncode, told["same"]), (0, 24), done.stdout + done.stderr)

            # Another seed is another answer, and is found out.
            lines = read(path).splitlines()
            changed = json.loads(lines[1])
            changed["sampling"].update(seed="987654", temperature="2")
            other = os.path.join(folder, "other.jsonl")
            with open(other, "w", encoding="utf-8") as file:
                file.write("\n".join([lines[0], json.dumps(changed), *lines[2:]]) + "\n")
            done, told = self.replay(other, "--speed", "0")
            self.assertEqual(done.returncode, 7)
            self.assertGreaterEqual(told["different"], 1)
            self.assertEqual(told["same"] + told["different"], 24)
            self.assertIn("token", told["differences"][0]["what"])

            # A file that was cut.
            with open(other, "w", encoding="utf-8") as file:
                file.write("\n".join(lines[:-2]) + "\n" + lines[-2][:20])
            done = millrace("replay", "--recording", other)
            self.assertEqual(done.returncode, 3)
            self.assertIn(f"line {len(lines) - 1}", done.stderr)
            done, told = self.replay(other, "--partial", "--speed", "0")
            self.assertEqual((done.returncode, told["requests"]), (0, 15), done.stderr)

    def test_hashed_prompts_are_a_load_and_nothing_more(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.record(folder)
            self.assertNotIn('"prompt":', read(path))
            done, told = self.replay(path, "--speed", "0")
            self.assertEqual((done.returncode, told["not_compared"], told["same"]), (0, 24, 0), done.stderr)
            self.assertIn("cannot be compared", done.stderr)

    def test_usage(self):
        self.assertEqual(millrace("replay", "--in-process").returncode, 2)
        self.assertEqual(millrace("replay", "--recording", "/nonexistent").returncode, 3)
        self.assertEqual(millrace("replay", "--recording", "x", "--trace", "y").returncode, 2)


class Printed(unittest.TestCase):
    """Completions and the manual pages."""

    def complete(self, *words, environment=None):
        """What bash offers for the last word. Words are given as bash divides them: at = and : too."""
        script = millrace("completion", "bash").stdout
        quoted = " ".join("'" + (MILLRACE if word == "millrace" else word) + "'" for word in words)
        done = run("bash", "--norc", "-c", f'{script}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _millrace; printf "%s\\n" "${{COMPREPLY[@]}}"',
                   env={**os.environ, **(environment or {})})
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash_completes(self):
        self.assertEqual(self.complete("millrace", "serv"), ["serve"])
        listed = set(self.complete("millrace", ""))
        self.assertTrue({"run", "chat", "serve", "replay", "completion"} <= listed, listed)
        self.assertIn("--log-format", self.complete("millrace", "serve", "--log-f"))
        self.assertEqual(self.complete("millrace", "serve", "--log-format", ""), ["text", "json"])
        self.assertEqual(self.complete("millrace", "completion", "--help", "--nonsense"), [])
        self.assertIn("stall_free", self.complete("millrace", "run", "--policy", ""))
        self.assertEqual(self.complete("millrace", "trace", ""), ["stats", "cache"])
        self.assertIn("--capacity", self.complete("millrace", "trace", "cache", "--cap"))
        self.assertEqual(self.complete("millrace", "lab", "gen"), ["generate"])
        self.assertEqual(self.complete("millrace", "run", "--early-stopping", "n"), ["never", "no"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "some.gguf")
            with open(path, "w", encoding="utf-8"):
                pass
            self.assertEqual(self.complete("millrace", "run", "-m", path[:-3]), [path])
            for flag in ("-f", "--json-schema", "--kv-load"):
                self.assertEqual(self.complete("millrace", "run", flag, path[:-3]), [path], flag)

    def test_bash_completes_techniques_and_their_options(self):
        use = ("millrace", "run", "--use")
        families = self.complete(*use, "")
        self.assertTrue({"evictor=", "kv_format=", "drafter="} <= set(families), families)
        self.assertEqual(self.complete(*use, "evic"), ["evictor="])
        self.assertIn("evictor=h2o", self.complete(*use, "evictor=h"))
        self.assertIn("h2o", self.complete(*use, "evictor", "=", "h"))
        self.assertIn("h2o", self.complete(*use, "evictor", "="))
        self.assertTrue({"sinks=", "window="} <= set(self.complete(*use, "evictor", "=", "streamingllm", ":")))
        self.assertEqual(self.complete(*use, "evictor", "=", "streamingllm", ":", "win"), ["window="])
        self.assertIn("4,window=", self.complete(*use, "evictor", "=", "streamingllm", ":", "sinks", "=", "4,"))
        self.assertNotIn("4,sinks=", self.complete(*use, "evictor", "=", "streamingllm", ":", "sinks", "=", "4,"))
        self.assertIn("evictor=streamingllm:sinks=4,window=", self.complete(*use, "evictor=streamingllm:sinks=4,"))
        self.assertIn("h2o", self.complete("millrace", "serve", "--use", "=", "evictor", "=", "h"))
        self.assertEqual(self.complete("millrace", "run", "--evictor", "streamingllm", ":", "w"), ["window="])
        self.assertIn("kv_format=q8_0 + evictor=h2o", self.raw("completion", "--words", "use", "compare", "kv_format=q8_0 + evictor=h"))
        self.assertEqual(self.complete("millrace", "run", "--use", "nonsense", "=", ""), [])
        self.assertNotIn("drafter=", self.complete("millrace", "simulate", "--use", ""))

    def raw(self, *arguments):
        return millrace(*arguments).stdout.splitlines()

    def test_bash_completes_models(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = {"MILLRACE_MODELS": os.path.join(folder, "models"), "HF_HOME": folder}
            with open(os.path.join(folder, "Modelfile"), "w", encoding="utf-8") as file:
                file.write("FROM lab\n")
            made = run(MILLRACE, "create", "pirate:young", "-f", file.name, env={**os.environ, **environment})
            self.assertEqual(made.returncode, 0, made.stderr)
            for words in (("run", "-m"), ("chat",), ("serve", "--model"), ("bench", "-m"), ("show",)):
                offered = self.complete("millrace", *words, "", environment=environment)
                self.assertTrue({"lab", "stories", "pirate:young", "qwen3:0.6b"} <= set(offered), (words, offered))
            self.assertEqual(self.complete("millrace", "chat", "pirate", ":", "y", environment=environment), ["young"])
            self.assertIn("0.6b", self.complete("millrace", "run", "qwen3", ":", "0", environment=environment))
        started = time.monotonic()
        for _ in range(5):
            self.raw("completion", "--words", "models", "")
        print(f"names of models: {(time.monotonic() - started) / 5 * 1000:.0f} ms")

    def test_every_flag_of_help_is_completed(self):
        for command in self.complete("millrace", ""):
            shown = set(re.findall(r"^  (?:-\w, )?(--[a-z][\w-]*)", millrace(command, "--help-all").stdout, re.M))
            completed = set(self.complete("millrace", command, "--"))
            self.assertLessEqual(shown, completed, command)
            self.assertIn("--help", completed)

    def test_shells_read_the_scripts(self):
        with tempfile.TemporaryDirectory() as folder:
            for shell in ("bash", "zsh", "fish"):
                text = millrace("completion", shell).stdout
                self.assertIn("log-format", text)
                self.assertIn("completion --words models", text.replace('--words "$@"', "--words models"))
                path = os.path.join(folder, shell)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                if shutil.which(shell):
                    done = run(shell, "-n", path)
                    self.assertEqual((done.returncode, done.stderr), (0, ""))
                else:
                    print(f"{shell} is not installed: the syntax of its script is not checked")
        self.assertEqual(millrace("completion", "tcsh").returncode, 2)

    def pages(self, folder):
        self.assertEqual(millrace("man", "--all", folder).returncode, 0)
        return {name: read(folder, name) for name in sorted(os.listdir(folder))}

    def test_every_command_has_a_manual_page(self):
        with tempfile.TemporaryDirectory() as folder:
            pages = self.pages(folder)
            commands = self.complete("millrace", "")
            self.assertEqual(set(pages), {"millrace.1", *(f"millrace-{command}.1" for command in commands)})
            self.assertEqual(pages["millrace.1"], millrace("man").stdout)
            for command in commands:
                page = pages[f"millrace-{command}.1"]
                self.assertIn(f"\\fBmillrace\\-{command}".replace(command, command.replace("-", "\\-")), pages["millrace.1"], command)
                self.assertEqual(page, millrace("man", command).stdout)
                for flag in re.findall(r"^  (?:-\w, )?(--[a-z][\w-]*)", millrace(command, "--help-all").stdout, re.M):
                    self.assertIn(flag.replace("-", "\\-"), page, command)
                for section in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXAMPLES", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"):
                    self.assertIn(f".SH {section}\n", page, command)
            self.assertIn(".SS KV cache\n", pages["millrace-run.1"])
            self.assertIn("trace cache", pages["millrace-trace.1"])
        self.assertIn("did you mean run?", millrace("man", "rum").stderr)

    def test_manual_pages_have_no_roff_mistake(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, page in self.pages(folder).items():
                for line in page.splitlines():
                    self.assertFalse(line.startswith("'"), line)
                    if line.startswith("."):
                        self.assertRegex(line, r"^\.(TH|SH|SS|TP|PP|nf|fi|br)\b")
                path = os.path.join(folder, name)
                if shutil.which("mandoc"):
                    self.assertEqual(run("mandoc", "-T", "lint", "-W", "error", path).returncode, 0)
                if shutil.which("groff"):
                    done = run("groff", "-man", "-ww", "-z", "-K", "utf8", path)
                    self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            if shutil.which("man") and shutil.which("groff"):
                path = os.path.join(folder, "millrace-serve.1")
                done = run("man", "--warnings", "-E", "UTF-8", "-l", path, env={**os.environ, "MANWIDTH": "120", "MANPAGER": "cat", "LC_ALL": "C.UTF-8"})
                self.assertEqual((done.returncode, done.stderr), (0, ""))
                self.assertIn("--log-format", done.stdout)


class Files(unittest.TestCase):
    """docs/ops against the program."""

    def exported(self):
        with tempfile.TemporaryDirectory() as folder:
            with Server("--kv-ssd", os.path.join(folder, "store"), "--kv-ssd-size", "64MB", "--metrics-alias", "vllm") as server:
                self.assertEqual(server.ask("POST", "/v1/completions", {"prompt": "One day", "max_tokens": 3})[0], 200)
                text = server.ask("GET", "/metrics")[1]
                server.stop()
        return set(re.findall(r"^# TYPE (\S+)", text, re.M))

    def test_dashboard_and_alerts_use_what_is_exported(self):
        board = json.loads(read(OPS, "grafana.json"))
        exported = self.exported() | {"millrace_energy_joules_total"}  # only where the processor counts it
        used = []
        self.assertGreater(len(board["panels"]), 15)
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))
        for panel in board["panels"]:
            self.assertTrue(panel["title"] and panel["targets"] and panel["gridPos"]["w"] > 0)
            used += [target["expr"] for target in panel["targets"]]
        used.append(read(OPS, "prometheus-rules.yaml"))
        for expression in used:
            for name in re.findall(r"\b(?:millrace|process)_[a-z_]+\b", expression):
                family = re.sub(r"_(bucket|sum|count)$", "", name)
                self.assertTrue(name in exported or family in exported, name)
            self.assertEqual(expression.count("("), expression.count(")"))

    def test_yaml(self):
        try:
            import yaml
        except ImportError:
            self.skipTest("python3-yaml is not there")
        rules = yaml.safe_load(read(OPS, "prometheus-rules.yaml"))
        for rule in rules["groups"][0]["rules"]:
            self.assertTrue(rule["alert"] and rule["expr"] and rule["annotations"]["summary"], rule)
        documents = {one["kind"]: one for one in yaml.safe_load_all(read(OPS, "kubernetes.yaml"))}
        self.assertEqual(set(documents), {"Deployment", "Service", "PodDisruptionBudget"})
        pod = documents["Deployment"]["spec"]["template"]
        self.assertEqual(documents["Service"]["spec"]["selector"], pod["metadata"]["labels"])
        container = pod["spec"]["containers"][0]
        arguments = container["args"]
        self.assertEqual(arguments[0], "serve")
        drain = next(float(one.split("=")[1]) for one in arguments if one.startswith("--drain-timeout="))
        stop = container["lifecycle"]["preStop"]["exec"]["command"]
        self.assertEqual(stop[0], "sleep")
        self.assertGreater(pod["spec"]["terminationGracePeriodSeconds"], drain + float(stop[1]))
        # The container's own command line, with a file of keys and a port of ours.
        with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
            keys.write("secret\n")
            keys.flush()
            flags = ["--api-key-file=" + keys.name if one.startswith("--api-key-file=") else one for one in arguments[1:] if not one.startswith("--port=")]
            with Server(*flags) as server:
                for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                    self.assertEqual(server.ask("GET", container[probe]["httpGet"]["path"])[0], 200)
                self.assertEqual(server.ask("GET", "/metrics")[0], 401)
                self.assertEqual(server.ask("GET", "/metrics", headers={"Authorization": "Bearer secret"})[0], 200)
                self.assertEqual(server.stop(), 0)

    def test_unit(self):
        unit = read(OPS, "millrace.service")
        command = re.search(r"^ExecStart=/usr/bin/millrace (.*) \$MILLRACE_FLAGS$", unit, re.M).group(1).split()
        self.assertEqual(command[0], "serve")
        with Server(*command[1:]) as server:
            self.assertEqual(server.stop(), 0)
        self.assertGreater(int(re.search(r"^TimeoutStopSec=(\d+)", unit, re.M).group(1)), 30)
        if shutil.which("systemd-analyze"):
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "millrace.service")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(unit.replace("/usr/bin/millrace", MILLRACE))
                done = run("systemd-analyze", "verify", "--man=no", path)
                problems = [line for line in done.stderr.splitlines() if "millrace.service" in line]
                self.assertEqual(problems, [])

    def test_containerfile(self):
        text = re.sub(r"\\\n", "", re.sub(r"^#.*\n", "", read(OPS, "Containerfile"), flags=re.M))
        lines = [line for line in text.splitlines() if line.strip()]
        known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD"}
        self.assertEqual({line.split()[0] for line in lines} - known, set())
        for line in lines:
            if line.startswith("COPY ") and "--from" not in line:
                self.assertTrue(os.path.exists(os.path.join(SOURCE, line.split()[1])), line)
            if line.startswith("RUN "):
                self.assertEqual(run("bash", "-n", "-c", line[4:]).returncode, 0, line)
            if line.startswith(("ENTRYPOINT", "CMD")):
                json.loads(line.split(" ", 1)[1])
        packages = run("sh", "-c", r"sed -n 's/^build  *\([^ ]*\).*/\1/p' tools/debian-packages.txt", cwd=SOURCE).stdout.split()
        self.assertIn("cmake", packages)
        self.assertNotIn("build", packages)

    def test_flags_in_the_guide_exist(self):
        helps = {}
        for command, flags in re.findall(r"^    millrace (\w+) (.*)$", read(OPS, "README.md"), re.M):
            if command not in helps:
                helps[command] = millrace(command, "--help-all").stdout
            for flag in re.findall(r"(--[\w-]+)", flags):
                self.assertIn(flag, helps[command], command)


def depended_on(names):
    """The installed packages that these need, and what those need, as apt would install them on a bare system."""
    found, waiting = set(), list(names)
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        listed = run("dpkg-query", "-W", "-f", "${Pre-Depends}, ${Depends}\\n", name)
        if listed.returncode != 0:  # virtual: another package provides it
            continue
        found.add(name)
        for group in listed.stdout.split(","):
            waiting += [re.split(r"[ (:]", one.strip())[0] for one in group.split("|") if one.strip()]
    return found


def copy_package(name, root):
    for path in run("dpkg-query", "-L", name).stdout.splitlines():
        there = os.path.join(root, os.path.realpath(os.path.dirname(path)).lstrip("/"), os.path.basename(path))
        if os.path.isfile(path) and not os.path.lexists(there) and not path.startswith("/usr/share/"):
            os.makedirs(os.path.dirname(there), exist_ok=True)
            shutil.copy2(path, there, follow_symlinks=False)


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("dpkg-deb") or not shutil.which("dpkg-shlibdeps") or not os.path.exists(os.path.join(BINARY, "CPackConfig.cmake")):
            raise unittest.SkipTest("dpkg-dev is not installed")
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        done = run("cpack", "-G", "DEB", "--config", os.path.join(BINARY, "CPackConfig.cmake"), "-B", folder.name)
        cls.packages = glob.glob(os.path.join(folder.name, "*.deb"))
        cls.root = os.path.join(folder.name, "root")
        assert done.returncode == 0 and len(cls.packages) == 1, done.stdout + done.stderr
        unpacked = run("dpkg-deb", "-x", cls.packages[0], cls.root)
        assert unpacked.returncode == 0, unpacked.stderr

    def test_debian_package(self):
        root = self.root
        fields = run("dpkg-deb", "-f", self.packages[0]).stdout
        self.assertIn("Package: millrace\n", fields)
        self.assertRegex(fields, r"Depends: .*libc6")
        for path in ("lib/systemd/system/millrace.service", "share/man/man1/millrace.1", "share/man/man1/millrace-run.1", "share/bash-completion/completions/millrace", "share/zsh/vendor-completions/_millrace",
                     "share/fish/vendor_completions.d/millrace.fish"):
            self.assertTrue(os.path.getsize(os.path.join(root, "usr", path)) > 0, path)
        self.assertEqual(read(root, "usr/share/man/man1/millrace.1"), millrace("man").stdout)
        self.assertFalse(os.path.exists(os.path.join(root, "usr/include")))
        program = os.path.join(root, "usr/bin/millrace")
        self.assertEqual(run(program, "--version").stdout, millrace("--version").stdout)
        with Server(binary=program) as server:
            self.assertEqual(server.ask("GET", "/health/ready")[0], 200)
            self.assertEqual(server.stop(), 0)

    def test_service_files(self):
        self.assertIn("EnvironmentFile=-/etc/default/millrace\n", read(self.root, "usr/lib/systemd/system/millrace.service"))
        self.assertIn("EnvironmentFile=-%E/millrace/serve.env\n", read(self.root, "usr/lib/systemd/user/millrace.service"))
        self.assertIn("MILLRACE_FLAGS=", read(self.root, "etc/default/millrace"))
        if shutil.which("systemd-analyze"):
            for unit in ("system", "user"):
                path = os.path.join(self.root, "usr/lib/systemd", unit, "millrace.service")
                done = run("systemd-analyze", "verify", *(["--user"] if unit == "user" else []), path)
                self.assertNotIn("Unknown", done.stderr)

    def test_upgrade_keeps_the_settings_and_purge_removes_them(self):
        """With dpkg itself, in a root of its own."""
        if os.geteuid() != 0:
            self.skipTest("dpkg installs only as root")
        with tempfile.TemporaryDirectory() as root:
            for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "var/lib/private/millrace", "var/cache/private/millrace"):
                os.makedirs(os.path.join(root, folder))
            open(os.path.join(root, "var/lib/dpkg/status"), "w").close()

            def dpkg(*words):
                done = run("dpkg", f"--root={root}", "--force-depends", "--force-script-chrootless", *words)
                self.assertEqual(done.returncode, 0, done.stderr)

            settings = os.path.join(root, "etc/default/millrace")
            dpkg("-i", self.packages[0])
            self.assertTrue(os.path.getsize(os.path.join(root, "usr/bin/millrace")) > 0)
            with open(settings, "a") as file:
                file.write("MILLRACE_FLAGS=--port 8081\n")
            dpkg("-i", self.packages[0])
            self.assertIn("--port 8081", read(root, "etc/default/millrace"))
            dpkg("-r", "millrace")
            self.assertFalse(os.path.exists(os.path.join(root, "usr/bin/millrace")))
            self.assertTrue(os.path.exists(settings))
            self.assertTrue(os.path.exists(os.path.join(root, "var/lib/private/millrace")))
            dpkg("-P", "millrace")
            for path in ("etc/default/millrace", "var/lib/private/millrace", "var/cache/private/millrace"):
                self.assertFalse(os.path.exists(os.path.join(root, path)), path)

    def test_tarball(self):
        with tempfile.TemporaryDirectory() as folder:
            done = run("cpack", "-G", "TGZ", "--config", os.path.join(BINARY, "CPackConfig.cmake"), "-B", folder)
            packages = glob.glob(os.path.join(folder, "millrace-*-linux-*.tar.gz"))
            self.assertEqual((done.returncode, len(packages)), (0, 1), done.stdout + done.stderr)
            self.assertIn(f"millrace-{millrace('--version').stdout.split()[1]}-linux-", packages[0])
            out = os.path.join(folder, "out")  # beside what cpack leaves there
            os.mkdir(out)
            self.assertEqual(run("tar", "-xf", packages[0], "-C", out).returncode, 0)
            [program] = glob.glob(os.path.join(out, "**/bin/millrace"), recursive=True)
            self.assertEqual(run(program, "--version").stdout, millrace("--version").stdout)

    def test_needs_no_more_than_its_dependencies(self):
        """In a root that has the package and the packages it depends on, and nothing else: no compiler, no shell."""
        enter = ["chroot"] if os.geteuid() == 0 else ["unshare", "--user", "--map-root-user", "chroot"]
        if run(*enter, "/", "/bin/true").returncode != 0:
            self.skipTest("chroot is not permitted")
        depends = run("dpkg-deb", "-f", self.packages[0], "Depends").stdout
        with tempfile.TemporaryDirectory() as root:
            for link in ("bin", "lib", "lib64", "sbin"):  # a merged /usr, as Debian has it
                os.makedirs(os.path.join(root, "usr", link))
                os.symlink("usr/" + link, os.path.join(root, link))
            os.makedirs(os.path.join(root, "tmp"))
            for package in depended_on(re.split(r"[ (:]", one.strip())[0] for one in depends.split(",")):
                copy_package(package, root)
            shutil.copytree(os.path.join(self.root, "usr"), os.path.join(root, "usr"), dirs_exist_ok=True)
            self.assertFalse(os.path.lexists(os.path.join(root, "usr/bin/g++")))
            words = ["run", "-m", "stories", "-p", "One day", "-n", "8", "--temp", "0"]
            inside = run(*enter, root, "/usr/bin/millrace", *words)
            self.assertEqual(inside.returncode, 0, inside.stderr)
            self.assertEqual(inside.stdout, millrace(*words).stdout)
            self.assertGreater(len(inside.stdout), 8)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]])
