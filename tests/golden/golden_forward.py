"""The reference forward pass: float64 PyTorch, one function per published formula.

Works straight from a Hugging Face `config.json` (as a dict) and tensors under their Hugging Face names.
It favours being obviously right over being fast: every query sees the whole sequence, nothing is cached.

Sources, by what they define:
  attention             Vaswani et al. 2017 (arXiv:1706.03762); grouped queries: Ainslie et al. 2023 (2305.13245)
  RoPE                  Su et al. 2021 (2104.09864), in the rotate-half layout of the Hugging Face checkpoints
  linear rope scaling   Chen et al. 2023 (2306.15595)
  YaRN                  Peng et al. 2023 (2309.00071)
  llama3 rope scaling   Llama 3.1 model card and config (Grattafiori et al. 2024, 2407.21783)
  LongRoPE              Ding et al. 2024 (2402.13753); Phi-3 report (2404.14219)
  RMSNorm               Zhang & Sennrich 2019 (1910.07467);  SwiGLU / GeGLU: Shazeer 2020 (2002.05202)
  llama, mistral        2302.13971, 2307.09288, 2310.06825;  mixtral 2401.04088
  qwen2 (+moe), qwen3   2407.10671, 2505.09388
  gemma 1, 2, 3         2403.08295, 2408.00118, 2503.19786
  olmo2                 2501.00656;  gpt2: Radford et al. 2019;  NoPE layers: Yang et al. 2025 (2501.18795), SmolLM3

The [seq, vocab] logits of a token list are `forward(config, weights, tokens)`.
"""
import math

import torch

F64 = torch.float64


# ---- norms and activations -------------------------------------------------------------------------------------------
def rms_norm(x, weight, eps):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + eps) * weight


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(-1, keepdim=True)
    return centred / torch.sqrt((centred * centred).mean(-1, keepdim=True) + eps) * weight + bias


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu_tanh(x):
    return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


ACTIVATIONS = {"silu": silu, "gelu_pytorch_tanh": gelu_tanh, "relu": torch.relu}


def softcap(x, cap):
    return x if cap is None else cap * torch.tanh(x / cap)


# ---- rotary positions ------------------------------------------------------------------------------------------------
def plain_inv_freq(theta, dim):
    return theta ** (-torch.arange(0, dim, 2, dtype=F64) / dim)


