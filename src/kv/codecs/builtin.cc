// The built-in KV codecs, one line each.
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

// clang-format off
const Registry<KvCodecFactory>& kv_codecs() {
  static const Registry<KvCodecFactory> registry({.loss = Loss::lossy, .test = "tests/properties/kv_codecs_test.cc", .proof = "docs/kv-formats.md"}, {
      {{"kv_format", "kivi", "KV cache of 2 or 4 bits: keys scaled per channel, values per token, the newest tokens as f16", "Liu et al., 2024, KIVI: A Tuning-Free Asymmetric 2bit Quantization for KV Cache",
        with_windows({{"bits", Type::integer, "2", 2, 4, "bits of a level, 2 or 4"},
                      {"group", Type::integer, "32", 32, 128, "values that share a scale: tokens of keys, channels of values; 32, 64 or 128"},
                      {"residual", Type::integer, "0", 0, 65536, "tokens kept as f16 before those of the newest block; above 0, prompts share no prefixes"}})}, make_kivi},
  });
  return registry;
}
// clang-format on

}  // namespace millrace
