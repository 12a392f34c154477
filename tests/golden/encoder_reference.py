"""The reference of the tiny encoders: final hidden states of all tokens of a text, in plain Python floats (float64). The
sources are in make_encoders.py.
"""
import math

from make_mamba import times

def add(x, y):
    return [a + b for a, b in zip(x, y)]


def linear(weights, name, x):
    y = times(weights[name + ".weight"].rows(), x)
    return add(y, weights[name + ".bias"].values) if name + ".bias" in weights else y


def layer_norm(weights, name, x, eps):
    mean = sum(x) / len(x)
    scale = 1 / math.sqrt(sum((v - mean) ** 2 for v in x) / len(x) + eps)
    bias = weights[name + ".bias"].values if name + ".bias" in weights else [0.0] * len(x)
    return [(v - mean) * scale * w + b for v, w, b in zip(x, weights[name + ".weight"].values, bias)]


def gelu(x):
    return 0.5 * x * (1 + math.erf(x / math.sqrt(2)))


def attend(q, k, v, heads, bias=lambda head, i, j: 0.0):
    """Rows of all heads; bias is added to scores, -inf hides a key."""
    dim, out = len(q[0]) // heads, []
    for i, row in enumerate(q):
        mixed = []
        for head in range(heads):
            part = slice(head * dim, (head + 1) * dim)
            scores = [sum(a * b for a, b in zip(row[part], key[part])) / math.sqrt(dim) + bias(head, i, j)
                      for j, key in enumerate(k)]
            top = max(scores)
            shares = [math.exp(s - top) for s in scores]
            mixed += [sum(s * value[head * dim + d] for s, value in zip(shares, v)) / sum(shares) for d in range(dim)]
        out.append(mixed)
    return out


def bert_hidden(settings, weights, tokens, separator):
    eps, first = settings["layer_norm_eps"], settings.get("position_offset", 0)
    types, table = [], weights["embeddings.token_type_embeddings.weight"].rows()
    for token in tokens:
        types.append(0 if len(table) < 2 or separator not in tokens[:len(types)] else 1)
    words, places = (weights[f"embeddings.{n}_embeddings.weight"].rows() for n in ("word", "position"))
    x = [layer_norm(weights, "embeddings.LayerNorm", add(add(words[token], places[first + i]), table[kind]), eps)
         for i, (token, kind) in enumerate(zip(tokens, types))]
    for layer in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = ([linear(weights, f"{at}attention.self.{n}", row) for row in x] for n in ("query", "key", "value"))
        mixed = attend(q, k, v, settings["num_attention_heads"])
        x = [layer_norm(weights, at + "attention.output.LayerNorm",
                        add(row, linear(weights, at + "attention.output.dense", m)), eps) for row, m in zip(x, mixed)]
        inner = [[gelu(u) for u in linear(weights, at + "intermediate.dense", row)] for row in x]
        x = [layer_norm(weights, at + "output.LayerNorm", add(row, linear(weights, at + "output.dense", u)), eps)
             for row, u in zip(x, inner)]
    return x


