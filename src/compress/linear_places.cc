#include "compress/linear_places.h"

#include <charconv>

namespace millrace {
namespace {

struct PartName {
  std::string_view part;  // between the layer's prefix and ".weight"
  LinearKind reads;
};

constexpr PartName kParts[] = {
    {"attn_q", LinearKind::q},   {"attn_k", LinearKind::q},           {"attn_v", LinearKind::q},
    {"attn_qkv", LinearKind::q}, {"attn_output", LinearKind::output}, {"ffn_gate", LinearKind::up},
    {"ffn_up", LinearKind::up},  {"ffn_down", LinearKind::down},
};

bool take_prefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool take_number(std::string_view& text, int32_t& number) {
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (read.ec != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
  return true;
}

}  // namespace

std::optional<LinearPlace> linear_place(std::string_view tensor, bool tied) {
  if (tensor == "output.weight" || (tied && tensor == "token_embd.weight")) return LinearPlace{};
  LinearPlace place;
  if (!take_prefix(tensor, "blk.") || !take_number(tensor, place.id.layer) || !take_prefix(tensor, ".")) return {};
  if (!tensor.ends_with(".weight")) return {};
  tensor.remove_suffix(std::string_view(".weight").size());
  for (const PartName& known : kParts) {
    std::string_view rest = tensor;
    if (!take_prefix(rest, known.part)) continue;
    place.id.kind = known.reads;
    if (rest.empty()) return place;
    if (!known.part.starts_with("ffn_")) continue;
    if (rest == "_exps") {
      place.stacked = true;
      place.id.expert = 0;
      return place;
    }
    if (rest == "_shexp") {
      place.id.expert = LinearId::kShared;
      return place;
    }
    if (take_prefix(rest, ".") && take_number(rest, place.id.expert) && rest.empty()) return place;
  }
  return {};
}

}  // namespace millrace