def yarn_inv_freq(theta, dim, scaling):
    """'NTK-by-parts': fast dimensions keep their frequency, slow ones are interpolated, a ramp between."""
    original = scaling["original_max_position_embeddings"]

    def dimension_turning(rotations):  # the dimension that makes so many turns over the original context
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))

    low = max(math.floor(dimension_turning(scaling.get("beta_fast", 32))), 0)
    high = min(math.ceil(dimension_turning(scaling.get("beta_slow", 1))), dim - 1)
    ramp = ((torch.arange(dim // 2, dtype=F64) - low) / max(high - low, 0.001)).clamp(0, 1)
    inv_freq = plain_inv_freq(theta, dim)
    return inv_freq * (1 - ramp) + inv_freq / scaling["factor"] * ramp


def llama3_divisors(theta, dim, scaling):
    """What llama3 scaling divides each frequency by: 1 for short waves, `factor` for long ones, smooth between."""
    factor, low, high = scaling["factor"], scaling["low_freq_factor"], scaling["high_freq_factor"]
    original = scaling["original_max_position_embeddings"]
    divisors = []
    for frequency in plain_inv_freq(theta, dim).tolist():
        wavelength = 2 * math.pi / frequency
        if wavelength < original / high:
            divisors.append(1.0)
        elif wavelength > original / low:
            divisors.append(float(factor))
        else:
            smooth = (original / wavelength - low) / (high - low)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return torch.tensor(divisors, dtype=F64)


def longrope_attention_factor(config):
    original = config["original_max_position_embeddings"]
    scale = config["max_position_embeddings"] / original
    return 1.0 if scale <= 1 else math.sqrt(1 + math.log(scale) / math.log(original))


def rope_parameters(config, theta, dim, scaling, length):
    """(inverse frequencies [dim/2], factor on cos and sin)."""
    if scaling is None:
        return plain_inv_freq(theta, dim), 1.0
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        return plain_inv_freq(theta, dim) / scaling["factor"], 1.0
    if kind == "yarn":
        return yarn_inv_freq(theta, dim, scaling), 0.1 * math.log(scaling["factor"]) + 1
    if kind == "llama3":
        return plain_inv_freq(theta, dim) / llama3_divisors(theta, dim, scaling), 1.0
    if kind == "longrope":
        long = length > config["original_max_position_embeddings"]
        factors = torch.tensor(scaling["long_factor" if long else "short_factor"], dtype=F64)
        return plain_inv_freq(theta, dim) / factors, longrope_attention_factor(config)
    raise ValueError(f"rope scaling {kind}")


def rotate(x, inv_freq, factor):
    """x: [heads, seq, dim]; turns the pair (x[i], x[i + n/2]) by position * inv_freq[i]; n = 2 * len(inv_freq)."""
    half = inv_freq.shape[0]
    angle = torch.arange(x.shape[1], dtype=F64)[:, None] * inv_freq[None, :]  # [seq, half]
    cos, sin = torch.cos(angle) * factor, torch.sin(angle) * factor
    first, second, rest = x[..., :half], x[..., half:2 * half], x[..., 2 * half:]
    return torch.cat([first * cos - second * sin, second * cos + first * sin, rest], dim=-1)


# ---- attention -------------------------------------------------------------------------------------------------------
def attention(q, k, v, scale, window=None, cap=None):
    """q: [heads, seq, dim], k and v: [kv_heads, seq, dim] -> [seq, heads * dim]. A query at p sees p-window+1 .. p."""
    heads, seq, _ = q.shape
    group = heads // k.shape[0]
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = softcap(q @ k.transpose(1, 2) * scale, cap)
    position = torch.arange(seq)
    distance = position[:, None] - position[None, :]
    hidden = distance < 0 if window is None else (distance < 0) | (distance >= window)
    probabilities = torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1)
    return (probabilities @ v).transpose(0, 1).reshape(seq, -1)


# ---- the decoder family (everything but gpt2) ------------------------------------------------------------------------
class Decoder:
    def __init__(self, config, weights):
        self.config, self.weights = config, weights
        self.kind = config["model_type"]
        self.gemma = self.kind.startswith("gemma")
        self.heads = config["num_attention_heads"]
        self.kv_heads = config.get("num_key_value_heads") or self.heads
        self.head_dim = config.get("head_dim") or config["hidden_size"] // self.heads

    def linear(self, name, x):
        y = x @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def norm(self, name, x):
        weight = self.weights[name + ".weight"]
        return rms_norm(x, 1 + weight if self.gemma else weight, self.config["rms_norm_eps"])

    def heads_of(self, x, count):
        return x.view(x.shape[0], count, self.head_dim).transpose(0, 1)  # [heads, seq, dim]

    def is_sliding(self, layer):
        config = self.config
        if config.get("sliding_window") is None:
            return False
        if self.kind == "gemma2":
            return layer % 2 == 0
        if self.kind == "gemma3_text":
            return (layer + 1) % config["sliding_window_pattern"] != 0
        if self.kind.startswith("qwen"):
            return bool(config.get("use_sliding_window")) and layer >= config["max_window_layers"]
        return self.kind in ("mistral", "mixtral", "phi3")

    def rope(self, layer, x):
        config = self.config
        if self.kind == "smollm3" and not config["no_rope_layers"][layer]:
            return x
        theta, scaling = config["rope_theta"], config.get("rope_scaling")
        if self.kind == "gemma3_text" and self.is_sliding(layer):
            theta, scaling = config["rope_local_base_freq"], None
        dim = int(self.head_dim * config.get("partial_rotary_factor", 1.0))
        return rotate(x, *rope_parameters(config, theta, dim, scaling, x.shape[1]))

    def self_attention(self, layer, x):
        config, prefix = self.config, f"model.layers.{layer}.self_attn."
        if self.kind == "phi3":  # one matrix, rows in the order q, k, v
            kv = self.kv_heads * self.head_dim
            q, k, v = self.linear(prefix + "qkv_proj", x).split([self.heads * self.head_dim, kv, kv], dim=-1)
        else:
            q, k, v = (self.linear(prefix + name, x) for name in ("q_proj", "k_proj", "v_proj"))
        if self.kind == "olmo2":  # over all heads at once
            q, k = self.norm(prefix + "q_norm", q), self.norm(prefix + "k_norm", k)
        q, k, v = self.heads_of(q, self.heads), self.heads_of(k, self.kv_heads), self.heads_of(v, self.kv_heads)
        if self.kind in ("qwen3", "qwen3_moe", "gemma3_text"):  # head by head
            q, k = self.norm(prefix + "q_norm", q), self.norm(prefix + "k_norm", k)
        q, k = self.rope(layer, q), self.rope(layer, k)
        scale = config.get("query_pre_attn_scalar", self.head_dim) ** -0.5
        window = config["sliding_window"] if self.is_sliding(layer) else None
        y = attention(q, k, v, scale, window, config.get("attn_logit_softcapping"))
        return self.linear(prefix + "o_proj", y)

    def gated(self, x, gate, up, down):
        activation = ACTIVATIONS[self.config["hidden_act"]]
        return self.linear(down, activation(self.linear(gate, x)) * self.linear(up, x))

    def experts(self, x, router, names, top, renormalize):
        """Softmax over all experts, the best `top` kept; their weights sum to one again if `renormalize`."""
        probability = torch.softmax(self.linear(router, x), dim=-1)
        weight, chosen = torch.topk(probability, top, dim=-1)
        if renormalize:
            weight = weight / weight.sum(-1, keepdim=True)
        y = torch.zeros_like(x)
        for token in range(x.shape[0]):
            for w, expert in zip(weight[token], chosen[token].tolist()):
                y[token] += w * self.gated(x[token], *names(expert))
        return y

    def feed_forward(self, layer, x):
        config, prefix = self.config, f"model.layers.{layer}."
        if self.kind == "mixtral":
            moe = prefix + "block_sparse_moe."
            return self.experts(x, moe + "gate", lambda e: [f"{moe}experts.{e}.{w}" for w in ("w1", "w3", "w2")],
                                config["num_experts_per_tok"], True)
        mlp = prefix + "mlp."
        three = ("gate_proj", "up_proj", "down_proj")
        if self.kind == "phi3":  # one matrix, gate rows first
            gate, up = self.linear(mlp + "gate_up_proj", x).chunk(2, dim=-1)
            return self.linear(mlp + "down_proj", up * silu(gate))
        if self.kind not in ("qwen2_moe", "qwen3_moe"):
            return self.gated(x, *(mlp + name for name in three))
        y = self.experts(x, mlp + "gate", lambda e: [f"{mlp}experts.{e}.{name}" for name in three],
                         config["num_experts_per_tok"], config["norm_topk_prob"])
        if self.kind == "qwen2_moe":
            shared = self.gated(x, *(f"{mlp}shared_expert.{name}" for name in three))
            y = y + shared / (1 + torch.exp(-self.linear(mlp + "shared_expert_gate", x)))
        return y

    def block(self, layer, x):
        prefix = f"model.layers.{layer}."
        if self.kind == "olmo2":  # norms only after
            x = x + self.norm(prefix + "post_attention_layernorm", self.self_attention(layer, x))
            return x + self.norm(prefix + "post_feedforward_layernorm", self.feed_forward(layer, x))
        y = self.self_attention(layer, self.norm(prefix + "input_layernorm", x))
        if self.kind in ("gemma2", "gemma3_text"):  # norms before and after
            x = x + self.norm(prefix + "post_attention_layernorm", y)
            y = self.feed_forward(layer, self.norm(prefix + "pre_feedforward_layernorm", x))
            return x + self.norm(prefix + "post_feedforward_layernorm", y)
        x = x + y
        return x + self.feed_forward(layer, self.norm(prefix + "post_attention_layernorm", x))

    def forward(self, tokens):
        config = self.config
        embedding = self.weights["model.embed_tokens.weight"]
        x = embedding[torch.tensor(tokens)]
        if self.gemma:
            x = x * math.sqrt(config["hidden_size"])
        for layer in range(config["num_hidden_layers"]):
            x = self.block(layer, x)
        head = embedding if config["tie_word_embeddings"] else self.weights["lm_head.weight"]
        return softcap(self.norm("model.norm", x) @ head.T, config.get("final_logit_softcapping"))


# ---- gpt2 ------------------------------------------------------------------------------------------------------------
def gpt2_forward(config, weights, tokens):
    """Its matrices are stored [in, out], so a product is x @ W, and q, k, v are side by side in one of them."""
    width, heads, eps = config["n_embd"], config["n_head"], config["layer_norm_epsilon"]
    seq = len(tokens)

    def norm(name, x):
        return layer_norm(x, weights[name + ".weight"], weights[name + ".bias"], eps)

    def conv1d(name, x):
        return x @ weights[name + ".weight"] + weights[name + ".bias"]

    x = weights["wte.weight"][torch.tensor(tokens)] + weights["wpe.weight"][:seq]
    for layer in range(config["n_layer"]):
        prefix = f"h.{layer}."
        qkv = conv1d(prefix + "attn.c_attn", norm(prefix + "ln_1", x)).split(width, dim=-1)
        q, k, v = (t.view(seq, heads, width // heads).transpose(0, 1) for t in qkv)
        x = x + conv1d(prefix + "attn.c_proj", attention(q, k, v, (width // heads) ** -0.5))
        hidden = gelu_tanh(conv1d(prefix + "mlp.c_fc", norm(prefix + "ln_2", x)))
        x = x + conv1d(prefix + "mlp.c_proj", hidden)
    return norm("ln_f", x) @ weights["wte.weight"].T


def forward(config, weights, tokens):
    """weights: name -> float64 tensor. Returns float64 logits [seq, vocab]."""
    if config["model_type"] == "gpt2":
        return gpt2_forward(config, weights, tokens)
    return Decoder(config, weights).forward(tokens)
