#!/usr/bin/env python3
"""Writes a GGUF file with layers of a 1.1B Llama's sizes, dense or as low-rank pairs: bench/factored_model.py OUT.gguf

For measurements that depend only on sizes: every matrix repeats one pattern of random levels, so the output is
meaningless. Needs only Python.

    bench/factored_model.py dense.gguf                 # 8 layers in Q8_0, about 370 MB
    bench/factored_model.py --ratio 0.5 pairs.gguf     # each matrix a pair with half of its values
    bench/factored_model.py --format q4_0 dense4.gguf
"""
import argparse
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/golden"))
from golden_tokenizer import VOCAB_SIZE, gguf_metadata  # noqa: E402
from make_mamba import gguf_string, gguf_value  # noqa: E402

F32 = 0
BLOCK = 32
FORMATS = {"q8_0": (8, 34, 0.0002), "q4_0": (2, 18, 0.004)}  # GGUF type, bytes of a block, its scale
WIDTH, HIDDEN, HEADS, KV_HEADS, HEAD = 2048, 5632, 32, 4, 64


def matrices(layer):
    p = f"blk.{layer}."
    yield p + "attn_q", HEADS * HEAD, WIDTH
    yield p + "attn_k", KV_HEADS * HEAD, WIDTH
    yield p + "attn_v", KV_HEADS * HEAD, WIDTH
    yield p + "attn_output", WIDTH, HEADS * HEAD
    yield p + "ffn_gate", HIDDEN, WIDTH
    yield p + "ffn_up", HIDDEN, WIDTH
    yield p + "ffn_down", WIDTH, HIDDEN


def shapes(layers, ratio):
    yield "token_embd.weight", [VOCAB_SIZE, WIDTH]
    for layer in range(layers):
        yield f"blk.{layer}.attn_norm.weight", [WIDTH]
        yield f"blk.{layer}.ffn_norm.weight", [WIDTH]
        for name, rows, cols in matrices(layer):
            rank = max(BLOCK, int(ratio * rows * cols / (rows + cols)) // BLOCK * BLOCK)
            if ratio == 0:
                yield name + ".weight", [rows, cols]
            else:
                yield name + ".low_rank_a", [rank, cols]
                yield name + ".low_rank_b", [rows, rank]
    yield "output_norm.weight", [WIDTH]
    yield "output.weight", [VOCAB_SIZE, WIDTH]


def keys(layers):
    own = [("context_length", "uint32", 2048), ("embedding_length", "uint32", WIDTH), ("block_count", "uint32", layers),
           ("feed_forward_length", "uint32", HIDDEN), ("attention.head_count", "uint32", HEADS),
           ("attention.head_count_kv", "uint32", KV_HEADS), ("attention.layer_norm_rms_epsilon", "float32", 1e-5),
           ("rope.dimension_count", "uint32", HEAD), ("rope.freq_base", "float32", 10000.0),
           ("vocab_size", "uint32", VOCAB_SIZE)]
    return ([("general.architecture", "string", "llama"), ("general.name", "string", "pairs")] +
            [(f"llama.{name}", kind, value) for name, kind, value in own] + gguf_metadata())


def values_of(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--ratio", type=float, default=0, help="values of a pair as a part of its matrix's; 0: dense")
    parser.add_argument("--format", choices=FORMATS, default="q8_0")
    parser.add_argument("out")
    args = parser.parse_args()
    kind, block_bytes, scale = FORMATS[args.format]
    source = random.Random(1)
    blocks = b"".join(struct.pack("<e", scale) + source.randbytes(block_bytes - 2) for _ in range(8191))
    head, at, tensors = b"", 0, list(shapes(args.layers, args.ratio))
    for name, shape in tensors:
        small = len(shape) == 1
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], F32 if small else kind, at)
        size = 4 * values_of(shape) if small else values_of(shape) // BLOCK * block_bytes
        at += size + -size % 32
    metadata = keys(args.layers)
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    start += b"".join(gguf_string(key) + gguf_value(form, value) for key, form, value in metadata) + head
    with open(args.out, "wb") as out:
        out.write(start + bytes(-len(start) % 32))
        for _, shape in tensors:
            if len(shape) == 1:
                data = struct.pack("<f", 1.0) * values_of(shape)
            else:
                need = values_of(shape) // BLOCK * block_bytes
                data = (blocks * (need // len(blocks) + 1))[:need]
            out.write(data + bytes(-len(data) % 32))
    print(f"{args.out}: {sum(values_of(shape) for _, shape in tensors) * 1e-6:.1f} M parameters")


if __name__ == "__main__":
    main()
