#!/usr/bin/env python3
"""generate.py [MODEL [PROMPT [NAME=VALUE ...]]]: streams an answer, with options of a request such as seed=7.

MILLRACE_LIBRARY=/path/to/libmillrace.so.0 names the library if the system does not find it.
"""

import sys

from millrace import Engine, MillraceError, Model


def main(path="", prompt="Once upon a time", *options):
    pairs = [option.partition("=") for option in options]
    engine = Engine(Model(path))
    for event in engine.submit(text=prompt, **{name: value for name, _, value in pairs}):
        print(event.text, end="", flush=True)
        if event.finish == "error":
            sys.exit(f"\ngenerate.py: {event.message}")
        if event.last:
            print(f"\n[{event.generated_tokens} tokens]")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except MillraceError as error:
        sys.exit(f"generate.py: {error.status}: {error}")
