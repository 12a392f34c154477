#include "flow/step_plan.h"

#include <fmt/format.h>

namespace millrace {

int64_t StepPlan::tokens() const {
  int64_t total = 0;
  for (const auto& chunk : chunks) total += chunk.count;
  return total;
}

std::string StepPlan::to_string() const {
  std::string out;
  if (!admitted.empty()) {
    out += "admit";
    for (auto id : admitted) out += fmt::format(" {}", id);
    out += ";";
  }
  for (const auto& chunk : chunks) {
    out += fmt::format("{}{}:[{}+{}]{}", out.empty() ? "" : " ", chunk.request, chunk.first, chunk.count,
                       chunk.sample ? "*" : "");
  }
  return out;
}

}  // namespace millrace
