"""What a Hugging Face model is called and how it is laid out in a GGUF file: keys, tensor names, transformations.

Facts of that file kind which differ from the checkpoint:
  llama, mistral, mixtral, smollm3   rows of q and k reordered: a GGUF reader turns neighbouring pairs (2i, 2i + 1)
  gemma 1, 2, 3                      norms hold 1 + w
  mixtral, qwen2moe, qwen3moe        the experts of a layer stacked into one three-dimensional tensor
  gpt2                               matrices transposed to [out, in]; the tied head written out as output.weight
  llama3 scaling, LongRoPE           divisors of the frequencies as tensors rope_freqs, rope_factors_{long,short}
"""
import re

import numpy

from golden_forward import llama3_divisors, longrope_attention_factor
from golden_tokenizer import gguf_metadata

ARCHITECTURES = {"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen2_moe": "qwen2moe",
                 "qwen3": "qwen3", "qwen3_moe": "qwen3moe", "gemma": "gemma", "gemma2": "gemma2",
                 "gemma3_text": "gemma3", "phi3": "phi3", "gpt2": "gpt2", "olmo2": "olmo2", "smollm3": "smollm3"}
PAIRWISE_ROPE = ("llama", "mistral", "mixtral", "smollm3")

TOP_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
             "wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}
