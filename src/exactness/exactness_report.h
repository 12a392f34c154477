// The result of a check of exactness as a table with examples, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exactness/exactness.h"

namespace millrace {

// The server that was checked.
struct CheckedServer {
  std::string address;
  CallStyle style;
  bool with_key = false;
};

// One row per probe, one column per way; then what differs, the smallest example of each way as curl commands with both
// answers, and the notes.
std::string exactness_table(const ExactnessResult& result, const CheckedServer& server);

nlohmann::ordered_json exactness_json(const ExactnessResult& result, const CheckedServer& server);

}  // namespace millrace
