// Mooncake's traces: one JSON object per line, {"timestamp": ms, "input_length", "output_length", "hash_ids": [...]}. A
// hash id identifies a block of 512 tokens together with everything before it; the last one may be partly filled.
#include "workload/json_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr int64_t kBlockTokens = 512;
constexpr double kMaxMooncakeMilliseconds = 1e14;

class MooncakeReader : public TraceReader {
 public:
  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    MILLRACE_TRY(const Json object, parse_json_line(line));
    WorkloadRequest request;
    MILLRACE_TRY(const double ms, json_number(line, object, "timestamp", 0, kMaxMooncakeMilliseconds));
    request.arrival_seconds = ms / 1000;
    MILLRACE_TRY(request.prompt_tokens, json_integer(line, object, "input_length", 1, kMaxTraceTokens));
    MILLRACE_TRY(request.output_tokens, json_integer(line, object, "output_length", 0, kMaxTraceTokens));
    const auto ids = object.find("hash_ids");
    if (ids == object.end() || !ids->is_array()) return line.defect("hash_ids: must be an array of whole numbers");
    const auto blocks = static_cast<size_t>((request.prompt_tokens + kBlockTokens - 1) / kBlockTokens);
    if (ids->size() > blocks) {
      return line.defect(fmt::format("hash_ids: {} blocks of {} tokens, but the prompt has {} tokens", ids->size(),
                                     kBlockTokens, request.prompt_tokens));
    }
    for (const Json& id : *ids) {
      if (!id.is_number_integer())
        return line.defect(fmt::format("hash_ids: element {} is not a whole number", request.prefix_hashes.size()));
      request.prefix_hashes.push_back(id.is_number_unsigned() ? id.get<uint64_t>()
                                                              : static_cast<uint64_t>(id.get<int64_t>()));
    }
    request.hash_block_tokens = kBlockTokens;
    out.push_back(std::move(request));
    return {};
  }
};

}  // namespace

const TraceFormat kMooncake = {
    .name = "mooncake",
    .summary = "JSON lines with timestamp, input_length, output_length, hash_ids of 512-token blocks",
    .paper = "Qin et al., 2025, Mooncake: Trading More Storage for Less Computation",
    .recognises =
        [](std::string_view first) {
          return is_object_with(first, {"timestamp", "input_length", "hash_ids"});
        },
    .make = [](const TraceOptions&) -> std::unique_ptr<TraceReader> { return std::make_unique<MooncakeReader>(); },
};

}  // namespace millrace
