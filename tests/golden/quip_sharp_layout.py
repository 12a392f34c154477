"""QuIP#'s published layout, packed bit by bit for make_quantized.py: codes of the lattice E8 between Hadamard matrices.

Sources: Tseng et al. 2024 (arXiv:2402.04396); the files that github.com/Cornell-RelaxML/quip-sharp reads.
"""
import numpy


def paley(prime):
    """The Hadamard matrix of order prime + 1 by Paley's first construction: + in the first column, - in the first row."""
    squares = {x * x % prime for x in range(1, prime)}
    core = [[1 if i == j or (i - j) % prime in squares else -1 for j in range(prime)] for i in range(prime)]
    return numpy.array([[1] + [-1] * prime] + [[1] + row for row in core], float)


# First rows of the four circulant matrices of Williamson's matrix of order 52.
WILLIAMSON_52 = ["+-+--++++--+-", "+---++++++---", "++-+--++--+-+", "+----+--+----"]


def williamson_52():
    a, b, c, d = (numpy.array([numpy.roll([1.0 if x == "+" else -1.0 for x in row], i) for i in range(13)])
                  for row in WILLIAMSON_52)
    return numpy.block([[a, b, c, d], [-b, a, -d, c], [-c, d, a, -b], [-d, -c, b, a]])


def hadamard(size):
    """Orthogonal: one of order 12 or 52 for the blocks, Sylvester's in them."""
    outer = next((m for m in (williamson_52(), paley(11)) if size % len(m) == 0), numpy.ones((1, 1)))
    inner = numpy.ones((1, 1))
    while len(outer) * len(inner) < size:
        inner = numpy.kron(inner, [[1, 1], [1, -1]])
    return numpy.kron(outer, inner) / numpy.sqrt(size)


# The 29 patterns of E8P with five 3/2 and three 1/2, by the places of 1/2.
SMALL = ["123", "023", "013", "012", "367", "357", "347", "356", "346", "345", "267", "257", "247", "256", "246", "245",
         "167", "157", "147", "156", "146", "045", "067", "057", "047", "056", "046", "014", "237"]


def e8p_points():
    """[65536, 8]: the point of each code."""
    halves = numpy.array(numpy.meshgrid(*[[0.5, 1.5, 2.5]] * 8, indexing="ij")).reshape(8, -1).T
    patterns = [list(x) for x in halves if (x ** 2).sum() <= 10]  # signs make any sum even, if one may be odd
    patterns += [[0.5 if str(i) in places else 1.5 for i in range(8)] for places in SMALL]
    patterns = numpy.array(patterns)
    code = numpy.arange(65536)
    point = patterns[code >> 8].copy()
    odd = point.sum(1) % 2 == 1
    signs = code & 255
    shift = numpy.array([bin(x).count("1") % 2 for x in range(256)])[signs]
    signs = signs ^ shift
    for i, bit in enumerate([0, 4, 1, 5, 2, 6, 3, 7]):
        point[:, i] *= 1 - 2 * (signs >> bit & 1)
    point[:, 7] *= 1 - 2 * odd
    return point + numpy.where(shift, -0.25, 0.25)[:, None]


def e8_points():
    """[256, 8]: whole points of squared norm up to 2, points of halves, then 2 and -2 in one place."""
    def grid(values):
        return numpy.array(numpy.meshgrid(*[values] * 8, indexing="ij")).reshape(8, -1).T
    points = numpy.concatenate([grid([-1.0, 0.0, 1.0]), grid([-0.5, 0.5])])
    points = points[(points.sum(1) % 2 == 0) & ((points ** 2).sum(1) <= 2)]
    return numpy.concatenate([points, 2 * numpy.eye(8), -2 * numpy.eye(8)[:7]])


