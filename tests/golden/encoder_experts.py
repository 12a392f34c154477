"""Nomic's BERT with a mixture of experts in every second layer, and Jina's third BERT, which is the same without experts:
weights, reference in plain Python floats (float64), and what a converter makes of them. Needs only Python. Sources: Nussbaum and Duderstadt 2025 (arXiv:2502.07972): BERT's layers with
rotations (Su et al. 2021, halves); the router's softmax over all experts, of which the largest ones weigh the outputs of
experts without a gate as they are; one bias is added to the sum.
"""
import math
import random

from encoder_reference import add, attend, gelu, layer_norm, linear, rotate, thirds, typed_rows
from make_mamba import Array, times

TOP = {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types",
       "emb_ln": "token_embd_norm"}
BLOCK = {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "norm1": "attn_output_norm", "mlp.fc1": "ffn_up",
         "mlp.fc2": "ffn_down", "norm2": "layer_output_norm", "mlp.router.layer": "ffn_gate_inp"}


def has_experts(settings, layer):
    return settings.get("num_experts", 0) > 0 and layer % settings["moe_every_n_layers"] == 1


def weights(w, settings):
    """Fills `w`, a make_encoders.Weights."""
    width, inner, experts = settings["n_embd"], settings["n_inner"], settings.get("num_experts", 0)
    for name, rows in (("word", settings["vocab_size"]), ("token_type", settings["type_vocab_size"])):
        w.matrix(f"embeddings.{name}_embeddings", rows, width, 0.9 * math.sqrt(width))
    w.norm("emb_ln", width)
    for layer in range(settings["n_layer"]):
        at = f"encoder.layers.{layer}."
        w.matrix(at + "attn.Wqkv", 3 * width, width, 1.5, True)
        w.matrix(at + "attn.out_proj", width, width, 1.5, True)
        w.norm(at + "norm1", width)
        if has_experts(settings, layer):
            draw = lambda gain, cols: lambda _: w.source.gauss(0, gain / math.sqrt(cols))
            w.matrix(at + "mlp.router.layer", experts, width, 2.0)
            w[at + "mlp.experts.mlp.w1"] = Array([experts * inner, width], draw(1.5, width))
            w[at + "mlp.experts.mlp.w2"] = Array([experts * inner, width], draw(2.0, inner))
            w[at + "mlp.experts.bias"] = Array([width], draw(0.4, 1))
        else:
            w.matrix(at + "mlp.fc1", inner, width, 1.5, True)
            w.matrix(at + "mlp.fc2", width, inner, 1.5, True)
        w.norm(at + "norm2", width)
    return w


def mixture(settings, w, at, x):
    inner, used = settings["n_inner"], settings["moe_top_k"]
    logits = linear(w, at + "mlp.router.layer", x)
    shares = [math.exp(v - max(logits)) for v in logits]
    shares = [v / sum(shares) for v in shares]
    out = list(w[at + "mlp.experts.bias"].values)
    into, back = (w[f"{at}mlp.experts.mlp.{name}"].rows() for name in ("w1", "w2"))
    for expert in sorted(range(len(shares)), key=lambda e: -shares[e])[:used]:
        part = slice(expert * inner, (expert + 1) * inner)
        hidden = [gelu(v) for v in times(into[part], x)]
        out = add(out, [shares[expert] * sum(h * v for h, v in zip(hidden, column)) for column in zip(*back[part])])
    return out


def hidden(settings, w, tokens, separator):
    eps, heads = settings["layer_norm_epsilon"], settings["n_head"]
    dim, theta = settings["n_embd"] // heads, settings["rotary_emb_base"]
    one_type = settings["type_vocab_size"] == 1
    x = [layer_norm(w, "emb_ln", row, eps) for row in typed_rows(w, tokens, None if one_type else separator)]
    for layer in range(settings["n_layer"]):
        at = f"encoder.layers.{layer}."
        q, k, v = zip(*(thirds(linear(w, at + "attn.Wqkv", row)) for row in x))
        q, k = ([rotate(row, i, dim, theta) for i, row in enumerate(rows)] for rows in (q, k))
        x = [layer_norm(w, at + "norm1", add(row, linear(w, at + "attn.out_proj", m)), eps)
             for row, m in zip(x, attend(q, k, v, heads))]
        if has_experts(settings, layer):
            out = [mixture(settings, w, at, row) for row in x]
        else:
            out = [linear(w, at + "mlp.fc2", [gelu(u) for u in linear(w, at + "mlp.fc1", row)]) for row in x]
        x = [layer_norm(w, at + "norm2", add(row, o), eps) for row, o in zip(x, out)]
    return x


