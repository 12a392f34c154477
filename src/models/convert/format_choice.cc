#include "models/convert/format_choice.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/layer_matrices.h"

namespace millrace {
namespace {

bool is_plain(const Format& format) { return format.block_values == 1 && format.name != "f8_e4m3"; }

// The replacement for a format whose blocks are too wide for a row, as in llama.cpp; null: none.
const Format* narrower(const Format& format) {
  static constexpr std::pair<std::string_view, std::string_view> kNarrower[] = {
      {"q2_k", "iq4_nl"},    {"q3_k", "iq4_nl"},    {"iq4_xs", "iq4_nl"},  {"q4_k", "q5_0"},      {"q5_k", "q5_1"},
      {"q6_k", "q8_0"},      {"tq1_0", "q4_0"},     {"tq2_0", "q4_0"},     {"iq1_s", "iq4_nl"},   {"iq1_m", "iq4_nl"},
      {"iq2_xxs", "iq4_nl"}, {"iq2_xs", "iq4_nl"},  {"iq2_s", "iq4_nl"},   {"iq3_xxs", "iq4_nl"}, {"iq3_s", "iq4_nl"},
      {"e8p", "iq4_nl"},     {"e8p_3", "iq4_nl"},   {"e8p_4", "iq4_nl"},   {"nvfp4", "mxfp4"},    {"q1_0", "q2_0"},
      {"q2_0", "q4_0"},      {"q2_g128", "q2_g64"}, {"q3_g128", "q3_g64"}, {"q2_g64", "q4_0"},    {"q3_g64", "q4_0"}};
  const auto* found = std::ranges::find(kNarrower, format.name, [](const auto& pair) { return pair.first; });
  return found == std::end(kNarrower) ? nullptr : find_format(found->second);
}

}  // namespace

bool can_store(const Format& format, bool gguf) {
  if (gguf) return format.gguf_type >= 0;
  return format.block_values == 1 && !format.safetensors.empty() && format.name != "f8_e4m3";
}

const Format* fitting_format(const Format& format, int64_t line) {
  const Format* found = &format;
  while (found && line % found->block_values != 0) found = narrower(*found);
  return found;
}

const char* special_matrix(std::string_view name) {
  for (std::string_view router :
       {"mlp.gate.weight", "block_sparse_moe.gate.weight", "shared_expert_gate.weight", ".router.proj.weight"})
    if (name.ends_with(router)) return "router";
  if (name.find("ffn_gate_inp") != std::string_view::npos) return "router";
  for (std::string_view gate : {"attn_int_q.weight", "attn_int_k.weight", "attn_select.weight", "q_int.weight",
                                "k_int.weight", "q_router.weight_proj.weight"})
    if (name.ends_with(gate)) return "gates of tokens";
  for (std::string_view part : {"altup_router.weight", "altup_predict_coef.weight", "altup_correct_coef.weight",
                                "modality_router.weight", "prediction_coefs.weight", "correction_coefs.weight"})
    if (name.ends_with(part)) return "coefficients of residual streams";
  for (std::string_view part : {".ssm_conv1d.weight", ".conv1d.weight"})
    if (name.ends_with(part)) return "taps of a convolution";
  for (std::string_view part : {".ssm_a", ".A_log"})
    if (name.ends_with(part)) return "decays of states";
  if (is_shortcut(name)) return "shortcut of the residual stream";
  if (name == "position_embd.weight" || name.ends_with("wpe.weight")) return "positions";
  if (name == "token_types.weight") return "token types";
  if (name == "cls.weight" || name == "cls.output.weight") return "ranking head";
  if (name == "dense_2.weight" || name == "dense_3.weight") return "dense layer behind the pooling";
  return nullptr;
}

const Format* FormatChoice::choose(const SourceTensor& tensor, const std::string& name, int64_t line,
                                   const char* special) {
  if (choice_.mix) target_ = find_format(format_in_mix(*choice_.mix, name, choice_.layers, choice_.tied));
  const Format* source = tensor.stored ? tensor.stored->tensor.format : nullptr;
  if (source && !tensor.stored->scales.values.empty() && source->matrix_limit == 0) source = nullptr;
  const Format* plain = source && is_plain(*source) && can_store(*source, gguf_) ? source : f32_;
  if (tensor.is_vector) return gguf_ && !same_kind_ ? f32_ : plain;
  if (special) return keep(name, gguf_ && !same_kind_ ? f32_ : plain, special);
  if (target_) return fitting(name, line, plain);
  const bool fits = source && can_store(*source, gguf_) && line % source->block_values == 0;
  return fits && !(tensor.transposed && source->block_values > 1) ? source : f32_;
}

// The target or its replacement; if even that does not fit, a 16-bit float format.
const Format* FormatChoice::fitting(const std::string& name, int64_t line, const Format* plain) {
  const Format* format = fitting_format(*target_, line);
  if (format == target_) return target_;
  if (!format) format = plain->block_bytes <= 2 ? plain : find_format("f16");
  const std::string why =
      fmt::format("{} columns are not whole blocks of {} (block size {})", line, target_->name, target_->block_values);
  // Experts of one stack form one tensor.
  if (report_.fallbacks.empty() || report_.fallbacks.back().name != name)
    report_.fallbacks.push_back({name, std::string(format->name), why});
  return format;
}

const Format* FormatChoice::keep(const std::string& name, const Format* format, const std::string& why) {
  if (target_ && target_ != format) report_.kept.push_back({name, std::string(format->name), why});
  return format;
}

}  // namespace millrace
