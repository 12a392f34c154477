#!/usr/bin/env python3
"""Writes quantized/: one tiny Llama in each published quantized layout, with the logits of the values that it stands
for: tests/golden/make_quantized.py [NAME ...]

Each layout is packed here from the description of its library, bit by bit, and shares no code with the loader. Needs
python3-torch and python3-numpy; nothing but this script does. Same seeds, same files.
"""
import base64
import json
import pathlib
import struct
import sys

import numpy
import torch

from golden_cases import LLAMA3, llama
from golden_forward import forward
from golden_tokenizer import BOS
from golden_weights import make_weights
from quip_sharp_layout import fuse, quip_sharp, split

ROOT = pathlib.Path(__file__).resolve().parent / "quantized"
CONFIG = llama(hidden_size=64, intermediate_size=32, rope_theta=500000.0, rope_scaling=LLAMA3, max_position_embeddings=512)
DTYPES = {"float32": "F32", "float16": "F16", "int32": "I32", "int64": "I64", "int16": "I16", "int8": "I8", "uint8": "U8",
          "f8": "F8_E4M3"}


def pack(levels, bits, axis):
    """Levels along `axis` as a stream of bits in words of 32, lowest bits first."""
    levels = numpy.moveaxis(levels.astype(numpy.uint64), axis, -1)
    stream = ((levels[..., None] >> numpy.arange(bits, dtype=numpy.uint64)) & 1).reshape(*levels.shape[:-1], -1)
    words = stream.reshape(*stream.shape[:-1], -1, 32)
    packed = (words << numpy.arange(32, dtype=numpy.uint64)).sum(-1).astype(numpy.uint32).view(numpy.int32)
    return numpy.ascontiguousarray(numpy.moveaxis(packed, -1, axis))


def pack_padded(levels, bits, axis):
    """32 // bits levels a word, the last one filled with zeros."""
    per_word = 32 // bits
    levels = numpy.moveaxis(levels.astype(numpy.uint64), axis, -1)
    short = -levels.shape[-1] % per_word
    levels = numpy.pad(levels, [(0, 0)] * (levels.ndim - 1) + [(0, short)]).reshape(*levels.shape[:-1], -1, per_word)
    packed = (levels << (numpy.arange(per_word, dtype=numpy.uint64) * bits)).sum(-1).astype(numpy.uint32).view(numpy.int32)
    return numpy.ascontiguousarray(numpy.moveaxis(packed, -1, axis))


def grid(weight, bits, group_of, symmetric):
    """Levels [rows, cols], scales [rows, groups] in float16 and zero points [rows, groups] of an unsigned grid."""
    rows, groups, top = weight.shape[0], group_of.max() + 1, 2 ** bits - 1
    scales, zeros = numpy.zeros((rows, groups), numpy.float16), numpy.zeros((rows, groups), int)
    for group in range(groups):
        part = weight[:, group_of == group]
        low, high = numpy.minimum(part.min(1), 0), numpy.maximum(part.max(1), 0)
        if symmetric:
            high = numpy.maximum(-low, high)
            low = -high
        scales[:, group] = (high - low) / top
        zeros[:, group] = 2 ** (bits - 1) if symmetric else numpy.clip(numpy.round(-low / scales[:, group]), 1, top)
    spread = scales.astype(float)[:, group_of]
    levels = numpy.clip(numpy.round(weight / spread) + zeros[:, group_of], 0, top).astype(int)
    return levels, scales, zeros, spread * (levels - zeros[:, group_of])


def gptq(bits, group, symmetric=True, act_order=False, v2=False):
    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "desc_act": act_order, "sym": symmetric,
              "checkpoint_format": "gptq_v2" if v2 else "gptq"}

    def matrix(prefix, weight, random):
        cols = weight.shape[1]
        size = cols if group < 0 else min(group, cols)
        group_of = numpy.arange(cols) // size
        if act_order:
            group_of = random.permutation(group_of)
        levels, scales, zeros, values = grid(weight, bits, group_of, symmetric)
        stored = zeros.T if v2 else zeros.T - 1
        return values, {prefix + "qweight": pack(levels.T, bits, 0), prefix + "qzeros": pack(stored, bits, 1),
                        prefix + "scales": numpy.ascontiguousarray(scales.T),
                        prefix + "g_idx": group_of.astype(numpy.int32)}
    return config, matrix


