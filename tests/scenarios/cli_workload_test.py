#!/usr/bin/env python3
"""millrace bench, trace, replay and simulate: what they count and what they print.

Usage: cli_workload_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]. Uses the tiny golden models only.
"""

import json
import os
import sys
import tempfile
import unittest

from cli import LLAMA, millrace, write


class Bench(unittest.TestCase):
    def bench(self, *arguments, roof="--no-roof"):  # it takes a second
        done = millrace("bench", *arguments, *roof.split(), "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_work_is_counted_from_the_files(self):
        tensors = json.loads(millrace("inspect", LLAMA, "--json", "--tensors").stdout)
        matrices = [t for t in tensors["tensors"] if len(t["shape"]) > 1 and t["name"] != "token_embd.weight"]
        weights = sum(t["bytes"] for t in matrices)
        values = sum(t["shape"][0] * t["shape"][1] for t in matrices)
        heads = tensors["heads"] * tensors["head_dim"] * tensors["layers"]
        kv_bytes = 2 * 2 * tensors["kv_heads"] * tensors["head_dim"] * tensors["layers"]
        records = self.bench("-m", LLAMA, "-p", "0", "-n", "1", "-d", "3", "--parallel", "1,2", "-r", "1", "-t", "1", roof="")
        for record, streams in zip(records, (1, 2)):
            self.assertEqual((record["n_gen"], record["n_depth"], record["n_streams"]), (1, 3, streams))
            work = record["gb_per_s"] * record["avg_ns"], record["gop_per_s"] * record["avg_ns"]
            self.assertAlmostEqual(work[0] / (weights + streams * 4 * kv_bytes), 1, places=6)
            self.assertAlmostEqual(work[1] / (streams * (2 * values + 4 * 4 * heads)), 1, places=6)
            self.assertEqual(record["roof_fraction"], max(record["bandwidth_fraction"], record["compute_fraction"]))

    def test_an_evictor_reads_the_stored_tokens(self):
        tensors = json.loads(millrace("inspect", LLAMA, "--json").stdout)
        kv_bytes = 2 * 2 * tensors["kv_heads"] * tensors["head_dim"] * tensors["layers"]
        small = "streamingllm:sinks=2,window=6,slack=4"  # 8 tokens after a prompt of 40, then 9, 10 and 11
        for evictor in (small, "h2o:budget=8,slack=4", small + ",prompt=evicted"):
            for streams, pool in ((1, "paged"), (3, "virtual")):
                plain, evicted = self.bench("-m", LLAMA, "-p", "0", "-n", "3", "-d", "40", "--parallel", str(streams), "-r", "2", "-t", "1",
                                            "--kv-pool", pool, "--evictor", "none", "--evictor", evictor)
                self.assertEqual((plain["evictor"], evicted["evictor"]), ("", evictor))
                saved = plain["gb_per_s"] * plain["avg_ns"] - evicted["gb_per_s"] * evicted["avg_ns"]
                self.assertAlmostEqual(saved / (streams * 3 * 32 * kv_bytes), 1, places=2)  # a small part of rounded work
        prompt = self.bench("-m", LLAMA, "-p", "40", "-n", "4", "-u", "16", "--parallel", "2", "-r", "2", "-t", "1", "--evictor", small + ",prompt=evicted")
        self.assertEqual([record["n_prompt"] for record in prompt], [40, 0])
        for kv_format, options in (("kivi:bits=4", ""), ("flexgen_kv", ",scope=head")):  # encoded tokens move, too
            plain, encoded = self.bench("-m", LLAMA, "-p", "0", "-n", "30", "-d", "90", "-r", "1", "-t", "1", "--ctk", kv_format,
                                        "--evictor", "none", "--evictor", "h2o:budget=40,slack=4" + options)
            self.assertLess(encoded["gb_per_s"] * encoded["avg_ns"], plain["gb_per_s"] * plain["avg_ns"])
        refused = millrace("bench", "-m", LLAMA, "-p", "0", "-n", "4", "--ctk", "kvquant", "--evictor", "h2o")
        self.assertEqual(refused.returncode, 4)
        self.assertIn("evictor h2o does not go with KV format kvquant: ", refused.stderr.decode())
        refused = millrace("bench", "-m", LLAMA, "-p", "4", "-n", "0", "--evictor", "lru")
        self.assertEqual(refused.returncode, 2)
        members = json.loads(millrace("techniques", "--family", "evictor", "--json").stdout)
        self.assertIn("evictor: unknown 'lru'; available: " + ", ".join(one["name"] for one in members), refused.stderr.decode())

    def test_kernels_run_in_turns_and_compare_with_the_first(self):
        records = self.bench("-m", LLAMA, "-p", "4", "-n", "2", "-r", "3", "-t", "1", "--kernel", "fused:parts=none", "--kernel", "none",
                             "--kernel", "shared_prefix + unified_max:max=1")
        self.assertEqual([record["n_prompt"] for record in records], [4, 4, 4, 0, 0, 0])
        self.assertEqual([record["kernels"] for record in records[:3]], [["fused:parts=none"], [], ["shared_prefix", "unified_max:max=1"]])
        self.assertEqual((records[0]["times_first"], records[3]["times_first"]), (1, 1))
        for record in records:
            low, high = record["times_first_quartiles"]
            self.assertTrue(0 < low <= record["times_first"] <= high)
            self.assertEqual(len(record["samples_ns"]), 3)
        (alone,) = self.bench("-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "-t", "1", "--use", "kernel=unified_max")
        self.assertEqual((alone["kernels"], alone["times_first"]), (["unified_max"], None))
        refused = millrace("bench", "-m", LLAMA, "--kernel", "fast")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("kernel: unknown 'fast'; available: fused", refused.stderr.decode())

    def test_a_shared_prefix_is_stored_and_read_once(self):
        tensors = json.loads(millrace("inspect", LLAMA, "--json").stdout)
        kv_bytes = 2 * 2 * tensors["kv_heads"] * tensors["head_dim"] * tensors["layers"]
        test = ("-m", LLAMA, "-p", "0", "-n", "1", "-d", "40", "--parallel", "3", "-r", "1", "-t", "1")
        (alone,), (shared,) = self.bench(*test), self.bench(*test, "--shared-prefix", "35")
        saved = alone["gb_per_s"] * alone["avg_ns"] - shared["gb_per_s"] * shared["avg_ns"]
        self.assertAlmostEqual(saved / (2 * 32 * kv_bytes), 1, places=3)  # two whole blocks of 16
        refused = millrace("bench", *test, "--shared-prefix", "32", "--kv-pool", "virtual")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("--shared-prefix: not with", refused.stderr.decode())

    def test_plain_reads_are_refused_where_a_cache_holds_the_model(self):
        refused = millrace("bench", "-m", LLAMA, "-p", "0", "-n", "1", "--beside")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("may fit in a cache", refused.stderr.decode())
        prompts = millrace("bench", "-m", LLAMA, "-p", "2", "-n", "0", "--beside")
        self.assertEqual(prompts.returncode, 2)
        self.assertIn("no test only generates", prompts.stderr.decode())

    def test_roof(self):
        roof = self.bench("-t", "1", roof="--roof")
        self.assertEqual([row["threads"] for row in roof["roofs"]], [1])
        for key in ("read_gb_per_s", "l3_gb_per_s", "l2_gb_per_s", "f32_gflop_per_s"):
            self.assertGreater(roof["roofs"][0][key], 0, key)


class Workload(unittest.TestCase):
    MOONCAKE = "".join(json.dumps({"timestamp": 50 * i, "input_length": 40, "output_length": 3, "hash_ids": [i % 2]}) + "\n" for i in range(6))

    def run_json(self, *arguments):
        done = millrace(*arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_trace_stats(self):
        with tempfile.TemporaryDirectory() as folder:
            stats = self.run_json("trace", "stats", write(folder, "t.jsonl", self.MOONCAKE))
            self.assertEqual(stats["requests"], 6)
            self.assertAlmostEqual(stats["arrivals"]["rate"], 20)
            self.assertAlmostEqual(stats["reuse"]["ratio_blocks"], 4 / 6)
            self.assertIn("66.67 % of the blocks", millrace("trace", "stats", os.path.join(folder, "t.jsonl")).stdout.decode())
            bad = millrace("trace", "stats", write(folder, "bad.jsonl", self.MOONCAKE + "{}"))
            self.assertEqual(bad.returncode, 3)
            self.assertIn("bad.jsonl:7: timestamp: is missing", bad.stderr.decode())
        self.assertEqual(millrace("trace", "stats", "/nowhere").returncode, 3)
        self.assertEqual(millrace("trace").returncode, 2)

    def test_trace_cache(self):
        with tempfile.TemporaryDirectory() as folder:
            path = write(folder, "t.jsonl", self.MOONCAKE)
            rows = self.run_json("trace", "cache", path, "--policy", "lru,lfu", "--capacity", "1,unlimited", "--nodes", "2")
            self.assertEqual([(row["policy"], row["capacity_blocks"]) for row in rows], [("lru", 1), ("lfu", 1), ("lru", "unlimited"), ("lfu", "unlimited")])
            self.assertAlmostEqual(rows[0]["local"]["ratio_blocks"], 4 / 6)  # each node sees one of the two prompts
            self.assertAlmostEqual(rows[2]["global"]["ratio_blocks"], 4 / 6)
            self.assertEqual(millrace("trace", "cache", path, "--policy", "fifo").returncode, 2)
            self.assertEqual(millrace("trace", "cache", path, "--capacity", "0").returncode, 2)

    def test_replay(self):
        with tempfile.TemporaryDirectory() as folder:
            path, report = write(folder, "t.jsonl", self.MOONCAKE), os.path.join(folder, "r.html")
            result = self.run_json("replay", "--trace", path, "--in-process", "-m", LLAMA, "--report", report, "--good-e2e", "60s", "--max-streams", "1")
            self.assertEqual((result["completed"], result["failed"], result["output_tokens"]), (6, 0, 18))
            self.assertGreater(result["cached_tokens"], 0)  # equal hashes were equal prompts
            self.assertEqual(result["goodput"]["good_requests"], 6)
            self.assertGreaterEqual(result["seconds"], 0.25)  # the last one was due then
            with open(report, encoding="utf-8") as file:
                self.assertIn("</html>", file.read())
        closed = self.run_json("replay", "--trace", "gen:requests=5,rate=0.001,prompt=fixed:9,output=fixed:4", "--in-process", "-m", LLAMA, "--closed-loop", "2")
        self.assertEqual((closed["completed"], closed["output_tokens"]), (5, 20))
        refused = millrace("replay", "--trace", "gen:requests=2,rate=100,prompt=fixed:9000", "--in-process", "-m", LLAMA, "--json")
        self.assertEqual((refused.returncode, json.loads(refused.stdout)["failed"]), (1, 2))
        self.assertEqual(millrace("replay", "--trace", "gen:requests=2", "-m", LLAMA).returncode, 2)
    def test_recorded_plans(self):
        load = ["replay", "--in-process", "-m", LLAMA, "--kv-tokens", "208", "--context", "128", "--max-streams", "3", "--batch-tokens", "24", "--trace"]
        trace = "gen:requests=9,rate=2000,prompt=fixed:40,output=fixed:30"
        with tempfile.TemporaryDirectory() as folder:
            plans, again = os.path.join(folder, "plans"), os.path.join(folder, "again")
            first = self.run_json(*load, trace, "--policy", "fcfs:reserve=prompt", "--record-plans", plans)
            second = self.run_json(*load, trace, "--policy", "priority", "--replay-plans", plans, "--record-plans", again)
            for name in ("completed", "failed", "output_tokens", "cached_tokens", "steps"):
                self.assertEqual(second[name], first[name], name)
            with open(plans, encoding="utf-8") as one, open(again, encoding="utf-8") as other:
                text = one.read()
                self.assertEqual(other.read(), text)
            self.assertRegex(text, r"(?m)^admit [0-9 ]*\b9\b")  # alone or beside one that was squeezed out
            lines = text.splitlines()
            short, broken = write(folder, "short", "\n".join(lines[:-3]) + "\n"), write(folder, "broken", "\n".join([*lines[:5], "run away", *lines[5:]]))
            for path, asked, message in ((short, trace, "ends after"), (broken, trace, "line 6 of"), (plans, trace.replace("fixed:40", "fixed:47"), "line "),
                                         (plans, trace.replace("=9", "=7"), "line "), (plans, trace.replace("fixed:30", "fixed:20"), "line "),
                                         (plans, trace.replace("=9", "=10"), "ends after"), (os.path.join(folder, "none"), trace, "cannot read")):
                done = millrace(*load, asked, "--replay-plans", path)
                self.assertEqual(done.returncode, 2, message)
                self.assertIn(message, done.stderr.decode())
            self.assertEqual(millrace(*load, trace, "--replay-plans", plans, "--closed-loop", "2").returncode, 2)

    def test_replay_prediction(self):
        table = {"kind": "piecewise", "tokens": {"at": [1, 100], "seconds": [0.001, 0.01]}}
        with tempfile.TemporaryDirectory() as folder:
            cost, report = write(folder, "cost.json", json.dumps(table)), os.path.join(folder, "r.html")
            load = ["replay", "--trace", "gen:requests=4,rate=100,prompt=fixed:40,output=fixed:6", "--in-process", "-m", LLAMA, "--predict", cost]
            result = self.run_json(*load, "--report", report)
            self.assertEqual(result["predicted"]["output_tokens"], 24)
            # One prompt, then five decodes, at least; no other clock is involved.
            self.assertGreater(result["predicted"]["e2el_ms"]["mean"], 4.5 + 5)
            self.assertEqual(result["predicted"]["ttft_ms"], self.run_json(*load)["predicted"]["ttft_ms"])
            self.assertIn("ttft_mean", result["predicted_over_measured"])
            with open(report, encoding="utf-8") as file:
                self.assertIn("predicted / measured", file.read())
            self.assertIn("predicted", millrace(*load).stdout.decode())
            self.assertEqual(millrace(*load[:-1], os.path.join(folder, "none.json")).returncode, 3)

    def test_replay_over_http(self):
        unreachable = ["replay", "--trace", "gen:requests=2,rate=100", "--url"]
        refused = millrace(*unreachable, "http://127.0.0.1:1", "--json")
        self.assertEqual(refused.returncode, 1)
        [(error, count)] = json.loads(refused.stdout)["errors"].items()
        self.assertEqual((error.split(":")[0], count), ("connect", 2))
        self.assertEqual(millrace(*unreachable, "localhost:80").returncode, 2)
        self.assertEqual(millrace(*unreachable, "https://localhost").returncode, 4)
        self.assertEqual(millrace(*unreachable, "http://127.0.0.1:1", "--api", "soap").returncode, 2)
        self.assertEqual(millrace(*unreachable, "http://127.0.0.1:1", "--in-process").returncode, 2)

    def test_calibrate(self):
        with tempfile.TemporaryDirectory() as folder:
            cost = os.path.join(folder, "cost.json")
            result = self.run_json("bench", "-m", LLAMA, "--calibrate", "-o", cost, "-u", "16", "--parallel", "4", "-d", "64", "--seconds", "0")
            self.assertEqual((result["kind"], result["made_by"]["held_out_steps"], result["made_by"]["rounds"]), ("piecewise", 20, 2))
            self.assertGreater(result["swap_bandwidth"], 0)
            self.assertGreater(result["disk_bandwidth"], 0)
            self.assertEqual(os.listdir(folder), ["cost.json"])  # what the disk was tried with is gone
            self.assertEqual(result["tokens"]["at"][-1], 16)
            with open(cost, encoding="utf-8") as file:
                self.assertEqual(json.load(file), result)
            done = self.run_json("simulate", "--trace", "gen:requests=9,rate=5,prompt=fixed:30,output=fixed:5", "--cost", cost)
            self.assertEqual(done[0]["completed"], 9)
            self.assertGreater(len(result["kernel_shapes"]["rows"]), 3)  # of matrices
            for row in result["kernel_shapes"]["rows"]:
                self.assertIn(row["gemv_to"], (0, 2, 3, 4, 6, 8))
                self.assertTrue(row["tiles_from"] is None or row["tiles_from"] > 0)
            shaped = self.run_json("bench", "-m", LLAMA, "-p", "4", "-n", "0", "-r", "1", "--kernel", "by_shape:file=" + cost)
            self.assertEqual(shaped[0]["n_prompt"], 4)
            self.assertEqual(millrace("bench", "-m", LLAMA, "--calibrate", "-u", "60000").returncode, 2)
        self.assertEqual(millrace("bench", "-m", LLAMA, "-o", "xml").returncode, 2)


class Simulate(unittest.TestCase):
    LOAD = ["simulate", "--trace", "gen:requests=60,rate=20,prompt=fixed:200,output=fixed:30,prefix_tokens=160,prefix_groups=3"]

    def run_json(self, *arguments):
        done = millrace(*self.LOAD, *arguments, "--json")
        self.assertEqual(done.returncode, 0, done.stderr.decode())
        return json.loads(done.stdout)

    def test_policies_side_by_side(self):
        names = ["fcfs", "stall_free:tbt_ms=50", "orca"]
        rows = self.run_json("--cost", "llama-7b-a100", *[flag for name in names for flag in ("--policy", name)])
        self.assertEqual([row["policy"] for row in rows], names)
        for row in rows:
            self.assertEqual((row["completed"], row["refused"], row["unfinished"]), (60, 0, 0))
        table = millrace(*self.LOAD, "--cost", "llama-7b-a100").stdout.decode().splitlines()
        self.assertEqual(len(table), 3)
        self.assertEqual([cell.strip() for cell in table[2].split("|")[1:4]], ["fcfs", "60", "0"])

    def test_nodes_add_up(self):
        for route in ("in_turn", "prefix", "least_loaded"):
            [row] = self.run_json("--cost", "llama-7b-a100", "--nodes", "3", "--route", route)
            self.assertEqual(len(row["nodes"]), 3)
            for field in ("completed", "prompt_tokens", "cached_tokens", "steps"):
                self.assertEqual(sum(node[field] for node in row["nodes"]), row[field], field)
        self.assertIn("| fcfs: node |", millrace(*self.LOAD, "--nodes", "2").stdout.decode())

    def test_the_same_again(self):
        first, second = self.run_json(), self.run_json()
        for row in first + second:
            del row["wall_seconds"]
        self.assertEqual(first, second)

    def test_refusals_have_reasons(self):
        load = ["simulate", "--trace", "gen:requests=5,rate=5,prompt=fixed:60,output=fixed:5,documents=2,document_tokens=20,document_pool=3"]
        for arguments in (["kvlink", "--kv-format", "kivi"], ["kvlink", "--evictor", "h2o"]):
            done = millrace(*load, "--use", "context=" + arguments[0], *arguments[1:], "--json")
            self.assertEqual(json.loads(done.stdout)[0]["completed"], 5, done.stderr.decode())
        for arguments, message in ((["cacheblend", "--kv-format", "kivi"], "kivi"),
                                   (["independent", "--evictor", "streamingllm:positions=cache"], "evictor"), (["cepe"], "cepe")):
            command = [*load, "--use", "context=" + arguments[0], *arguments[1:]]
            text, rows = millrace(*command), millrace(*command, "--json")
            for done in (text, rows):
                self.assertEqual(done.returncode, 4, done.stderr.decode())
            [row] = json.loads(rows.stdout)
            self.assertEqual((row["refused"], row["completed"]), (5, 0))
            [refusal] = row["refusals"]
            self.assertEqual(refusal["requests"], 5)
            self.assertIn(message, refusal["reason"])
            self.assertIn(f"fcfs: 5 requests refused: {refusal['reason']}", text.stderr.decode())

    def test_usage(self):
        for arguments, message in ((["--policy", "nobody"], "nobody"), (["--route", "home"], "home"),
                                   (["--nodes", "0"], "nodes"), (["--nodes", "2", "--record-plans", "/tmp/x"], "one node")):
            done = millrace(*self.LOAD, *arguments)
            self.assertEqual(done.returncode, 2, arguments)
            self.assertIn(message, done.stderr.decode())
        done = millrace(*self.LOAD, "--cost", "/nowhere.json")
        self.assertEqual(done.returncode, 3)
        self.assertIn("/nowhere.json", done.stderr.decode())
        with tempfile.TemporaryDirectory() as folder:
            bad = write(folder, "bad.json", json.dumps({"kind": "piecewise", "tokens": {"at": [2, 1], "seconds": [1, 1]}}))
            done = millrace(*self.LOAD, "--cost", bad)
            self.assertEqual(done.returncode, 3)
            self.assertIn("bad.json: tokens", done.stderr.decode())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
