// BurstGPT: Timestamp (seconds), Model, Request tokens, Response tokens, Total tokens, Log Type; later parts also have
// Session ID and Elapsed time. A response of 0 tokens is a failed request.
#include "workload/csv_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr std::string_view kBurstGptColumns[] = {"Timestamp", "Request tokens", "Response tokens"};
constexpr double kMaxBurstGptSeconds = 1e11;

class BurstGptReader : public TraceReader {
 public:
  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    if (!columns_.has_header()) return columns_.set_header(line, kBurstGptColumns);
    MILLRACE_TRY_VOID(columns_.set_line(line));
    WorkloadRequest request;
    MILLRACE_TRY(request.arrival_seconds, columns_.number(line, "Timestamp", 0, kMaxBurstGptSeconds));
    MILLRACE_TRY(request.prompt_tokens, columns_.integer(line, "Request tokens", 1, kMaxTraceTokens));
    MILLRACE_TRY(request.output_tokens, columns_.integer(line, "Response tokens", 0, kMaxTraceTokens));
    request.session = columns_.text("Session ID");
    request.tenant = columns_.text("Model");
    out.push_back(std::move(request));
    return {};
  }

 private:
  CsvColumns columns_;
};

}  // namespace

const TraceFormat kBurstGpt = {
    .name = "burstgpt",
    .summary = "CSV with Timestamp in seconds, Request tokens, Response tokens; the model becomes the tenant",
    .paper = "Wang et al., 2024, BurstGPT: A Real-world Workload Dataset to Optimize LLM Serving Systems",
    .recognises = [](std::string_view first) { return is_header_with(first, kBurstGptColumns); },
    .make = [](const TraceOptions&) -> std::unique_ptr<TraceReader> { return std::make_unique<BurstGptReader>(); },
};

}  // namespace millrace
