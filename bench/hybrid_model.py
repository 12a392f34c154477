#!/usr/bin/env python3
"""Writes a GGUF file with the sizes of a published model of mixed layers: bench/hybrid_model.py SHAPE OUT.gguf

For measurements that depend only on sizes, also of other engines: the weights are random levels, so the output is
meaningless. Tensors of a kind that routes or decays have plausible values. Needs only Python.

    bench/hybrid_model.py qwen35-2b --format q8_0 qwen35.gguf        # gated delta nets in three of four layers
    bench/hybrid_model.py falcon-h1-1.5b --format q4_k_m falcon.gguf # Mamba-2 and attention side by side
    bench/hybrid_model.py gpt-oss-20b --layers 6 gpt-oss.gguf        # MXFP4 experts; the other matrices in Q8_0
    bench/hybrid_model.py gemma4-26b-a4b --layers 6 gemma4.gguf      # experts beside MLPs; heads of two sizes
"""
import argparse
import pathlib
import random
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/golden"))
from golden_tokenizer import TOKENS, gguf_metadata  # noqa: E402
from make_mamba import gguf_string, gguf_value  # noqa: E402

# GGUF type, values and bytes of a block, and the bytes of it that are not random: {place: bytes}. Scales give weights a
# deviation of about 0.015.
HALF = "<e"
FORMATS = {
    "f32": (0, 1, 4, {}),
    "q4_0": (2, 32, 18, {0: struct.pack(HALF, 0.0033)}),
    "q8_0": (8, 32, 34, {0: struct.pack(HALF, 0.0002)}),
    "q4_k": (12, 256, 144, {0: struct.pack(HALF, 1e-4), 2: struct.pack(HALF, 7.5e-4)}),
    "q6_k": (14, 256, 210, {208: struct.pack(HALF, 1.1e-5)}),
    "mxfp4": (39, 32, 17, {0: b"\x77"}),
}
PATTERN_BLOCKS = 8191  # random blocks, repeated

QWEN35 = {"arch": "qwen35", "layers": 24, "vocab": 248320, "heads": 8, "kv_heads": 2, "head_dim": 256, "rotated": 64,
          "theta": 1e7, "ssm_heads": 16, "ssm_groups": 16, "state": 128, "inner": 2048, "tied": True}
FALCON = {"arch": "falcon-h1", "heads": 8, "kv_heads": 2, "theta": 1e11, "ssm_groups": 1, "tied": True}
SHAPES = {
    "qwen35-0.8b": dict(QWEN35, width=1024, hidden=3584),
    "qwen35-2b": dict(QWEN35, width=2048, hidden=6144),
    "falcon-h1-0.5b": dict(FALCON, layers=36, width=1024, hidden=2048, vocab=32784, head_dim=64, ssm_heads=24,
                           state=128, inner=1536),
    "falcon-h1-1.5b": dict(FALCON, layers=24, width=2048, hidden=4096, vocab=65537, head_dim=128, ssm_heads=48,
                           state=256, inner=3072),
    "gpt-oss-20b": {"arch": "gpt-oss", "layers": 24, "vocab": 201088, "width": 2880, "hidden": 2880, "heads": 64,
                    "kv_heads": 8, "head_dim": 64, "theta": 150000.0, "experts": 32, "used": 4, "window": 128,
                    "tied": False},
    "gemma4-26b-a4b": {"arch": "gemma4", "layers": 30, "vocab": 262144, "width": 2816, "hidden": 2112, "heads": 16,
                       "kv_heads": 8, "head_dim": 256, "global_kv_heads": 2, "global_head_dim": 512, "theta": 1e6,
                       "experts": 128, "used": 8, "expert_hidden": 704, "window": 1024, "tied": True},
}


def attention(c, p, gated):
    width, q, kv = c["width"], c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    yield p + "attn_q.weight", [2 * q if gated else q, width]
    yield p + "attn_k.weight", [kv, width]
    yield p + "attn_v.weight", [kv, width]
    yield p + "attn_output.weight", [width, q]


