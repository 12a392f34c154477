// Agent sessions: one model call per line, {"timestamp": us, "input": text, "output": text, "session_id"}. Within a
// session, each prompt mostly begins with the previous one.
#include "workload/json_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr int64_t kMaxMicroseconds = INT64_MAX / 1000;

class AgentReader : public TraceReader {
 public:
  explicit AgentReader(const TraceOptions& options) : options_(options) {}

  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    MILLRACE_TRY(const Json object, parse_json_line(line));
    WorkloadRequest request;
    MILLRACE_TRY(const int64_t us, json_integer(line, object, "timestamp", 0, kMaxMicroseconds));
    request.arrival_seconds = since_first(us * 1000);
    MILLRACE_TRY(const std::string input, json_text(line, object, "input"));
    MILLRACE_TRY(const std::string output, json_text(line, object, "output"));
    MILLRACE_TRY_VOID(set_text_prompt(request, input, -1, options_));
    MILLRACE_TRY(request.output_tokens, count_tokens(output, options_));
    const char* session = object.contains("session_id") ? "session_id" : "session";
    if (object.contains(session)) {
      MILLRACE_TRY(request.session, json_text(line, object, session));
    }
    out.push_back(std::move(request));
    return {};
  }

 private:
  TraceOptions options_;
};

}  // namespace

const TraceFormat kAgent = {
    .name = "agent",
    .summary = "JSON lines of agent sessions with timestamp (us), input and output text, and session",
    .paper = "",
    .recognises =
        [](std::string_view first) {
          return is_object_with(first, {"timestamp", "input", "output"});
        },
    .make = [](const TraceOptions& options) -> std::unique_ptr<TraceReader> {
      return std::make_unique<AgentReader>(options);
    },
};

}  // namespace millrace
