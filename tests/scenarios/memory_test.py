#!/usr/bin/env python3
"""`--memory`: the peak resident memory of the process (VmHWM) stays within the budget, with every stream running and
the KV cache full; what does not fit is refused with exit code 5 and numbers.

Usage: memory_test.py MILLRACE_BINARY SOURCE_FOLDER [TestClass]
"""

import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import unittest

BINARY, SOURCE = sys.argv[1], sys.argv[2]
LLAMA = os.path.join(SOURCE, "tests/golden/llama3/model.gguf")
MIB = 1 << 20

WIDTH, HIDDEN, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 768, 2048, 6, 12, 6, 64, 16000


def finite_halves(count):
    """Random f16 numbers between 2^-8 and 2^-5 in size, as bytes."""
    data = bytearray(random.Random(count).randbytes(2 * count))
    data[1::2] = data[1::2].translate(bytes(0x20 | (b & 0x8B) for b in range(256)))
    return bytes(data)


def write_model(path):
    """A llama of 64 million weights in F16, without a tokenizer."""
    tensors = [("token_embd.weight", VOCAB, WIDTH), ("output.weight", VOCAB, WIDTH), ("output_norm.weight", 1, WIDTH)]
    for layer in range(LAYERS):
        tensors += [(f"blk.{layer}.{name}.weight", rows, cols) for name, rows, cols in (
            ("attn_norm", 1, WIDTH), ("ffn_norm", 1, WIDTH), ("attn_q", HEADS * HEAD_DIM, WIDTH), ("attn_k", KV_HEADS * HEAD_DIM, WIDTH),
            ("attn_v", KV_HEADS * HEAD_DIM, WIDTH), ("attn_output", WIDTH, HEADS * HEAD_DIM), ("ffn_gate", HIDDEN, WIDTH),
            ("ffn_up", HIDDEN, WIDTH), ("ffn_down", WIDTH, HIDDEN))]

    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    values = {"block_count": LAYERS, "context_length": 2048, "embedding_length": WIDTH, "feed_forward_length": HIDDEN, "attention.head_count": HEADS,
              "attention.head_count_kv": KV_HEADS, "vocab_size": VOCAB}
    header = text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for key, value in values.items():
        header += text("llama." + key) + struct.pack("<II", 4, value)
    header += text("llama.attention.layer_norm_rms_epsilon") + struct.pack("<If", 6, 1e-5)
    infos, at = b"", 0
    for name, rows, cols in tensors:
        vector = rows == 1
        infos += text(name) + (struct.pack("<IQIQ", 1, cols, 0, at) if vector else struct.pack("<IQQIQ", 2, cols, rows, 1, at))
        at += (rows * cols * (4 if vector else 2) + 31) // 32 * 32
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values) + 2) + header + infos
    noise = finite_halves(MIB)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for _, rows, cols in tensors:
            if rows == 1:
                file.write(struct.pack("<f", 1.0) * cols)
                continue
            left = 2 * rows * cols
            while left > 0:
                left -= file.write(noise[: min(left, len(noise))])


