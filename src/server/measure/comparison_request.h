// The body of POST /compare, checked: a comparison over HTTP names models of the server and no files of its machine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compare/comparison.h"
#include "server/json.h"

namespace millrace {

inline constexpr size_t kMaxConfigurations = 16;
inline constexpr std::string_view kRefusedFamily = "weights";  // its members write a file next to the model

struct ComparisonRequest {
  std::vector<CompareSpec> specs;  // the base first
  ComparisonPlan plan;
};

// Errors: user (those of parse_configurations(); too many configurations), unsupported (an engine, a suite or an option
// that needs a file of this machine). Messages name the part.
Result<ComparisonRequest> read_comparison(const Json& body);

// Returns true if a suite needs no file: `text` is NAME or NAME:argument.
bool suite_needs_no_file(const std::string& text);

}  // namespace millrace