def pack_e8p(codes):
    """Four codes a word: two rows of two vectors; words for 16 rows and 8 vectors at a time."""
    rows, vectors = codes.shape
    words = []
    for row in range(0, rows, 16):
        for vector in range(0, vectors, 8):
            for pair in range(row, row + 16, 2):
                for twin in range(vector, vector + 8, 2):
                    word = 0
                    for lane in range(4):
                        code = int(codes[pair + lane % 2, twin + lane // 2])
                        word |= (code >> 8) << 8 * lane
                        word |= sum((code >> bit & 1) << 32 + 4 * bit + lane for bit in range(8))
                    words.append(word)
    return numpy.array(words, numpy.uint64).view(numpy.int64).reshape(rows, vectors // 4)


def quip_sharp(bits, override=-1, rescale=False):
    """Random codes, with scales that give the matrix the size of the original."""
    codebook, number, version, divisor = {2: ("E8P12", 7, 1, 1), 3: ("E8P12RVQ3B", 18, 0, 2.04),
                                          4: ("E8P12RVQ4B", 17, 1, 3.45)}[bits]
    first, second = e8p_points(), e8_points()

    def matrix(prefix, weight, random):
        rows, cols = weight.shape
        codes = random.integers(0, 65536, (rows, cols // 8))
        stored, indices = first[codes], [pack_e8p(codes)]
        if bits == 3:
            rest = random.integers(0, 256, codes.shape)
            indices.append(numpy.ascontiguousarray(rest.astype(numpy.uint8)).view(numpy.int64))
            stored = stored + second[rest] / (override if override > 0 else divisor)
        elif bits == 4:
            rest = random.integers(0, 65536, codes.shape)
            indices.append(pack_e8p(rest))
            stored = stored + first[rest] / (override if override > 0 else divisor)
        su = random.choice([-1.0, 1.0], cols) * random.uniform(0.9, 1.1, cols)
        sv = random.choice([-1.0, 1.0], rows) * weight.std() / stored.std()
        su, sv, scale = su.astype(numpy.float16), sv.astype(numpy.float16), numpy.float32(1.25)
        tensors = {prefix + "Qidxs": numpy.concatenate(indices, 1), prefix + "SU": su, prefix + "SV": sv,
                   prefix + "Wscale": numpy.array(scale), prefix + "codebook_id": numpy.array(number)}
        inputs, outputs = su.astype(float), sv.astype(float) * scale
        if rescale:
            divisors = random.uniform(0.8, 1.2, cols).astype(numpy.float32)
            tensors[prefix + "scaleWH"] = divisors
            inputs = inputs / divisors
        parts = FUSED_ROWS.get(prefix.split(".")[-2], lambda _: [1])(rows)
        if len(parts) > 1:
            factors = numpy.array([1.0, 0.75, 1.25][:len(parts)], numpy.float32)
            tensors[prefix + "fuse_scales"] = factors
            outputs = outputs * numpy.repeat(factors, parts)
        values = hadamard(rows) @ stored.reshape(rows, cols) @ hadamard(cols).T
        return outputs[:, None] * values * inputs, tensors
    return {"quip_params": {"codebook": codebook, "codebook_version": version, "codesz": 8, "idx_dtype": "torch.int64",
                            "lora_rank": 0, "packsz": {2: 4, 3: 8 / 3, 4: 2}[bits], "rescale_WH": rescale,
                            "resid_scale_override": override, "model_version": 1}}, matrix


# QuIP#'s checkpoints fuse these matrices, in this order. Queries have twice the rows of keys here.
FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "upgate_proj": ("up_proj", "gate_proj")}
FUSED_ROWS = {"qkv_proj": lambda rows: [rows // 2, rows // 4, rows // 4], "upgate_proj": lambda rows: [rows // 2] * 2}


def fuse(weights):
    out = dict(weights)
    for name, parts in FUSED.items():
        for key in [key for key in weights if key.endswith(parts[0] + ".weight")]:
            prefix = key.removesuffix(parts[0] + ".weight")
            out[prefix + name + ".weight"] = numpy.concatenate([out.pop(f"{prefix}{part}.weight") for part in parts])
    return out


def split(values):
    out = dict(values)
    for name, parts in FUSED.items():
        for key in [key for key in values if key.endswith(name + ".weight")]:
            whole = out.pop(key)
            ends = numpy.cumsum(FUSED_ROWS[name](len(whole)))[:-1]
            for part, rows in zip(parts, numpy.split(whole, ends)):
                out[key.replace(name, part)] = rows
    return out
