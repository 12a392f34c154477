// Azure's LLM inference traces: TIMESTAMP,ContextTokens,GeneratedTokens with timestamps of 100 ns resolution.
#include "workload/csv_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr std::string_view kAzureColumns[] = {"TIMESTAMP", "ContextTokens", "GeneratedTokens"};

class AzureReader : public TraceReader {
 public:
  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    if (!columns_.has_header()) return columns_.set_header(line, kAzureColumns);
    MILLRACE_TRY_VOID(columns_.set_line(line));
    const auto stamp = parse_timestamp(columns_.text("TIMESTAMP"));
    if (!stamp) return line.defect("TIMESTAMP: must look like 2023-11-16 18:17:03.9799600");
    WorkloadRequest request;
    request.arrival_seconds = since_first(*stamp);
    MILLRACE_TRY(request.prompt_tokens, columns_.integer(line, "ContextTokens", 1, kMaxTraceTokens));
    MILLRACE_TRY(request.output_tokens, columns_.integer(line, "GeneratedTokens", 0, kMaxTraceTokens));
    out.push_back(std::move(request));
    return {};
  }

 private:
  CsvColumns columns_;
};

}  // namespace

const TraceFormat kAzure = {
    .name = "azure",
    .summary = "CSV with TIMESTAMP (100 ns), ContextTokens, GeneratedTokens",
    .paper = "Patel et al., 2024, Splitwise: Efficient Generative LLM Inference Using Phase Splitting",
    .recognises = [](std::string_view first) { return is_header_with(first, kAzureColumns); },
    .make = [](const TraceOptions&) -> std::unique_ptr<TraceReader> { return std::make_unique<AzureReader>(); },
};

}  // namespace millrace
