// Fuzzes the trace readers, including compressed input: any bytes are a load or a one-line error, and every request of
// a load is within bounds and in order.
#include <cstdint>
#include <cstdlib>

#include "workload/prefix_blocks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto load = millrace::read_trace_image(bytes, "fuzz");
  if (!load.ok()) {
    const std::string& message = load.error().message;
    if (message.empty() || message.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  double before = 0;
  for (const millrace::WorkloadRequest& request : *load) {
    if (request.prompt_tokens < 1 || request.prompt_tokens > millrace::kMaxTraceTokens) std::abort();
    if (request.output_tokens < 0 || request.output_tokens > millrace::kMaxTraceTokens) std::abort();
    if (!(request.arrival_seconds >= before)) std::abort();
    before = request.arrival_seconds;
    int64_t tokens = 0;
    for (const auto& block : millrace::prompt_blocks(request, 16)) tokens += block.tokens;
    if (tokens > request.prompt_tokens) std::abort();
    if (request.prompt_tokens < 4096 &&
        static_cast<int64_t>(millrace::make_prompt(request, 100).size()) != request.prompt_tokens)
      std::abort();
  }
  return 0;
}
