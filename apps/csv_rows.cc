#include "csv_rows.h"

#include <fmt/format.h>

#include <charconv>

#include "input.h"
#include "workload/csv_line.h"

namespace millrace {

Result<std::vector<CsvRow>> read_csv_rows(const std::string& path) {
  MILLRACE_TRY(const std::string text, read_text_file(path));
  std::vector<CsvRow> rows;
  std::vector<std::string> names;
  for (size_t start = 0, end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
    const auto fields = split_csv(std::string_view(text).substr(start, end - start));
    if (names.empty()) {
      names.assign(fields.begin(), fields.end());
      continue;
    }
    if (fields.size() != names.size())
      return Error::corrupt(
          fmt::format("{}: a line has {} fields, the first line {}", path, fields.size(), names.size()));
    CsvRow row;
    for (size_t i = 0; i < names.size(); ++i) row.emplace(names[i], fields[i]);
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<double> csv_number(const CsvRow& row, const std::string& column, const std::string& path) {
  const auto found = row.find(column);
  double value = 0;
  if (found == row.end()) return Error::corrupt(fmt::format("{}: has no column {}", path, column));
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return value;
  return Error::corrupt(fmt::format("{}: column {} has {}, which is not a number", path, column, text));
}

}  // namespace millrace
