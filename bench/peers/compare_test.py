#!/usr/bin/env python3
"""Tests of bench/peers: adapters on recorded outputs, the comparison on fake tools, and the synthetic model writer.

Usage: compare_test.py MILLRACE_BINARY MAKER_BINARY [TestClass]
"""

import argparse
import csv
import fcntl
import json
import os
import subprocess
import sys
import tempfile
import unittest

FOLDER = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, FOLDER)
BINARY, MAKER = sys.argv[1], sys.argv[2]

import adapters  # noqa: E402
import runner  # noqa: E402
from adapters import Case, Output  # noqa: E402
from adapters.llama_batched_bench import LlamaBatchedBench  # noqa: E402
from adapters.llama_bench import LlamaBench  # noqa: E402
from adapters.llama_server import LlamaServer, timings  # noqa: E402
from adapters.millrace import Millrace  # noqa: E402


def recorded(name):
    with open(os.path.join(FOLDER, "recordings", name), encoding="utf-8") as file:
        return file.read()


def case(kind, **fields):
    return Case("suite", kind, "shape", "q4_0", "/models/a.gguf", **fields)


def tool(folder, name, body):
    """Writes an executable Python program into the folder."""
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"#!{sys.executable}\nimport json, os, sys, time\n{body}\n")
    os.chmod(path, 0o755)
    return path


