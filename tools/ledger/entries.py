"""Reads the ledger: proofs/entries/FAMILY.toml, one table a member, and `millrace techniques --json`."""

import hashlib
import json
import os
import re
import subprocess
import tomllib

PAGES = "docs/techniques"  # generated pages
PROOFS = "proofs"  # entries, and results and pictures of members
# What a run is made of. The rest of an entry is text or for short runs, and may change without a new one.
RUN_KEYS = ("baseline_name", "model", "prepare", "baseline", "member", "figures", "full", "rounds")
DIRECTIONS = ("better", "equal", "worse")  # that can be claimed; a figure may also be unclear
KINDS = ("quality", "speed", "memory")
INPUT_NAMES = ("stories", "calibration", "page")  # that inputs.py makes


class LedgerError(Exception):
    """A mistake in the ledger's files, or a command that failed; the message is for people."""


def read_techniques(binary):
    """What `techniques --json` of the binary prints."""
    done = subprocess.run([binary, "techniques", "--json"], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise LedgerError(f"{binary} techniques --json: exit status {done.returncode}")
    return json.loads(done.stdout)


def stem(technique, techniques):
    """The name of a member's page and result: NAME, or FAMILY-NAME where families share the name."""
    name = technique["name"]
    shared = sum(other["name"] == name for other in techniques) > 1
    return f"{technique['family']}-{name}" if shared else name


def read_toml(path):
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except tomllib.TOMLDecodeError as error:
        raise LedgerError(f"{path}: {error}") from error


def read_families(root):
    """{family: its table}, of every file in proofs/entries/."""
    folder = os.path.join(root, PROOFS, "entries")
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return {name[:-5]: read_toml(os.path.join(folder, name)) for name in names if name.endswith(".toml")}


def entry_of(families, technique):
    """A member's entry: its own table over what its family's [every] says, tables within tables too; with
    `replace_figures` the family's figures are left out, and its claims on them if the member has its own. None without
    one."""
    family = families.get(technique["family"], {})
    own = family.get("member", {}).get(technique["name"])
    if own is None:
        return None
    every = family.get("every", {})
    if own.get("replace_figures"):
        left_out = ("figures", "claims") if "claims" in own else ("figures",)
        every = {key: value for key, value in every.items() if key not in left_out}
    return _merged(every, own)


def _merged(under, over):
    out = dict(under)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(out.get(key), dict)
        out[key] = _merged(out[key], value) if both else value
    return out


def run_hash(entry, root):
    """Changes when another run is needed: with the entry's commands, with the programs that they name and what those
    share, and with how inputs are made."""
    run = {key: entry[key] for key in RUN_KEYS if key in entry}
    run["figures"] = {name: {key: value for key, value in figure.items() if key != "smoke_tolerance"}
                      for name, figure in entry.get("figures", {}).items()}
    for path in _sources(json.dumps(run), root):
        with open(path, encoding="utf-8") as file:
            run["source " + os.path.relpath(path, root)] = file.read()
    return hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:12]


def _sources(commands, root):
    """The files of the tool that a run depends on."""
    folder = os.path.join(root, "tools/ledger/programs")
    named = sorted(set(re.findall(r"\{programs\}/([\w./-]+)", commands)))
    if named:
        named.append("common.py")
    paths = [os.path.join(folder, name) for name in named]
    if re.search(r"\{(%s)\}" % "|".join(INPUT_NAMES), commands):
        paths.append(os.path.join(root, "tools/ledger/inputs.py"))
    return [path for path in paths if os.path.isfile(path)]


def defects(entry):
    """What an entry lacks, as texts."""
    problems = []
    for key in ("what", "claim", "baseline_name", "member", "figures"):
        if not entry.get(key):
            problems.append(f"no {key}")
    sentences = entry.get("what", "").replace("e.g.", "").count(". ") + 1
    if entry.get("what") and sentences != 3:
        problems.append(f"'what' has {sentences} sentences, not 3")
    for name, figure in entry.get("figures", {}).items():
        if figure.get("kind") not in KINDS:
            problems.append(f"figure '{name}': kind is not one of {', '.join(KINDS)}")
        if figure.get("better") not in ("higher", "lower"):
            problems.append(f"figure '{name}': better is neither higher nor lower")
        if "path" not in figure:
            problems.append(f"figure '{name}': no path")
        if not entry.get("baseline") and "baseline_path" not in figure:
            problems.append(f"figure '{name}': neither a command of the baseline nor a baseline_path")
    for name, direction in entry.get("claims", {}).items():
        if name not in entry.get("figures", {}):
            problems.append(f"claims: no figure '{name}'")
        if direction not in DIRECTIONS and not isinstance(direction, (int, float)):
            problems.append(f"claims: '{name}' is neither a number nor one of {', '.join(DIRECTIONS)}")
    if not entry.get("claims"):
        problems.append("no claims")
    return problems