def run(*arguments):
    """Exit code, JSON or None, standard error, and the peak resident memory."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        err.seek(0)
        printed, message = out.read().decode(), err.read().decode()
    lines = printed.strip().splitlines()
    return process.returncode, json.loads(lines[-1]) if lines and lines[-1].startswith("{") else None, message, usage.ru_maxrss * 1024


class BudgetCase(unittest.TestCase):
    def load(self, budget, *arguments, requests=64):
        """Replays prompts that share nothing, eight at a time and more waiting, until the KV cache is full of them."""
        code, result, message, peak = run("replay", "--in-process", "--trace", f"gen:requests={requests},prompt=fixed:300,output=fixed:20",
                                          "--closed-loop", "24", "--memory", str(budget), "--json", *arguments)
        self.assertEqual(code, 0, message)
        memory = result["memory"]
        self.assertEqual(memory["budget_bytes"], budget)
        self.assertEqual(result["failed"], 0, result["errors"])
        self.assertLessEqual(peak, budget)
        self.assertLessEqual(memory["peak_resident_bytes"], budget)
        self.assertLessEqual(memory["bytes"], budget)
        # Blocks free at the end say little: streams return their last, partly filled blocks when they finish.
        self.assertGreater(result["prefix_cache"]["erased_blocks"], result["kv_blocks"], "the load does not fill the cache")
        return memory


class Refused(unittest.TestCase):
    def expect(self, code, text, *arguments):
        done = subprocess.run([BINARY, "run", "-m", LLAMA, "-p", "ab", "-n", "1", *arguments], capture_output=True, check=False, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr.decode())
        self.assertIn(text, done.stderr.decode())

    def test_budgets_that_cannot_be(self):
        self.expect(2, "--memory", "--memory", "lots")
        self.expect(2, "more than 0", "--memory", "0")
        self.expect(5, "this machine", "--memory", "900T")
        self.expect(5, "memory: program needs", "--memory", "2M")
        self.expect(5, "activations", "--memory", "64M", "-c", "100000")
        self.expect(5, "KV cache", "--memory", "256M", "--kv-tokens", "100000000")

    def test_what_is_left_is_keys_and_values(self):
        sizes = []
        for budget in ("128M", "256M"):
            code, result, message, _ = run("run", "-m", LLAMA, "-p", "ab", "-n", "1", "-t", "1", "--memory", budget, "--json")
            self.assertEqual(code, 0, message)
            sizes.append(result["memory"])
        for one in sizes:
            self.assertLessEqual(one["bytes"], one["budget_bytes"])
            self.assertGreater(one["bytes"], 0.98 * one["budget_bytes"])
        self.assertGreater(sizes[1]["accounts"]["KV"]["bytes"], sizes[0]["accounts"]["KV"]["bytes"] + 50 * MIB)


class Shipped(BudgetCase):
    """The model that ships: its weights are in the program's own file."""

    def test_budgets_are_kept(self):
        for budget, more in ((96, ()), (100, ("--kv-pool", "virtual")), (112, ("--swap-tokens", "4000", "--policy", "skip_join_mlfq"))):
            with self.subTest(budget=budget, more=more):
                self.load(budget * MIB, "-m", "stories", "-t", "2", "-c", "512", "--batch-tokens", "128", *more)


class Larger(BudgetCase):
    """64 million weights of 16 bits, from a file."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.model = os.path.join(cls.folder.name, "model.gguf")
        write_model(cls.model)
        cls.weights = 2 * (VOCAB * WIDTH + LAYERS * (2 * HEADS * HEAD_DIM + 2 * KV_HEADS * HEAD_DIM + 3 * HIDDEN) * WIDTH)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def test_weights_that_do_not_fit_are_named(self):
        code, _, message, peak = run("run", "-m", self.model, "--prompt-tokens", "1,2", "-n", "1", "-t", "2", "--memory", str(self.weights),
                                     "--use", "weights=resident")
        self.assertEqual(code, 5, message)
        self.assertIn("memory: weights needs", message)
        self.assertIn("program", message)
        self.assertIn("choose a smaller model or format, or --use weights=mapped", message)
        self.assertIn("raise the budget (--memory)", message)
        self.assertLessEqual(peak, self.weights)

    def test_budgets_are_kept_with_a_full_cache(self):
        flags = ("-m", self.model, "-t", "2", "-c", "512", "--batch-tokens", "256")
        for left, more in ((128, ()), (140, ("--kv-pool", "virtual")), (150, ("--block-tokens", "1", "--swap-tokens", "2000"))):
            with self.subTest(left=left, more=more):
                memory = self.load(self.weights + left * MIB, *flags, *more)
                self.assertGreater(memory["accounts"]["KV"]["bytes"], 24 * MIB)
                self.assertEqual(memory["accounts"]["loading"]["bytes"], 0)

    def test_a_packed_cache_counts_too(self):
        cache = os.path.join(self.folder.name, "packed")
        for _ in ("written", "mapped"):
            self.load(self.weights + 110 * MIB, "-m", self.model, "-t", "2", "-c", "512", "--batch-tokens", "256", f"--packed-cache={cache}", requests=16)
        self.assertGreater(os.path.getsize(cache), self.weights)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[3:]])