def awq():
    order = [0, 2, 4, 6, 1, 3, 5, 7]

    def words(levels):  # along the last axis
        eights = levels.reshape(*levels.shape[:-1], -1, 8)[..., order]
        return pack(eights.reshape(levels.shape), 4, levels.ndim - 1)

    def matrix(prefix, weight, random):
        levels, scales, zeros, values = grid(weight, 4, numpy.arange(weight.shape[1]) // 32, False)
        return values, {prefix + "qweight": words(levels.T), prefix + "qzeros": words(zeros.T),
                        prefix + "scales": numpy.ascontiguousarray(scales.T)}
    return {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}, matrix


def packed_tensors(bits, symmetric):
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": bits, "type": "int", "symmetric": symmetric,
                                           "strategy": "group", "group_size": 32}}}, "ignore": ["lm_head"]}

    def matrix(prefix, weight, random):
        levels, scales, zeros, values = grid(weight, bits, numpy.arange(weight.shape[1]) // 32, symmetric)
        tensors = {prefix + "weight_packed": pack_padded(levels, bits, 1), prefix + "weight_scale": scales,
                   prefix + "weight_shape": numpy.array(weight.shape, numpy.int64)}
        if not symmetric:
            tensors[prefix + "weight_zero_point"] = pack_padded(zeros, bits, 0)
        return values, tensors
    return config, matrix


def int_tensors():
    config = {"quant_method": "compressed-tensors", "format": "int-quantized", "config_groups": {"group_0": {
        "targets": ["Linear"], "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
        "input_activations": {"num_bits": 8, "dynamic": True, "strategy": "token"}}}, "ignore": ["lm_head"]}

    def matrix(prefix, weight, random):
        scales = (numpy.abs(weight).max(1, keepdims=True) / 127.5).astype(numpy.float16)
        levels = numpy.clip(numpy.round(weight / scales.astype(float)), -128, 127)
        return scales.astype(float) * levels, {prefix + "weight": levels.astype(numpy.int8), prefix + "weight_scale": scales}
    return config, matrix


def bitsandbytes():
    def matrix(prefix, weight, random):
        largest = numpy.abs(weight).max(1).astype(numpy.float32)
        levels = numpy.round(weight / largest[:, None].astype(float) * 127)
        return largest[:, None].astype(float) * levels / 127, {
            prefix + "weight": levels.astype(numpy.int8), prefix + "SCB": largest,
            prefix + "weight_format": numpy.zeros((), numpy.uint8)}
    return {"quant_method": "bitsandbytes", "load_in_8bit": True, "load_in_4bit": False}, matrix


NF4 = [-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635,
       -0.18477343022823334, -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634,
       0.33791524171829224, 0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0]
FP4 = [sign * value / 12 for sign in (1, -1) for value in (0, 0.0625, 8, 12, 4, 6, 2, 3)]


def bitsandbytes_4bit(kind, block, nested=False):
    """Blocks run on over the ends of rows; the first of two values is in the high half of a byte."""
    table = numpy.array({"nf4": NF4, "fp4": FP4}[kind], numpy.float32)

    def matrix(prefix, weight, random):
        flat = weight.reshape(-1, block)
        absmax = numpy.abs(flat).max(1).astype(numpy.float32)
        state = {"quant_type": kind, "blocksize": block, "dtype": "float32", "shape": list(weight.shape)}
        tensors = {prefix + "weight.quant_map": table}
        if nested:
            offset = float(absmax.mean())
            levels = numpy.sort(random.uniform(-1, 1, 256)).astype(numpy.float32)
            size = 4
            groups = [absmax[i:i + size] - offset for i in range(0, len(absmax), size)]
            scales = numpy.array([numpy.abs(group).max() for group in groups], numpy.float32)
            codes = [numpy.abs(levels[None, :] * scale - group[:, None]).argmin(1) for group, scale in zip(groups, scales)]
            absmax = numpy.concatenate([levels[code].astype(float) * scale + offset for code, scale in zip(codes, scales)])
            state.update(nested_blocksize=size, nested_dtype="float32", nested_offset=offset)
            tensors[prefix + "weight.absmax"] = numpy.concatenate(codes).astype(numpy.uint8)
            tensors[prefix + "weight.nested_absmax"] = scales
            tensors[prefix + "weight.nested_quant_map"] = levels
        else:
            tensors[prefix + "weight.absmax"] = absmax
        spread = absmax.astype(float)[:, None]
        codes = numpy.abs(flat[:, :, None] / spread[:, :, None] - table.astype(float)).argmin(2)
        pairs = codes.reshape(-1, 2)
        tensors[prefix + "weight"] = (pairs[:, 0] << 4 | pairs[:, 1]).astype(numpy.uint8)[:, None]
        text = json.dumps(state).encode()
        tensors[prefix + "weight.quant_state.bitsandbytes__" + kind] = numpy.frombuffer(text, numpy.uint8)
        return (table.astype(float)[codes] * spread).reshape(weight.shape), tensors
    return {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": kind,
            "bnb_4bit_use_double_quant": nested, "bnb_4bit_compute_dtype": "bfloat16"}, matrix


def hqq(bits, group, axis=1, whole_zeros=False):
    """Levels are a matrix of groups whose rows are cut into as many parts as an element holds levels."""
    def matrix(prefix, weight, random):
        lines = weight.reshape(-1, group) if axis == 1 else weight.reshape(group, -1)
        low, high = lines.min(axis, keepdims=True), lines.max(axis, keepdims=True)
        scale = ((high - low) / (2 ** bits - 1)).astype(numpy.float16)
        zero = -low / scale.astype(float)
        zero = (numpy.round(zero) if whole_zeros else zero).astype(numpy.float16)
        levels = numpy.clip(numpy.round(lines / scale.astype(float) + zero), 0, 2 ** bits - 1).astype(int)
        field, parts = (3, 10) if bits == 3 else (bits, 8 // bits) if bits <= 4 else (8, 1)
        padded = numpy.pad(levels, [(0, -len(levels) % parts), (0, 0)])
        packed = sum(part << field * (parts - 1 - i) for i, part in enumerate(numpy.split(padded, parts)))
        text = lambda name: numpy.frombuffer(name.encode(), numpy.uint8)
        tensors = {"W_q": packed.astype(numpy.int32 if bits == 3 else numpy.uint8), "scale": scale, "zero": zero,
                   "shape": numpy.array(weight.shape, numpy.int64), "nbits": numpy.array(bits, numpy.int32),
                   "group_size": numpy.array(group, numpy.int32), "axis": numpy.array(axis, numpy.int32),
                   "packing": text({3: "3bit_32", 4: "4bit_u8", 2: "2bit_u8"}.get(bits, "8bit_u8")),
                   "view_as_float": numpy.zeros((), numpy.uint8), "compute_dtype": text("torch.float16"),
                   "encoded_state_dict": numpy.ones((), numpy.uint8)}
        values = (levels - zero.astype(float)) * scale.astype(float)
        return values.reshape(weight.shape), {prefix + key: value for key, value in tensors.items()}
    return {"quant_method": "hqq", "quant_config": {"weight_quant_params": {
        "nbits": bits, "group_size": group, "axis": axis}}, "skip_modules": ["lm_head"]}, matrix


E2M1 = numpy.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    return mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


E4M3 = numpy.array([e4m3(byte) for byte in range(127)])


def float4(kind, modelopt=False):
    """NVFP4 and MXFP4 (kind): the first of two values is in the low half of a byte."""
    run = 16 if kind == "nvfp4" else 32

    def matrix(prefix, weight, random):
        runs = weight.reshape(-1, run)
        largest = numpy.abs(runs).max(1)
        tensors, factor = {}, 1.0
        if kind == "nvfp4":
            wanted = 6 * 448 / largest.max()
            factor = float(numpy.float32(1 / wanted if modelopt else wanted))
            factor = factor if modelopt else 1 / factor
            scales = numpy.abs(E4M3[None, :] - (largest / 6 / factor)[:, None]).argmin(1).astype(numpy.uint8)
            spread = E4M3[scales] * factor
        else:
            scales = (numpy.ceil(numpy.log2(largest / 6)) + 127).astype(numpy.uint8)
            spread = 2.0 ** (scales.astype(float) - 127)
        magnitudes = numpy.abs(numpy.abs(runs)[:, :, None] / spread[:, None, None] - E2M1).argmin(2)
        codes = magnitudes | (runs < 0) << 3
        pairs = codes.reshape(len(weight), -1, 2)
        tensors[prefix + ("weight" if modelopt else "weight_packed")] = (pairs[..., 0] | pairs[..., 1] << 4).astype(numpy.uint8)
        scales = scales.reshape(len(weight), -1)
        tensors[prefix + "weight_scale"] = F8(scales) if kind == "nvfp4" else scales
        if kind == "nvfp4" and modelopt:
            tensors[prefix + "weight_scale_2"] = numpy.array(factor, numpy.float32)
            tensors[prefix + "input_scale"] = numpy.array(0.01, numpy.float32)
        elif kind == "nvfp4":
            tensors[prefix + "weight_global_scale"] = numpy.array([1 / factor], numpy.float32)
            tensors[prefix + "input_global_scale"] = numpy.array([3.5], numpy.float32)
        values = numpy.where(runs < 0, -1, 1) * E2M1[magnitudes] * spread[:, None]
        return values.reshape(weight.shape), tensors
    if modelopt:
        return {"quant_method": "modelopt", "quant_algo": "NVFP4", "producer": {"name": "modelopt"}, "ignore": ["lm_head"],
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}, matrix
    layout = kind + "-pack-quantized"
    return {"quant_method": "compressed-tensors", "format": layout, "config_groups": {"group_0": {
        "targets": ["Linear"], "format": layout, "weights": {"num_bits": 4, "type": "float", "group_size": run}}},
        "ignore": ["lm_head"]}, matrix


class F8:
    """Bytes that are floats of 8 bits."""
    dtype, shape = "f8", property(lambda self: self.bytes.shape)

    def __init__(self, array):
        self.bytes = array


def aqlm(books, bits):
    """Codes are those of the nearest sums of random vectors, found one book after the other."""
    dim = 8

    def matrix(prefix, weight, random):
        scales = numpy.abs(weight).max(1).astype(numpy.float16)
        left = (weight / scales.astype(float)[:, None]).reshape(-1, dim)
        values, codes, tables = numpy.zeros_like(left), [], []
        for book in range(books):
            table = (random.standard_normal((2 ** bits, dim)) * (left.std() / (1 + book))).astype(numpy.float16)
            nearest = ((left[:, None] - table.astype(float)) ** 2).sum(2).argmin(1)
            values += table.astype(float)[nearest]
            left = left - table.astype(float)[nearest]
            codes.append(nearest)
            tables.append(table)
        stacked = numpy.stack(codes, 1).reshape(len(weight), -1, books)
        kind = numpy.int8 if bits <= 8 else numpy.int16
        stacked = numpy.where(stacked >= 2 ** (bits - 1), stacked - 2 ** bits, stacked).astype(kind)
        return values.reshape(weight.shape) * scales.astype(float)[:, None], {
            prefix + "codes": stacked, prefix + "codebooks": numpy.stack(tables)[:, :, None, :],
            prefix + "scales": scales[:, None, None, None]}
    return {"quant_method": "aqlm", "nbits_per_codebook": bits, "num_codebooks": books, "out_group_size": 1,
            "in_group_size": dim, "linear_weights_not_to_quantize": ["lm_head.weight"]}, matrix


CASES = {
    "gptq_2": gptq(2, 32), "gptq_3_asymmetric": gptq(3, 32, symmetric=False, v2=True), "gptq_4": gptq(4, -1),
    "gptq_4_act_order": gptq(4, 32, symmetric=False, act_order=True), "gptq_8": gptq(8, 32), "awq": awq(),
    "pack_4": packed_tensors(4, True), "pack_4_asymmetric": packed_tensors(4, False), "pack_3": packed_tensors(3, True),
    "int_8": int_tensors(), "bitsandbytes_8": bitsandbytes(), "bitsandbytes_nf4": bitsandbytes_4bit("nf4", 64),
    "bitsandbytes_nf4_nested": bitsandbytes_4bit("nf4", 128, nested=True),
    "bitsandbytes_fp4": bitsandbytes_4bit("fp4", 64), "hqq_4": hqq(4, 32), "hqq_4_whole": hqq(4, 32, whole_zeros=True),
    "hqq_3": hqq(3, 32), "hqq_2_axis_0": hqq(2, 64, axis=0),
    "nvfp4": float4("nvfp4"), "nvfp4_modelopt": float4("nvfp4", modelopt=True), "mxfp4": float4("mxfp4"),
    "aqlm_2x8": aqlm(2, 8), "aqlm_1x9": aqlm(1, 9),
    "quip_sharp_2": quip_sharp(2), "quip_sharp_3": quip_sharp(3, rescale=True), "quip_sharp_4": quip_sharp(4, override=3.0),
}
SIZES = {"nvfp4": {"intermediate_size": 64}, "nvfp4_modelopt": {"intermediate_size": 64},  # blocks have 64 columns
         # Blocks of e8p have 256 columns; 768 is 12 x 64, 832 is 52 x 16.
         "quip_sharp_2": {"hidden_size": 256, "intermediate_size": 768, "num_attention_heads": 16, "num_key_value_heads": 8,
                          "num_hidden_layers": 1, "tie_word_embeddings": True},
         "quip_sharp_3": {"intermediate_size": 832, "num_hidden_layers": 1}, "quip_sharp_4": {"intermediate_size": 192}}


def write(path, tensors):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, array in tensors.items():
        blob = array.bytes.tobytes() if isinstance(array, F8) else array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": DTYPES[str(array.dtype)], "shape": list(array.shape),
                        "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def make(name, config, matrix):
    model = {**CONFIG, **SIZES.get(name, {})}
    random = numpy.random.Generator(numpy.random.PCG64(7))
    tensors, values = {}, {}
    plain = make_weights(model, 103, False)
    fused = "quip_params" in config
    for key, array in (fuse(plain) if fused else plain).items():
        if key.endswith("_proj.weight"):
            values[key], parts = matrix(key.removesuffix("weight"), array.astype(float), random)
            tensors.update(parts)
        else:
            values[key], tensors[key] = array, array.astype(numpy.float32)
    weights = {key: torch.from_numpy(numpy.asarray(array, dtype=float)) for key, array in split(values).items()}
    tokens = [BOS] + random.integers(0, model["vocab_size"] - 4, 23).tolist()
    logits = forward(model, weights, tokens).to(torch.float32).numpy()
    folder = ROOT / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**model, **(config if fused else {"quantization_config": config})}, indent=1) + "\n")
    write(folder / "model.safetensors", tensors)
    expected = {"note": "logits of the values that the file stands for, in float64", "tokens": tokens,
                "shape": list(logits.shape), "logits": base64.b64encode(logits.astype("<f4").tobytes()).decode()}
    (folder / "expected.json").write_text(json.dumps(expected, indent=1) + "\n")


for name in sys.argv[1:] or CASES:
    make(name, *CASES[name])
