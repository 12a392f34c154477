// Reads whole traces: detects the format, runs its reader, sorts the requests.
#include <algorithm>
#include <cmath>

#include "workload/arrivals.h"
#include "workload/line_source.h"
#include "workload/trace_format.h"

namespace millrace {
namespace {

Result<void> check_options(const TraceOptions& options) {
  if (!(options.scale > 0) || options.scale > 1e9)
    return Error::user(fmt::format("scale: must be above 0 and at most 1e9, got {}", options.scale));
  if (!(options.rate >= 0) || options.rate > 1e9)
    return Error::user(fmt::format("rate: must be between 0 and 1e9 requests a second, got {}", options.rate));
  if (options.limit < 0) return Error::user(fmt::format("limit: must be 0 or more, got {}", options.limit));
  if (options.text_block_tokens < 1 || options.text_block_tokens > 65536) {
    return Error::user(
        fmt::format("text block: must be between 1 and 65536 tokens, got {}", options.text_block_tokens));
  }
  if (!(options.bytes_per_token >= 0.25 && options.bytes_per_token <= 1024)) {
    return Error::user(fmt::format("bytes per token: must be between 0.25 and 1024, got {}", options.bytes_per_token));
  }
  return {};
}

Result<const TraceFormat*> choose_format(const TraceOptions& options, std::string_view first_line,
                                         const std::string& name) {
  std::string known;
  for (const TraceFormat* format : trace_formats().members())
    known += fmt::format("{}{}", known.empty() ? "" : ", ", format->name);
  if (!options.format.empty()) {
    if (const TraceFormat* format = find_trace_format(options.format)) return format;
    return Error::user(fmt::format("trace format: unknown '{}'; available: {}", options.format, known));
  }
  for (const TraceFormat* format : trace_formats().members())
    if (format->recognises(first_line)) return format;
  return Error::user(fmt::format("{}: its first line matches no known trace format; available: {}", name, known));
}

Result<void> check_request(const TraceLine& line, const WorkloadRequest& request) {
  if (!std::isfinite(request.arrival_seconds)) return line.defect("arrival: is not a finite number");
  if (request.prompt_tokens < 1 || request.prompt_tokens > kMaxTraceTokens) {
    return line.defect(fmt::format("prompt: must have 1 to {} tokens, has {}", kMaxTraceTokens, request.prompt_tokens));
  }
  if (request.output_tokens < 0 || request.output_tokens > kMaxTraceTokens) {
    return line.defect(fmt::format("output: must have 0 to {} tokens, has {}", kMaxTraceTokens, request.output_tokens));
  }
  return {};
}

Result<std::vector<WorkloadRequest>> read_lines(LineSource& source, const TraceOptions& options) {
  MILLRACE_TRY_VOID(check_options(options));
  std::vector<WorkloadRequest> requests;
  std::unique_ptr<TraceReader> reader;
  std::string_view text;
  for (;;) {
    MILLRACE_TRY(const bool more, source.next(text));
    if (!more) break;
    if (text.find_first_not_of(" \t") == std::string_view::npos) continue;
    const TraceLine line{text, source.name(), source.number()};
    if (!reader) {
      MILLRACE_TRY(const TraceFormat* format, choose_format(options, text, source.name()));
      reader = format->make(options);
    }
    const size_t before = requests.size();
    MILLRACE_TRY_VOID(reader->read(line, requests));
    for (size_t i = before; i < requests.size(); ++i) MILLRACE_TRY_VOID(check_request(line, requests[i]));
    if (static_cast<int64_t>(requests.size()) > kMaxTraceRequests) {
      return Error::resource(
          fmt::format("{}:{}: more than {} requests", source.name(), source.number(), kMaxTraceRequests));
    }
  }
  if (requests.empty()) return Error::corrupt(fmt::format("{}: contains no requests", source.name()));
  order_by_arrival(requests);
  if (options.limit > 0 && options.limit < static_cast<int64_t>(requests.size()))
    requests.resize(static_cast<size_t>(options.limit));
  MILLRACE_TRY_VOID(scale_arrivals(requests, options.scale, options.rate));
  return requests;
}

}  // namespace

Result<std::vector<WorkloadRequest>> read_trace(const std::string& path, const TraceOptions& options) {
  MILLRACE_TRY(auto source, LineSource::open(path));
  return read_lines(*source, options);
}

Result<std::vector<WorkloadRequest>> read_trace_image(std::string_view bytes, const std::string& name,
                                                      const TraceOptions& options) {
  return read_lines(*LineSource::from_bytes(bytes, name), options);
}

}  // namespace millrace
