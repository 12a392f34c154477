"""What the proof programs share: running the binary, and drawing numbers that are the same everywhere."""

import contextlib
import http.client
import json
import re
import subprocess
import sys


def run(words, stdin=None):
    """The standard output. Ends the program with the command's own error."""
    done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        last = (done.stderr or done.stdout).strip().splitlines()[-1:]
        sys.exit(f"{' '.join(words[:3])}: exit status {done.returncode}: {''.join(last)}")
    return done.stdout


def run_json(words):
    return json.loads(run(words))


def draws(seed):
    """Whole numbers below 2^31, the same for the same seed in every Python."""
    state = seed
    while True:
        state = (state * 6364136223846793005 + 1442695040888963407) % (1 << 64)
        yield state >> 33


@contextlib.contextmanager
def serving(binary, model, *flags):
    """A server on a free port; yields post(path, body), which returns the answer's JSON."""
    words = [binary, "serve", "-m", model, "--port", "0", "--log-level", "off", *flags]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            found = re.search(r":(\d+)$", server.stdout.readline().strip())
            if not found:
                sys.exit(f"the server did not start: {' '.join(words)}")

            def post(path, body):
                connection = http.client.HTTPConnection("127.0.0.1", int(found.group(1)), timeout=240)
                connection.request("POST", path, json.dumps(body))
                response = connection.getresponse()
                answer = response.read()
                if response.status != 200:
                    sys.exit(f"{path}: status {response.status}: {answer[:300]}")
                return json.loads(answer)
            yield post
        finally:
            server.kill()
