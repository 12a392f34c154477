"""The named suites: their cases and models. A model is a shape and a format; synthetic_model writes it if it does not exist
yet."""

import os
import subprocess

from adapters import Case, PeerError

DENSE = "llama-1.1b"
FORMATS = ("q4_0", "q4_k_m", "q8_0", "bf16")
STREAMS = (1, 2, 4, 8, 16, 32)
SHIPPED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../models/millrace-stories-6m.gguf")
NAMES = ("decode", "prefill", "batched", "depth", "small", "threads", "moe", "avx2", "load", "serve")


def list_cases(name, options, model_path):
    """Cases of a suite. `options` has quick, formats, kv, depths, rates, threads and shape; `model_path(shape, format)` gives the file."""
    formats = options.formats or (FORMATS[:1] if options.quick else FORMATS)
    threads = options.threads
    cases = []

    def add(kind, shape, format_name, **fields):
        cases.append(Case(name, kind, shape, format_name, model_path(shape, format_name),
                          **{"threads": threads, "kv": options.kv[0], **fields}))

    shape = options.shape or DENSE
    if name == "decode":
        for format_name in formats:
            add("decode", shape, format_name, generate=32 if options.quick else 64)
    elif name == "prefill":
        for format_name in formats:
            add("prefill", shape, format_name, prompt=512)
    elif name == "batched":
        for format_name in formats:
            for streams in STREAMS[1:4] if options.quick else STREAMS:
                add("batched", shape, format_name, prompt=16, generate=16 if options.quick else 32, streams=streams)
    elif name == "depth":
        for kv in options.kv:
            for depth in options.depths or ((1024,) if options.quick else (4096, 16384)):
                add("decode", shape, formats[0], generate=16, depth=depth, kv=kv)
                add("prefill", shape, formats[0], prompt=depth, kv=kv)
    elif name == "small":
        for small in ("llama-15m", "llama-60m", "llama-125m"):
            add("decode", small, formats[0], generate=128)
            add("prefill", small, formats[0], prompt=512)
        for kind, length in (("decode", {"generate": 128}), ("prefill", {"prompt": 512})):
            cases.append(Case(name, kind, "millrace-stories-6m", "f16", SHIPPED, threads=threads, kv=options.kv[0], **length))
    elif name == "threads":
        for count in (1, threads):
            add("prefill", shape, formats[0], prompt=256, threads=count)
            add("decode", shape, formats[0], generate=32, threads=count)
    elif name == "moe":
        for mixture in ("mixtral-0.8b", "qwen3moe-1.2b"):
            add("prefill", mixture, formats[0], prompt=512)
            add("decode", mixture, formats[0], generate=64)
            for alike in (False, True):
                for streams in (4, 16):
                    add("batched", mixture, formats[0], prompt=16, generate=16, streams=streams, mixture=True, alike=alike)
    elif name == "avx2":
        for format_name in formats:
            add("prefill", shape, format_name, prompt=256, isa="avx2")
            add("decode", shape, format_name, generate=32, isa="avx2")
            for streams in (4, 16):
                add("batched", shape, format_name, prompt=16, generate=16, streams=streams, isa="avx2")
    elif name == "load":
        for format_name in formats:
            add("load", shape, format_name)
    elif name == "serve":
        for rate in (0.0, *options.rates):
            add("serve", shape, formats[0], prompt=128, generate=64, streams=16, rate=rate)
    else:
        raise ValueError(name)
    return cases


class Models:
    """Files of synthetic models in one folder, written at first use."""

    def __init__(self, folder, maker, given, say):
        self.folder, self.maker, self.given, self.say = folder, maker, given, say

    def path(self, shape, format_name):
        if self.given:
            return self.given
        return os.path.join(self.folder, f"{shape}-{format_name}.gguf")

    def make(self, case):
        if os.path.exists(case.model):
            return
        if self.given:
            raise PeerError(f"{case.model}: no such file")
        os.makedirs(self.folder, exist_ok=True)
        self.say(f"writing {case.model}")
        done = subprocess.run([self.maker, case.shape, case.model, "--format", case.format], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise PeerError(f"synthetic_model: {done.stderr.decode('utf-8', 'replace').strip()[-160:]}")