BLOCK_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.qkv_proj": "attn_qkv",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate_up_proj": "ffn_up",
    "block_sparse_moe.gate": "ffn_gate_inp", "mlp.gate": "ffn_gate_inp",
    "mlp.shared_expert_gate": "ffn_gate_inp_shexp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
    "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp",
    "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    "ln_1": "attn_norm", "ln_2": "ffn_norm", "attn.c_attn": "attn_qkv", "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down",
}
EXPERT_NAMES = {"w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
                "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}


def reorder_pairs(array, heads):
    """Rows of each head from (first half, second half) to neighbouring pairs."""
    rows = array.shape[0] // heads
    split = array.reshape(heads, 2, rows // 2, *array.shape[1:])
    return numpy.ascontiguousarray(split.swapaxes(1, 2)).reshape(array.shape)


def gguf_name(model_type, name):
    base, kind = name.rsplit(".", 1)
    if base in TOP_NAMES:
        return f"{TOP_NAMES[base]}.{kind}"
    layer, part = re.match(r"(?:model\.layers|h)\.(\d+)\.(.*)", base).groups()
    if part == "post_attention_layernorm":
        mapped = "post_attention_norm" if model_type in ("gemma2", "gemma3_text", "olmo2") else "ffn_norm"
    else:
        mapped = BLOCK_NAMES[part]
    return f"blk.{layer}.{mapped}.{kind}"


def gguf_array(config, name, array):
    kind = config["model_type"]
    if kind in PAIRWISE_ROPE and re.search(r"\.q_proj\.", name):
        return reorder_pairs(array, config["num_attention_heads"])
    if kind in PAIRWISE_ROPE and re.search(r"\.k_proj\.", name):
        return reorder_pairs(array, config["num_key_value_heads"])
    if kind.startswith("gemma") and name.endswith("norm.weight"):
        return array + numpy.float32(1)
    if kind == "gpt2" and re.search(r"\.c_(attn|proj|fc)\.weight$", name):
        return numpy.ascontiguousarray(array.T)
    if name.endswith("shared_expert_gate.weight"):
        return array.reshape(-1)
    return array


def gguf_tensors(config, weights, dtype):
    """name -> (array, dtype); vectors stay F32 whatever the matrices are."""
    kind, tensors, experts = config["model_type"], {}, {}
    for name, array in weights.items():
        if kind == "gpt2" and name.endswith(".attn.bias"):  # the causal mask
            continue
        expert = re.match(r"model\.layers\.(\d+)\..*experts\.(\d+)\.(\w+)\.weight", name)
        if expert:
            layer, _, part = expert.groups()
            experts.setdefault(f"blk.{layer}.{EXPERT_NAMES[part]}.weight", []).append(array)
        else:
            tensors[gguf_name(kind, name)] = gguf_array(config, name, array)
    tensors.update({name: numpy.stack(arrays) for name, arrays in experts.items()})
    if kind == "gpt2":
        tensors["output.weight"] = weights["wte.weight"]
    tensors.update(rope_tensors(config))
    return {name: (array, dtype if array.ndim > 1 else "F32") for name, array in tensors.items()}


def rope_tensors(config):
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "llama3":
        head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        divisors = llama3_divisors(config["rope_theta"], head_dim, scaling)
        return {"rope_freqs.weight": divisors.numpy().astype(numpy.float32)}
    if kind == "longrope":
        return {f"rope_factors_{which}.weight": numpy.array(scaling[f"{which}_factor"], numpy.float32)
                for which in ("long", "short")}
    return {}


def gguf_keys(config, dtype):
    """[(key, type, value)] of the whole file."""
    arch = ARCHITECTURES[config["model_type"]]
    keys = [("general.architecture", "string", arch), ("general.type", "string", "model"),
            ("general.name", "string", "tiny random"), ("general.file_type", "uint32", 32 if dtype == "BF16" else 0),
            ("general.quantization_version", "uint32", 2)]

    def add(key, kind, value):
        keys.append((f"{arch}.{key}", kind, value))

    if arch == "gpt2":
        add("block_count", "uint32", config["n_layer"])
        add("context_length", "uint32", config["n_ctx"])
        add("embedding_length", "uint32", config["n_embd"])
        add("feed_forward_length", "uint32", 4 * config["n_embd"])
        add("attention.head_count", "uint32", config["n_head"])
        add("attention.layer_norm_epsilon", "float32", config["layer_norm_epsilon"])
        return keys + gguf_metadata()
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    add("block_count", "uint32", config["num_hidden_layers"])
    add("context_length", "uint32", config["max_position_embeddings"])
    add("embedding_length", "uint32", config["hidden_size"])
    add("feed_forward_length", "uint32", config["intermediate_size"])
    add("attention.head_count", "uint32", heads)
    add("attention.head_count_kv", "uint32", config["num_key_value_heads"])
    add("attention.layer_norm_rms_epsilon", "float32", config["rms_norm_eps"])
    if "head_dim" in config:
        add("attention.key_length", "uint32", head_dim)
        add("attention.value_length", "uint32", head_dim)
    if config["model_type"] in (*PAIRWISE_ROPE, "phi3"):  # converters leave these out elsewhere
        add("rope.dimension_count", "uint32", int(head_dim * config.get("partial_rotary_factor", 1.0)))
        add("vocab_size", "uint32", config["vocab_size"])
    if config["model_type"] not in ("gemma", "gemma2"):
        add("rope.freq_base", "float32", config["rope_theta"])
    if config["hidden_act"] == "relu":
        add("hidden_activation", "string", "relu")
    add_window_and_caps(config, add)
    add_experts(config, add)
    add_rope_scaling(config, add)
    return keys + gguf_metadata()


def add_window_and_caps(config, add):
    sliding = config.get("sliding_window")
    if sliding is not None and not config["model_type"].startswith("qwen"):
        add("attention.sliding_window", "uint32", sliding)
    if config.get("attn_logit_softcapping") is not None:
        add("attn_logit_softcapping", "float32", config["attn_logit_softcapping"])
    if config.get("final_logit_softcapping") is not None:
        add("final_logit_softcapping", "float32", config["final_logit_softcapping"])


def add_experts(config, add):
    count = config.get("num_local_experts") or config.get("num_experts")
    if count:
        add("expert_count", "uint32", count)
        add("expert_used_count", "uint32", config["num_experts_per_tok"])
    if "moe_intermediate_size" in config:
        add("expert_feed_forward_length", "uint32", config["moe_intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        add("expert_shared_feed_forward_length", "uint32", config["shared_expert_intermediate_size"])


def add_rope_scaling(config, add):
    scaling = config.get("rope_scaling") or {}
    kind = scaling.get("rope_type", scaling.get("type"))
    if config["model_type"] == "phi3":
        add("rope.scaling.original_context_length", "uint32", config["original_max_position_embeddings"])
    if kind in ("linear", "yarn"):
        add("rope.scaling.type", "string", kind)
        add("rope.scaling.factor", "float32", scaling["factor"])
    if kind == "yarn":
        add("rope.scaling.original_context_length", "uint32", scaling["original_max_position_embeddings"])
    if kind == "longrope":
        add("rope.scaling.attn_factor", "float32", longrope_attention_factor(config))
