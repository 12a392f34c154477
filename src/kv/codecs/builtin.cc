// The built-in KV codecs.
#include "kv/codecs/factories.h"
#include "kv/kv_formats.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

// The layers with a window may have another format.
std::vector<OptionSpec> with_windows(std::vector<OptionSpec> own) {
  const auto windows = kv_window_options();
  own.insert(own.end(), windows.begin(), windows.end());
  return own;
}

}  // namespace

// Bits of a level, as many as a codec has by default, and the raw tokens.
OptionSpec bits_option(const char* by_default) {
  return {"bits", Type::integer, by_default, 2, 4, "bits of a level: 2, 3 or 4"};
}
OptionSpec residual_option() {
  return {"residual", Type::integer,
          "0",        0,
          65536,      "tokens kept as f16 before those of the newest block; above 0, prompts share no prefixes"};
}
OptionSpec group_option(const char* by_default) {
  return {"group", Type::integer, by_default, 32, 128, "channels of a token that share a scale; 32, 64 or 128"};
}

const Registry<KvCodecFactory>& kv_codecs() {
  static const Registry<KvCodecFactory> registry(
      {.loss = Loss::lossy, .test = "tests/properties/kv_codecs_test.cc", .proof = "docs/kv-formats.md"},
      {
          {{"kv_format", "kivi",
            "KV cache of 2 or 4 bits: keys scaled per channel, values per token, the newest tokens as f16",
            "Liu et al., 2024, KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache",
            with_windows({{"bits", Type::integer, "2", 2, 4, "bits of a level, 2 or 4"},
                          {"group", Type::integer, "32", 32, 128,
                           "values that share a scale: tokens of keys, channels of values; 32, 64 or 128"},
                          residual_option()})},
           make_kivi},
          {{"kv_format", "flexgen_kv",
            "KV cache of 4 bits: groups of 64 channels of a token between their minimum and maximum",
            "Sheng et al., 2023, FlexGen: High-Throughput Generative Inference of Large Language Models with a Single "
            "GPU",
            with_windows({bits_option("4"), group_option("64"), residual_option()})},
           make_flexgen_kv},
          {{"kv_format", "atom_kv", "KV cache of 4 bits: each head of a token between its minimum and maximum",
            "Zhao et al., 2023, Atom: Low-bit Quantization for Efficient and Accurate LLM Serving",
            with_windows({bits_option("4"), residual_option()})},
           make_atom_kv},
          {{"kv_format", "quarot_kv", "KV cache of 2 to 4 bits: heads are rotated by a Hadamard matrix before rounding",
            "Ashkboos et al., 2024, QuaRot: Outlier-Free 4-Bit Inference in Rotated LLMs",
            with_windows({bits_option("4"),
                          group_option("128"),
                          {"clip", Type::number, "0.95", 0.5, 1,
                           "part of the range between minimum and maximum that levels cover"},
                          residual_option()})},
           make_quarot_kv},
          {{"kv_format", "kvquant",
            "KV cache of 2 to 4 bits in uneven levels: keys per channel before RoPE, outliers and the first token as "
            "f16",
            "Hooper et al., 2024, KVQuant: Towards 10 Million Context Length LLM Inference with KV Cache Quantization",
            with_windows({bits_option("3"),
                          {"group", Type::integer, "64", 32, 128,
                           "tokens of a channel of keys that share a scale; 32, 64 or 128"},
                          {"outliers", Type::integer, "1", 0, 4, "values of each vector that are stored as f16"},
                          {"sink", Type::integer, "1", 0, 16, "first tokens of a stream that stay f16"},
                          {"levels", Type::text, "", 0, 0,
                           "file of millrace kv-levels; default: the levels that are optimal for normal values"},
                          residual_option()})},
           make_kvquant},
          {{"kv_format", "turboquant",
            "KV cache of 2 to 4 bits: heads are rotated at random and rounded to the codebook that is optimal for "
            "normal values",
            "Zandieh et al., 2025, TurboQuant: Online Vector Quantization with Near-optimal Distortion Rate",
            with_windows({bits_option("4"), residual_option()})},
           make_turboquant},
      });
  return registry;
}

}  // namespace millrace
