#include "models/convert/matrix_factors.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "formats/format.h"

namespace millrace {
namespace {

// The part of a name behind "blk.N.", or all of it.
std::string_view part_in_layer(std::string_view name) {
  if (!name.starts_with("blk.")) return name;
  const size_t dot = name.find('.', 4);
  return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

// The factor of each row, or one factor of all rows; null: all are 1.
std::shared_ptr<const std::vector<double>> factors_of(std::span<const RowFactor> factors, std::string_view name) {
  std::vector<double> rows;
  for (const RowFactor& one : factors)
    if (one.tensor == part_in_layer(name))
      rows.insert(rows.end(), static_cast<size_t>(std::max<int64_t>(1, one.rows)), one.factor);
  if (std::ranges::all_of(rows, [](double factor) { return factor == 1.0; })) return nullptr;
  return std::make_shared<const std::vector<double>>(std::move(rows));
}

bool rounds_again(const SourceTensor& tensor) {
  return tensor.factors && tensor.stored && tensor.stored->tensor.format != find_format("f32");
}

}  // namespace

void apply_factors(std::span<const RowFactor> factors, std::vector<SourceTensor>& tensors,
                   std::vector<std::string>& notes) {
  if (factors.empty()) return;
  const auto named = [&](const char* name) { return std::ranges::find(tensors, name, &SourceTensor::name); };
  const auto embedding = named("token_embd.weight"), head = named("output.weight");
  const auto own = factors_of(factors, "token_embd.weight"), of_head = factors_of(factors, "output.weight");
  const bool differ = (own ? own->front() : 1.0) != (of_head ? of_head->front() : 1.0);
  if (head == tensors.end() && embedding != tensors.end() && differ) {
    SourceTensor tied = *embedding;
    tied.name = "output.weight";
    tensors.push_back(std::move(tied));
    notes.emplace_back("the head is tied to the embedding and has another factor: it is stored as a separate matrix");
  }
  for (SourceTensor& tensor : tensors) tensor.factors = factors_of(factors, tensor.name);
  if (const auto rounded = std::ranges::count_if(tensors, rounds_again); rounded > 0)
    notes.push_back(fmt::format(
        "{} matrices are multiplied by factors of config.json, and rounded once more unless they become f32", rounded));
}

}  // namespace millrace
