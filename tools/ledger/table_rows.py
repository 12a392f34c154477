"""The rows of tools/compression_table: which passes run at which bits."""

# A number format of blocks for each number of bits. Their scales add 0.4 to 0.6 bits a weight.
FORMATS = {2: "q2_k", 3: "q3_k", 4: "q4_k", 8: "q8_0"}
# The same for models with rows that are no multiple of 256, which have no blocks of the K formats.
NARROW = {2: "q2_g64", 3: "q3_g64", 4: "q4_0", 8: "q8_0"}

# What the others at the same bits are compared with: each weight to the nearest level, with the range of its block.
PLAIN = "rtn:fit=plain"

# Passes that round to any format of blocks.
ANY_FORMAT = (PLAIN, "rtn", "rtn:count=inputs", "gptq", "gptq:fit=plain", "gptq:fit=plain,order=activation", "awq",
              "awq:fit=plain", "obq", "owq", "spqr", "quantease", "quip", "rotate", "lqer")
# QuaRot: the rotation, and GPTQ after it.
PAIRS = tuple((first, "gptq:fit=plain") for first in ("rotate:format=", "awq:format=", "outliers"))
# Passes with the number of bits as an option; matrices without a table are those of the head and the embeddings.
# With table=even a row of the matrix has one scale: the plain rounding that the paper of SqueezeLLM compares with.
TABLES = {"squeezellm": (2, 3, 4), "squeezellm:sparse=0.005": (2, 3, 4), "squeezellm:table=even": (2, 3, 4),
          "lut_gemm": (2, 3, 4)}
# Bits a weight, scales included, as the K formats of that name have them.
MIXED = {2: 2.625, 3: 3.4375, 4: 4.5, 8: 8.5}
NARROW_MIXED = {2: 2.5, 3: 3.5, 4: 4.5, 8: 8.5}
# The papers leave embeddings and head in 16 bits; so do these rows, nearly. The glob is both names, of which a model
# with a tied head has only one.
LAYERS = (PLAIN, "rtn", "gptq", "gptq:fit=plain", "awq", "awq:fit=plain", "quantease", "quip", "rotate")
LAYER_PAIRS = PAIRS[:2]
LAYER_TABLES = ("squeezellm", "squeezellm:sparse=0.005", "squeezellm:table=even")
EMBEDDINGS = "[to][ou][kt][ep]*=q8_0"
# Passes with formats of their own.
OTHERS = {"zeroquant": {4: "zeroquant:format=q4_0,inputs=none"},
          "zeroquant_lorc": {4: "zeroquant_lorc:format=q4_0,inputs=none"},
          "finequant": {4: "finequant:format=q4_0", 8: "finequant:format=q8_0"}, "flexgen_int4": {4: "flexgen_int4"},
          "billm": {2: "billm:format=q2_k"}, "zeroquant_fp:inputs=none": {4: "zeroquant_fp:inputs=none"},
          "olive": {4: "olive"}}
# Formats of other families, by plain rounding with a search of the scales.
CODEBOOKS = {2: ("tq2_0",), 4: ("q4_0", "q4_1", "iq4_nl", "iq4_xs", "mxfp4")}
OF_256 = ("tq2_0", "iq4_xs")  # values in a block
# Formats without levels that a pass could choose; --keep gives them to all matrices.
KEPT = {2: ("iq2_xxs", "iq2_xs", "iq2_s"), 3: ("iq3_xxs", "iq3_s")}
# Weights and inputs, as the papers have them.
WITH_INPUTS = {4: ("round_inputs:format=q4_0,inputs=int4", "rotate:inputs=int4,clip=0.9", "rptq", "qllm", "atom",
                   "llm_fp4"),
               8: ("round_inputs:format=q8_0,inputs=int8", "smoothquant", "llm_int8", "zeroquant",
                   "outlier_suppression_plus")}
PRUNERS = ("magnitude", "wanda", "ria", "sparsegpt", "obs", "owl", "dsnot", "isc", "pruner_zero", "fast_pruning")
NO_PATTERN = ("owl", "isc")
# What pruners leave of each four weights, in a format that stores no others. Embeddings and head stay as they are.
SPARSE = tuple((f"{name}:pattern=2:4", f"blk.*={form}") for name in ("wanda", "sparsegpt")
               for form in ("q8_4of8", "q4_4of8"))
STRUCTURE = ("shortgpt:drop=1", "ziplm:keep=0.75", "slicegpt:keep=0.875,rotations=one",
             "slicegpt:keep=0.875,rotations=blocks", "slicegpt:keep=0.75,rotations=one",
             "slicegpt:keep=0.75,rotations=blocks")
FACTORIZERS = ("svd", "asvd", "svd_llm", "lord", "lplr", "losparse", "dsformer", "tensorgpt")


def _with(text, option):
    return text + ("," if ":" in text else ":") + option


def rows_of(formats=None):
    """[{"name", "group", "bits", "passes", "keep"}]. The names differ; the bits are those that are asked for, or None;
    "keep" is that of the command line, or empty. `formats`: FORMATS, unless the model needs NARROW."""
    formats = formats or FORMATS
    wide, mixed = formats is not NARROW, NARROW_MIXED if formats is NARROW else MIXED
    rows = []

    def _with_format(text, bits):
        return text + formats[bits] if text.endswith("format=") else _with(text, f"format={formats[bits]}")

    def add(group, bits, *passes, keep=""):
        name = " + ".join(passes) + (", embeddings q8_0" if keep == EMBEDDINGS else f" in {keep}" if keep else "")
        rows.append({"name": name, "group": group, "bits": bits, "passes": list(passes), "keep": keep})

    for bits in formats:
        for text in ANY_FORMAT:
            add("weights", bits, _with_format(text, bits))
        for first, last in PAIRS:
            add("weights", bits, first, _with_format(last, bits))
        for text, choices in TABLES.items():
            if bits in choices:
                add("weights", bits, _with(_with(text, f"bits={bits}"), f"format={formats[bits]}"))
        add("weights", bits, f"llm_mq:bits={mixed[bits]}")
        for choices in OTHERS.values():
            if bits in choices:
                add("weights", bits, choices[bits].replace("q2_k", formats[2]))
        for name in CODEBOOKS.get(bits, ()):
            if (wide or name not in OF_256) and name != formats[bits]:
                add("weights", bits, f"rtn:format={name}")
        for name in KEPT.get(bits, ()) if wide else ():
            rows.append({"name": f"convert --format {name}", "group": "weights", "bits": bits,
                         "passes": [f"{PLAIN},format=q4_k"], "keep": f"*={name}"})
        for text in WITH_INPUTS.get(bits, ()):
            add("inputs", bits, text)
    for bits in (2, 3, 4):
        for text in LAYERS:
            add("layers", bits, _with_format(text, bits), keep=EMBEDDINGS)
        for first, last in LAYER_PAIRS:
            add("layers", bits, first, _with_format(last, bits), keep=EMBEDDINGS)
        for text in LAYER_TABLES:
            add("layers", bits, _with(_with(text, f"bits={bits}"), f"format={formats[bits]}"), keep=EMBEDDINGS)
    for name in PRUNERS:
        add("zeros", None, f"{name}:sparsity=0.5")
        if name not in NO_PATTERN:
            add("zeros", None, f"{name}:pattern=2:4")
    for text, keep in SPARSE:
        add("zeros", None, text, keep=keep)
    for text in STRUCTURE:
        add("structure", None, text)
    for text in FACTORIZERS:
        add("factors", None, text)
    return rows
