// Vidur's processed traces: num_prefill_tokens, num_decode_tokens and, if the trace has arrivals, arrived_at in
// seconds. Without arrivals, all requests arrive at once.
#include "workload/csv_line.h"
#include "workload/readers/records.h"

namespace millrace {
namespace {

constexpr std::string_view kVidurColumns[] = {"num_prefill_tokens", "num_decode_tokens"};
constexpr double kMaxVidurSeconds = 1e11;

class VidurReader : public TraceReader {
 public:
  Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) override {
    if (!columns_.has_header()) return columns_.set_header(line, kVidurColumns);
    MILLRACE_TRY_VOID(columns_.set_line(line));
    WorkloadRequest request;
    if (columns_.has("arrived_at")) {
      MILLRACE_TRY(request.arrival_seconds, columns_.number(line, "arrived_at", 0, kMaxVidurSeconds));
    }
    MILLRACE_TRY(request.prompt_tokens, columns_.integer(line, "num_prefill_tokens", 1, kMaxTraceTokens));
    MILLRACE_TRY(request.output_tokens, columns_.integer(line, "num_decode_tokens", 0, kMaxTraceTokens));
    out.push_back(std::move(request));
    return {};
  }

 private:
  CsvColumns columns_;
};

}  // namespace

const TraceFormat kVidur = {
    .name = "vidur",
    .summary = "CSV with num_prefill_tokens, num_decode_tokens and optionally arrived_at in seconds",
    .paper = "Agrawal et al., 2024, Vidur: A Large-Scale Simulation Framework for LLM Inference",
    .recognises = [](std::string_view first) { return is_header_with(first, kVidurColumns); },
    .make = [](const TraceOptions&) -> std::unique_ptr<TraceReader> { return std::make_unique<VidurReader>(); },
};

}  // namespace millrace
