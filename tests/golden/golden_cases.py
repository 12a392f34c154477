"""The tiny models: one Hugging Face configuration each, with the keys that published checkpoints of that family have.

`CASES` maps a folder name to a Case. Special-token ids are those of golden_tokenizer.py.
"""
import dataclasses

from golden_tokenizer import BOS, EOS, PAD, VOCAB_SIZE


@dataclasses.dataclass
class Case:
    config: dict
    seed: int
    tokens: int = 32            # length of the scored sequence
    dtype: str = "F32"          # of the matrices, in both file kinds
    safetensors_shards: int = 1
    gguf_splits: int = 1        # 0: no GGUF, where that file kind cannot say what the model needs
    note: str = ""


def decoder(architecture, model_type, **changes):
    config = {
        "architectures": [architecture], "model_type": model_type,
        "attention_dropout": 0.0, "bos_token_id": BOS, "eos_token_id": EOS, "pad_token_id": PAD,
        "hidden_act": "silu", "hidden_size": 32, "initializer_range": 0.02, "intermediate_size": 64,
        "max_position_embeddings": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "torch_dtype": "float32",
        "use_cache": True, "vocab_size": VOCAB_SIZE,
    }
    config.update(changes)
    return config


def llama(**changes):
    base = {"attention_bias": False, "mlp_bias": False, "pretraining_tp": 1, "rope_scaling": None, "head_dim": 16}
    return decoder("LlamaForCausalLM", "llama", **{**base, **changes})


def gemma(architecture, model_type, **changes):
    base = {"attention_bias": False, "head_dim": 16, "hidden_act": "gelu_pytorch_tanh",
            "hidden_activation": "gelu_pytorch_tanh", "num_attention_heads": 4, "rms_norm_eps": 1e-6,
            "tie_word_embeddings": True}
    return decoder(architecture, model_type, **{**base, **changes})


def gemma2(**changes):
    base = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 6.0, "query_pre_attn_scalar": 16,
            "sliding_window": 8, "cache_implementation": "hybrid", "num_hidden_layers": 3}
    return gemma("Gemma2ForCausalLM", "gemma2", **{**base, **changes})


def phi3(**changes):
    base = {"attention_bias": False, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
            "num_attention_heads": 2, "num_key_value_heads": 1,
            "original_max_position_embeddings": 128, "rope_scaling": None, "sliding_window": 127}
    config = decoder("Phi3ForCausalLM", "phi3", **{**base, **changes})
    return config


def longrope(factors):
    return {"type": "longrope", "short_factor": [1.0, 1.02, 1.05, 1.1, 1.2, 1.3, 1.5, 1.7][:factors],
            "long_factor": [1.05, 1.2, 1.6, 2.3, 3.1, 4.4, 6.0, 8.0][:factors]}


def qwen_moe(architecture, model_type, **changes):
    base = {"decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 32, "norm_topk_prob": False,
            "num_experts": 5, "num_experts_per_tok": 3, "output_router_logits": False, "router_aux_loss_coef": 0.001,
            "max_window_layers": 2, "rms_norm_eps": 1e-6, "rope_theta": 1000000.0, "sliding_window": None,
            "use_sliding_window": False}
    return decoder(architecture, model_type, **{**base, **changes})


GPT2 = {
    "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new",
    "attn_pdrop": 0.1, "bos_token_id": BOS, "embd_pdrop": 0.1, "eos_token_id": EOS, "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5, "n_ctx": 64, "n_embd": 32, "n_head": 2, "n_layer": 2, "n_positions": 64,
    "resid_pdrop": 0.1, "vocab_size": VOCAB_SIZE,
}

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64, "beta_fast": 32.0, "beta_slow": 1.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 64}

