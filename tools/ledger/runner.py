"""Runs a member's proof: its commands in turns with those of its baseline (A B A B), and what they printed as a result."""

import json
import os
import re
import resource
import shlex
import sys
import time

from ledger import figures, inputs
from ledger.entries import LedgerError, run_hash
from ledger.process import Limit, output_of

FULL_ROUNDS, SMOKE_ROUNDS = 5, 2
# A share of the processors used by others above which timings are marked for another run.
BUSY = 0.1
SIDES = ("baseline", "member")


class Machine:
    """The binary, its version, and the machine as the binary sees it; and how long commands may take, all together too if
    `seconds` are given."""

    def __init__(self, root, binary, seconds=None):
        self.root, self.binary, self.limit = root, os.path.abspath(binary), Limit(seconds)
        self.version = self._text("--version").strip()
        seen = json.loads(self._text("bench", "-p", "1", "-n", "0", "-r", "1", "--no-roof", "--no-warmup", "--json"))[0]
        self.facts = {"cpu": seen["cpu_info"], "isa": seen["isa"], "cores": seen["cores"]}

    def run(self, words):
        return output_of(words, self.root, self.limit)

    def _text(self, *arguments):
        return self.run([self.binary, *arguments])


class LoadMeter:
    """The share of the machine's processors that other programs used since it was made; 0 where that is unknown."""

    def __init__(self):
        self.began, self.others_began = time.monotonic(), self._others()

    @staticmethod
    def _others():
        try:
            with open("/proc/stat", encoding="ascii") as file:
                fields = [int(field) for field in file.readline().split()[1:9]]
        except (OSError, ValueError):
            return None
        busy = (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")
        own = [resource.getrusage(kind) for kind in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return busy - sum(usage.ru_utime + usage.ru_stime for usage in own)

    def share(self):
        others, seconds = self._others(), time.monotonic() - self.began
        if others is None or self.others_began is None or seconds <= 0:
            return 0.0
        return round(max(0.0, others - self.others_began) / (seconds * os.cpu_count()), 2)


def is_busy(timed, load):
    """Whether what was timed should be timed again: `load` is that of other programs."""
    return bool(timed) and load > BUSY


class _Placeholders(dict):
    def __missing__(self, key):
        raise LedgerError(f"unknown placeholder {{{key}}}")


def _as_list(commands):
    return [commands] if isinstance(commands, str) else list(commands or [])


def _expand(command, texts, values):
    """The words of a command. `texts`, which may be several words, are put in before it is split, and once more in what
    took their place; `values`, such as paths with spaces, when it is."""
    kept = {key: "{%s}" % key for key in values}
    try:
        for _ in range(2):
            command = command.format_map(_Placeholders({**kept, **texts}))
        words = shlex.split(command)
    except (ValueError, IndexError) as error:
        raise LedgerError(f"{command}: {error}") from error
    pattern = re.compile(r"\{(%s)\}" % "|".join(values))
    return [pattern.sub(lambda found: values[found.group(1)], word) for word in words]


def _output(words, machine):
    text = machine.run(words)
    try:
        return json.loads(text)
    except ValueError as error:
        raise LedgerError(f"{' '.join(words)}: prints no JSON: {text[:80]!r}") from error


def _shown(words, values):
    """A command as a reader would type it in the repository's folder."""
    short = {"millrace": "millrace", "python": "python3", "scratch": "SCRATCH", "root": "."}
    for key, instead in short.items():
        words = [word.replace(values[key], instead) for word in words]
    return shlex.join(word.removeprefix("./") for word in words)


def _rounds(sides, count, timed_steps, machine):
    """[(outputs of the baseline, outputs of the member)]; what does not depend on the clock runs in the first round
    only. Without commands of its own, the baseline's figures are in the outputs of the member."""
    rounds = []
    for at in range(count):
        done = {side: [_output(words, machine) if not at or step in timed_steps else rounds[0][place][step]
                       for step, words in enumerate(sides[side])] for place, side in enumerate(SIDES)}
        rounds.append((done["baseline"] or done["member"], done["member"]))
    return rounds


def prove(machine, technique, techniques, entry, scratch, smoke=False):
    """The result of a member's proof. Errors: LedgerError."""
    folder = os.path.join(scratch, "smoke" if smoke else "full")
    os.makedirs(folder, exist_ok=True)
    values = {
        "millrace": machine.binary, "root": machine.root, "scratch": folder, "python": sys.executable,
        "programs": os.path.join(machine.root, "tools/ledger/programs"), "name": technique["name"],
        "model": os.path.join(machine.root, entry.get("model", "models/millrace-stories-6m.gguf"))}
    texts = {**entry.get("full", {}), **(entry.get("smoke", {}) if smoke else {})}
    said = [*texts.values(), *(command for key in ("prepare", *SIDES) for command in _as_list(entry.get(key)))]
    for name, make in inputs.INPUTS.items():
        if any("{%s}" % name in text for text in said):
            values[name] = make(machine, folder, smoke)
    commands = {key: [_expand(command, texts, values) for command in _as_list(entry.get(key))]
                for key in ("prepare", *SIDES)}
    for words in commands["prepare"]:
        machine.run(words)
    timed = any(figure.get("timed") for figure in entry["figures"].values())
    count = 1 if not timed else SMOKE_ROUNDS if smoke else entry.get("rounds", FULL_ROUNDS)
    meter = LoadMeter()
    rounds = _rounds(commands, count, figures.timed_steps(entry["figures"]), machine)
    load = meter.share()
    shown = {key: [_shown(words, values) for words in all_words] for key, all_words in commands.items()}
    return {
        "family": technique["family"], "name": technique["name"], "version": machine.version,
        "machine": machine.facts, "proof": run_hash(entry, machine.root), "rounds": count, "timed": timed,
        "load_of_others": load, "busy": is_busy(timed, load),
        "prepare": shown["prepare"],
        "baseline": {"name": entry["baseline_name"], "commands": shown["baseline"]},
        "member": {"name": technique["name"], "commands": shown["member"]},
        "figures": [figures.measured(name, figure, rounds, smoke) for name, figure in entry["figures"].items()],
    }


def read_result(path):
    """None if there is none."""
    if not os.path.exists(path):
        return None
    with open(path, encoding="utf-8") as file:
        try:
            return json.load(file)
        except ValueError as error:
            raise LedgerError(f"{path}: {error}") from error


def write_text(path, text):
    """Whole or not at all."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".new", path)
