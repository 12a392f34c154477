"""What the last run of the tests says of a technique's test: the reports that tools/test_suite leaves in the build."""

import glob
import json
import os


def read_reports(folder):
    """{program: its cases} of GoogleTest programs that ran completely; one run with a filter says nothing."""
    reports = {}
    for path in glob.glob(os.path.join(folder, "test-results", "*.json")):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                cases = [case for suite in json.load(file)["testsuites"] for case in suite["testsuite"]]
        except (OSError, ValueError, KeyError):
            continue
        if not any(case["status"] == "NOTRUN" and not case["name"].startswith("DISABLED_") for case in cases):
            reports[os.path.basename(path)[:-5]] = cases
    return reports


def problem_of(reports, test):
    """Why a test proves nothing although its program ran; None if it passed, or if its program did not run."""
    named = "." in test and "/" not in test
    program = "" if named else test.split("/")[1] + "_test"
    if named or program not in reports:
        return None
    cases = [case for case in reports[program] if case.get("file", "").endswith("/" + test) and case["status"] == "RUN"]
    if not cases:
        return f"{program} ran without a case of {test}"
    failed = [f"{case['classname']}.{case['name']}" for case in cases if case.get("failures")]
    if failed:
        return f"{failed[0]} of {test} failed"
    return None if any(case.get("result") != "SKIPPED" for case in cases) else f"all cases of {test} were skipped"
