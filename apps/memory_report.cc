#include "memory_report.h"

#include "base/memory.h"
#include "base/ordered_json.h"

namespace millrace {

nlohmann::ordered_json memory_json(int64_t budget, std::span<const MemoryUse> uses) {
  nlohmann::ordered_json accounts = nlohmann::ordered_json::object();
  int64_t total = 0;
  for (const MemoryUse& use : uses) {
    accounts[use.name] = {{"bytes", use.bytes}, {"peak", use.peak}};
    total += use.bytes;
  }
  return {{"budget_bytes", budget},
          {"accounts", accounts},
          {"bytes", total},
          {"peak_resident_bytes", peak_resident_bytes()}};
}

}  // namespace millrace
