#!/usr/bin/env python3
"""The lists in docs/conformance: what tests that ran and passed have shown of each API.

The cases come from the reports of server_live_test, with what conformance.h and conformance_cases.txt say of its tests, and
of the suites in tests/server/clients: those of the run under way, where tools/test_suite started this, else both are run here.

Usage: tests/server/conformance.py BUILD_FOLDER [--write]
Without --write the lists are compared with the cases, and a difference is exit status 1. Lines of tests that were skipped
(no npm, no shared data) are left as they are.
"""

import glob
import json
import os
import re
import subprocess
import sys
import tempfile

SOURCE = os.path.abspath(os.path.join(os.path.dirname(__file__), "../.."))
PAGES = os.path.join(SOURCE, "docs/conformance")
NAMES = {"openai": "OpenAI's API", "anthropic": "Anthropic's API", "ollama": "Ollama's API", "llama-server": "llama-server's API"}
KINDS = {"holds": "Holds", "refused": "Refused"}
CLIENTS = ("openai", "ai", "@anthropic-ai/sdk", "ollama", "fetch")


def run_tests(build, folder):
    environment = dict(os.environ, GTEST_OUTPUT=f"json:{folder}/")
    for command in ([f"{build}/bin/server_live_test"], ["node", f"{SOURCE}/tests/server/clients/clients_test.mjs", f"{build}/bin/millrace"]):
        with open(f"{folder}/log", "w+", encoding="utf-8", errors="replace") as log:
            done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False)
            if done.returncode not in (0, 77):
                log.seek(0)
                sys.exit(f"{log.read()[-8000:]}\n{' '.join(command)} ended with {done.returncode}")


def read_cases(folder):
    """([(api, endpoint, kind, what, test)], names of the tests that were skipped)"""
    cases, skipped, passed = [], set(), set()
    for name in ("server_live_test", "server_clients"):
        path = f"{folder}/{name}.json"
        if not os.path.exists(path):
            skipped |= {f"client `{client}`" for client in CLIENTS} if name == "server_clients" else set()
            continue
        with open(path, encoding="utf-8", errors="replace") as file:
            suites = json.load(file)["testsuites"]
        for suite in suites:
            for one in suite["testsuite"]:
                test = f"client `{suite['name']}`" if name == "server_clients" else f"{suite['name']}.{one['name']}"
                if one.get("status") == "NOTRUN" or one.get("result") == "SKIPPED":
                    skipped.add(test)
                elif not one.get("failures"):
                    passed.add(test)
                    cases += [(*text.split("\t", 3), test) for key, text in one.items() if key.startswith("case ")]
    with open(f"{SOURCE}/tests/server/conformance_cases.txt", encoding="utf-8") as file:
        for text in file:
            if not text.startswith("#"):
                *case, test = text.strip().split(" | ")
                if test in passed:
                    cases.append((*case, test))
                elif test not in skipped:
                    print(f"conformance_cases.txt: {test} did not pass, or is no test")
    return cases, skipped


def cell(text):
    return text.replace("|", "\\|").replace("\n", " ")


def line(kind, what, test):
    if kind == "field":
        field, refused = what.split("\t")
        return f"| {cell(field)} | {cell(refused)} |"
    return f"| {cell(what)} | {test} |"


def page(api, cases):
    mine = [case for case in cases if case[0] == api]
    mine.sort(key=lambda case: not case[4].startswith("Conformance."))  # endpoints in the schema's order
    endpoints = list(dict.fromkeys(case[1] for case in mine))
    endpoints.sort(key=lambda name: name == "Every endpoint")
    fields, negative = sum(case[2] == "field" for case in mine), sum(case[2] in ("refused", "unsupported") for case in mine)
    out = [f"# Conformance: {NAMES[api]}", "",
           f"See what a client of {NAMES[api]} can rely on. A line is a case: a test showed it on a live server, and passed. This",
           "runs the tests again and compares the page:", "",
           "    tests/server/conformance.py build/release", "",
           f"{len(mine) - fields - negative} things that hold, {negative} refusals, {fields} fields sent wrong in every way that the schema knows.", ""]
    for endpoint in endpoints:
        of = [case for case in mine if case[1] == endpoint and case[2] != "unsupported"]
        if not of:
            continue
        out += [f"## {endpoint}", ""]
        for kind, title in KINDS.items():
            rows = [line(kind, what, test) for _, _, one, what, test in of if one == kind]
            if rows:
                out += [f"| {title} | shown by |", "|---|---|", *rows, ""]
        rows = [line("field", what, test) for _, _, one, what, test in of if one == "field"]
        if rows:
            out += ["Fields sent wrong, each alone: 400 in this API's shape, naming the field (Conformance.EveryFieldIsChecked).", "",
                    "| field | refused |", "|---|---|", *rows, ""]
    rows = [f"| {endpoint} | {cell(what)} | {test} |" for _, endpoint, kind, what, test in mine if kind == "unsupported"]
    if rows:
        out += ["## Not supported", "", "Refused with 400 and its name, or a whole endpoint with 501.", "", "| endpoint | what | shown by |", "|---|---|---|", *rows, ""]
    return "\n".join(out)


def differences(path, text, skipped):
    """Lines that are only in the file, but for those of tests that were skipped, and lines that are only in the text."""
    try:
        with open(path, encoding="utf-8") as file:
            there = file.read()
    except OSError:
        return [f"{path}: is not there"]
    if there == text:
        return []

    def counted(line_of):
        return not re.match(r"\d+ things that hold, |## |$|\|---|\| (Holds|Refused|field|endpoint) \|", line_of)

    old, new = set(filter(counted, there.splitlines())), set(filter(counted, text.splitlines()))
    gone = [f"no case that passes shows: {one}" for one in sorted(old - new) if not any(one.endswith(f" | {test} |") for test in skipped)]
    return gone + [f"is not in the list: {one}" for one in sorted(new - old)]


def main():
    build, write = os.path.abspath(sys.argv[1]), "--write" in sys.argv[2:]
    told = re.fullmatch(r"json:(.*)/", os.environ.get("GTEST_OUTPUT", ""))
    if os.environ.get("GTEST_FILTER") and not write:
        print("skipped: not all cases were run")
        return 77
    if told and os.path.exists(f"{told.group(1)}/server_live_test.json"):
        cases, skipped = read_cases(told.group(1))
    else:
        with tempfile.TemporaryDirectory() as folder:
            run_tests(build, folder)
            cases, skipped = read_cases(folder)
    if write and any(test.startswith("client ") for test in skipped):
        sys.exit("the clients' tests were skipped: npm ci in tests/server/clients")
    problems = 0
    if write:
        os.makedirs(PAGES, exist_ok=True)
    for api in NAMES:
        path, text = os.path.join(PAGES, f"{api}.md"), page(api, cases)
        if write:
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            continue
        for problem in differences(path, text, skipped):
            print(f"{os.path.relpath(path, SOURCE)}: {problem}")
            problems += 1
    if not write:
        stray = [one for one in glob.glob(f"{PAGES}/*.md") if os.path.basename(one)[:-3] not in (*NAMES, "README")]
        problems += len(stray)
        print(f"{len(cases)} cases, {len(skipped)} tests skipped, {problems} problems" + ("; tests/server/conformance.py BUILD_FOLDER --write makes the lists anew" if problems else ""))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
