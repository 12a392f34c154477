"""Runs every command of README.md, docs/ and models/README.md: what a reader can type must work as it is written.

Usage: documented_commands_test.py MILLRACE SOURCE_DIR [TestClass]

A command is an indented line that starts with `millrace` or `./run`. It runs in a folder that has a file for every name
that the documents use: small models, a text, requests. `millrace` is found in that folder first, as a script (LIMITS)
that makes each command short: fewer tokens, windows and rounds. Nothing else about a command changes. Commands with a
placeholder in capitals, and those in ELSEWHERE, need something that a test cannot have.
"""

import glob
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import unittest

MILLRACE, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
GOLDEN = os.path.join(SOURCE, "tests/golden")

# Commands that run elsewhere or cannot run here, by what they contain, and why.
ELSEWHERE = {
    "millrace pull": "a hub: hub_Pull",
    "hf:OWNER": "a hub: hub_Pull",
    "qwen3:0.6b": "a hub: hub_Pull",
    "Qwen/Qwen3-0.6B-GGUF": "a hub: cli_Commands",
    "rm small": "a name made by the line before it: cli_Commands",
    "millrace train ": "a build with -DMILLRACE_TRAIN=ON",
    "engine=llama_cpp": "a build of llama.cpp",
    "exactness --url http://127.0.0.1:8000": "another engine's server: cli_Exactness",
    "exactness --url http://127.0.0.1:11434": "another engine's server: cli_Exactness",
    "train-lab": "minutes of training: learn_test",
    "models.toml": "a file that serving-models.md shows: server_Settings",
    "kv-tier disk:path=/var/tmp": "a context longer than the tiny model's: KeyStream",
    "stories-f32.gguf": "a file that a line before makes: tools/prove npu",
    "millrace cluster": "several servers: cluster_Nodes",
    "completion": "writes into the home folder: ops_Printed",
    "man -l": "a pager: ops_Printed",
    "replay --recording": "a recording: ops_Replay",
    "FILE": "a placeholder", " PASS ": "a placeholder", " NAME ": "a placeholder", "weights=NAME": "a placeholder",
    "OUT.gguf -f": "the output of a placeholder", "out.gguf -f": "the output of a placeholder",
    "serve -m gemma.gguf": "a context longer than the tiny model's: WindowBlocks",
    "--beside": "a model larger than the caches",
    "--target-bits 3.25": "rows of 256 values: held_out_test",
    "svd_llm:loss=0.02": "matrices that lose little at low rank, which random ones do not: factorizers_test",
    "GPTQ-Int4/ -p": "a tokenizer in the folder",
    "attn=4+6-9": "a model of ten layers: cli_Run",
    "hellaswag": "questions: compare_test",
    "ranking-model.gguf": "server_live_test",
}

# What the names in the documents are here. The first match of a document's own names counts.
STORIES, TINY = "models/millrace-stories-1m-draft.gguf", "tests/golden/llama3/model.gguf"
FILES = {
    "relu.gguf": "models/millrace-lab-relu-2m.gguf", "llama-1.1b-q8_0.gguf": STORIES,
    "model.gguf": STORIES, "stories.gguf": STORIES, "1b-q4_0.gguf": STORIES, "large.gguf": "models/millrace-stories-6m.gguf", "mixture.gguf": "models/millrace-lab-experts-2m.gguf",
    "layer.gguf": STORIES, "mha.gguf": STORIES, "1b-128k-q4_0.gguf": STORIES, "gated.gguf": "tests/golden/gates/model.gguf",
    "small.gguf": STORIES, "gemma.gguf": "tests/golden/gemma3/model.gguf", "mamba.gguf": "tests/golden/mamba/model.gguf",
    "mamba-130m.gguf": "tests/golden/mamba/model.gguf", "Qwen3.5-0.8B-Q8_0.gguf": "tests/golden/qwen35/model.gguf",
    "qwen35-2b-q8_0.gguf": "tests/golden/qwen35/model.gguf", "gemma-4-E2B-it-Q4_K_M.gguf": "tests/golden/gemma4_e/model.gguf",
    "gemma-4-26B-A4B-it": "tests/golden/gemma4_moe", "mamba-130m-hf": "tests/golden/mamba",
    "Falcon-H1-0.5B-Instruct": "tests/golden/falcon_h1",
    "latent.gguf": "tests/golden/deepseek2/model.gguf", "deepseek-v2-lite-q4_k_m.gguf": "tests/golden/deepseek2/model.gguf",
    "deepseek-v2-lite-hf": "tests/golden/deepseek2", "Qwen3-0.6B": "tests/golden/qwen3",
    "vicuna.gguf": "tests/golden/draft_heads/target", "llama-3.1-8b.gguf": "tests/golden/draft_heads/target",
    "llama.gguf": "tests/golden/draft_heads/target", "DeepSeek-V3": "tests/golden/draft_heads/mtp",
    "medusa-vicuna": "tests/golden/draft_heads/medusa", "kangaroo-vicuna": "tests/golden/draft_heads/kangaroo",
    "longspec-vicuna": "tests/golden/draft_heads/longspec", "lookahead-llama": "tests/golden/draft_heads/pass",
    "EAGLE3-LLaMA3.1-Instruct-8B": "tests/golden/draft_heads/eagle3",
    "Qwen2.5-7B-Instruct-GPTQ-Int4": "tests/golden/quantized/gptq_4", "Llama-3.1-8B-AWQ": "tests/golden/quantized/awq",
    "Llama-3.1-8B-W8A8": "tests/golden/quantized/int_8", "all-MiniLM-L6-v2": "tests/golden/encoders/bert",
    "multilingual-e5-small": "tests/golden/encoders/xlm_roberta", "jina-embeddings-v3": "tests/golden/encoders/jina_bert3", "Qwen3-Reranker-0.6B": "tests/golden/reranker/tokens",
    "loss.csv": "models/loss.csv",
}
OF_DOCUMENT = {
    "docs/compression.md": {"model.gguf": TINY},
    "docs/lora.md": {"model.gguf": TINY, "style.gguf": "tests/golden/lora/llama3/adapter.gguf", "ADAPTER_FOLDER": "tests/golden/lora/llama3"},
    "docs/kv-formats.md": {"MODEL": STORIES},
    "docs/programs.md": {"examples": "examples"},
    "docs/document-contexts.md": {"llama-2-7b.Q4_0.gguf": "tests/golden/document_encoders/cepe", "CEPE-LLaMA-2-7B": "tests/golden/document_encoders/cepe"},
}

