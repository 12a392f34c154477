// AIBrix workloads: {"timestamp": ms, "requests": [{"Prompt Length", "Output Length", "prompt"}]}, several requests per
// timestamp.
#include "workload/json_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr double kMaxMilliseconds = 1e14;

class AibrixReader : public TraceReader {
 public:
  explicit AibrixReader(const TraceOptions& options) : options_(options) {}

  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    MILLRACE_TRY(const Json object, parse_json_line(line));
    MILLRACE_TRY(const double ms, json_number(line, object, "timestamp", 0, kMaxMilliseconds));
    const auto requests = object.find("requests");
    if (requests == object.end() || !requests->is_array()) return line.defect("requests: must be an array of objects");
    for (size_t i = 0; i < requests->size(); ++i) {
      const Json& entry = (*requests)[i];
      const std::string what = fmt::format("requests[{}].", i);
      WorkloadRequest request;
      request.arrival_seconds = ms / 1000;
      MILLRACE_TRY(const int64_t prompt_tokens, json_integer(line, entry, "Prompt Length", 1, kMaxTraceTokens, what));
      MILLRACE_TRY(request.output_tokens, json_integer(line, entry, "Output Length", 0, kMaxTraceTokens, what));
      request.prompt_tokens = prompt_tokens;
      if (entry.contains("prompt")) {
        MILLRACE_TRY(const std::string prompt, json_text(line, entry, "prompt", what));
        MILLRACE_TRY_VOID(set_text_prompt(request, prompt, prompt_tokens, options_));
      }
      out.push_back(std::move(request));
    }
    return {};
  }

 private:
  TraceOptions options_;
};

}  // namespace

const TraceFormat kAibrix = {
    .name = "aibrix",
    .summary = "JSON lines with timestamp (ms) and requests of Prompt Length, Output Length and prompt text",
    .paper =
        "The AIBrix Team, 2025, AIBrix: Towards Scalable, Cost-Effective Large Language Model Inference Infrastructure",
    .recognises =
        [](std::string_view first) {
          return is_object_with(first, {"timestamp", "requests"});
        },
    .make = [](const TraceOptions& options) -> std::unique_ptr<TraceReader> {
      return std::make_unique<AibrixReader>(options);
    },
};

}  // namespace millrace
