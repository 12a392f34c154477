#include "models/unknown/tensor_kinds.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace millrace {
namespace {

bool is_number(std::string_view part) {
  return !part.empty() && std::ranges::all_of(part, [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

std::string tensor_kind(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view prefix : {"model.", "transformer.", "language_model."}) {
      if (!name.starts_with(prefix)) continue;
      name.remove_prefix(prefix.size());
      again = true;
    }
  }
  std::string out;
  for (bool first = true; first || !name.empty(); first = false) {
    const size_t dot = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, dot);
    if (!first) out += '.';
    if (is_number(part))
      out += '*';
    else
      out += part;
    name.remove_prefix(std::min(dot + 1, name.size()));
  }
  for (const std::string_view part : {".ffn_gate", ".ffn_up", ".ffn_down"})  // experts that are not stacked
    if (const size_t at = out.find(std::string(part) + ".*."); at != std::string::npos)
      out.replace(at + part.size(), 2, "_exps");
  return out;
}

std::string pattern_kind(std::string_view pattern) {
  if (pattern.starts_with('^')) pattern.remove_prefix(1);
  std::string numbered(pattern);
  for (const std::string_view field : {"{l}", "{e}"})
    for (size_t at; (at = numbered.find(field)) != std::string::npos;) numbered.replace(at, field.size(), "0");
  return tensor_kind(numbered);
}

bool is_derived_tensor(std::string_view name) {
  const bool factors = name == "rope_freqs.weight" || name.starts_with("rope_factors_");
  return factors || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") ||
         name.ends_with(".rotary_emb.inv_freq");
}

std::map<std::string, const StoredTensor*> tensor_kinds(const ModelFiles& files) {
  std::map<std::string, const StoredTensor*> out;
  for (const StoredTensor& stored : files.tensors)
    if (!is_derived_tensor(stored.name)) out.emplace(tensor_kind(stored.name), &stored);
  return out;
}

bool is_media_tensor(std::string_view name) {
  constexpr std::array<std::string_view, 3> kPrefixes = {"v.", "mm.", "a."};  // of GGUF files
  constexpr std::array<std::string_view, 5> kParts = {"vision", "visual", "multi_modal", "audio", ".conformer."};
  const std::string kind = tensor_kind(name);
  return std::ranges::any_of(kPrefixes, [&](std::string_view prefix) { return kind.starts_with(prefix); }) ||
         std::ranges::any_of(kParts, [&](std::string_view part) { return kind.find(part) != std::string::npos; });
}

int64_t layer_number(std::string_view name) {
  constexpr std::array<std::string_view, 6> kLists = {"blk", "layers", "layer", "h", "blocks", "block"};
  constexpr int64_t kMaxLayer = 1'000'000;
  for (bool in_list = false; !name.empty();) {
    const std::string_view part = name.substr(0, name.find('.'));
    int64_t layer = 0;
    if (in_list && is_number(part)) {
      const auto read = std::from_chars(part.data(), part.data() + part.size(), layer);
      return read.ec == std::errc() ? std::min(layer, kMaxLayer) : kMaxLayer;
    }
    in_list = std::ranges::find(kLists, part) != kLists.end();
    name.remove_prefix(std::min(part.size() + 1, name.size()));
  }
  return -1;
}

std::string shape_text(const Tensor& tensor) {
  std::string out = "[";
  for (int i = 0; i < tensor.rank; ++i) out += fmt::format("{}{}", i ? ", " : "", tensor.dims[static_cast<size_t>(i)]);
  return out + "]";
}

}  // namespace millrace
