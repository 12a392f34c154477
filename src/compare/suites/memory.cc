// Bytes of a configuration with one stream as long as the context: weights, keys and values, and everything its engine
// allocates.
#include <algorithm>

#include "compare/speed.h"
#include "compare/suite_text.h"
#include "compare/suites/records.h"

namespace millrace {
namespace {

class MemoryRun final : public SuiteRun {
 public:
  MemoryRun(std::span<const CompareConfig> configs, int64_t prompt, int64_t longest)
      : configs_(configs), prompt_(prompt), longest_(longest) {
    plan_ = {.name = "memory",
             .identity = identity_of({std::to_string(prompt), std::to_string(longest)}),
             .metrics = {{"weights_bytes", false},
                         {"kv_bytes_per_token", false},
                         {"kv_bytes_of_stream", false},
                         {"peak_bytes", false}},
             .items = {""},
             .sight = {.quality = false}};
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t>,
                                                   const SuiteWanted&) override {
    if (!configs_[config].model) return Error::unsupported("the memory of another engine is not known");
    MILLRACE_TRY(const ConfigMemory memory, measure_memory(configs_[config], prompt_, longest_));
    return std::vector<std::vector<double>>{
        {static_cast<double>(memory.weights_bytes), static_cast<double>(memory.kv_bytes_per_token),
         static_cast<double>(memory.kv_bytes), static_cast<double>(memory.peak_bytes)}};
  }

 private:
  std::span<const CompareConfig> configs_;
  int64_t prompt_, longest_;
};

Result<std::unique_ptr<SuiteRun>> begin_memory(std::span<const CompareConfig> configs, const SuiteInput& input) {
  int64_t context = INT64_MAX;
  for (const CompareConfig& config : configs)
    if (config.model) context = std::min(context, compare_context(config));
  return std::unique_ptr<SuiteRun>(std::make_unique<MemoryRun>(configs, std::min(input.prompt, context - 1), context));
}

}  // namespace

const CompareSuite kMemorySuite = {
    .name = "memory",
    .argument = "",
    .summary = "bytes of weights, of keys and values, and in all, with one stream as long as the context",
    .paper = "",
    .begin = begin_memory,
};

}  // namespace millrace
