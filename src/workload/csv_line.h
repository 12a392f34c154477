// Lines of comma-separated numbers whose first line names the columns. No quoting: no trace format here has any.
#pragma once

#include "workload/trace_format.h"

namespace millrace {

std::vector<std::string_view> split_csv(std::string_view line);

// The header line, once per file; then fields by column name.
class CsvColumns {
 public:
  // Errors: corrupt (a wanted column is missing).
  Result<void> set_header(const TraceLine& line, std::span<const std::string_view> wanted);
  bool has_header() const { return !names_.empty(); }
  bool has(std::string_view column) const;

  // Splits a line. Errors: corrupt (another number of fields than the header has).
  Result<void> set_line(const TraceLine& line);
  std::string_view text(std::string_view column) const;  // of a column that is there; else empty
  Result<int64_t> integer(const TraceLine& line, std::string_view column, int64_t min, int64_t max) const;
  Result<double> number(const TraceLine& line, std::string_view column, double min, double max) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string_view> fields_;
};

// Every one of `columns` stands in the header.
bool is_header_with(std::string_view first_line, std::span<const std::string_view> columns);

}  // namespace millrace
