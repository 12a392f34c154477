#!/usr/bin/env python3
"""Writes a GGUF file with layers of DeepSeek-V2-Lite's sizes: bench/latent_model.py OUT.gguf

For measurements that depend only on sizes: every Q8_0 matrix repeats one pattern of random levels, so the output is
meaningless. Keys and values of the heads are in two stacks, as in newer files. Needs only Python.

    bench/latent_model.py latent.gguf                      # 6 layers, 16 experts, about 1 GB
    bench/latent_model.py --layers 27 --experts 64 all.gguf
"""
import argparse
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/golden"))
from golden_tokenizer import VOCAB_SIZE  # noqa: E402
from make_deepseek import config, gguf_keys  # noqa: E402
from make_mamba import gguf_string, gguf_value  # noqa: E402

F32, Q8_0 = 0, 8
BLOCK, BLOCK_BYTES = 32, 34


def shapes(c):
    width, heads, rank = c["hidden_size"], c["num_attention_heads"], c["kv_lora_rank"]
    nope, rope, value = c["qk_nope_head_dim"], c["qk_rope_head_dim"], c["v_head_dim"]
    yield "token_embd.weight", [c["vocab_size"], width]
    for layer in range(c["num_hidden_layers"]):
        p = f"blk.{layer}."
        yield p + "attn_norm.weight", [width]
        yield p + "attn_q.weight", [heads * (nope + rope), width]
        yield p + "attn_kv_a_mqa.weight", [rank + rope, width]
        yield p + "attn_kv_a_norm.weight", [rank]
        yield p + "attn_k_b.weight", [heads, rank, nope]
        yield p + "attn_v_b.weight", [heads, value, rank]
        yield p + "attn_output.weight", [width, heads * value]
        yield p + "ffn_norm.weight", [width]
        hidden, ending, stack = c["intermediate_size"], "", []
        if layer >= c["first_k_dense_replace"]:
            hidden, ending, stack = c["moe_intermediate_size"], "_exps", [c["n_routed_experts"]]
            shared = hidden * c["n_shared_experts"]
            yield p + "ffn_gate_inp.weight", [c["n_routed_experts"], width]
            yield p + "ffn_gate_shexp.weight", [shared, width]
            yield p + "ffn_up_shexp.weight", [shared, width]
            yield p + "ffn_down_shexp.weight", [width, shared]
        yield p + f"ffn_gate{ending}.weight", stack + [hidden, width]
        yield p + f"ffn_up{ending}.weight", stack + [hidden, width]
        yield p + f"ffn_down{ending}.weight", stack + [width, hidden]
    yield "output_norm.weight", [width]
    yield "output.weight", [c["vocab_size"], width]


def values_of(shape):
    count = 1
    for n in shape:
        count *= n
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--experts", type=int, default=16)
    parser.add_argument("out")
    args = parser.parse_args()
    c = config(hidden_size=2048, num_hidden_layers=args.layers, intermediate_size=10944, moe_intermediate_size=1408,
               n_routed_experts=args.experts, num_experts_per_tok=6, n_shared_experts=2, num_attention_heads=16,
               kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
               max_position_embeddings=32768,
               rope_scaling={"factor": 40, "beta_fast": 32, "beta_slow": 1, "mscale_all_dim": 0.707,
                             "original_max_position_embeddings": 4096})
    assert c["vocab_size"] == VOCAB_SIZE
    keys, source = gguf_keys(c, True), random.Random(1)
    blocks = b"".join(struct.pack("<e", 0.0002) + source.randbytes(BLOCK) for _ in range(8191))
    head, at, tensors = b"", 0, list(shapes(c))
    for name, shape in tensors:
        small = len(shape) == 1 or name.endswith("ffn_gate_inp.weight")
        kind = F32 if small else Q8_0
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, at)
        bytes_ = 4 * values_of(shape) if small else values_of(shape) // BLOCK * BLOCK_BYTES
        at += bytes_ + -bytes_ % 32
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    start += b"".join(gguf_string(key) + gguf_value(kind, value) for key, kind, value in keys) + head
    with open(args.out, "wb") as out:
        out.write(start + bytes(-len(start) % 32))
        for name, shape in tensors:
            count = values_of(shape)
            if len(shape) == 1:
                data = struct.pack("<f", 1.0) * count
            elif name.endswith("ffn_gate_inp.weight"):
                data = struct.pack(f"<{count}f", *(source.gauss(0, 0.02) for _ in range(count)))
            else:
                need = count // BLOCK * BLOCK_BYTES
                data = (blocks * (need // len(blocks) + 1))[:need]
            out.write(data + bytes(-len(data) % 32))
    print(f"{args.out}: {sum(values_of(s) for _, s in tensors) * 1e-6:.1f} M parameters")


if __name__ == "__main__":
    main()
