"""Random weights for a configuration, under their Hugging Face names (float32, a fixed seed a model).

The spread is chosen so that attention is far from uniform, routers have clear winners and logits reach a few units:
a wrong formula then moves logits by much more than the 1e-4 that the tests allow.
"""
import numpy


def decoder_shapes(config):
    """Yields (name, shape, kind) in the order in which checkpoints hold them."""
    width, kind = config["hidden_size"], config["model_type"]
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or width // heads
    q, kv = heads * head_dim, (config.get("num_key_value_heads") or heads) * head_dim
    qkv_bias = config.get("attention_bias", False) or kind in ("qwen2", "qwen2_moe")
    yield "model.embed_tokens.weight", (config["vocab_size"], width), "embedding"
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        attn = prefix + "self_attn."
        if kind == "phi3":
            yield attn + "qkv_proj.weight", (q + 2 * kv, width), "query"
        else:
            for name, rows in (("q_proj", q), ("k_proj", kv), ("v_proj", kv)):
                yield attn + name + ".weight", (rows, width), "matrix" if name == "v_proj" else "query"
                if qkv_bias:
                    yield attn + name + ".bias", (rows,), "bias"
        yield attn + "o_proj.weight", (width, q), "matrix"
        if config.get("attention_bias"):
            yield attn + "o_proj.bias", (width,), "bias"
        if kind in ("qwen3", "qwen3_moe", "gemma3_text", "olmo2"):
            yield attn + "q_norm.weight", (q if kind == "olmo2" else head_dim,), "norm"
            yield attn + "k_norm.weight", (kv if kind == "olmo2" else head_dim,), "norm"
        yield from feed_forward_shapes(config, prefix)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if kind in ("gemma2", "gemma3_text"):
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        if kind == "olmo2":
            norms = ["post_attention_layernorm", "post_feedforward_layernorm"]
        for name in norms:
            yield prefix + name + ".weight", (width,), "norm"
    yield "model.norm.weight", (width,), "norm"
    if not config["tie_word_embeddings"]:
        yield "lm_head.weight", (config["vocab_size"], width), "matrix"


def feed_forward_shapes(config, prefix):
    width, kind = config["hidden_size"], config["model_type"]

    def gated(base, names, inner, bias=False):
        for name, shape in zip(names, ((inner, width), (inner, width), (width, inner))):
            yield f"{base}{name}.weight", shape, "matrix"
            if bias:
                yield f"{base}{name}.bias", shape[:1], "bias"

    mlp, three = prefix + "mlp.", ("gate_proj", "up_proj", "down_proj")
    if kind == "phi3":
        yield mlp + "gate_up_proj.weight", (2 * config["intermediate_size"], width), "matrix"
        yield mlp + "down_proj.weight", (width, config["intermediate_size"]), "matrix"
    elif kind == "mixtral":
        moe = prefix + "block_sparse_moe."
        yield moe + "gate.weight", (config["num_local_experts"], width), "router"
        for expert in range(config["num_local_experts"]):
            yield from gated(f"{moe}experts.{expert}.", ("w1", "w3", "w2"), config["intermediate_size"])
    elif kind in ("qwen2_moe", "qwen3_moe"):
        yield mlp + "gate.weight", (config["num_experts"], width), "router"
        for expert in range(config["num_experts"]):
            yield from gated(f"{mlp}experts.{expert}.", three, config["moe_intermediate_size"])
        if kind == "qwen2_moe":
            yield from gated(mlp + "shared_expert.", three, config["shared_expert_intermediate_size"])
            yield mlp + "shared_expert_gate.weight", (1, width), "matrix"
    else:
        yield from gated(mlp, three, config["intermediate_size"], config.get("mlp_bias", False))


def gpt2_shapes(config):
    width, context = config["n_embd"], config["n_positions"]
    yield "wte.weight", (config["vocab_size"], width), "embedding"
    yield "wpe.weight", (context, width), "embedding"
    for layer in range(config["n_layer"]):
        prefix = f"h.{layer}."
        for norm in ("ln_1", "ln_2"):
            yield prefix + norm + ".weight", (width,), "norm"
            yield prefix + norm + ".bias", (width,), "bias"
        yield prefix + "attn.bias", (1, 1, context, context), "mask"  # the causal mask, kept in the published file
        for name, shape in (("attn.c_attn", (width, 3 * width)), ("attn.c_proj", (width, width)),
                            ("mlp.c_fc", (width, 4 * width)), ("mlp.c_proj", (4 * width, width))):
            yield prefix + name + ".weight", shape, "transposed"
            yield prefix + name + ".bias", shape[1:], "bias"
    yield "ln_f.weight", (width,), "norm"
    yield "ln_f.bias", (width,), "bias"


def draw(random, config, shape, kind):
    gemma = config["model_type"].startswith("gemma")
    if kind == "mask":
        return numpy.tril(numpy.ones(shape, numpy.float32))
    normal = random.standard_normal(shape)
    if kind == "norm":
        return normal * 0.2 + (0 if gemma else 1)
    if kind == "bias":
        return normal * 0.3
    if kind == "embedding":  # gemma multiplies by sqrt(width) after the look-up
        if gemma:
            return normal * 0.7 * shape[1] ** -0.5
        return normal * (0.25 if config.get("tie_word_embeddings", True) else 0.6)  # a tied head favours repeating
    inputs = shape[0] if kind == "transposed" else shape[-1]
    return normal * {"query": 1.6, "router": 2.0, "matrix": 1.2, "transposed": 1.2}[kind] * inputs ** -0.5


def make_weights(config, seed, bf16=False):
    random = numpy.random.Generator(numpy.random.PCG64(seed))
    shapes = gpt2_shapes(config) if config["model_type"] == "gpt2" else decoder_shapes(config)
    weights = {name: draw(random, config, shape, kind).astype(numpy.float32) for name, shape, kind in shapes}
    return {name: round_to_bf16(array) for name, array in weights.items()} if bf16 else weights


def round_to_bf16(array):
    """Float32 values that bfloat16 holds exactly (round to nearest, ties to even)."""
    bits = array.view(numpy.uint32)
    rounded = (bits + numpy.uint32(0x7FFF) + ((bits >> 16) & 1)) & numpy.uint32(0xFFFF0000)
    return rounded.astype(numpy.uint32).view(numpy.float32)