# The largest values, by subcommand. A flag that a command lacks is added if its value is marked "+" or empty.
LIMITS = {
    "run": {"-n": "+4", "--answers": "2"},
    "chat": {"-n": "+4"},
    "bench": {"-p": "32", "-n": "2", "-d": "64", "-r": "1"},
    "compare": {"--items": "+2", "--repeat": "+0"},
    "program": {"-n": "+8"},
    "cascade": {"-n": "1"},
    "draft-search": {"--trials": "+2", "--tokens": "+128"},
    "compress": {"-c": "+64", "--chunks": "+4", "--force": ""},
    "convert": {"--force": ""},
    "perplexity": {"-c": "128", "--chunks": "+1"},
    "window-search": {"-c": "64"},
    "pattern-search": {"-c": "64"},
    "budget-search": {"-c": "64", "--recent": "+2"},
    "document-search": {"--documents": "+2", "--size": "+8", "--scored": "+8", "--prompts": "+1"},
    "kv-levels": {"-c": "+64"},
    "npu-scales": {"-c": "+64"},
    "centroids": {"-c": "+64"},
    "offload-train": {"-c": "+64"},
    "lab": {"--n": "2"},
    "exactness": {"--tokens": "+4", "--rounds": "1"},
    "replay": {},  # of a generated trace, whose requests arrive over a minute
}


def shorten(arguments):
    """The arguments with every number above its limit lowered to it."""
    if not arguments or arguments[0] not in LIMITS:
        return arguments
    if arguments[0] == "lab" and arguments[1:2] != ["generate"]:
        return arguments
    result = [one.replace("gen:requests=64", "gen:requests=4") for one in arguments]
    for flag, limit in LIMITS[arguments[0]].items():
        if not limit:
            result.append(flag)
        elif flag in ("-c", "--chunks") and arguments[0] == "compress" and "--calibrate" not in arguments:
            continue
        elif flag in result:
            at = result.index(flag) + 1
            if result[at].isdigit():
                result[at] = str(min(int(result[at]), int(limit)))
        elif limit.startswith("+"):
            result += [flag, limit[1:]]
    return result


def as_millrace(arguments):
    """What the script `millrace` does: a server ends once it listens, and a check of a server has one to check."""
    command = [MILLRACE, *shorten(arguments or ["serve"])]
    if command[1] == "exactness" and "--url" in command:
        with subprocess.Popen([MILLRACE, "serve", "-m", "stories", "--port", "0", "-t", "1"], stdout=subprocess.PIPE, text=True) as server:
            command[command.index("--url") + 1] = server.stdout.readline().split()[-1]
            code = subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
            server.terminate()
        return code
    if command[1] != "serve":
        return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
    with subprocess.Popen([*command, "--port", "0", "-t", "1"], stdout=subprocess.PIPE, text=True) as server:
        listening = " at http" in server.stdout.readline()
        server.terminate()
        code = server.wait(timeout=60)
    return code if listening else code or 1


def commands_of(document):
    """[(line number, command)] of a Markdown file, with continued lines joined and comments at the end removed."""
    with open(os.path.join(SOURCE, document), encoding="utf-8") as file:
        lines = file.read().split("\n")
    found, at = [], 0
    while at < len(lines):
        number, line = at + 1, lines[at]
        at += 1
        if not re.match(r"    ([A-Z_]+=\S+ )?(millrace|\./run)( |$)", line):
            continue
        while line.endswith("\\") and at < len(lines):
            line = line[:-1] + " " + lines[at].strip()
            at += 1
        found.append((number, re.sub(r"(\s{2,}#.*|\s{4,}[a-z][a-z ,]*)$", "", line.strip())))
    return found


