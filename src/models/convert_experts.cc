// ModelBuilder: gives cold experts (WeightSourceMember::cold_experts) their format.
#include <fmt/format.h>

#include <utility>

#include "formats/format.h"
#include "models/converted_rows.h"
#include "models/model_builder.h"

namespace millrace {

Result<void> ModelBuilder::convert_cold_experts(const ModelOptions& options) {
  MILLRACE_TRY(const auto source, choose_member("weights", weight_sources(), options.weights));
  if (!source.member.cold_experts) return {};
  std::vector<size_t> experts;
  for (const LayerWeights& layer : model_->layers_) experts.push_back(layer.experts.size());
  const auto labelled = [&](const Error& error) { return Error{error.kind, source.label + ": " + error.message}; };
  const auto chosen = source.member.cold_experts(experts, source.options);
  if (!chosen.ok()) return labelled(chosen.error());
  if (!chosen->format) return {};
  for (size_t l = 0; l < experts.size(); ++l)
    for (size_t e = 0; e < experts[l]; ++e) {
      if (!chosen->cold[l][e]) continue;
      MlpWeights& expert = model_->layers_[l].experts[e];
      for (Weight* weight : {&expert.gate, &expert.up, &expert.down})
        if (auto done = convert(*weight, *chosen->format); !done.ok()) return labelled(done.error());
    }
  return {};
}

// Matrices that the file stores in this format stay as they are.
Result<void> ModelBuilder::convert(Weight& weight, const Format& to) {
  if (!weight.present()) return {};
  const Format& from = weight.column_format ? *weight.column_format : *weight.format;
  if (&from == &to && !weight.column_format) return {};
  MILLRACE_TRY_VOID(check_convertible(weight, to));
  if (to.bits_per_value() > from.bits_per_value())
    return Error::unsupported(
        fmt::format("cold: {} has {:.3g} bits a value, and tensor {} has {:.3g} ({}); choose a format with fewer",
                    to.name, to.bits_per_value(), weight.name, from.bits_per_value(), from.name));
  Weight cold;
  cold.name = weight.name;
  cold.format = &to;
  cold.rows = weight.rows;
  cold.cols = weight.cols;
  cold.data = weight.data;
  converted_.emplace(&weight, std::exchange(weight, std::move(cold)));
  return {};
}

}  // namespace millrace