def gguf(settings, w):
    """The down matrices are turned. Converters of llama.cpp drop the bias of the experts' sum; here it is kept."""
    out, width, inner, experts = {}, settings["n_embd"], settings["n_inner"], settings.get("num_experts", 0)
    for name, array in w.items():
        layer = f"blk.{name.split('.')[2]}." if name.startswith("encoder.") else ""
        if name.endswith("experts.mlp.w1"):
            out[layer + "ffn_up_exps.weight"] = Array([experts, inner, width], lambda i, a=array: a.values[i])
        elif name.endswith("experts.mlp.w2"):
            def turned(i, rows=array.rows()):
                expert, rest = divmod(i, width * inner)
                return rows[expert * inner + rest % inner][rest // inner]
            out[layer + "ffn_down_exps.weight"] = Array([experts, width, inner], turned)
        elif name.endswith("experts.bias"):
            out[layer + "ffn_down_shexp.bias"] = array
        else:
            base, kind = name.rsplit(".", 1)
            out[(layer + BLOCK[base.split(".", 3)[3]] if layer else TOP[base]) + "." + kind] = array
    return out


def keys(settings, nomic_keys):
    arch = "nomic-bert-moe"
    counts = {"moe_every_n_layers": settings["moe_every_n_layers"], "expert_count": settings["num_experts"],
              "expert_used_count": settings["moe_top_k"]}
    return [(key.replace("nomic-bert.", arch + "."), kind, value) for key, kind, value in nomic_keys(settings)] + [
        (f"{arch}.{name}", "uint32", value) for name, value in counts.items()]


# ---- Jina's third BERT -----------------------------------------------------------------------------------------------
def of_jina(settings):
    """The settings of an XLM-RoBERTa with rotations, by Nomic's names."""
    return {"n_embd": settings["hidden_size"], "n_inner": settings["intermediate_size"], "type_vocab_size": 1,
            "n_layer": settings["num_hidden_layers"], "n_head": settings["num_attention_heads"],
            "vocab_size": settings["vocab_size"], "layer_norm_epsilon": settings["layer_norm_eps"],
            "rotary_emb_base": settings["rotary_emb_base"]}


def jina_adapters(settings, name, shape):
    """A and B of a matrix: [tasks, rank, in] and [tasks, out, rank], those of tables of embeddings the other way round."""
    source, (rows, cols) = random.Random(name), shape
    tasks, rank, table = len(settings["lora_adaptations"]), settings["lora_rank"], "_embeddings" in name
    draw = lambda _: source.gauss(0, 0.3)
    return (Array([tasks, rows, rank] if table else [tasks, rank, cols], draw),
            Array([tasks, rank, cols] if table else [tasks, rows, rank], draw))


def with_task(settings, w, task):
    """The weights plus the adapters of a task: alpha / rank times B A, or A B for tables."""
    out, tasks, scale = dict(w), len(settings["lora_adaptations"]), settings["lora_alpha"] / settings["lora_rank"]
    of_task = lambda rows: rows[task * len(rows) // tasks:(task + 1) * len(rows) // tasks]
    for name, array in w.items():
        if len(array.shape) == 1:
            continue
        a, b = (one.rows() for one in jina_adapters(settings, name, array.shape))
        left, right = (of_task(a), of_task(b)) if "_embeddings" in name else (of_task(b), of_task(a))
        rows = [[v + scale * sum(l * right[r][c] for r, l in enumerate(lefts)) for c, v in enumerate(row)]
                for row, lefts in zip(array.rows(), left)]
        out[name] = Array(array.shape, lambda i, rows=rows, cols=array.shape[1]: rows[i // cols][i % cols])
    return out


def jina_names(settings):
    """As the published folder: matrices with adapters for tasks next to them."""
    def names(w):
        out = {}
        for name, array in w.items():
            stored = "roberta." + name.replace(".attn.", ".mixer.")
            if len(array.shape) == 1:
                out[stored] = array
                continue
            base = stored.removesuffix(".weight") + ".parametrizations.weight."
            out[base + "original"] = array
            out[base + "0.lora_A"], out[base + "0.lora_B"] = jina_adapters(settings, name, array.shape)
        return out
    return names
