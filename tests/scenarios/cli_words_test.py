#!/usr/bin/env python3
"""What a new user types: misspelled words, flags of other engines, config files, exit codes and help.

Usage: cli_words_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from cli import LLAMA, millrace, server_process, write

RUN = ("run", "-m", LLAMA, "-p", "ab", "-n", "2", "-t", "1")


class Start(unittest.TestCase):
    def test_without_arguments_the_first_commands_fit_a_small_screen(self):
        done = millrace()
        self.assertEqual(done.returncode, 2)
        lines = done.stderr.decode().splitlines()
        self.assertLess(len(lines), 24)
        self.assertLess(max(map(len, lines)), 80)
        for command in re.findall(r"^  millrace (\w+)", done.stderr.decode(), re.M):
            self.assertEqual(millrace(command, "--help").returncode, 0, command)


class Cut(unittest.TestCase):
    def test_a_text_that_is_cut_off_is_said_to_be(self):
        cut = millrace("run", "-m", LLAMA, "-p", "ab", "-n", "2", "-t", "1", "--ignore-eos").stderr.decode()
        self.assertIn("the text was cut off after 2 tokens; -n N allows more", cut)
        self.assertNotIn("cut off", millrace("run", "-m", LLAMA, "-p", "ab", "-n", "2", "-t", "1", "--json").stderr.decode())

    def test_an_answer_to_a_message_ends_by_itself(self):
        done = json.loads(millrace("run", "lab", "Write a story about a dog.", "-t", "1", "--json").stdout)
        self.assertEqual(done["finish_reason"], "stop")


class Narrow(unittest.TestCase):
    def test_help_is_as_wide_as_the_terminal(self):
        script = f"stty cols 60 2>/dev/null; {os.path.abspath(sys.argv[1])} help run"
        done = subprocess.run(["script", "-qec", script, "/dev/null"], capture_output=True, stdin=subprocess.DEVNULL, check=False)
        lines = [line.rstrip("\r") for line in done.stdout.decode().splitlines()]
        self.assertGreater(len(lines), 20)
        prose = [line for line in lines if not line.lstrip().startswith(("millrace", "cat", "echo"))]
        self.assertLessEqual(max(map(len, prose)), 60)


class Words(unittest.TestCase):
    def refused(self, *arguments, code=2):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertEqual(done.stdout, b"")
        lines = done.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, lines)
        return lines[0]

    def accepted(self, *arguments):
        done = millrace(*arguments)
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return done.stderr.decode()

    def test_misspelled_commands(self):
        self.assertEqual(self.refused("rum"), "millrace: rum: no such command; did you mean run?")
        self.assertIn("did you mean serve?", self.refused("srve"))
        self.assertIn("did you mean cache?", self.refused("trace", "cahce"))
        self.assertEqual(self.refused("quux"), "millrace: quux: no such command; `millrace --help` lists them")

    def test_misspelled_flags_in_order(self):
        self.assertIn("run: unknown flag --tempp; did you mean --temp?", self.refused(*RUN, "--tempp", "0.5"))
        self.assertIn("unknown flag --tempp", self.refused(*RUN, "--tempp", "0.5", "--sed", "1"))
        self.assertIn("did you mean --max-tokens?", self.refused(*RUN, "--max-token", "3"))
        self.assertIn("-temp; did you mean --temp?", self.refused("run", "-temp", "0.5"))
        self.assertIn("unknown flag --frobnicate; `millrace run --help-all` lists them", self.refused(*RUN, "--frobnicate"))

    def test_values_name_their_flag(self):
        self.assertIn("run: --temp: ", self.refused(*RUN, "--temp", "hot"))
        self.assertIn("'hot'", self.refused(*RUN, "--temp", "hot"))
        self.assertEqual(self.refused(*RUN, "--context", "many"), "millrace: run: --context many: must be a whole number")
        self.assertEqual(self.refused("serve", "--port", "99999"), "millrace: serve: --port 99999: must be 0 to 65535")
        self.assertIn("run: 'again' is not expected here: values follow their flag, a prompt is -p TEXT",
                      self.refused(*RUN, "again"))

    def test_values_may_look_like_flags(self):
        self.assertIn("tok/s", self.accepted("run", "-m", LLAMA, "-t", "1", "-n", "1", "-p", "-hf"))
        self.assertIn("tok/s", self.accepted("run", "-m", LLAMA, "-t1", "-n", "-1", "--ignore-eos", "--stop", "--nonsense", "-c", "64", "-p", "ab"))

    def test_flags_of_llama_cpp(self):
        noted = self.accepted(*RUN, "-ngl", "99", "-fa", "on", "-fa", "--jinja", "--flash-attn=auto")
        self.assertIn("note: -ngl: ignored: weights are on the CPU", noted)
        self.assertIn("note: -fa: ignored", noted)
        plain = json.loads(millrace(*RUN, "--json", "-c", "64").stdout)
        same = json.loads(millrace("run", "-m", LLAMA, "-p", "ab", "--n-predict", "2", "-t", "1", "--json", "--ctx-size", "64", "-ub", "64", "-b", "32",
                                   "-ctk", "f16").stdout)
        self.assertEqual(plain["tokens"], same["tokens"])
        self.assertIn("-hf OWNER/NAME:FILE", self.refused(*RUN, "-hff", "x.gguf"))
        self.assertIn("--numa: start the process with numactl", self.refused(*RUN, "--numa", "distribute"))
        self.assertIn("run: -cnv: use millrace chat", self.refused("run", "-cnv"))
        self.assertIn("OWNER/NAME", self.refused("run", "-hf", "nonsense"))

    def test_flags_of_vllm(self):
        self.assertIn("note: --enable-prefix-caching: ignored: always on", self.accepted("serve", "--enable-prefix-caching", "--api-docs"))
        self.accepted("serve", "--max-model-len", "512", "--max-num-seqs", "2", "--served-model-name", "x", "--api-docs")
        self.assertIn("--memory", self.refused("serve", "--gpu-memory-utilization", "0.9"))
        self.accepted(*RUN, "--top_k", "3")

    def test_the_number_of_answers(self):
        self.assertIn("--answers", self.refused(*RUN, "--n", "2"))
        self.assertEqual(len(json.loads(millrace(*RUN, "--answers", "2", "--json").stdout)["answers"]), 2)


class Config(unittest.TestCase):
    def run_with(self, text, *arguments):
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "c.toml", text)
            done = millrace(*RUN[:3], "-p", "ab", "-t", "1", "--json", "--config", path, *arguments)
            return done.returncode, done.stdout.decode(), done.stderr.decode().replace(folder + "/", "")

    def test_n_is_the_number_of_tokens(self):
        code, out, errors = self.run_with("[run]\nn = 3\nignore-eos = true\n")
        self.assertEqual(code, 0, errors)
        self.assertEqual(len(json.loads(out)["tokens"]), 3)

    def test_underscores_are_dashes(self):
        code, out, errors = self.run_with("[run]\nmax_tokens = 3\nignore_eos = true\n")
        self.assertEqual(code, 0, errors)
        self.assertEqual(len(json.loads(out)["tokens"]), 3)

    def test_errors_name_file_line_and_key(self):
        for text, message in (
                ("[run]\n\ntempp = 0.5\n", "c.toml:3: [run] tempp: no such flag; did you mean temp?"),
                ("# a comment\n[runn]\nn = 1\n", "c.toml:2: [runn]: no such command; did you mean run?"),
                ("temp = 0.5\n", "c.toml:1: temp: is in no table"),
                ("[run]\ntemp = \"hot\"\n", "c.toml:2: [run] temp: run: --temp")):
            code, _, errors = self.run_with(text)
            self.assertEqual(code, 2, errors)
            self.assertIn(message, errors)
        self.assertEqual(millrace("--config", "/nonexistent.toml", *RUN).returncode, 3)


class Codes(unittest.TestCase):
    """A missing or damaged input file is 3, whatever the flag."""

    def test_missing_files(self):
        gone = "/nonexistent/file"
        for arguments in (
                ("run", "-m", gone), (*RUN[:3], "-f", gone), (*RUN, "--grammar", gone), (*RUN, "--json-schema", gone), (*RUN, "--lora", gone),
                (*RUN, "--document", gone), (*RUN, "--model-draft", gone), (*RUN, "--kv-load", gone), ("inspect", gone), ("convert", gone, "/tmp/x.gguf"),
                ("tokenize", "-m", gone, "a"), ("perplexity", "-m", LLAMA, "-f", gone), ("perplexity", "-m", gone, "-f", LLAMA),
                ("perplexity", "-m", LLAMA, "-f", LLAMA, "--kl-divergence", gone), ("replay", "--recording", gone), ("replay", "--trace", gone, "--in-process"),
                ("simulate", "--trace", gone), ("simulate", "--trace", "gen:requests=1", "--cost", gone), ("trace", "stats", gone),
                ("replay", "--trace", "gen:requests=1", "--in-process", "-m", LLAMA, "--predict", gone), ("serve", "-m", gone), ("serve", "--models-file", gone),
                ("serve", "--models-dir", gone), ("serve", "--api-key-file", gone), ("serve", "--api-keys", gone), ("serve", "--chat-template-file", gone),
                ("serve", "--tls-cert", gone, "--tls-key", gone), ("batch", "-m", LLAMA, "-i", gone, "-o", "/tmp/x"), ("embed", "-m", gone, "a"),
                ("create", "x", "-f", gone), ("lab", "check", "--items", gone, "--answers", gone),
                ("template", "--template", gone, "--context", gone)):
            done = millrace(*arguments)
            self.assertEqual(done.returncode, 3, f"{arguments}: {done.stderr.decode()}")
            self.assertIn(gone, done.stderr.decode(), arguments)

    def test_network_is_not_a_resource(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, HF_ENDPOINT="http://127.0.0.1:9", HF_HOME=folder)
            done = subprocess.run([sys.argv[1], "pull", "owner/name"], capture_output=True, env=environment, check=False, timeout=120)
            self.assertEqual(done.returncode, 6, done.stderr.decode())
        done = millrace("ps", "--url", "http://127.0.0.1:9")
        self.assertEqual(done.returncode, 6, done.stderr.decode())

    def test_a_port_in_use_is_the_network(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            done = millrace("serve", "-m", LLAMA, "-t", "1", "--port", str(other.getsockname()[1]))
            self.assertEqual(done.returncode, 6, done.stderr.decode())

    def test_output_that_nobody_reads_or_that_has_no_room(self):
        for command in (("man", "run"), ("version",), ("tokenize", "-m", LLAMA, "ab")):
            process = subprocess.Popen([sys.argv[1], *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            process.stdout.close()
            self.assertEqual((process.wait(60), process.stderr.read()), (141, b""), command)
            process.stderr.close()
            with open("/dev/full", "wb") as full:
                done = subprocess.run([sys.argv[1], *command], stdout=full, stderr=subprocess.PIPE, timeout=60, check=False)
            self.assertEqual(done.returncode, 5, command)
            self.assertIn(b"output: cannot be written: No space left on device", done.stderr)

    def test_a_signal_that_the_parent_ignores_stays_ignored(self):
        command = [sys.argv[1], "bench", "-m", "stories", "-t", "1", "-p", "64", "-n", "64", "-r", "400", "--no-roof"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                   preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        bits = lambda field: int(re.search(field + r":\s*(\w+)", pathlib.Path(f"/proc/{process.pid}/status").read_text())[1], 16)
        for _ in range(600):  # until it handles signals
            if bits("SigCgt") >> (signal.SIGTERM - 1) & 1:
                break
            time.sleep(0.05)
        self.assertEqual(bits("SigCgt") >> (signal.SIGTERM - 1) & 1, 1)
        self.assertEqual(bits("SigIgn") >> (signal.SIGHUP - 1) & 1, 1)


class Help(unittest.TestCase):
    def commands(self):
        text = millrace("--help").stdout.decode()
        return [line.split()[0] for line in re.findall(r"^  [a-z].*", text.split("\nFlags:")[0], re.M)]

    def test_short_and_complete(self):
        commands = self.commands()
        for command in ("run", "serve", "list", "doctor", "man"):
            self.assertIn(command, commands)
        for command in commands:
            short, complete = (millrace(command, flag).stdout.decode() for flag in ("--help", "--help-all"))
            flags = re.findall(r"^  (?:-\w, )?--", short, re.M)
            self.assertLessEqual(len(flags), 15, command)
            self.assertIn(f"millrace {command}", short)
            self.assertGreaterEqual(len(re.findall(r"^  (?:-\w, )?--", complete, re.M)), len(flags), command)
            for text in (short, complete):
                self.assertNotRegex(text, r"INT:|FLOAT:|TEXT:|UINT", command)
        self.assertIn("more: millrace run --help-all", millrace("run", "--help").stdout.decode())

    def test_groups_and_ranges_in_words(self):
        text = millrace("serve", "--help-all").stdout.decode()
        for group in ("KV cache", "Sampling", "Keys and TLS", "Speculation", "Limits of requests and connections"):
            self.assertIn(f"\n{group}:\n", text)
        self.assertIn("(0 to 65535)", text)

    def test_purpose_usage_and_examples_come_first(self):
        for command in self.commands():
            for flag in ("--help", "--help-all"):
                text = millrace(command, flag).stdout.decode()
                self.assertRegex(text, rf"\A[A-Z][^\n]*\.\n\nUsage: millrace {command}\b[^\n]*\n\nExamples:\n  \S", command)
                for line in text.splitlines():
                    self.assertLessEqual(len(line), 100, f"{command}: {line}")
        for line in millrace("--help").stdout.decode().splitlines():
            self.assertLessEqual(len(line), 100, line)

    def test_every_command_is_in_a_group(self):
        text = millrace("--help").stdout.decode()
        self.assertNotIn("Subcommands", text)
        self.assertIn("  kv-levels ", text.split("Text and techniques:")[1].split("\n\n")[0])

    def test_compare_says_what_it_needs(self):
        text = millrace("compare", "--help").stdout.decode()
        self.assertIn("Usage: millrace compare --with TEXT [FLAGS]\n", text)
        for flag in ("--with", "--on", "--base", "--text", "--html"):
            self.assertRegex(text, rf"(?m)^  {flag} ")
        self.assertIn("\nSuites:\n  perplexity", text)

    def test_one_unit_of_durations(self):
        load = ("simulate", "--trace", "gen:requests=20,rate=4", "--cost", "llama-7b-a100", "--json")
        half = json.loads(millrace(*load, "--good-ttft", "0.5").stdout)[0]["goodput_requests_per_second"]
        self.assertEqual(json.loads(millrace(*load, "--good-ttft", "500ms").stdout)[0]["goodput_requests_per_second"], half)
        replay = ("replay", "--trace", "gen:requests=2,rate=100,prompt=fixed:4,output=fixed:2", "--in-process", "-m", LLAMA, "-t", "1", "--json")
        limits = json.loads(millrace(*replay, "--good-ttft", "1m").stdout)
        self.assertIn(60000.0, [value for one in limits.values() if isinstance(one, dict) for value in one.values()])
        self.assertEqual(millrace(*load, "--good-ttft", "5 parsecs").returncode, 2)


class Warnings(unittest.TestCase):
    def test_seeds_out_of_range(self):
        most = 2**64 - 1
        for command in (RUN, ("chat", "-m", LLAMA)):
            for seed in (str(most + 1), "9" * 30, "-1", "x"):
                done = millrace(*command, "--seed", seed)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"--seed: expected a whole number from 0 to 2^64 - 1, got '{seed}'", done.stderr.decode())
        for command in (("lab", "generate", "--task", "copy"), ("trace", "stats", "gen:requests=1")):
            for seed in (str(most + 1), "-1", "x"):
                done = millrace(*command, "--seed", seed)
                self.assertEqual(done.returncode, 2)
                self.assertIn(f"--seed: expected a whole number from 0 to 2^64 - 1, got '{seed}'", done.stderr.decode())
            self.assertEqual(millrace(*command, "--seed", str(most)).returncode, 0)
        self.assertIn(f"/regen: seed: expected a whole number from 0 to 2^64 - 1, got '{most + 1}'",
                      millrace("chat", "-m", LLAMA, "-n", "1", stdin=f"ab\n/regen {most + 1}\n".encode()).stderr.decode())

    def test_whole_numbers_that_do_not_fit(self):
        """CLI11 would take the largest number of 64 bits instead."""
        large = "9" * 20
        for arguments in (("run", "-m", LLAMA, "-p", "a", "-n", large), ("run", "-m", LLAMA, "-p", "a", "-n", "-" + large),
                          ("chat", "-m", LLAMA, "-n", large), ("serve", "-m", LLAMA, "--max-connections", large),
                          ("run", "-m", LLAMA, "--prompt-tokens", "1," + large), ("simulate", "--trace", "gen:requests=1", "--max-prompt", large)):
            done = millrace(*arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(large, done.stderr.decode(), arguments)
            self.assertRegex(done.stderr.decode(), r"expected a whole number from -2\^63 to 2\^63 - 1|must be |is too large", arguments)
        self.assertEqual(millrace("trace", "stats", "gen:requests=1", "--seed", "0x10").returncode, 0)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "config.toml")
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"[run]\nn = {large}\n")
            done = millrace("--config", path, "run", "-m", LLAMA, "-p", "a")
            self.assertEqual(done.returncode, 2)
            self.assertIn(large, done.stderr.decode())

    def test_a_context_that_is_capped(self):
        """A model of a context of 16,384 tokens: a golden one with another number in its file."""
        with open(LLAMA, "rb") as file:
            data = file.read()
        key = b"llama.context_length"
        at = data.index(key) + len(key) + 4  # after the type of the value
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "long.gguf")
            with open(path, "wb") as file:
                file.write(data[:at] + (16384).to_bytes(4, "little") + data[at + 4:])
            said = "the context is 8192 tokens, though the model was trained for 16384; -c 16384 allows all of them"
            run, chat = ("run", "-m", path, "-p", "ab", "-n", "1", "-t", "1"), ("chat", "-m", path, "-n", "1", "-t", "1")
            for command in (run, chat):
                self.assertEqual(millrace(*command, stdin=b"ab\nab\n").stderr.decode().count(said), 1, command)
                self.assertNotIn("trained", millrace(*command, "-c", "64", stdin=b"ab\n").stderr.decode())
            with server_process.Server(sys.argv[1], "-m", path) as server:
                self.assertEqual(server.log.count(said), 1)

    def test_memory_that_is_not_there(self):
        for command in (RUN, ("chat", "-m", LLAMA), ("bench", "-m", LLAMA, "-p", "8", "-n", "1", "-r", "1", "--no-roof"), ("serve", "-m", LLAMA, "--port", "0")):
            done = millrace(*command, "--memory", "2M")
            self.assertEqual(done.returncode, 5, done.stderr.decode())
            self.assertRegex(done.stderr.decode(), r"needs [\d.]+ MB, but only [\d.]+ MB of the budget of [\d.]+ MB is left; .*raise the budget")
        done = millrace(*RUN, "--memory", "800M", "-c", "10000000")
        self.assertEqual(done.returncode, 5)
        self.assertRegex(done.stderr.decode(), r"a KV cache of 10000000 tokens does not fit in the budget of [\d.]+ MB next to .*; lower the context \(-c\), the KV "
                         r"tokens \(--kv-tokens\) or their format \(--kv-format q8_0\), .* or raise the budget \(--memory\) to [\d.]+ [MG]B")

    def test_a_context_beyond_the_training(self):
        self.assertIn("the model was trained for 512", millrace(*RUN, "-c", "4096").stderr.decode())
        self.assertNotIn("trained", millrace(*RUN, "-c", "64").stderr.decode())
        self.assertIn("the model was trained for 512", millrace("bench", "-m", LLAMA, "-p", "600", "-n", "0", "-r", "1", "-t", "1", "--no-roof").stderr.decode())

    def test_a_perplexity_worse_than_guessing(self):
        with tempfile.TemporaryDirectory() as folder:
            text = write(folder, "t.txt", "Zq9 #~ xX@" * 60)
            done = millrace("perplexity", "-m", LLAMA, "-f", text, "-t", "1", "-c", "64", "--json")
            worse = json.loads(done.stdout)["perplexity"] > json.loads(millrace("inspect", LLAMA, "--json").stdout)["vocabulary"]
            self.assertEqual("may not belong together" in done.stderr.decode(), worse)


class Convert(unittest.TestCase):
    def test_mixes_names_and_what_became_of_weights(self):
        with tempfile.TemporaryDirectory() as folder:
            mix, small, out, back = (os.path.join(folder, name) for name in ("mix.gguf", "q8.gguf", "folder", "back.gguf"))
            formats = json.loads(millrace("convert", "lab", mix, "--format", "Q4_K_M", "--json").stdout)["formats"]
            self.assertEqual(set(formats), {"f32", "q4_k", "q6_k"})
            self.assertGreater(formats["q6_k"]["tensors"], 1)  # the head, and some of attn_v and ffn_down
            one = json.loads(millrace("convert", "lab", mix, "--format", "q5_k_s", "--force", "--json").stdout)["formats"]
            self.assertEqual(one["q6_k"]["tensors"], 1)
            self.assertEqual(millrace("run", "-m", mix, "-p", "ab", "-n", "2", "-t", "1").returncode, 0)
            self.assertIn("or a mix: ", millrace("convert", "lab", mix, "--format", "q4_k_z", "--force").stderr.decode())
            millrace("convert", "lab", small, "--format", "Q8_0")
            self.assertIn("matrices of q8_0 became f32", millrace("convert", small, out).stdout.decode())
            millrace("convert", out, back)
            name = json.loads(millrace("inspect", "lab", "--json").stdout)["name"]
            self.assertEqual(json.loads(millrace("inspect", back, "--json").stdout)["name"], name)


class BenchFigures(unittest.TestCase):
    def test_no_roof_is_null_and_batch_size_is_llama_benchs(self):
        form = ("bench", "-m", LLAMA, "-p", "8", "-n", "1", "-r", "1", "-t", "1", "--no-roof", "-b", "4")
        for record in json.loads(millrace(*form, "--json").stdout):
            for field in ("roof_fraction", "bandwidth_fraction", "compute_fraction", "roof_gb_per_s"):
                self.assertIsNone(record[field], field)
            self.assertEqual((record["n_streams"], record["n_ubatch"]), (1, 4))
            self.assertRegex(record["build_commit"], r"^[0-9a-f]*\+?$")
        self.assertNotIn("0 %", millrace(*form).stdout.decode())

    def test_simulate_counts_tokens_and_requests_without_output(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = [{"timestamp": i * 100, "input_length": 8, "output_length": 3 * (i % 2), "hash_ids": [i]} for i in range(4)]
            trace = write(folder, "t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
            done = millrace("simulate", "--trace", trace, "--cost", "llama-7b-a100", "--json")
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            [row] = json.loads(done.stdout)
            self.assertEqual((row["completed"], row["prompt_tokens"], row["without_output"]), (4, 32, 2))
            self.assertEqual(row["output_tokens"], 3 + 3 + 1 + 1)


class Doctor(unittest.TestCase):
    def test_findings(self):
        done = millrace("doctor", "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        findings = json.loads(done.stdout)["findings"]
        topics = [one["topic"] for one in findings]
        for topic in ("processor", "instruction set", "memory", "huge pages", "memory bandwidth", "disk of downloads", "certificates", "models"):
            self.assertIn(topic, topics)
        for one in findings:
            self.assertIn(one["level"], ("ok", "hint", "problem"))
            self.assertEqual(bool(one["advice"]), one["level"] != "ok", one)
        self.assertIn("instruction set", millrace("doctor", "--quick").stdout.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
