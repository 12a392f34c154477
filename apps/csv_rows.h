// The rows of a CSV file with a line of column names, as `millrace train-lab` and `millrace plot` read them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

// The fields of a line by the names in the first line.
using CsvRow = std::map<std::string, std::string>;

// A last line without its end is left out: a run may be writing it. Errors: corrupt (the file cannot be read, or a line
// has another number of fields than the first one).
Result<std::vector<CsvRow>> read_csv_rows(const std::string& path);

// Errors: corrupt (there is no such column, or its field is not a number).
Result<double> csv_number(const CsvRow& row, const std::string& column, const std::string& path);

}  // namespace millrace