def rotate(row, position, dim, theta):
    """Pairs (i, i + dim / 2) of each head."""
    out = list(row)
    for start in range(0, len(row), dim):
        for i in range(dim // 2):
            angle = position * theta ** (-2 * i / dim)
            a, b = row[start + i], row[start + i + dim // 2]
            out[start + i] = a * math.cos(angle) - b * math.sin(angle)
            out[start + i + dim // 2] = a * math.sin(angle) + b * math.cos(angle)
    return out


def silu(x):
    return x / (1 + math.exp(-x))


def rms_norm(weights, name, x, eps):
    scale = 1 / math.sqrt(sum(v * v for v in x) / len(x) + eps)
    return [v * scale * w for v, w in zip(x, weights[name + ".weight"].values)]


def thirds(row):
    n = len(row) // 3
    return row[:n], row[n:2 * n], row[2 * n:]


def modern_hidden(settings, weights, tokens, _):
    eps, heads = settings["norm_eps"], settings["num_attention_heads"]
    dim, half = settings["hidden_size"] // heads, settings["local_attention"] // 2
    table = weights["embeddings.tok_embeddings.weight"].rows()
    x = [layer_norm(weights, "embeddings.norm", table[token], eps) for token in tokens]
    for layer in range(settings["num_hidden_layers"]):
        at, local = f"layers.{layer}.", layer % settings["global_attn_every_n_layers"] != 0
        theta = settings["local_rope_theta" if local else "global_rope_theta"]
        normed = [layer_norm(weights, at + "attn_norm", row, eps) for row in x] if layer else x
        q, k, v = zip(*(thirds(linear(weights, at + "attn.Wqkv", row)) for row in normed))
        q, k = ([rotate(row, i, dim, theta) for i, row in enumerate(rows)] for rows in (q, k))
        hidden = lambda head, i, j: -math.inf if local and abs(i - j) > half else 0.0
        x = [add(row, linear(weights, at + "attn.Wo", m)) for row, m in zip(x, attend(q, k, v, heads, hidden))]
        both = [linear(weights, at + "mlp.Wi", layer_norm(weights, at + "mlp_norm", row, eps)) for row in x]
        inner = [[gelu(g) * u for g, u in zip(row[:len(row) // 2], row[len(row) // 2:])] for row in both]
        x = [add(row, linear(weights, at + "mlp.Wo", u)) for row, u in zip(x, inner)]
    return [layer_norm(weights, "final_norm", row, eps) for row in x]


def typed_rows(weights, tokens, separator):
    words, table = (weights[f"embeddings.{n}_embeddings.weight"].rows() for n in ("word", "token_type"))
    return [add(words[token], table[1 if separator in tokens[:i] else 0]) for i, token in enumerate(tokens)]


def nomic_hidden(settings, weights, tokens, separator):
    eps, heads = settings["layer_norm_epsilon"], settings["n_head"]
    dim, theta = settings["n_embd"] // heads, settings["rotary_emb_base"]
    x = [layer_norm(weights, "emb_ln", row, eps) for row in typed_rows(weights, tokens, separator)]
    for layer in range(settings["n_layer"]):
        at = f"encoder.layers.{layer}."
        q, k, v = zip(*(thirds(linear(weights, at + "attn.Wqkv", row)) for row in x))
        q, k = ([rotate(row, i, dim, theta) for i, row in enumerate(rows)] for rows in (q, k))
        x = [layer_norm(weights, at + "norm1", add(row, linear(weights, at + "attn.out_proj", m)), eps)
             for row, m in zip(x, attend(q, k, v, heads))]
        inner = [[u * silu(g) for u, g in zip(linear(weights, at + "mlp.fc11", row), linear(weights, at + "mlp.fc12", row))]
                 for row in x]
        x = [layer_norm(weights, at + "norm2", add(row, linear(weights, at + "mlp.fc2", u)), eps)
             for row, u in zip(x, inner)]
    return x


def alibi_slopes(heads):
    """The authors' rule: a geometric series for a power of two, and every second of the next series for the others."""
    floor = 2 ** int(math.log2(heads))
    series = lambda n: [2 ** (-8 * (h + 1) / n) for h in range(n)]
    return series(floor) + series(2 * floor)[0::2][:heads - floor]


def jina_hidden(settings, weights, tokens, separator):
    eps, heads = settings["layer_norm_eps"], settings["num_attention_heads"]
    slopes = alibi_slopes(heads)
    x = [layer_norm(weights, "embeddings.LayerNorm", row, eps) for row in typed_rows(weights, tokens, separator)]
    for layer in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{layer}."
        q, k, v = ([linear(weights, f"{at}attention.self.{n}", row) for row in x] for n in ("query", "key", "value"))
        mixed = attend(q, k, v, heads, lambda head, i, j: -slopes[head] * abs(i - j))
        x = [layer_norm(weights, at + "attention.output.LayerNorm",
                        add(row, linear(weights, at + "attention.output.dense", m)), eps) for row, m in zip(x, mixed)]
        both = [linear(weights, at + "mlp.gated_layers", row) for row in x]
        inner = [[gelu(g) * u for g, u in zip(row[:len(row) // 2], row[len(row) // 2:])] for row in both]
        x = [layer_norm(weights, at + "mlp.layernorm", add(row, linear(weights, at + "mlp.wo", u)), eps)
             for row, u in zip(x, inner)]
    return x


def euro_hidden(settings, weights, tokens, _):
    eps, heads, kv = settings["rms_norm_eps"], settings["num_attention_heads"], settings["num_key_value_heads"]
    dim, theta = settings["hidden_size"] // heads, settings["rope_theta"]
    spread = lambda row: [v for h in range(heads) for v in row[h * kv // heads * dim:(h * kv // heads + 1) * dim]]
    table = weights["embed_tokens.weight"].rows()
    x = [table[token] for token in tokens]
    for layer in range(settings["num_hidden_layers"]):
        at = f"layers.{layer}."
        normed = [rms_norm(weights, at + "input_layernorm", row, eps) for row in x]
        q, k, v = ([linear(weights, f"{at}self_attn.{n}_proj", row) for row in normed] for n in "qkv")
        q = [rotate(row, i, dim, theta) for i, row in enumerate(q)]
        k = [spread(rotate(row, i, dim, theta)) for i, row in enumerate(k)]
        mixed = attend(q, k, [spread(row) for row in v], heads)
        x = [add(row, linear(weights, at + "self_attn.o_proj", m)) for row, m in zip(x, mixed)]
        normed = [rms_norm(weights, at + "post_attention_layernorm", row, eps) for row in x]
        inner = [[silu(g) * u for g, u in zip(linear(weights, at + "mlp.gate_proj", row),
                                              linear(weights, at + "mlp.up_proj", row))] for row in normed]
        x = [add(row, linear(weights, at + "mlp.down_proj", u)) for row, u in zip(x, inner)]
    return [rms_norm(weights, "norm", row, eps) for row in x]


def gelu_tanh(x):
    return 0.5 * x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x ** 3)))


def gemma_norm(weights, name, x, eps):
    """Folders hold the weights of norms minus 1; `x` may be several heads of the norm's width."""
    scales, out = weights[name + ".weight"].values, []
    for start in range(0, len(x), len(scales)):
        part = x[start:start + len(scales)]
        scale = 1 / math.sqrt(sum(v * v for v in part) / len(part) + eps)
        out += [v * scale * (1 + w) for v, w in zip(part, scales)]
    return out


def gemma_hidden(settings, weights, tokens, _):
    eps, heads, width = settings["rms_norm_eps"], settings["num_attention_heads"], settings["hidden_size"]
    dim, half = settings["head_dim"], settings["sliding_window"] // 2
    scalar, spread = settings["query_pre_attn_scalar"], lambda row: row * heads
    table = weights["embed_tokens.weight"].rows()
    x = [[v * math.sqrt(width) for v in table[token]] for token in tokens]
    for layer, kind in enumerate(settings["layer_types"]):
        at, local = f"layers.{layer}.", kind == "sliding_attention"
        theta = settings["rope_local_base_freq" if local else "rope_theta"]
        normed = [gemma_norm(weights, at + "input_layernorm", row, eps) for row in x]
        q, k, v = ([linear(weights, f"{at}self_attn.{n}_proj", row) for row in normed] for n in "qkv")
        q = [rotate(gemma_norm(weights, at + "self_attn.q_norm", row, eps), i, dim, theta) for i, row in enumerate(q)]
        q = [[a * math.sqrt(dim / scalar) for a in row] for row in q]
        k = [spread(rotate(gemma_norm(weights, at + "self_attn.k_norm", row, eps), i, dim, theta))
             for i, row in enumerate(k)]
        hidden = lambda head, i, j: -math.inf if local and abs(i - j) > half else 0.0
        mixed = attend(q, k, [spread(row) for row in v], heads, hidden)
        out = [gemma_norm(weights, at + "post_attention_layernorm", linear(weights, at + "self_attn.o_proj", m), eps)
               for m in mixed]
        x = [add(row, o) for row, o in zip(x, out)]
        normed = [gemma_norm(weights, at + "pre_feedforward_layernorm", row, eps) for row in x]
        inner = [[gelu_tanh(g) * u for g, u in zip(linear(weights, at + "mlp.gate_proj", row),
                                                   linear(weights, at + "mlp.up_proj", row))] for row in normed]
        out = [gemma_norm(weights, at + "post_feedforward_layernorm", linear(weights, at + "mlp.down_proj", u), eps)
               for u in inner]
        x = [add(row, o) for row, o in zip(x, out)]
    return [gemma_norm(weights, "norm", row, eps) for row in x]
