#!/usr/bin/env python3
"""Measures the time to the first token in the second turn of long conversations.

For each model, a server answers two prompts. The first prompt is random tokens (turn 1). The second prompt is the first
one, its answer and a few new tokens (turn 2). This is repeated --rounds times, with other random tokens each time.

Prints for each model: the time of turn 1 including its answer, the time to the first token of turn 2, the number of
tokens that turn 2 computed, the time for each computed token, and the size of a copy of the recurrent state. If several
models are named, the last column divides the time for each computed token by that of the last model: name a model
without recurrent layers last.

Usage: second_turn.py MILLRACE MODEL... [--tokens 32000] [--new 64] [--answer 32] [--rounds 3] [--json]
                      [-- FLAGS of millrace serve]
"""

import argparse
import json
import pathlib
import random
import re
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent.parent / "tests"))
from server_process import Server  # noqa: E402


def post(server, prompt, answer, more):
    body = {"prompt": prompt, "max_tokens": answer, "ignore_eos": True, "temperature": 0, **more}
    response = server.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    if response.status != 200:
        sys.exit(f"second_turn.py: the server answered {response.status}: {response.read(2000).decode()}")
    return response


def first_turn(server, prompt, answer):
    """Seconds to the end of the answer, and its token ids."""
    began = time.monotonic()
    ids = json.loads(post(server, prompt, answer, {"return_token_ids": True}).read())["choices"][0]["token_ids"]
    return time.monotonic() - began, ids


def second_turn(server, prompt):
    """Seconds to the first token, and the prompt tokens that the cache had."""
    began, first, cached = time.monotonic(), None, 0
    for line in post(server, prompt, 2, {"stream": True, "stream_options": {"include_usage": True}}):
        if not line.startswith(b"data: {"):
            continue
        event = json.loads(line[6:])
        if event.get("choices"):
            first = first or time.monotonic() - began
        if event.get("usage"):
            cached = (event["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return first, cached


def metric(server, name):
    text = server.request("GET", "/metrics").read().decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def measure(arguments, model, flags):
    draw = random.Random(7)
    turns, shares = [[], []], []
    context = arguments.tokens + arguments.answer + arguments.new + 64
    with Server(arguments.millrace, "-c", str(context), *flags, model=model) as server:
        for _ in range(arguments.rounds):
            prompt = [draw.randrange(10, 120) for _ in range(arguments.tokens)]
            seconds, ids = first_turn(server, prompt, arguments.answer)
            turns[0].append(seconds)
            prompt += ids + [draw.randrange(10, 120) for _ in range(arguments.new)]
            seconds, cached = second_turn(server, prompt)
            turns[1].append(seconds)
            shares.append(len(prompt) - cached)
        slots = metric(server, "millrace_state_cache_slots")
        copy = metric(server, "millrace_state_cache_bytes") / slots if slots else 0.0
    computed = statistics.median(shares)
    second = statistics.median(turns[1])
    return {"model": model, "tokens": arguments.tokens, "first_turn_s": statistics.median(turns[0]), "second_turn_s": second,
            "second_turn_all_s": turns[1], "computed_tokens": computed, "ms_per_computed_token": 1000 * second / computed,
            "state_copy_bytes": copy}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("millrace")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--tokens", type=int, default=32000, help="prompt tokens of turn 1")
    parser.add_argument("--new", type=int, default=64, help="tokens that turn 2 adds")
    parser.add_argument("--answer", type=int, default=32, help="tokens of the answer of turn 1")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print a list of objects instead")
    own = sys.argv[1:]
    flags = own[own.index("--") + 1:] if "--" in own else []
    arguments = parser.parse_args(own[:own.index("--")] if "--" in own else own)
    rows = [measure(arguments, model, flags) for model in arguments.models]
    if arguments.json:
        print(json.dumps(rows, indent=1))
        return
    print("| model | tokens | turn 1, s | turn 2, s | computed tokens | ms for each | copy, MiB | beside the last |")
    print("|---|---|---|---|---|---|---|---|")
    for row in rows:
        ratio = row["ms_per_computed_token"] / rows[-1]["ms_per_computed_token"]
        print(f"| {pathlib.Path(row['model']).stem} | {row['tokens']} | {row['first_turn_s']:.2f} | {row['second_turn_s']:.3f} | "
              f"{row['computed_tokens']:.0f} | {row['ms_per_computed_token']:.2f} | {row['state_copy_bytes'] / 2**20:.1f} | {ratio:.2f}x |")


if __name__ == "__main__":
    main()
