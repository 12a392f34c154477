// LLMServingSim's traces: one JSON object per line with input_toks, output_toks, arrival_time_ns, and optionally the
// prompt as token ids in input_tok_ids.
#include "workload/json_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr int64_t kMaxNanoseconds = int64_t{1} << 62;

class TokenIdReader : public TraceReader {
 public:
  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    MILLRACE_TRY(const Json object, parse_json_line(line));
    WorkloadRequest request;
    MILLRACE_TRY(const int64_t ns, json_integer(line, object, "arrival_time_ns", 0, kMaxNanoseconds));
    request.arrival_seconds = since_first(ns);
    MILLRACE_TRY(request.prompt_tokens, json_integer(line, object, "input_toks", 1, kMaxTraceTokens));
    MILLRACE_TRY(request.output_tokens, json_integer(line, object, "output_toks", 0, kMaxTraceTokens));
    if (const auto ids = object.find("input_tok_ids"); ids != object.end()) {
      if (!ids->is_array()) return line.defect("input_tok_ids: must be an array of whole numbers");
      if (static_cast<int64_t>(ids->size()) != request.prompt_tokens) {
        return line.defect(
            fmt::format("input_tok_ids: has {} tokens, input_toks says {}", ids->size(), request.prompt_tokens));
      }
      for (const Json& id : *ids) {
        if (!id.is_number_unsigned() || id.get<uint64_t>() > INT32_MAX) {
          return line.defect(fmt::format("input_tok_ids: element {} is not a token id", request.tokens.size()));
        }
        request.tokens.push_back(id.get<TokenId>());
      }
    }
    out.push_back(std::move(request));
    return {};
  }
};

}  // namespace

const TraceFormat kTokenIds = {
    .name = "token_ids",
    .summary = "JSON lines with input_toks, output_toks, arrival_time_ns and optionally the prompt as input_tok_ids",
    .paper = "Cho et al., 2024, LLMServingSim: A HW/SW Co-Simulation Infrastructure for LLM Inference Serving",
    .recognises =
        [](std::string_view first) {
          return is_object_with(first, {"input_toks", "output_toks"});
        },
    .make = [](const TraceOptions&) -> std::unique_ptr<TraceReader> { return std::make_unique<TokenIdReader>(); },
};

}  // namespace millrace
