"""millrace pull against a hub on loopback: whole, redirected, cut, changed, wrong, closed.

Usage: pull_test.py MILLRACE SOURCE_DIR [unittest arguments]
"""

import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import ssl
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import unittest
import unittest.mock
import urllib.parse

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import server_process  # noqa: E402

MILLRACE, SOURCE = sys.argv[1], sys.argv[2]
PIECE = 16 << 20


def git_hash(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Hub:
    """Serves `files` of one repository, owner/name, as a hub does; what goes wrong is set by the attributes."""

    def __init__(self, files, commit="c" * 40, certificate=None):
        self.files, self.commit = dict(files), commit
        self.repository = "owner/name"
        self.names = {}            # listed under another name
        self.hashes = {}           # listed with another hash
        self.sizes = {}            # listed with another size
        self.token = None          # required
        self.cut = 0               # answers that end after so many bytes, ...
        self.cuts = 0              # ... so many times
        self.ranges = True
        self.hold = 0              # answers wait after so many bytes, ...
        self.go_on = threading.Event()  # ... until this is set
        self.mirror = None         # redirects there
        self.seen = []             # (path, range, authorization)
        self.lock = threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_GET(self):
                hub.answer(self)

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_port
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = "https" + self.url.removeprefix("http")
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()

    def list(self):
        siblings = []
        for name, data in self.files.items():
            one = {"rfilename": self.names.get(name, name), "size": self.sizes.get(name, len(data)), "blobId": git_hash(data)}
            if name.endswith((".gguf", ".safetensors")):
                one["lfs"] = {"sha256": self.hashes.get(name, hashlib.sha256(data).hexdigest()), "size": one["size"]}
            siblings.append(one)
        return {"sha": self.commit, "siblings": siblings}

    def answer(self, request):
        path = urllib.parse.unquote(urllib.parse.urlsplit(request.path).path)
        with self.lock:
            self.seen.append((path, request.headers.get("Range"), request.headers.get("Authorization")))
            cut = self.cuts > 0 and "/resolve/" in path
            self.cuts -= cut
        if self.token and request.headers.get("Authorization") != "Bearer " + self.token:
            return request.send_error(401)
        if path.startswith(f"/api/models/{self.repository}/revision/"):
            body = json.dumps(self.list()).encode()
            request.send_response(200)
            request.send_header("Content-Length", str(len(body)))
            request.end_headers()
            return request.wfile.write(body)
        name = path.split("/resolve/%s/" % self.commit)[-1]
        if "/resolve/" not in path or name not in self.files:
            return request.send_error(404)
        if self.mirror:
            request.send_response(302)
            request.send_header("Location", self.mirror + request.path)
            request.send_header("Content-Length", "0")
            return request.end_headers()
        data = self.files[name]
        first, last = 0, len(data) - 1
        if request.headers.get("Range") and self.ranges:
            first, last = (int(x) for x in request.headers["Range"].removeprefix("bytes=").split("-"))
            request.send_response(206)
            request.send_header("Content-Range", "bytes %d-%d/%d" % (first, last, len(data)))
        else:
            request.send_response(200)
        body = data[first:last + 1]
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        try:
            if self.hold:
                request.wfile.write(body[:self.hold])
                self.go_on.wait(60)
                body = body[self.hold:]
            request.wfile.write(body[:self.cut] if cut else body)
        except OSError:
            pass
        return None

    def resolved(self):
        return [one for one in self.seen if "/resolve/" in one[0]]


class Pull(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.model = self.read(SOURCE + "/tests/golden/llama/model.gguf")

    def tearDown(self):
        self.folder.cleanup()

    def environment(self, hub, **more):
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "HUGGINGFACE_"))}
        return {**kept, "HF_HOME": self.folder.name, "HF_ENDPOINT": hub.url if hub else "http://127.0.0.1:9", **more}

    def call(self, hub, *arguments, **environment):
        return subprocess.run([MILLRACE, *arguments], capture_output=True, text=True, timeout=300, env=self.environment(hub, **environment))

    def typed(self, hub, text, *arguments):
        """Exit code, output, and what the terminal shows for a command whose standard input and errors are a terminal."""
        screen, terminal = pty.openpty()
        try:
            os.write(screen, text.encode())
            done = subprocess.run([MILLRACE, *arguments], stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, text=True, timeout=300, env=self.environment(hub))
            os.set_blocking(screen, False)
            return done.returncode, done.stdout, os.read(screen, 65536).decode(errors="replace")
        finally:
            os.close(screen)
            os.close(terminal)

    @contextlib.contextmanager
    def on_terminal(self, hub, *arguments, columns=80):
        """A command that a terminal of so many columns runs: the process, and wait_for(PATTERN), which returns the screen."""
        screen, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        process = subprocess.Popen([MILLRACE, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=self.environment(hub))
        os.close(terminal)
        shown = ""

        def wait_for(pattern, seconds=60):
            nonlocal shown
            end = time.monotonic() + seconds
            while not re.search(pattern, shown):
                ready, _, _ = select.select([screen], [], [], max(0, end - time.monotonic()))
                try:
                    data = os.read(screen, 65536) if ready else b""
                except OSError:  # the process has ended
                    data = b""
                if not data:
                    self.fail(f"waited for {pattern!r}, the screen shows {shown[-2000:]!r}")
                shown += data.decode(errors="replace")
            return shown

        try:
            yield process, wait_for
        finally:
            process.kill()
            process.wait()
            os.close(screen)

    def pull(self, hub, *arguments, **environment):
        return subprocess.run([MILLRACE, "pull", *arguments, "--json"], capture_output=True, text=True, timeout=300, env=self.environment(hub, **environment))

    def pulled(self, hub, *arguments, **environment):
        done = self.pull(hub, *arguments, **environment)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def read(self, path):
        with open(path, "rb") as file:
            return file.read()

    def cache(self, *parts):
        return os.path.join(self.folder.name, "hub", "models--owner--name", *parts)

    def test_a_file_is_fetched_once_and_found_by_other_commands(self):
        with Hub({"m-Q4_K_M.gguf": self.model, "m-Q8_0.gguf": b"other", "README.md": b"text"}) as hub:
            got = self.pulled(hub, "owner/name")
            self.assertEqual(got["files"], ["m-Q4_K_M.gguf"])
            self.assertEqual(got["downloaded_bytes"], len(self.model))
            self.assertEqual(got["path"], self.cache("snapshots", "c" * 40, "m-Q4_K_M.gguf"))
            self.assertEqual(self.read(got["path"]), self.model)
            self.assertTrue(os.path.islink(got["path"]))
            self.assertFalse(os.path.isabs(os.readlink(got["path"])))
            self.assertEqual(os.listdir(self.cache("blobs")), [hashlib.sha256(self.model).hexdigest()])
            self.assertEqual(self.read(self.cache("refs", "main")), b"c" * 40)
            before = len(hub.resolved())
            self.assertEqual(self.pulled(hub, "owner/name")["downloaded_bytes"], 0)
            self.assertEqual(len(hub.resolved()), before)
            self.assertEqual(self.read(self.pulled(hub, "hf:owner/name:q8_0")["path"]), b"other")

    def test_short_names(self):
        with Hub({"Qwen3-0.6B-Q4_K_M.gguf": self.model, "Qwen3-0.6B-Q8_0.gguf": b"other"}) as hub:
            hub.repository = "unsloth/Qwen3-0.6B-GGUF"
            before = self.call(hub, "run", "-m", "qwen3:0.6b", "-p", "a")
            self.assertEqual(before.returncode, 3)
            self.assertIn("`millrace pull qwen3:0.6b` downloads it", before.stderr)
            self.assertEqual(self.pulled(hub, "qwen3:0.6b")["files"], ["Qwen3-0.6B-Q4_K_M.gguf"])
            self.assertEqual(self.pulled(hub, "Qwen3:0.6b-q8_0")["files"], ["Qwen3-0.6B-Q8_0.gguf"])
            with self.on_terminal(hub, "pull", "qwen3:0.6b") as (_, wait_for):
                wait_for(r"qwen3:0\.6b is already on this machine \(\d+\.\d [kM]B\); millrace run qwen3:0\.6b\r\n")
        done = self.call(None, "run", "-m", "qwen3:0.6b", "-p", "a", "-n", "2", "-t", "1")
        self.assertEqual(done.returncode, 0, done.stderr)
        with unittest.mock.patch.dict(os.environ, self.environment(None), clear=True):
            with server_process.Server(MILLRACE, "--store", "-m", "stories") as server:
                status, text = server.ask("POST", "/api/generate", {"model": "qwen3:0.6b", "prompt": "a", "stream": False, "options": {"num_predict": 1}})
                self.assertEqual(status, 200, text)
        listed = json.loads(self.call(None, "pull", "--list", "--json").stdout)
        here = [one["name"] for one in listed["models"] if one["on_this_machine"]]
        self.assertEqual(here, ["qwen3:0.6b"])
        self.assertGreaterEqual(len(listed["models"]), 40)
        self.assertRegex(self.call(None, "pull", "--list").stdout, r"(?m)^qwen3:0\.6b +unsloth/Qwen3-0\.6B-GGUF:Q4_K_M, on this machine$")

    def test_a_model_that_is_named_is_offered(self):
        message = ("a", "-n", "2", "-t", "1", "--temp", "0")
        with Hub({"m-Q4_K_M.gguf": self.model}) as hub:
            hub.repository = "unsloth/Qwen3-0.6B-GGUF"
            for command in (("run", "qwen3:0.6b", *message), ("chat", "qwen3:0.6b"), ("serve", "qwen3:0.6b")):
                done = self.call(hub, *command)
                self.assertEqual(done.returncode, 3, done.stderr)
                self.assertIn("`millrace pull qwen3:0.6b` downloads it", done.stderr)
            self.assertIn("`millrace pull unsloth/Qwen3-0.6B-GGUF`", self.call(hub, "run", "unsloth/Qwen3-0.6B-GGUF", "a").stderr)
            self.assertEqual(self.typed(hub, "n\n", "run", "qwen3:0.6b", *message)[0], 2)
            for wrong in (("a", "-p", "b"), ("--json",), ("--json-schema", "{}"), ("-p", "a", "--system", "b"), ("a", "--document", "x")):
                code, _, shown = self.typed(hub, "y\n", "run", "qwen3:0.6b", *wrong)
                self.assertEqual(code, 2, shown)
                self.assertNotIn("Download it?", shown)  # words that contradict each other are refused before
            self.assertFalse(hub.seen)
            code, out, shown = self.typed(hub, "  \n", "run", "qwen3:0.6b", *message)
            self.assertEqual(code, 0, shown)
            self.assertIn("qwen3:0.6b (unsloth/Qwen3-0.6B-GGUF:Q4_K_M) is not on this machine. Download it? [Y/n]", shown)
            self.assertEqual(len(hub.resolved()), 1)
            self.assertEqual(self.call(None, "run", "qwen3:0.6b", *message).stdout, out)  # now it is here
        with Hub({"m-Q4_K_M.gguf": self.model}) as hub:
            done = self.call(hub, "run", "owner/name", *message, "--yes")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stdout, out)

    def test_a_name_with_its_hub_is_downloaded_without_a_question(self):
        with Hub({"m-Q4_K_M.gguf": self.model}) as hub:
            done = self.call(hub, "run", "huggingface.co/owner/name", "a", "-n", "2", "-t", "1")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(len(hub.resolved()), 1)

    def test_a_client_pulls_by_a_short_name(self):
        with Hub({"m-Q4_K_M.gguf": self.model}) as hub:
            hub.repository = "unsloth/Qwen3-0.6B-GGUF"
            with unittest.mock.patch.dict(os.environ, self.environment(hub), clear=True):
                with server_process.Server(MILLRACE, "--store", "-m", "stories") as server:
                    status, text = server.ask("POST", "/api/pull", {"model": "qwen3:0.6b", "stream": False})
                    self.assertEqual((status, json.loads(text)), (200, {"status": "success"}))
                    self.assertIn("--list", server.ask("POST", "/api/pull", {"model": "llama3"})[1])

    def test_short_names_of_the_user(self):
        own = os.path.join(self.folder.name, "millrace", "short-names.toml")
        os.mkdir(os.path.dirname(own))
        with open(own, "w", encoding="utf-8") as file:
            file.write('mini = "owner/name:Q8_0"\n"qwen3:0.6b" = "owner/name"\n')
        with Hub({"m-Q4_K_M.gguf": self.model, "m-Q8_0.gguf": b"other"}) as hub:
            self.assertEqual(self.pulled(hub, "mini", XDG_CONFIG_HOME=self.folder.name)["files"], ["m-Q8_0.gguf"])
            self.assertEqual(self.pulled(hub, "qwen3:0.6b", XDG_CONFIG_HOME=self.folder.name)["files"], ["m-Q4_K_M.gguf"])
            with open(own, "a", encoding="utf-8") as file:
                file.write("nonsense\n")
            done = self.pull(hub, "mini", XDG_CONFIG_HOME=self.folder.name)
            self.assertEqual(done.returncode, 2)
            self.assertIn(own + ":3: ", done.stderr)

    def test_a_near_name_is_suggested(self):
        for given, near in (("llama3", "llama3.1 or llama3.2 or llama3.3"), ("qwen33", "qwen3"), ("gemma3:4bb", "gemma3:4b")):
            done = self.pull(None, given)
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"did you mean {near}?", done.stderr)
        done = self.pull(None, "--list", "qwen3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("'qwen3' is not expected here: --list lists every name", done.stderr)
        done = self.pull(None, "zzzzzzzzz")
        self.assertNotIn("did you mean", done.stderr)
        self.assertIn("`millrace pull --list` lists them", done.stderr)
        self.assertEqual(self.pull(None).returncode, 2)

    def test_a_folder_comes_with_what_it_needs_and_runs(self):
        source = SOURCE + "/tests/golden/qwen2/"
        files = {name: self.read(source + name) for name in os.listdir(source) if name.endswith((".json", ".safetensors"))}
        with Hub(files) as hub:
            done = subprocess.run([MILLRACE, "run", "-m", "hf:owner/name", "-p", "a", "-n", "2", "-t", "1"], capture_output=True, text=True, timeout=300, env=self.environment(hub))
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.read(self.cache("snapshots", "c" * 40, "config.json")), files["config.json"])

    def test_many_pieces_over_many_connections(self):
        data = os.urandom(1 << 20) * 40 + b"tail"
        with Hub({"m.gguf": data, "n.gguf": b""}) as hub:
            got = self.pulled(hub, "owner/name:m.gguf", "--connections", "3")
            self.assertEqual(self.read(got["path"]), data)
            self.assertEqual(sorted(one[1] for one in hub.resolved()),
                             sorted("bytes=%d-%d" % (at, min(at + PIECE, len(data)) - 1) for at in range(0, len(data), PIECE)))
            self.assertEqual(self.read(self.pulled(hub, "owner/name:n.gguf")["path"]), b"")

    def test_a_cut_goes_on_where_it_was(self):
        with Hub({"m.gguf": self.model}) as hub:
            hub.cut, hub.cuts = 1000, 2
            self.assertEqual(self.read(self.pulled(hub, "owner/name")["path"]), self.model)
            self.assertEqual([one[1].split("-")[0] for one in hub.resolved()], ["bytes=0", "bytes=1000", "bytes=2000"])

    def test_a_later_try_fetches_only_what_is_missing(self):
        data = os.urandom(3 * PIECE)
        with Hub({"m.gguf": data}) as hub:
            hub.cut, hub.cuts = 0, 0
            whole = hub.answer

            def first_only(request):
                if "bytes=0-" in (request.headers.get("Range") or "bytes=0-"):
                    return whole(request)
                return request.send_error(403)

            hub.answer = first_only
            self.assertEqual(self.pull(hub, "owner/name", "--connections", "1").returncode, 2)
            self.assertEqual(len([name for name in os.listdir(self.cache("blobs")) if name.endswith(".incomplete")]), 1)
            hub.answer = whole
            got = self.pulled(hub, "owner/name")
            self.assertEqual(got["downloaded_bytes"], 2 * PIECE)
            self.assertEqual(self.read(got["path"]), data)
            self.assertEqual(len(os.listdir(self.cache("blobs"))), 1)

    def test_the_bar_counts_bytes_as_they_arrive(self):
        data = os.urandom(1000000)
        with Hub({"m.gguf": data}) as hub:
            hub.hold = 400000
            with self.on_terminal(hub, "pull", "owner/name") as (process, wait_for):
                shown = wait_for(r" 40 %  \d+ s to go  400\.0 kB of 1\.0 MB, \d+\.\d MB/s")
                self.assertLessEqual(max(len(re.sub(r"\x1b\[K", "", line)) for line in shown.split("\r")), 77)  # ^C fits, too
                hub.go_on.set()
                wait_for(r"owner/name is on this machine \(1\.0 MB\); millrace run owner/name\r\n")
                self.assertEqual(process.wait(60), 0)
            with self.on_terminal(hub, "pull", "owner/name") as (process, wait_for):
                wait_for(r"owner/name is already on this machine \(1\.0 MB\); millrace run owner/name\r\n")
            with self.on_terminal(hub, "pull", "owner/name", "--cache-dir", self.folder.name + "/hub") as (process, wait_for):
                wait_for(r"owner/name is already on this machine \(1\.0 MB\): /[\s\S]*m\.gguf\r\n")

    def test_a_download_that_is_stopped_keeps_what_has_arrived(self):
        data = os.urandom(PIECE + 1000000)
        for how, code in ((signal.SIGINT, -signal.SIGINT), (signal.SIGKILL, -signal.SIGKILL)):
            shutil.rmtree(self.folder.name + "/hub", ignore_errors=True)
            with Hub({"m.gguf": data}) as hub:
                hub.hold = 900000
                with self.on_terminal(hub, "pull", "owner/name") as (process, wait_for):
                    wait_for(r"1\.8 MB of 17\.8 MB")
                    process.send_signal(how)
                    if how == signal.SIGINT:
                        wait_for(r"millrace: owner/name: stopped with 1\.8 MB of 17\.8 MB; `millrace pull owner/name` continues")
                    self.assertEqual(process.wait(20), code)  # although the hub is still silent
                hub.go_on.set()
                hub.hold, hub.seen = 0, []
                got = self.pulled(hub, "owner/name")
                self.assertEqual(sorted(one[1] for one in hub.resolved()), ["bytes=%d-%d" % (PIECE + 900000, len(data) - 1), "bytes=900000-%d" % (PIECE - 1)])
                self.assertEqual(got["downloaded_bytes"], len(data) - 1800000)
                self.assertEqual(self.read(got["path"]), data)
                self.assertEqual(os.listdir(self.cache("blobs")), [hashlib.sha256(data).hexdigest()])

    def test_the_time_left_is_that_of_this_run(self):
        data = os.urandom(1000000)
        with Hub({"m.gguf": data}) as hub:
            hub.hold = 900000
            with self.on_terminal(hub, "pull", "owner/name") as (process, wait_for):
                wait_for(r"900\.0 kB of 1\.0 MB")
                process.kill()
            hub.hold = 20000
            with self.on_terminal(hub, "pull", "owner/name") as (process, wait_for):
                wait_for(r" 92 %  ([4-9]|\d\d+) s to go", 10)  # the 900 kB of before would make it less than one

    def test_a_disk_that_is_too_small_is_left_as_it_was(self):
        with Hub({"m-Q4_K_M.gguf": self.model}) as hub:
            hub.repository = "unsloth/Qwen3-0.6B-GGUF"
            hub.sizes["m-Q4_K_M.gguf"] = 42520000000000
            done = self.pull(hub, "qwen3:0.6b")
            self.assertEqual(done.returncode, 5)
            self.assertRegex(done.stderr, r"qwen3:0\.6b: 42\.52 TB are still to be downloaded, but the disk has only \d+\.\d+ [kMGT]B left")
            self.assertEqual(os.listdir(self.folder.name), [])

    def test_a_server_without_ranges(self):
        data = os.urandom(PIECE + 5)
        with Hub({"m.gguf": data}) as hub:
            hub.ranges = False
            self.assertEqual(self.read(self.pulled(hub, "owner/name")["path"]), data)

    def test_a_redirect_never_takes_the_token_along(self):
        with Hub({"m.gguf": self.model}) as mirror, Hub({"m.gguf": self.model}) as hub:
            hub.token, hub.mirror = "secret", mirror.url
            self.assertEqual(self.read(self.pulled(hub, "owner/name", HF_TOKEN="secret")["path"]), self.model)
            self.assertTrue(mirror.resolved())
            self.assertEqual({one[2] for one in mirror.seen}, {None})
            self.assertEqual({one[2] for one in hub.seen}, {"Bearer secret"})

    @unittest.skipUnless(shutil.which("openssl"), "no openssl to make a certificate with")
    def test_tls_is_used_with_certificates_that_are_trusted(self):
        certificate = os.path.join(self.folder.name, "certificate.pem")
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", certificate + ".key", "-out", certificate, "-days", "2", "-subj", "/CN=hub",
                        "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
        with open(certificate + ".both", "wb") as file:
            file.write(self.read(certificate) + self.read(certificate + ".key"))
        with Hub({"m.gguf": self.model}, certificate=certificate + ".both") as hub:
            done = self.pull(hub, "owner/name")
            self.assertEqual(done.returncode, 6)
            self.assertIn("not trusted", done.stderr)
            self.assertEqual(self.read(self.pulled(hub, "owner/name", SSL_CERT_FILE=certificate)["path"]), self.model)
            wrong = hub.url.replace("127.0.0.1", "localhost")  # the certificate is not for that name
            done = self.pull(hub, "owner/name:m.gguf", "--endpoint", wrong, SSL_CERT_FILE=certificate)
            self.assertEqual(done.returncode, 6, done.stdout)
            self.assertIn("not trusted", done.stderr)

    def test_no_access_and_no_file(self):
        with Hub({"m.gguf": self.model}) as hub:
            hub.token = "secret"
            done = self.pull(hub, "owner/name")
            self.assertEqual(done.returncode, 2)
            self.assertIn("HF_TOKEN", done.stderr)
            with open(os.path.join(self.folder.name, "token"), "w") as file:
                file.write("secret\n")
            self.pulled(hub, "owner/name")
            self.assertIn("404", self.pull(hub, "owner/none").stderr)
            done = self.pull(hub, "owner/name:Q2_K")
            self.assertEqual(done.returncode, 2)
            self.assertIn("m.gguf", done.stderr)

    def test_a_wrong_hash_is_refused_and_leaves_nothing(self):
        with Hub({"m.gguf": self.model, "config.json": b"{}"}) as hub:
            hub.hashes["m.gguf"] = "0" * 64
            done = self.pull(hub, "owner/name")
            self.assertEqual(done.returncode, 3)
            self.assertIn("hash", done.stderr)
            self.assertEqual(os.listdir(self.cache("blobs")), [])
            self.assertFalse(os.path.exists(self.cache("snapshots")))

    def test_names_outside_the_folder_are_refused(self):
        for name in ("../../evil", "/tmp/evil", "a/../../../evil", "a\\evil", ""):
            with Hub({"m.gguf": self.model}) as hub:
                hub.names["m.gguf"] = name
                self.assertEqual(self.pull(hub, "owner/name").returncode, 3, name)
                self.assertFalse(hub.resolved())
        self.assertFalse(os.path.exists(self.cache("snapshots")))
        with Hub({"m.gguf": self.model}, commit="../../x") as hub:
            self.assertEqual(self.pull(hub, "owner/name").returncode, 3)
            self.assertEqual(self.pull(hub, "owner/name", "--revision", "../x").returncode, 2)

    def test_a_changed_file_is_another_one(self):
        with Hub({"m.gguf": self.model}) as hub:
            old = self.pulled(hub, "owner/name")
            hub.files["m.gguf"], hub.commit = b"new", "d" * 40
            new = self.pulled(hub, "owner/name")
            self.assertEqual(self.read(new["path"]), b"new")
            self.assertEqual(self.read(old["path"]), self.model)
            self.assertEqual(self.read(self.pulled(hub, "owner/name", "--revision", "c" * 40, "--offline")["path"]), self.model)

    def test_offline(self):
        with Hub({"m.gguf": self.model}) as hub:
            path = self.pulled(hub, "owner/name")["path"]
        self.assertEqual(self.pulled(None, "owner/name", "--offline")["path"], path)
        self.assertEqual(self.pulled(None, "owner/name", HF_HUB_OFFLINE="1")["path"], path)
        self.assertEqual(self.pull(None, "owner/name:Q2_K", "--offline").returncode, 2)
        self.assertEqual(self.pull(None, "owner/other", "--offline").returncode, 2)
        self.assertEqual(self.pull(None, "owner/name").returncode, 6)

    def test_two_at_once_fetch_it_once(self):
        data = os.urandom(2 * PIECE)
        with Hub({"m.gguf": data}) as hub:
            both = [subprocess.Popen([MILLRACE, "pull", "owner/name"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=self.environment(hub)) for _ in range(2)]
            for one in both:
                out, errors = one.communicate(timeout=300)
                self.assertEqual(one.returncode, 0, errors)
                self.assertEqual(self.read(out.strip()), data)
            self.assertEqual(len(hub.resolved()), 2)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
