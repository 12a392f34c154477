#include "models/convert/format_mix.h"

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

using In = FormatMix::Layers;

const std::vector<FormatMix>& format_mixes() {
  static const std::vector<FormatMix> all = {
      {"q3_k_s", "q3_k", 11, {}},
      {"q3_k_m",
       "q3_k",
       12,
       {{"attn_v", In::first_2, "q5_k"},
        {"attn_v", In::all, "q4_k"},
        {"ffn_down", In::first_sixteenth, "q5_k"},
        {"ffn_down", In::outer_and_each_third, "q4_k"},
        {"attn_output", In::all, "q4_k"}}},
      {"q3_k_l",
       "q3_k",
       13,
       {{"attn_v", In::all, "q5_k"}, {"ffn_down", In::all, "q5_k"}, {"attn_output", In::all, "q5_k"}}},
      {"q4_k_s", "q4_k", 14, {{"attn_v", In::first_4, "q5_k"}, {"ffn_down", In::first_eighth, "q5_k"}}},
      {"q4_k_m",
       "q4_k",
       15,
       {{"attn_v", In::outer_and_each_third, "q6_k"}, {"ffn_down", In::outer_and_each_third, "q6_k"}}},
      {"q5_k_s", "q5_k", 16, {}},
      {"q5_k_m",
       "q5_k",
       17,
       {{"attn_v", In::outer_and_each_third, "q6_k"}, {"ffn_down", In::outer_and_each_third, "q6_k"}}},
  };
  return all;
}

bool is_among(In which, int64_t layer, int64_t layers) {
  switch (which) {
    case In::all: return true;
    case In::first_2: return layer < 2;
    case In::first_4: return layer < 4;
    case In::first_eighth: return layer < layers / 8;
    case In::first_sixteenth: return layer < layers / 16;
    case In::outer_and_each_third: {
      const int64_t edge = layers / 8;
      return layer < edge || layer >= 7 * layers / 8 || (layer - edge) % 3 == 2;
    }
  }
  return false;
}

}  // namespace

const FormatMix* find_format_mix(std::string_view name) {
  std::string lower(name);
  std::ranges::transform(lower, lower.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  const auto found = std::ranges::find(format_mixes(), lower, &FormatMix::name);
  return found == format_mixes().end() ? nullptr : &*found;
}

std::string format_mix_names() {
  std::string out;
  for (const FormatMix& mix : format_mixes()) out += (out.empty() ? "" : ", ") + std::string(mix.name);
  return out;
}

std::string_view format_in_mix(const FormatMix& mix, std::string_view tensor, int64_t layers, bool tied) {
  if (tensor == (tied ? "token_embd.weight" : "output.weight")) return "q6_k";
  constexpr std::string_view kLayer = "blk.";
  if (!tensor.starts_with(kLayer)) return mix.base;
  tensor.remove_prefix(kLayer.size());
  int64_t layer = 0;
  const auto [end, failed] = std::from_chars(tensor.data(), tensor.data() + tensor.size(), layer);
  if (failed != std::errc()) return mix.base;
  tensor.remove_prefix(static_cast<size_t>(end - tensor.data()));
  for (const FormatMix::Rule& rule : mix.rules) {
    const std::string matrix = "." + std::string(rule.matrix);
    const bool named = tensor.starts_with(matrix + ".") || tensor.starts_with(matrix + "_exps.");
    if (named && is_among(rule.layers, layer, layers)) return rule.format;
  }
  return mix.base;
}

}  // namespace millrace