def delta_net(c, p):
    width, keys = c["width"], c["ssm_groups"] * c["state"]
    yield p + "attn_qkv.weight", [2 * keys + c["inner"], width]
    yield p + "attn_gate.weight", [c["inner"], width]
    yield p + "ssm_beta.weight", [c["ssm_heads"], width]
    yield p + "ssm_alpha.weight", [c["ssm_heads"], width]
    yield p + "ssm_conv1d.weight", [2 * keys + c["inner"], 4]
    yield p + "ssm_dt.bias", [c["ssm_heads"]]
    yield p + "ssm_a", [c["ssm_heads"]]
    yield p + "ssm_norm.weight", [c["inner"] // c["ssm_heads"]]
    yield p + "ssm_out.weight", [width, c["inner"]]


def state_space(c, p):
    width, convolved = c["width"], c["inner"] + 2 * c["ssm_groups"] * c["state"]
    yield p + "ssm_in.weight", [c["inner"] + convolved + c["ssm_heads"], width]
    yield p + "ssm_conv1d.weight", [convolved, 4]
    yield p + "ssm_conv1d.bias", [convolved]
    yield p + "ssm_dt.bias", [c["ssm_heads"]]
    yield p + "ssm_a", [c["ssm_heads"], 1]
    yield p + "ssm_d", [c["ssm_heads"], 1]
    yield p + "ssm_out.weight", [width, c["inner"]]


def mlp(c, p):
    yield p + "ffn_gate.weight", [c["hidden"], c["width"]]
    yield p + "ffn_up.weight", [c["hidden"], c["width"]]
    yield p + "ffn_down.weight", [c["width"], c["hidden"]]


def gpt_oss_layer(c, p):
    q, kv = c["heads"] * c["head_dim"], c["kv_heads"] * c["head_dim"]
    yield from attention(c, p, False)
    for name, count in (("attn_q", q), ("attn_k", kv), ("attn_v", kv), ("attn_output", c["width"])):
        yield f"{p}{name}.bias", [count]
    yield p + "attn_sinks.weight", [c["heads"]]
    yield p + "post_attention_norm.weight", [c["width"]]
    yield p + "ffn_gate_inp.weight", [c["experts"], c["width"]]
    yield p + "ffn_gate_inp.bias", [c["experts"]]
    for name, rows, cols in (("gate", c["hidden"], c["width"]), ("up", c["hidden"], c["width"]),
                             ("down", c["width"], c["hidden"])):
        yield f"{p}ffn_{name}_exps.weight", [c["experts"], rows, cols]
        yield f"{p}ffn_{name}_exps.bias", [c["experts"], rows]


def sees_all(layer):
    """Gemma 4: five layers with a window, then one that sees all keys."""
    return layer % 6 == 5


def gemma4_layer(c, p, layer):
    own = dict(c, head_dim=c["global_head_dim"], kv_heads=c["global_kv_heads"]) if sees_all(layer) else c
    # Layers that see all keys have no values of their own: keys are values.
    yield from (tensor for tensor in attention(own, p, False) if not sees_all(layer) or "attn_v" not in tensor[0])
    yield p + "attn_q_norm.weight", [own["head_dim"]]
    yield p + "attn_k_norm.weight", [own["head_dim"]]
    for name in ("post_attention_norm", "ffn_norm", "post_ffw_norm", "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2"):
        yield f"{p}{name}.weight", [c["width"]]
    yield p + "layer_output_scale.weight", [1]
    yield from mlp(c, p)
    yield p + "ffn_gate_inp.weight", [c["experts"], c["width"]]
    yield p + "ffn_gate_inp.scale", [c["width"]]
    yield p + "ffn_gate_up_exps.weight", [c["experts"], 2 * c["expert_hidden"], c["width"]]
    yield p + "ffn_down_exps.weight", [c["experts"], c["width"], c["expert_hidden"]]
    yield p + "ffn_down_exps.scale", [c["experts"]]


def shapes(c):
    yield "token_embd.weight", [c["vocab"], c["width"]]
    for layer in range(c["layers"]):
        p = f"blk.{layer}."
        yield p + "attn_norm.weight", [c["width"]]
        if c["arch"] == "gpt-oss":
            yield from gpt_oss_layer(c, p)
            continue
        if c["arch"] == "gemma4":
            yield from gemma4_layer(c, p, layer)
            continue
        if c["arch"] == "falcon-h1":
            yield from state_space(c, p)
            yield from attention(c, p, False)
            yield p + "ffn_norm", [c["width"]]
        elif (layer + 1) % 4:
            yield from delta_net(c, p)
            yield p + "post_attention_norm.weight", [c["width"]]
        else:
            yield from attention(c, p, True)
            yield p + "attn_q_norm.weight", [c["head_dim"]]
            yield p + "attn_k_norm.weight", [c["head_dim"]]
            yield p + "post_attention_norm.weight", [c["width"]]
        yield from mlp(c, p)
    yield "output_norm.weight", [c["width"]]
    if c["arch"] == "gemma4":
        yield "rope_freqs.weight", [c["global_head_dim"] // 2]
    if not c["tied"]:
        yield "output.weight", [c["vocab"], c["width"]]


def gguf_keys(c):
    counts = [("context_length", 32768), ("embedding_length", c["width"]), ("block_count", c["layers"]),
              ("feed_forward_length", c["hidden"]), ("attention.head_count", c["heads"]),
              ("attention.head_count_kv", c["kv_heads"]), ("attention.key_length", c["head_dim"]),
              ("attention.value_length", c["head_dim"]), ("rope.dimension_count", c.get("rotated", c["head_dim"]))]
    if "inner" in c:
        counts += [("ssm.conv_kernel", 4), ("ssm.inner_size", c["inner"]), ("ssm.state_size", c["state"]),
                   ("ssm.time_step_rank", c["ssm_heads"]), ("ssm.group_count", c["ssm_groups"])]
    if "experts" in c:
        counts += [("expert_count", c["experts"]), ("expert_used_count", c["used"]),
                   ("expert_feed_forward_length", c.get("expert_hidden", c["hidden"])),
                   ("attention.sliding_window", c["window"])]
    if c["arch"] == "gemma4":
        replaced = {"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count"}
        counts = [(key, value) for key, value in counts if key not in replaced]
        for ending, dims in (("", c["global_head_dim"]), ("_swa", c["head_dim"])):
            counts += [(f"attention.key_length{ending}", dims), (f"attention.value_length{ending}", dims),
                       (f"rope.dimension_count{ending}", dims)]
        counts.append(("embedding_length_per_layer_input", 0))
    if c["arch"] == "qwen35":
        counts.append(("full_attention_interval", 4))
    if c["arch"] == "falcon-h1":
        counts.append(("vocab_size", c["vocab"]))
    keys = [("general.architecture", "string", c["arch"]), ("general.name", "string", "random")]
    keys += [(f"{c['arch']}.{key}", "uint32", value) for key, value in counts]
    keys += [(f"{c['arch']}.attention.layer_norm_rms_epsilon", "float32", 1e-6),
             (f"{c['arch']}.rope.freq_base", "float32", c["theta"])]
    if c["arch"] == "qwen35":
        keys.append(("qwen35.rope.dimension_sections", "int32[]", [11, 11, 10, 0]))
    if c["arch"] == "gemma4":
        kinds = [sees_all(layer) for layer in range(c["layers"])]
        heads = [c["global_kv_heads"] if all_ else c["kv_heads"] for all_ in kinds]
        keys += [("gemma4.attention.head_count_kv", "int32[]", heads),
                 ("gemma4.attention.sliding_window_pattern", "bool[]", [not all_ for all_ in kinds]),
                 ("gemma4.rope.freq_base_swa", "float32", 10000.0),
                 ("gemma4.final_logit_softcapping", "float32", 30.0)]
    more = [f"token{i}" for i in range(c["vocab"] - len(TOKENS))]
    longer = {"tokenizer.ggml.tokens": more, "tokenizer.ggml.token_type": [1] * len(more)}
    return keys + [(key, kind, value + longer[key] if key in longer else value) for key, kind, value in gguf_metadata()]


def format_of(name, shape, asked):
    """The format of a tensor. q4_k_m is Q4_K, with Q6_K where files of that name have it: values, and the head."""
    if len(shape) == 1 or name.endswith((".bias", "conv1d.weight", "ffn_gate_inp.weight", "ssm_a", "ssm_d")):
        return "f32"
    if "_exps" in name and asked == "mxfp4":
        return "mxfp4"
    if asked == "mxfp4":
        return "q8_0"
    if asked == "q4_k_m":
        return "q6_k" if name.endswith(("attn_v.weight", "token_embd.weight", "output.weight")) else "q4_k"
    return asked


def values_of(shape):
    count = 1
    for n in shape:
        count *= n
    return count


def bytes_of(shape, format_name):
    _, values, size, _ = FORMATS[format_name]
    assert shape[-1] % values == 0, f"rows of {shape[-1]} values in {format_name}"
    return values_of(shape) // values * size


def pattern(format_name, source):
    _, _, size, fixed = FORMATS[format_name]
    data = bytearray(source.randbytes(PATTERN_BLOCKS * size))
    for place, content in fixed.items():
        for i, byte in enumerate(content):
            data[place + i::size] = bytes([byte]) * PATTERN_BLOCKS
    return bytes(data)


def floats(name, shape, source):
    count = values_of(shape)
    if "norm" in name or name.endswith(("scale", "scale.weight")):
        return struct.pack("<f", 1.0) * count
    if name == "rope_freqs.weight":  # a quarter of the pairs turns
        return struct.pack(f"<{count}f", *([1.0] * (count // 4) + [1e30] * (count - count // 4)))
    if name.endswith("ssm_a"):
        return struct.pack(f"<{count}f", *(-source.uniform(0.2, 4.0) for _ in range(count)))
    deviation = 0.3 if "ssm" in name else 0.02
    return struct.pack(f"<{count}f", *(source.gauss(0, deviation) for _ in range(count)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("--format", choices=("q4_0", "q8_0", "q4_k_m", "mxfp4"),
                        help="mxfp4 by default for gpt-oss, q4_0 for gemma4, else q8_0")
    parser.add_argument("--layers", type=int, help="fewer layers than the model has")
    parser.add_argument("out")
    args = parser.parse_args()
    c = dict(SHAPES[args.shape])
    c["layers"] = args.layers or c["layers"]
    asked = args.format or {"gpt-oss": "mxfp4", "gemma4": "q4_0"}.get(c["arch"], "q8_0")
    keys, source, at, head, tensors = gguf_keys(c), random.Random(1), 0, b"", []
    for name, shape in shapes(c):
        kind = format_of(name, shape, asked)
        tensors.append((name, shape, kind))
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], FORMATS[kind][0], at)
        at += bytes_of(shape, kind) + -bytes_of(shape, kind) % 32
    start = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys))
    start += b"".join(gguf_string(key) + gguf_value(kind, value) for key, kind, value in keys) + head
    patterns = {kind: pattern(kind, source) for kind in {kind for _, _, kind in tensors} - {"f32"}}
    with open(args.out, "wb") as out:
        out.write(start + bytes(-len(start) % 32))
        for name, shape, kind in tensors:
            size = bytes_of(shape, kind)
            if kind == "f32":
                out.write(floats(name, shape, source))
            else:
                whole, part = divmod(size, len(patterns[kind]))
                for _ in range(whole):
                    out.write(patterns[kind])
                out.write(patterns[kind][:part])
            out.write(bytes(-size % 32))
    print(f"{args.out}: {sum(values_of(shape) for _, shape, _ in tensors) * 1e-6:.1f} M parameters, {at * 1e-6:.1f} MB")


if __name__ == "__main__":
    main()
