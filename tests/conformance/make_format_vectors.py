#!/ usr / bin / env python3
"""Writes format_vectors.txt: random blocks of every format and the float32 values they stand for.

Written from the layouts' definitions, one value at a time and in exact rational arithmetic where it matters, to share
nothing with the C++ codecs. One line a block: name, bytes in hex, then the values as float32 bits in hex. The ternary
formats and the I-quants of 1 to 3 bits are decoded by llama.cpp's own gguf package, which has their grids:

    PYTHONPATH=LLAMA_CPP/gguf-py python3 tests/conformance/make_format_vectors.py > tests/conformance/format_vectors.txt
"""
import itertools
import random

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

rng = np.random.default_rng(20240607)
F = np.float32


def f16(b, at):
    return F(np.frombuffer(bytes(b[at:at + 2]), "<f2")[0])


def nibble(b, at, i, half):
    """4-bit value i of a run of 2 * half values: the first half low, the second half high."""
    return b[at + i % half] >> (4 if i >= half else 0) & 15


def bit(b, at, i):
    return b[at + i // 8] >> (i % 8) & 1


def signed(byte):
    return byte - 256 if byte > 127 else byte


def q4_0(b, i): return f16(b, 0) * F(nibble(b, 2, i, 16) - 8)
def q4_1(b, i): return f16(b, 0) * F(nibble(b, 4, i, 16)) + f16(b, 2)
def q5_0(b, i): return f16(b, 0) * F(nibble(b, 6, i, 16) + 16 * bit(b, 2, i) - 16)
def q5_1(b, i): return f16(b, 0) * F(nibble(b, 8, i, 16) + 16 * bit(b, 4, i)) + f16(b, 2)
def q8_0(b, i): return f16(b, 0) * F(signed(b[2 + i]))


def two_bits(b, at, i):
    """Four planes of 32 values in each 32 bytes."""
    half, plane, j = i // 128, i % 128 // 32, i % 32
    return b[at + 32 * half + j] >> (2 * plane) & 3


def q2_k(b, i):
    s = b[i // 16]
    return f16(b, 80) * F(s & 15) * F(two_bits(b, 16, i)) - f16(b, 82) * F(s >> 4)


def q3_k(b, i):
    k = i // 16
    low = b[96 + k] & 15 if k < 8 else b[96 + k - 8] >> 4
    high = b[104 + k % 4] >> (2 * (k // 4)) & 3
    q = two_bits(b, 32, i) + 4 * (b[i % 32] >> (i // 32) & 1)
    return f16(b, 108) * F(low + 16 * high - 32) * F(q - 4)


def scale_min(b, at, k):
    if k < 4:
        return b[at + k] % 64, b[at + 4 + k] % 64
    s = b[at + 8 + k - 4] % 16 + 16 * (b[at + k - 4] // 64)
    m = b[at + 8 + k - 4] // 16 + 16 * (b[at + k] // 64)
    return s, m


def k_affine(b, i, q):
    s, m = scale_min(b, 4, i // 32)
    return f16(b, 0) * F(s) * F(q) - f16(b, 2) * F(m)


def q4_k(b, i): return k_affine(b, i, nibble(b, 16 + 32 * (i // 64), i % 64, 32))


def q5_k(b, i):
    return k_affine(b, i, nibble(b, 48 + 32 * (i // 64), i % 64, 32) + 16 * (b[16 + i % 32] >> (i // 32) & 1))


def q6_k(b, i):
    half, r = i // 128, i % 128
    low = nibble(b, 64 * half, r, 64)
    high = b[128 + 32 * half + r % 32] >> (2 * (r // 32)) & 3
    return f16(b, 208) * F(signed(b[192 + i // 16])) * F(low + 16 * high - 32)


NL = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def iq4_nl(b, i): return f16(b, 0) * F(NL[nibble(b, 2, i, 16)])


def iq4_xs(b, i):
    k = i // 32
    low = b[4 + k // 2] >> (4 * (k % 2)) & 15
    high = (b[2] + 256 * b[3]) >> (2 * k) & 3
    return f16(b, 0) * F(low + 16 * high - 32) * F(NL[nibble(b, 8 + 16 * k, i % 32, 16)])


def mxfp4(b, i):
    code = nibble(b, 1, i, 16)
    exponent, mantissa = code >> 1 & 3, code & 1
    magnitude = mantissa * 0.5 if exponent == 0 else (1 + mantissa * 0.5) * 2.0 ** (exponent - 1)
    return F((-1.0 if code & 8 else 1.0) * magnitude * 2.0 ** (b[0] - 127))


def nvfp4(b, i):
    code = nibble(b, 4 + i // 16 * 8, i % 16, 8)
    exponent, mantissa = code >> 1 & 3, code & 1
    magnitude = mantissa * 0.5 if exponent == 0 else (1 + mantissa * 0.5) * 2.0 ** (exponent - 1)
    return F(-magnitude if code & 8 else magnitude) * f8_e4m3([b[i // 16] & 127], 0)


def q1_0(b, i): return f16(b, 0) * F(2 * bit(b, 2, i) - 1)
def q2_0(b, i): return f16(b, 0) * F((b[2 + i // 4] >> (2 * (i % 4)) & 3) - 1)


def f8_e4m3(b, i):
    sign, exponent, mantissa = b[i] >> 7, b[i] >> 3 & 15, b[i] & 7
    magnitude = mantissa / 8 * 2.0 ** -6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)
    return F(-magnitude if sign else magnitude)


NF4 = [-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112]
FP4 = [0, 1, 64, 96, 32, 48, 16, 24]
FP4 += [-x for x in FP4]


def nf4(b, i): return f16(b, 0) * (F(1) / F(112.03)) * F(NF4[nibble(b, 2, i, 16)])
def fp4(b, i): return f16(b, 0) * (F(1) / F(96)) * F(FP4[nibble(b, 2, i, 16)])


def f32(b, i): return np.frombuffer(bytes(b[4 * i:4 * i + 4]), "<f4")[0]
def float16(b, i): return f16(b, 2 * i)
def bf16(b, i): return np.frombuffer(bytes([0, 0] + list(b[2 * i:2 * i + 2])), "<f4")[0]

#name : (values a block, bytes a block, decoder, offsets of f16 scales)
FORMATS = {
    "f32": (8, 32, f32, []), "f16": (16, 32, float16, []), "bf16": (16, 32, bf16, []),
    "f8_e4m3": (32, 32, f8_e4m3, []),
    "q8_0": (32, 34, q8_0, [0]), "q4_0": (32, 18, q4_0, [0]), "q4_1": (32, 20, q4_1, [0, 2]),
    "q5_0": (32, 22, q5_0, [0]), "q5_1": (32, 24, q5_1, [0, 2]),
    "q2_k": (256, 84, q2_k, [80, 82]), "q3_k": (256, 110, q3_k, [108]), "q4_k": (256, 144, q4_k, [0, 2]),
    "q5_k": (256, 176, q5_k, [0, 2]), "q6_k": (256, 210, q6_k, [208]),
    "iq4_nl": (32, 18, iq4_nl, [0]), "iq4_xs": (256, 136, iq4_xs, [0]), "mxfp4": (32, 17, mxfp4, []),
    "nf4": (32, 18, nf4, [0]), "fp4": (32, 18, fp4, [0]),
}
LATER = {"nvfp4": (64, 36, nvfp4, []), "q1_0": (128, 18, q1_0, [0]), "q2_0": (64, 18, q2_0, [0])}  # the same
#name : (bytes a block, offsets of f16 scales)
BY_GGUF = {"tq1_0": (54, [52]), "tq2_0": (66, [64]), "iq1_s": (50, [0]), "iq1_m": (56, []), "iq2_xxs": (66, [0]),
           "iq2_xs": (74, [0]), "iq2_s": (82, [0]), "iq3_xxs": (98, [0]), "iq3_s": (110, [0])}


def e8p_grid():
    """The 65536 points of QuIP#'s E8P12, in the order of its codes, times 4: the definition in its own terms, where the
    columns of packed magnitudes are in the order 0 2 4 6 1 3 5 7 and the last one has the sign of the sum."""
    small = [p for p in itertools.product((1, 3, 5), repeat=8) if sum(x * x for x in p) <= 40]
    large = ["31113333 13113333 11313333 11133333 33313311 33313131 33311331 33313113 33311313 33311133 33133311 33133131",
             "33131331 33133113 33131313 33131133 31333311 31333131 31331331 31333113 31331313 13331133 13333311 13333131",
             "13331331 13333113 13331313 11331333 33113331"]
    rows = small + [tuple(map(int, word)) for word in " ".join(large).split()]
    out = []
    for code in range(65536):
        magnitudes = [rows[code >> 8][column] for column in (0, 2, 4, 6, 1, 3, 5, 7)]
        if sum(magnitudes) // 2 % 2:
            magnitudes[7] *= -1
        odd = bin(code & 255).count("1") % 2
        signs = code & 255 ^ odd
        packed = [-x if signs >> i & 1 else x for i, x in enumerate(magnitudes)]
        out.append([2 * packed[i] + (-1 if odd else 1) for i in (0, 4, 1, 5, 2, 6, 3, 7)])
    return out


E8P = e8p_grid()


def e8_points():
    """The 256 points of E8 behind E8P with 3 bits, times 2, in the order of their codes."""
    out = [[0] * 8]
    for a, b in itertools.combinations(range(8), 2):
        out += [[x if i == a else y if i == b else 0 for i in range(8)] for x in (2, -2) for y in (2, -2)]
    for signs in range(128):
        seven = [-1 if signs >> i & 1 else 1 for i in range(7)]
        out.append(seven + [int(np.prod(seven))])
    out += [[4 * (i == j) for i in range(8)] for j in range(8)] + [[-4 * (i == j) for i in range(8)] for j in range(7)]
    assert len(out) == 256 and all(sum(p) % 4 == 0 for p in out)
    return out


E8 = e8_points()


def e8p_point(b, p, at=2): return E8P[b[at + 2 * p] + 256 * b[at + 1 + 2 * p]]


def e8p_3(b, i): return f16(b, 0) * F(e8p_point(b, i // 8)[i % 8] + E8[b[66 + i // 8]][i % 8])


def e8p_4(b, i): return f16(b, 0) * F(7 * e8p_point(b, i // 8)[i % 8] + 2 * e8p_point(b, i // 8, 66)[i % 8])


def e8p(b, i): return f16(b, 0) * F(E8P[b[2 + i // 8 * 2] + 256 * b[3 + i // 8 * 2]][i % 8]) * F(0.25)


def affine_group(bits, values):
    def value(b, i):
        level = b[4 + i // 4] >> (2 * (i % 4)) & 3
        if bits == 3: level += 4 * bit(b, 4 + values // 4, i)
        return f16(b, 0) * F(level) + f16(b, 2)
    return value


def four_of_eight(bits):
    """Each half of eight columns has its stored values at its own end of the four."""
    def value(b, i):
        mask, j = b[2 + i // 8], i % 8
        if not mask >> j & 1: return F(0)
        if j < 4: k = sum(mask >> c & 1 for c in range(j))
        else: k = 3 - sum(mask >> c & 1 for c in range(j + 1, 8))
        k += i // 8 * 4
        q = b[6 + k] if bits == 8 else b[6 + k % 8] >> (4 * (k // 8)) & 15
        return f16(b, 0) * F(q - 2 ** bits if q >= 2 ** (bits - 1) else q)
    return value


np.seterr(all="ignore")


def write_vectors(name, values, size, decoder, scales):
    for block in range(2 if values == 256 else 6):
        while True:
            raw = rng.integers(0, 256, size, dtype=np.uint8)
            for at in scales:  # one block in three has subnormal scales
                raw[at + 1] = raw[at + 1] & 0x83 if block % 3 == 1 else raw[at + 1] & 0xBF
            b = [int(x) for x in raw]
            if name == "f8_e4m3" and any(x % 128 == 127 for x in b): continue
            if name == "mxfp4": b[0] = min(b[0], 250)
            if name == "nvfp4" and any(x % 128 == 127 for x in b[:4]): continue
            out = np.array([decoder(b, i) for i in range(values)], np.float32)
            if np.isfinite(out).all(): break
        print(name, bytes(b).hex(), " ".join(f"{x:08x}" for x in out.view(np.uint32)))


for name, of in FORMATS.items():
    write_vectors(name, *of)
for name, (size, scales) in BY_GGUF.items():
    for block in range(3):
        raw = rng.integers(0, 256, size, dtype=np.uint8)
        for at in scales:
            raw[at + 1] = raw[at + 1] & 0x83 if block % 3 == 1 else raw[at + 1] & 0xBF
        if name == "iq1_m":  # the scale is four bits at the end of each of four words
            raw[55] &= 0x8F if block % 3 == 1 else 0xBF
        out = dequantize(raw[None], GGMLQuantizationType[name.upper()]).reshape(-1).astype(np.float32)
        assert np.isfinite(out).all()
        print(name, raw.tobytes().hex(), " ".join(f"{x:08x}" for x in out.view(np.uint32)))

for name, of in LATER.items():
    write_vectors(name, *of)

own = np.random.default_rng(8)  # the other vectors do not depend on these
for name, size, decoder in (("e8p", 66, e8p), ("e8p_3", 98, e8p_3), ("e8p_4", 130, e8p_4)):
    for block in range(3):
        b = [int(x) for x in own.integers(0, 256, size)]
        b[1] = b[1] & 0x83 if block % 3 == 1 else b[1] & 0xBF
        out = np.array([decoder(b, i) for i in range(256)], np.float32)
        print(name, bytes(b).hex(), " ".join(f"{x:08x}" for x in out.view(np.uint32)))

plain = random.Random(9)
for bits, values in ((2, 64), (2, 128), (3, 64), (3, 128)):
    for block in range(3):
        b = [plain.randrange(256) for _ in range(4 + bits * values // 8)]
        for at in (0, 2): b[at + 1] = b[at + 1] & 0x83 if block % 3 == 1 else b[at + 1] & 0xBF
        out = np.array([affine_group(bits, values)(b, i) for i in range(values)], np.float32)
        print(f"q{bits}_g{values}", bytes(b).hex(), " ".join(f"{x:08x}" for x in out.view(np.uint32)))

for bits in (8, 4):
    for block in range(4):
        b = [plain.randrange(256) for _ in range(6 + 2 * bits)]
        b[1] = b[1] & 0x83 if block % 3 == 1 else b[1] & 0xBF
        if block > 1:  # as encoders write it
            for group in range(4): b[2 + group] = sum(1 << c for c in plain.sample(range(8), 4))
        out = np.array([four_of_eight(bits)(b, i) for i in range(32)], np.float32)
        print(f"q{bits}_4of8", bytes(b).hex(), " ".join(f"{x:08x}" for x in out.view(np.uint32)))