class Adapters(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def test_llama_bench_with_depth(self):
        tool(self.folder, "llama-bench", "print('--n-depth --no-warmup')")
        bench = LlamaBench(self.folder)
        self.assertEqual(bench.variants(), [[]])
        cases = [case("prefill", prompt=64), case("decode", generate=8)]
        figures = bench.parse(cases, Output(recorded("llama_bench.json"), ""))
        self.assertAlmostEqual(figures[cases[0]].value, (1189.74 + 1129.8) / 2)
        self.assertAlmostEqual(figures[cases[1]].value, (202.339 + 207.837) / 2)
        deep = [case("prefill", prompt=64, depth=256), case("decode", generate=8, depth=256)]
        figures = bench.parse(deep, Output(recorded("llama_bench.json"), ""))
        self.assertLess(figures[deep[0]].value, 1000)
        self.assertLess(figures[deep[1]].value, 160)
        command = bench.command([case("decode", generate=8, depth=4096)], [])
        self.assertEqual(command[command.index("-d") + 1], "4096")
        self.assertIn("--no-warmup", command)

    def test_llama_bench_without_depth_generates_after_a_prompt(self):
        tool(self.folder, "llama-bench", "print('-gp <pp,tg> -rtr -thp', file=sys.stderr)")
        bench = LlamaBench(self.folder)
        self.assertEqual(bench.variants(), [["-rtr", "1", "-thp", "1"], []])
        deep = case("decode", generate=8, depth=256)
        figures = bench.parse([deep, case("decode", generate=8)], Output(recorded("ik_llama_bench.json"), ""))
        self.assertAlmostEqual(figures[deep].value, (200.681 + 198.66) / 2, places=0)
        command = bench.command([deep], ["-rtr", "1"])
        self.assertEqual(command[command.index("-gp") + 1], "256,8")
        with self.assertRaisesRegex(adapters.PeerError, "prompt at a depth"):
            bench.check(case("prefill", prompt=64, depth=256))

    def test_llama_bench_that_prints_no_json(self):
        with self.assertRaisesRegex(adapters.PeerError, "no JSON"):
            LlamaBench(self.folder).parse([case("decode", generate=8)], Output("Segmentation fault", ""))

    def test_batched_bench_table_on_stdout_and_in_the_log(self):
        bench = LlamaBatchedBench(self.folder)
        cases = [case("batched", prompt=16, generate=8, streams=s) for s in (1, 4, 8)]
        figures = bench.parse(cases, Output(recorded("llama_batched_bench.txt"), ""))
        self.assertEqual([figures[c].value for c in cases[:2]], [167.63, 458.56])
        self.assertNotIn(cases[2], figures)
        figures = bench.parse(cases, Output("", "", recorded("ik_batched_bench_llama.log")))
        self.assertEqual([figures[c].value for c in cases[:2]], [203.66, 260.02])

    def test_batched_bench_streams_alike(self):
        tool(self.folder, "llama-batched-bench", "print('--run-time-repack'); sys.exit(1)")
        bench = LlamaBatchedBench(self.folder)
        bench.check(case("batched", streams=4))
        bench.check(case("batched", streams=4, mixture=True, alike=True))
        with self.assertRaises(adapters.NotMeant):
            bench.check(case("batched", streams=4, mixture=True))

    def test_server_reply(self):
        self.assertEqual(timings({"timings": {"prompt_per_second": 3.5, "predicted_per_second": 2.0}}), {"prompt": 3.5, "generated": 2.0})
        self.assertEqual(timings({}), {"prompt": None, "generated": None})

    def test_server_answers_after_its_load(self):
        tool(self.folder, "llama-server", """
from http.server import BaseHTTPRequestHandler, HTTPServer
began = time.monotonic()
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        loaded = time.monotonic() - began > 0.2
        self.send_response(200 if loaded else 503)
        self.end_headers()
        self.wfile.write(json.dumps({"timings": {"prompt_per_second": 5}}).encode())
    def log_message(self, *_): pass
HTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()""")
        load = case("load")
        figure = LlamaServer(self.folder).measure([load], [], 30)[load]
        self.assertGreater(figure.value, 0.2)
        self.assertEqual(figure.facts["timings"]["prompt"], 5)

    def streaming_server(self, tokens):
        """Answers with `tokens` events, 4 ms apart, and serves at most two requests at once."""
        tool(self.folder, "llama-server", f"""
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
slots = threading.Semaphore(2)
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        if not request.get("stream"):
            self.wfile.write(b"{{}}")
            return
        with slots:
            for number in range({tokens}):
                time.sleep(0.004)
                self.wfile.write(b'data: {{"content": "a", "stop": false}}\\n\\n')
            self.wfile.write(b'data: {{"content": "", "stop": true}}\\n\\n')
    def log_message(self, *_): pass
if "--help" not in sys.argv:
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[sys.argv.index("--port") + 1])), Handler).serve_forever()""")
        return LlamaServer(self.folder)

    def test_server_under_load(self):
        server = self.streaming_server(8)
        closed, paced = case("serve", prompt=4, generate=8, streams=3), case("serve", prompt=4, generate=8, streams=3, rate=50.0)
        self.assertEqual((closed.test, closed.unit, paced.test, paced.unit), ("3 in flight", "t/s", "ITL p99, 50 req/s", "ms"))
        self.assertEqual(server.variants(closed), [[]])
        figure = server.measure([closed], [], 30)[closed]
        self.assertGreater(figure.value, 1)
        self.assertLess(figure.value, 2 * 1 / 0.004)  # two at once, 4 ms a token
        figure = server.measure([paced], [], 30)[paced]
        self.assertEqual(figure.value, figure.facts["itl_p99_ms"])
        self.assertGreater(figure.value, 2)

    def test_server_that_answers_too_little(self):
        with self.assertRaisesRegex(adapters.PeerError, "got 7 tokens, requested 8"):
            server = self.streaming_server(7)
            server.measure([case("serve", prompt=4, generate=8, streams=2)], [], 30)

    def test_millrace_under_load(self):
        shipped = os.path.join(FOLDER, "../../models/millrace-stories-6m.gguf")
        paced = Case("serve", "serve", "shape", "f16", shipped, prompt=16, generate=8, streams=2, rate=100.0)
        figure = Millrace(BINARY).serve([paced], 60)[paced]
        self.assertEqual(figure.value, figure.facts["itl_p99_ms"])
        self.assertGreater(figure.facts["tokens_per_s"], 0)

    def test_server_that_dies(self):
        tool(self.folder, "llama-server", "sys.exit(3)")
        with self.assertRaisesRegex(adapters.PeerError, "ended with 3"):
            LlamaServer(self.folder).measure([case("load")], [], 30)

    def test_millrace(self):
        cases = [case("prefill", prompt=32), case("decode", generate=4, depth=16), case("batched", prompt=16, generate=4, streams=2)]
        output = Output(recorded("millrace_bench.json"), "")
        records = json.loads(output.stdout)
        figures = Millrace(BINARY).parse(cases, output)
        for wanted, key in zip(cases, ((32, 0, 0, 1), (0, 4, 16, 1), (0, 4, 16, 2))):
            record = next(r for r in records if (r["n_prompt"], r["n_gen"], r["n_depth"], r["n_streams"]) == key)
            self.assertAlmostEqual(figures[wanted].value, sum(record["samples_ts"]) / 2)
            self.assertEqual(figures[wanted].facts["roof_fraction"], record["roof_fraction"])

    def test_a_tool_that_fails_says_why(self):
        path = tool(self.folder, "llama-bench", "print('error: unknown model', file=sys.stderr); sys.exit(1)")
        with self.assertRaisesRegex(adapters.PeerError, "llama-bench: ended with 1: error: unknown model"):
            adapters.run([path], 30)
        slow = tool(self.folder, "slow", "time.sleep(60)")
        with self.assertRaisesRegex(adapters.PeerError, "took too long"):
            adapters.run([slow], 0.2)

    def test_best_variant_by_median(self):
        results = runner.Results()
        decode, load = case("decode", generate=8), case("load")
        for value in (10.0, 90.0, 11.0):
            results.add(decode, "peer", ["-a"], adapters.Figure(value))
        results.add(decode, "peer", [], adapters.Figure(20.0))
        self.assertEqual(results.best(decode, "peer")[0], "")
        results.add(load, "peer", ["-a"], adapters.Figure(2.0))
        results.add(load, "peer", [], adapters.Figure(3.0))
        self.assertEqual(results.best(load, "peer")[0], "-a")


BENCH = """
import fcntl
with open({log!r}, "a") as file: print({name!r}, file=file)
if "--roof" in sys.argv: print("{{}}"); sys.exit()
if "--help" in sys.argv: print("-rtr"); sys.exit()
speed = {speed} * (2 if "-rtr" in sys.argv else 1)
row = dict(n_prompt=0, n_gen=32, n_depth=0, n_streams=1, samples_ts=[speed], avg_ts=speed)
if {ours}: row["roof_fraction"] = 0.5
print(json.dumps([row]))
"""


# Generates 500 tokens a second and accepts three of four drafted tokens.
FAKE_SERVER = """
import http.server
class Handler(http.server.BaseHTTPRequestHandler):
    def log_message(self, *arguments):
        pass
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        count = asked["n_predict"]
        timings = {"predicted_n": count, "predicted_ms": 2.0 * count, "draft_n": 4, "draft_n_accepted": 3}
        body = json.dumps({"content": "a" * count, "timings": timings}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


class Compare(unittest.TestCase):
    def compare(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(FOLDER, "compare"), *arguments], capture_output=True, text=True, timeout=120, check=False)

    def test_turns_ratios_and_failures(self):
        with tempfile.TemporaryDirectory() as folder:
            log = os.path.join(folder, "log")
            for name in ("good", "bad", "empty"):
                os.mkdir(os.path.join(folder, name))
            ours = tool(folder, "millrace", BENCH.format(log=log, name="ours", speed=30, ours=True))
            tool(os.path.join(folder, "good"), "llama-bench", BENCH.format(log=log, name="good", speed=10, ours=False))
            tool(os.path.join(folder, "bad"), "llama-bench", "print('error: no such tensor', file=sys.stderr); sys.exit(1)")
            model = os.path.join(folder, "model.gguf")
            with open(model, "w", encoding="utf-8"):
                pass
            peers = [argument for name in ("good", "bad", "empty") for argument in ("--peer", f"{name}={folder}/{name}")]
            common = ["decode", "--quick", "--rounds", "2", "--millrace", ours, "-m", model, "--lock", os.path.join(folder, "lock"), *peers]
            done = self.compare(*common, "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            row = json.loads(done.stdout)
            self.assertEqual((row["ratio"], row["ratio_min"], row["ratio_max"], row["best_peer"]), (1.5, 1.5, 1.5, "good"))
            self.assertEqual(row["engines"]["good"]["switches"], "-rtr 1 -thp 1")
            self.assertEqual(row["roof_fraction"], 0.5)
            self.assertIn("no such tensor", row["engines"]["bad"]["failed"])
            self.assertIn("no llama-bench", row["engines"]["empty"]["failed"])
            with open(log, encoding="utf-8") as file:
                turns = file.read().split()
            # The roof; a round with --help and both variants; a round with the better one; the roof.
            self.assertEqual(turns, ["ours", "ours", "good", "good", "good", "ours", "good", "ours"])
            self.assertIn("round 2/2", done.stderr)
            table = self.compare(*common, "--markdown").stdout
            self.assertIn("| 1.50x | 1.50 to 1.50 | good ", table)
            self.assertIn("no such tensor", table)

            done = self.compare(*common, "--json", "--one-variant", "--lock-each", "--kinds", "decode")
            self.assertEqual(json.loads(done.stdout)["engines"]["good"]["switches"], "-rtr 1 -thp 1")
            with open(log, encoding="utf-8") as file:  # the --markdown call took as many turns as the first one
                turns = file.read().split()[2 * len(turns):]
            self.assertEqual(turns, ["ours", "ours", "good", "good", "ours", "good", "ours"])
            none = self.compare(*common, "--json", "--kinds", "prefill")
            self.assertEqual((none.returncode, none.stdout.strip()), (0, ""), none.stderr)

    def test_lock_of_a_round_or_of_a_process(self):
        def free(path):
            with open(path, "a", encoding="utf-8") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    return False
                return True

        class Engine(runner.Peer):
            name = "engine"

            def __init__(self, path):
                self.path, self.seen = path, []

            def variants(self, _cases):
                self.seen.append(free(self.path))
                return [[]]

            def measure(self, cases, _switches, _timeout):
                self.seen.append(free(self.path))
                return {one: adapters.Figure(1.0) for one in cases}

        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lock")
            for each, seen in ((False, [False, False]), (True, [True, False])):
                engine = Engine(path)
                options = argparse.Namespace(rounds=1, lock=path, lock_each=each, one_variant=False, timeout=1)
                runner.run_job([case("decode", generate=1)], [engine], options, runner.Results(), lambda text: None)
                self.assertEqual(engine.seen, seen)
                self.assertTrue(free(path))

    def test_usage(self):
        self.assertEqual(self.compare("nonsense").returncode, 2)
        self.assertEqual(self.compare("decode", "--peer", "folder").returncode, 2)


class Servers(unittest.TestCase):
    def servers(self, *arguments):
        return subprocess.run([sys.executable, os.path.join(FOLDER, "servers"), *arguments], capture_output=True, text=True,
                              timeout=120, check=False)

    def prompts(self, folder, text):
        path = os.path.join(folder, "prompts.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def test_speculation_of_a_running_server_beside_plain_decoding_and_a_peer(self):
        with tempfile.TemporaryDirectory() as folder:
            prompts = self.prompts(folder, json.dumps({"prompt": "one two three, one two three, one two three,"}) + "\n"
                                   + json.dumps({"prompt": "Once upon a time", "n_predict": 3}) + "\n")
            model = os.path.join(os.path.dirname(os.path.dirname(FOLDER)), "models", "millrace-stories-6m.gguf")
            # Of a fixed length: by default measured times decide, and a busy machine may not draft at all.
            serve = f"{BINARY} serve -m {model} -t 1 --host 127.0.0.1 --port {{port}} --draft-length fixed --drafter"
            peer = tool(folder, "peer", FAKE_SERVER)
            broken = tool(folder, "broken", "print('no such model', file=sys.stderr); sys.exit(3)")
            common = ["--prompts", prompts, "-n", "16", "--rounds", "2", "--server", f"plain={serve} none",
                      "--server", f"ngram={serve} ngram:k=4", "--server", f"peer={peer} {{port}}",
                      "--server", f"broken={broken} {{port}}"]
            done = self.servers(*common, "--json")
            self.assertEqual(done.returncode, 1, done.stderr)
            result = json.loads(done.stdout)
            self.assertIn("no such model", result["failures"]["broken"])
            plain, ngram, peer = (result["rounds"][name] for name in ("plain", "ngram", "peer"))
            self.assertEqual([r["tokens"] for r in plain], [19, 19])
            self.assertEqual(plain[0]["drafted"], 0)
            self.assertEqual(ngram[0]["answers"], plain[0]["answers"])
            self.assertGreater(ngram[0]["accepted"], 0)
            self.assertEqual([(r["tokens"], r["seconds"], r["drafted"], r["accepted"]) for r in peer], [(19, 0.038, 8, 6)] * 2)
            table = self.servers(*common).stdout
            self.assertIn("| peer | 500 | ", table)
            self.assertIn("| 75 % of 8 | 0 of 2 |", table)
            self.assertIn("| broken | failed |", table)

    def test_bad_arguments(self):
        with tempfile.TemporaryDirectory() as folder:
            done = self.servers("--prompts", self.prompts(folder, "{}"), "--server", "a=b {port}")
            self.assertEqual(done.returncode, 1)
            self.assertIn('prompts.jsonl:1: wants an object with "prompt"', done.stderr)
            done = self.servers("--prompts", self.prompts(folder, ""), "--server", "a=b")
            self.assertEqual(done.returncode, 2)
            self.assertIn("wants NAME=COMMAND with {port}", done.stderr)


class Models(unittest.TestCase):
    def make(self, folder, name, shape, *arguments):
        path = os.path.join(folder, name)
        layers = [] if "--layers" in arguments else ["--layers", "2"]
        done = subprocess.run([MAKER, shape, path, *layers, "--vocab", "512", *arguments], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return path

    def inspect(self, path):
        done = subprocess.run([BINARY, "inspect", path, "--json", "--tensors"], capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_shape_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            for shape, architecture in (("llama-15m", "llama"), ("mixtral-0.8b", "llama"), ("qwen3moe-1.2b", "qwen3moe")):
                sizes = ["--width", "256", "--hidden", "256", "--heads", "4", "--kv-heads", "2", "--head-dim", "64"]
                path = self.make(folder, f"{shape}.gguf", shape, *sizes, "--format", "q8_0")
                facts = self.inspect(path)
                self.assertEqual((facts["architecture"], facts["layers"], facts["width"]), (architecture, 2, 256))
                done = subprocess.run([BINARY, "run", "-m", path, "-p", "hello world", "-n", "4", "--json"], capture_output=True, timeout=300, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_steps_beside_plain_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            # 2 layers of 4 * 1024^2 + 3 * 1024 * 8192 values in f32: 224 MiB a step, in no cache.
            sizes = ["--width", "1024", "--hidden", "8192", "--heads", "8", "--kv-heads", "8", "--head-dim", "128"]
            path = self.make(folder, "large.gguf", "llama-15m", *sizes, "--format", "f32")
            arguments = [BINARY, "bench", "-m", path, "-p", "0", "-n", "2", "-r", "2", "--no-roof", "--beside"]
            done = subprocess.run([*arguments, "--json"], capture_output=True, text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            record = json.loads(done.stdout)[0]
            self.assertGreater(record["read_gb_per_s"], 0)
            low, high = record["read_fraction_quartiles"]
            self.assertLessEqual(low, record["read_fraction"])
            self.assertLessEqual(record["read_fraction"], high)
            one = [BINARY, "bench", "-m", path, "-p", "0", "-n", "1", "-r", "1", "--no-roof", "--json"]
            with_reads, without = (json.loads(subprocess.run([*one, *more], capture_output=True, timeout=300, check=True).stdout)[0] for more in (["--beside"], []))
            # For one step: its rate divided by that of the read after it.
            self.assertAlmostEqual(with_reads["read_fraction"] * with_reads["read_gb_per_s"] / with_reads["gb_per_s"], 1, places=4)
            self.assertEqual([without["read_fraction"], without["read_gb_per_s"], *without["read_fraction_quartiles"]], [None] * 4)
            table = subprocess.run([*one[:-1], "-o", "csv", "-p", "1", "--beside"], capture_output=True, text=True, timeout=300, check=True).stdout.splitlines()
            self.assertEqual({len(row) for row in csv.reader(table)}, {table[0].count(",") + 1})  # rows of prompts have the same columns
            self.assertIn("of the rate of plain reads", subprocess.run(arguments, capture_output=True, text=True, timeout=300, check=False).stdout)
            # The peak memory of the test without some of its reads. Loading has ended by then and needs less.
            held = sum(account["peak"] for name, account in record["memory"]["accounts"].items() if name != "loading")
            short = subprocess.run([*arguments, "--memory", f"{held - 100_000_000}"], capture_output=True, text=True, timeout=300, check=False)
            self.assertNotEqual(short.returncode, 0)
            self.assertIn("omit --beside", short.stderr)

    def test_mix_of_formats(self):
        with tempfile.TemporaryDirectory() as folder:
            facts = self.inspect(self.make(folder, "mix.gguf", "llama-15m", "--layers", "8", "--format", "q4_k_m"))
            formats = {tensor["name"]: tensor["format"] for tensor in facts["tensors"]}
            self.assertEqual(formats["output.weight"], "q6_k")
            self.assertEqual(formats["token_embd.weight"], "q4_k")
            down = [formats[f"blk.{i}.ffn_down.weight"] for i in range(8)]
            self.assertEqual([i for i in range(8) if down[i] == "q6_k"], [0, 3, 6, 7])

    def test_the_seed_decides(self):
        with tempfile.TemporaryDirectory() as folder:
            files = [self.make(folder, "a", "llama-15m", "-t", "1"), self.make(folder, "b", "llama-15m", "-t", "2"), self.make(folder, "c", "llama-15m", "--seed", "2")]
            contents = []
            for path in files:
                with open(path, "rb") as file:
                    contents.append(file.read())
            self.assertEqual(contents[0], contents[1])
            self.assertNotEqual(contents[0], contents[2])

    def test_sizes_that_do_not_fit(self):
        done = subprocess.run([MAKER, "llama-15m", "/nonexistent/a.gguf", "--hidden", "100", "--format", "q4_k"], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("blk.0.ffn_down.weight", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
