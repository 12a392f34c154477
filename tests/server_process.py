"""millrace serve for a test: on a free port, with everything it writes to stderr stored."""

import http.client
import json
import os
import re
import signal
import subprocess
import tempfile
import time

# The developer's own config file and short names, which would change what is tested. A test may set these again.
_empty = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = _empty.name
os.environ.pop("MILLRACE_SHORT_NAMES", None)


class Server:
    """A running server, of the built-in model of stories unless the flags name others or `model` is None. Use it in a `with` block, which
    kills it at the end."""

    def __init__(self, binary, *flags, model="stories"):
        if model and not {"-m", "--models-file", "--models-dir"} & set(flags):
            flags = ("-m", model, *flags)
        threads = () if "-t" in flags else ("-t", "1")
        self._said = tempfile.TemporaryFile()  # not a pipe, which a test would have to read so that the server can go on
        self._connections = []
        self.process = subprocess.Popen([binary, "serve", "--port", "0", *threads, *flags], stdout=subprocess.PIPE, stderr=self._said, text=True)
        self.line = self.process.stdout.readline()
        found = re.search(r" at https?://[\d.]+:(\d+)$", self.line.strip())
        if not found:
            self.process.kill()
            code = self.process.wait()
            self.process.stdout.close()
            raise AssertionError(f"the server did not start (exit status {code}): millrace serve {' '.join(flags)}\n{self.line}{self.log[-4000:]}")
        self.port = int(found.group(1))

    @property
    def log(self):
        """All of its stderr so far."""
        with open(f"/proc/self/fd/{self._said.fileno()}", encoding="utf-8", errors="replace") as file:
            return file.read()

    def says(self, pattern, after=0):
        """Its stderr from `after` on, once that matches."""
        deadline = time.monotonic() + 120
        while True:
            ended = self.process.poll() is not None
            said = self.log[after:]
            if re.search(pattern, said):
                return said
            if ended or time.monotonic() > deadline:
                raise AssertionError(f"the server never said '{pattern}', but:\n{said[-4000:]}")
            time.sleep(0.01)

    def reload(self):
        """Reloads the settings; returns what the server logs about it."""
        before = len(self.log)
        self.process.send_signal(signal.SIGHUP)
        return self.says("settings reloaded|keeping the old settings", before)

    def request(self, method, path, body=None, headers=None):
        """The response, once its head has arrived."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        self._connections.append(connection)
        connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
        return connection.getresponse()

    def ask(self, method, path, body=None, headers=None):
        """Status and text."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, headers or {})
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()

    def stop(self):
        """The exit status after SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        for connection in self._connections:
            connection.close()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        if kind:
            print(f"what the server had said at the end:\n{self.log[-4000:]}")
