#include "compress/output/table_format.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/convert/format_choice.h"

namespace millrace {

std::optional<size_t> find_table(const ConversionPlan& plan) {
  const auto at = std::ranges::find(plan.tensors, "token_embd.weight", &OutputTensor::name);
  if (at == plan.tensors.end()) return std::nullopt;
  return static_cast<size_t>(at - plan.tensors.begin());
}

bool is_head_tied(const ConversionPlan& plan) {
  return std::ranges::none_of(plan.tensors, [](const OutputTensor& one) { return one.name == "output.weight"; });
}

Result<const Format*> read_table_format(const std::string& text) {
  if (text == "same") return nullptr;
  const Format* format = find_format(text);
  if (!format || !can_store(*format, true))
    return Error::user(
        fmt::format("--table {}: must be same, or a format that GGUF files can have, such as q8_0", text));
  return format;
}

const Format* raise_table_format(const Format& format, ConversionPlan& plan) {
  const auto at = find_table(plan);
  if (!at || !is_head_tied(plan)) return nullptr;
  OutputTensor& table = plan.tensors[*at];
  const auto bits = [](const Format* one) { return one->bits_per_value(); };
  const Format* raised = fitting_format(format, table.dims.back());
  const Format* stored = table.parts.size() == 1 ? table.parts[0].plain_format() : nullptr;
  if (stored && (!raised || bits(stored) < bits(raised)) && can_store(*stored, true)) raised = stored;
  if (!raised || bits(table.format) >= bits(raised)) return nullptr;
  return std::exchange(table.format, raised);
}

}  // namespace millrace