def documents():
    pages = [os.path.relpath(path, SOURCE) for path in sorted(glob.glob(os.path.join(SOURCE, "docs/*.md")))]
    return ["README.md", "models/README.md", "docs/ops/README.md", *pages]


class Commands(unittest.TestCase):
    def prepare(self, folder, document):
        names = {**FILES, **OF_DOCUMENT.get(document, {})}
        for name, target in names.items():
            os.symlink(os.path.join(SOURCE, target), os.path.join(folder, name))
        text = "Once upon a time, there was a little girl named Lily. She was three years old and loved to play outside.\n" * 40
        for name in ("text.txt", "texts.txt", "prompt.txt", "notes.txt", "report.txt", "manual.txt", "manual.md", "answers.txt",
                     "manual_and_question.txt", "a.txt", "b.txt", "calibration.txt", "other-stories.txt", "stories.txt", "held-out.txt",
                     "book.txt", "other.txt"):
            small = document in ("docs/document-contexts.md", "docs/prefix-files.md") and name != "stories.txt"
            placed = document == "docs/sparse-attention.md" and name in ("a.txt", "b.txt")
            short = small or placed or name in ("prompt.txt", "notes.txt")
            self.write(folder, name, text[:105] if short else text)
        self.write(folder, "prompts.jsonl", '{"prompt": "Once upon a time"}\n')
        self.write(folder, "needles.json", '{"title": "t", "x": "x", "y": "y", "maps": [{"title": "m", "rows": ["1"], "columns": ["2"], "values": [[0.5]]}]}')
        self.write(folder, "person.json", '{"type": "object", "properties": {"name": {"type": "string"}}}')
        self.write(folder, "keys.json", '{"keys": [{"name": "ops", "key": "plain text", "role": "admin"}]}')
        self.write(folder, "Modelfile", "FROM lab\nSYSTEM You are a pirate.\n")
        self.write(folder, "list.gbnf", 'root ::= "a" | "b"')
        for name in ("docs", "texts"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
            self.write(folder, os.path.join(name, "a.md"), text[:105])
        for name in ("models", "bin"):
            os.makedirs(os.path.join(folder, name), exist_ok=True)
        os.symlink(os.path.join(SOURCE, "models/millrace-stories-6m.gguf"), os.path.join(folder, "models/millrace-stories-6m.gguf"))
        script = f"#!/bin/sh\nexec {shlex.quote(sys.executable)} {shlex.quote(os.path.abspath(__file__))} {shlex.quote(MILLRACE)} " \
                 f"{shlex.quote(SOURCE)} as-millrace \"$@\"\n"
        for name in ("bin/millrace", "run"):
            self.write(folder, name, script)
            os.chmod(os.path.join(folder, name), 0o755)

    @staticmethod
    def write(folder, name, text):
        with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
            file.write(text)

    def test_every_command(self):
        ran = 0
        seconds = []
        for document in documents():
            with tempfile.TemporaryDirectory() as folder:
                self.prepare(folder, document)
                environment = dict(os.environ, PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"], HOME=folder)
                for number, command in commands_of(document):
                    if any(one in command for one in ELSEWHERE):
                        continue
                    with self.subTest(f"{document}:{number}: {command}"):
                        began = time.monotonic()
                        # A temporary folder in place of those that a command names.
                        done = subprocess.run(["sh", "-c", command.replace("/var/tmp/", folder + "/").replace("~/", folder + "/")],
                                              cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                                              text=True, errors="replace", timeout=120, check=False)
                        seconds.append((time.monotonic() - began, f"{document}:{number}: {command}"))
                        self.assertEqual(done.returncode, 0, done.stderr[-800:])
                        ran += 1
        self.assertGreater(ran, 100)
        print(f"{ran} commands in {sum(one[0] for one in seconds):.0f} s; the slowest:")
        for spent, command in sorted(seconds, reverse=True)[:20]:
            print(f"{spent:6.1f} s  {command}")

    def test_the_page_of_commands_lists_every_command(self):
        """docs/commands.md has a row for each command of `millrace --help`, and none for another."""
        printed = subprocess.run([MILLRACE, "--help"], capture_output=True, text=True, check=True).stdout
        commands = set(re.findall(r"^  ([a-z][a-z-]+) +[A-Z]", printed.split("\nFlags:")[0], re.M))
        with open(os.path.join(SOURCE, "docs/commands.md"), encoding="utf-8") as file:
            rows = re.findall(r"^\| (`millrace [^|]*?) \|", file.read(), re.M)
        listed = {name for row in rows for name in re.findall(r"`(?:millrace )?([a-z][a-z-]+)`", row)}
        self.assertGreater(len(commands), 30)
        self.assertEqual(listed, commands - {"train"})  # in some builds only; in the text below the tables


if __name__ == "__main__":
    if sys.argv[3:4] == ["as-millrace"]:
        sys.exit(as_millrace(sys.argv[4:]))
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
