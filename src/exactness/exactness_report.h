// The result of a check of exactness as a table with examples, and as JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "exactness/exactness.h"
#include "terminal/text_table.h"

namespace millrace {

// The server that was checked.
struct CheckedServer {
  std::string address;
  CallStyle style;
  bool with_key = false;
};

// One row per probe, one column per way; then what differs, the smallest example of each way as curl commands with both
// answers, and the notes. `room`: for the rows; a narrow terminal drops ways whose answers are all the same, the last
// one first.
std::string exactness_table(const ExactnessResult& result, const CheckedServer& server, const TableRoom& room = {});

nlohmann::ordered_json exactness_json(const ExactnessResult& result, const CheckedServer& server);

}  // namespace millrace
