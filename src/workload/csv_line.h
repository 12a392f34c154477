// Reads lines of comma-separated fields; the first line has the column names. Quoting is not supported, because no
// supported trace format uses it.
#pragma once

#include "workload/trace_format.h"

namespace millrace {

std::vector<std::string_view> split_csv(std::string_view line);

// Returns the fields of a line by column name. set_header() is called once per file, set_line() for every other line.
class CsvColumns {
 public:
  // Errors: corrupt (a required column is missing).
  Result<void> set_header(const TraceLine& line, std::span<const std::string_view> wanted);
  bool has_header() const { return !names_.empty(); }
  bool has(std::string_view column) const;

  // Splits a line. Errors: corrupt (the number of fields differs from the header).
  Result<void> set_line(const TraceLine& line);
  std::string_view text(std::string_view column) const;  // empty if the column does not exist
  Result<int64_t> integer(const TraceLine& line, std::string_view column, int64_t min, int64_t max) const;
  Result<double> number(const TraceLine& line, std::string_view column, double min, double max) const;

 private:
  std::vector<std::string> names_;
  std::vector<std::string_view> fields_;
};

// Returns true if all `columns` are in the header.
bool is_header_with(std::string_view first_line, std::span<const std::string_view> columns);

}  // namespace millrace