CASES = {
    "llama": Case(llama(head_dim=None, num_attention_heads=2), 101, note="Llama 1 / 2: as many KV heads as heads"),
    "llama_linear": Case(llama(hidden_size=32, rope_scaling={"type": "linear", "factor": 4.0}), 2102,
                         note="linear rope scaling"),
    "llama3": Case(llama(hidden_size=64, intermediate_size=32, rope_theta=500000.0, rope_scaling=LLAMA3,
                         max_position_embeddings=512), 103, tokens=40,
                   note="llama3 rope scaling, grouped queries, large theta"),
    "llama_yarn": Case(llama(head_dim=32, num_attention_heads=2, num_key_value_heads=1, rope_scaling=YARN,
                             max_position_embeddings=256), 104, note="YaRN"),
    "llama_bias": Case(llama(attention_bias=True, mlp_bias=True), 3105, note="biases on q, k, v, o, gate, up, down"),
    "llama_tied_mqa": Case(llama(hidden_size=64, num_key_value_heads=1, tie_word_embeddings=True,
                                 intermediate_size=32), 2106, note="SmolLM style: tied head; one KV head"),
    "llama_relu": Case(llama(hidden_act="relu", head_dim=None, num_attention_heads=2, num_key_value_heads=1), 2131,
                       note="ReLU in place of SiLU, as ReluLLaMA and ProSparse; GGUF says so in llama.hidden_activation"),
    "llama_bf16": Case(llama(torch_dtype="bfloat16"), 107, dtype="BF16",
                       note="matrices in BF16 (norms too in safetensors, F32 in GGUF)"),
    "llama_sharded": Case(llama(), 1108, safetensors_shards=2, gguf_splits=2,
                          note="two safetensors shards with an index; GGUF in two files"),
    "mistral": Case(decoder("MistralForCausalLM", "mistral", head_dim=16, sliding_window=8), 109, tokens=40,
                    note="sliding window of 8 on every layer"),
    "mixtral": Case(decoder("MixtralForCausalLM", "mixtral", head_dim=16, intermediate_size=32, num_experts_per_tok=2,
                            num_local_experts=4, output_router_logits=False, router_aux_loss_coef=0.02,
                            rope_theta=1000000.0, sliding_window=None), 5110, tokens=24, note="2 of 4 experts"),
    "qwen2": Case(decoder("Qwen2ForCausalLM", "qwen2", num_attention_heads=2, num_key_value_heads=1, max_window_layers=2,
                          rms_norm_eps=1e-6, rope_theta=1000000.0, sliding_window=8, use_sliding_window=False), 2111,
                  note="biases on q, k, v; names a sliding window and does not use it"),
    "qwen2_tied": Case(decoder("Qwen2ForCausalLM", "qwen2", num_attention_heads=2, max_window_layers=2,
                               rms_norm_eps=1e-6,
                               rope_theta=1000000.0, sliding_window=None, use_sliding_window=False,
                               tie_word_embeddings=True), 1112, note="tied head"),
    "qwen3": Case(decoder("Qwen3ForCausalLM", "qwen3", attention_bias=False, head_dim=32, num_attention_heads=2,
                          num_key_value_heads=1, max_window_layers=2,
                          rms_norm_eps=1e-6, rope_scaling=None, rope_theta=1000000.0, sliding_window=None,
                          use_sliding_window=False, tie_word_embeddings=True), 1113,
                  note="QK-norm a head; head_dim 32 where hidden / heads is 16; tied head"),
    "qwen2moe": Case(qwen_moe("Qwen2MoeForCausalLM", "qwen2_moe", num_attention_heads=2, num_experts=4,
                              num_experts_per_tok=2,
                              shared_expert_intermediate_size=64), 1114, tokens=24,
                     note="shared expert behind a sigmoid gate; router weights not renormalized; q, k, v biases"),
    "qwen3moe": Case(qwen_moe("Qwen3MoeForCausalLM", "qwen3_moe", attention_bias=False, head_dim=16,
                              norm_topk_prob=True, rope_scaling=None), 14115, tokens=24,
                     note="3 of 5 experts renormalized; QK-norm"),
    "gemma": Case(gemma("GemmaForCausalLM", "gemma", num_attention_heads=4, num_key_value_heads=1), 5116,
                  note="embedding scale, (1 + w) norms, GeGLU, head_dim twice hidden / heads, one KV head"),
    "gemma2": Case(gemma2(), 117, tokens=40, note="soft-caps, alternating window of 8, norms before and after"),
    "gemma2_qscale": Case(gemma2(query_pre_attn_scalar=24,
                                 layer_types=["sliding_attention", "full_attention", "sliding_attention"]), 118,
                          gguf_splits=0,
                          note="query_pre_attn_scalar other than head_dim: GGUF has no key for it"),
    "gemma3": Case(gemma("Gemma3ForCausalLM", "gemma3_text", attn_logit_softcapping=None,
                         final_logit_softcapping=None, intermediate_size=32, num_attention_heads=2,
                         num_hidden_layers=7, num_key_value_heads=1, query_pre_attn_scalar=16,
                         rope_local_base_freq=10000.0, rope_theta=1000000.0,
                         rope_scaling={"rope_type": "linear", "factor": 8.0}, sliding_window=8,
                         sliding_window_pattern=6), 7119, tokens=40,
                   note="QK-norm, five local layers (window 8, theta 1e4) to one global (theta 1e6, linear scaling 8)"),
    "phi3": Case(phi3(sliding_window=16), 120, tokens=40, note="fused q, k, v and fused gate, up; window of 16"),
    "phi3_longrope_long": Case(phi3(rope_scaling=longrope(8), original_max_position_embeddings=16,
                                    max_position_embeddings=128), 121, tokens=40,
                               note="LongRoPE; the text is longer than the original context: long factors"),
    "phi3_longrope_short": Case(phi3(rope_scaling=longrope(8), original_max_position_embeddings=96,
                                     max_position_embeddings=384, sliding_window=383), 1122,
                                note="LongRoPE; the text fits the original context: short factors"),
    "phi4_mini": Case(phi3(rope_scaling=longrope(6), original_max_position_embeddings=96,
                           max_position_embeddings=384, sliding_window=383, partial_rotary_factor=0.75,
                           tie_word_embeddings=True), 123,
                      note="Phi-4-mini style: 12 of 16 head dimensions rotate, tied head, short LongRoPE factors"),
    "gpt2": Case(GPT2, 34124, note="learned positions, LayerNorm with bias, matrices [in, out], tied head; the "
                                 "file also holds the causal masks that the published one has"),
    "olmo2": Case(decoder("Olmo2ForCausalLM", "olmo2", attention_bias=False, num_attention_heads=2, num_key_value_heads=1,
                          rms_norm_eps=1e-6, rope_scaling=None, rope_theta=500000.0), 125,
                  note="norms after attention and feed-forward only; QK-norm over all heads"),
    "smollm3": Case(decoder("SmolLM3ForCausalLM", "smollm3", attention_bias=False, head_dim=16,
                            layer_types=["full_attention"] * 4, max_window_layers=4, mlp_bias=False,
                            no_rope_layer_interval=4, no_rope_layers=[1, 1, 1, 0],
                            num_hidden_layers=4, rms_norm_eps=1e-6, rope_scaling=None, rope_theta=5000000.0,
                            sliding_window=None, use_sliding_window=False, tie_word_embeddings=True,
                            intermediate_size=32), 1126, note="every fourth layer has no rope; tied head"),
}

for case in CASES.values():  # most published Llama configurations name no head_dim where it is hidden / heads
    config = case.config
    derived = config.get("hidden_size", 0) // config.get("num_attention_heads", 1)
    if config["model_type"] == "llama" and config["head_dim"] in (None, derived):
        del config["head_dim"]
