"""A load of streamed /completion requests from several threads: closed loop, or open loop at a fixed rate. Reading
costs little compared with the server: one line per token."""

import http.client
import json
import random
import threading
import time

from . import PeerError

# Tokens below this id are special tokens or single bytes in the vocabularies of synthetic models. With random weights,
# a model would emit invalid UTF-8, which servers hold back or reject, so these tokens are banned.
FIRST_TEXT = 259
FORBIDDEN = [[token, False] for token in range(FIRST_TEXT)]


class Load:
    """`requests` prompts of `prompt` random tokens without common prefixes, each answered with `generate` tokens."""

    def __init__(self, port, requests, prompt, generate, timeout):
        draw = random.Random(1)
        self.prompts = [[draw.randrange(FIRST_TEXT, 3 * FIRST_TEXT) for _ in range(prompt)] for _ in range(requests)]
        self.port, self.generate, self.deadline = port, generate, time.monotonic() + timeout
        self.lock = threading.Lock()
        self.next = 0
        self.arrivals = []   # for each answer, the arrival times of its tokens
        self.problems = []

    def closed(self, streams):
        """Closed loop with `streams` requests in flight; returns the seconds until all are answered."""
        def work():
            while True:
                with self.lock:
                    if self.next == len(self.prompts) or self.problems:
                        return
                    prompt = self.prompts[self.next]
                    self.next += 1
                self._ask(prompt)

        return self._run([threading.Thread(target=work) for _ in range(streams)])

    def open(self, rate):
        """Open loop with one request every 1 / rate seconds; returns the seconds until all are answered."""
        began = time.monotonic()

        def work(number):
            time.sleep(max(0, began + number / rate - time.monotonic()))
            self._ask(self.prompts[number])

        return self._run([threading.Thread(target=work, args=(number,)) for number in range(len(self.prompts))])

    def gaps(self):
        """Seconds between consecutive tokens of an answer, for all answers."""
        return [later - earlier for times in self.arrivals for earlier, later in zip(times, times[1:])]

    def tokens(self):
        return sum(len(times) for times in self.arrivals)

    def _run(self, threads):
        began = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if self.problems:
            raise PeerError(f"llama-server: {self.problems[0]}")
        return time.monotonic() - began

    def _ask(self, prompt):
        try:
            times = self._stream(prompt)
            if len(times) != self.generate:
                raise PeerError(f"got {len(times)} tokens, requested {self.generate}")
        except (OSError, ValueError, http.client.HTTPException, PeerError) as error:
            with self.lock:
                self.problems.append(str(error) or type(error).__name__)
            return
        with self.lock:
            self.arrivals.append(times)

    def _stream(self, prompt):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=max(1, self.deadline - time.monotonic()))
        body = {"prompt": prompt, "n_predict": self.generate, "ignore_eos": True, "temperature": 0, "cache_prompt": False,
                "stream": True, "logit_bias": FORBIDDEN}
        connection.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise PeerError(f"answered {answer.status}: {answer.read(160).decode('utf-8', 'replace')}")
        times = []
        for line in answer:
            if not line.startswith(b"data: "):
                continue
            now = time.monotonic()
            part = json.loads(line[6:])
            if "error" in part:
                raise PeerError(str(part["error"])[:160])
            if part.get("stop"):
                break
            times.append(now)
        connection.close()
        return times
