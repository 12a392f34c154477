#include "workload/csv_line.h"

#include <algorithm>
#include <charconv>

namespace millrace {
namespace {

std::string shown(std::string_view field) {
  std::string out = "'";
  for (char c : field.substr(0, 40)) out += c >= ' ' && c < 127 ? c : '?';
  return out + (field.size() > 40 ? "...'" : "'");
}

}  // namespace

std::vector<std::string_view> split_csv(std::string_view line) {
  std::vector<std::string_view> fields;
  for (;;) {
    const size_t comma = line.find(',');
    std::string_view field = line.substr(0, comma);
    while (field.starts_with(' ')) field.remove_prefix(1);
    while (field.ends_with(' ')) field.remove_suffix(1);
    fields.push_back(field);
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

bool is_header_with(std::string_view first_line, std::span<const std::string_view> columns) {
  const auto names = split_csv(first_line.substr(0, 4096));
  return std::ranges::all_of(columns,
                             [&](std::string_view column) { return std::ranges::find(names, column) != names.end(); });
}

Result<void> CsvColumns::set_header(const TraceLine& line, std::span<const std::string_view> wanted) {
  for (std::string_view name : split_csv(line.text)) names_.emplace_back(name);
  for (std::string_view name : wanted)
    if (!has(name)) return line.defect(fmt::format("the header has no column '{}'", name));
  return {};
}

bool CsvColumns::has(std::string_view column) const { return std::ranges::find(names_, column) != names_.end(); }

Result<void> CsvColumns::set_line(const TraceLine& line) {
  fields_ = split_csv(line.text);
  if (fields_.size() != names_.size())
    return line.defect(fmt::format("has {} fields, the header {}", fields_.size(), names_.size()));
  return {};
}

std::string_view CsvColumns::text(std::string_view column) const {
  const auto found = std::ranges::find(names_, column);
  return found == names_.end() ? std::string_view() : fields_[static_cast<size_t>(found - names_.begin())];
}

Result<int64_t> CsvColumns::integer(const TraceLine& line, std::string_view column, int64_t min, int64_t max) const {
  const std::string_view field = text(column);
  int64_t value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || value < min || value > max) {
    return line.defect(fmt::format("{}: must be a whole number from {} to {}, is {}", column, min, max, shown(field)));
  }
  return value;
}

Result<double> CsvColumns::number(const TraceLine& line, std::string_view column, double min, double max) const {
  const std::string_view field = text(column);
  double value = 0;
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), value);
  if (error != std::errc() || end != field.data() + field.size() || !(value >= min && value <= max)) {
    return line.defect(fmt::format("{}: must be a number from {} to {}, is {}", column, min, max, shown(field)));
  }
  return value;
}

}  // namespace millrace
