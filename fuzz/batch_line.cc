// Fuzzes lines of a batch's input, and of its output as read back after a restart.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "server/batch/line_runner.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (const auto line = parse_batch_line(text); line.ok()) {
    if (line->custom_id.empty() || !is_batch_url(line->url) || !line->body.is_object()) std::abort();
    const auto back = parse_result_line(result_line({line->custom_id, "r", 200, line->body}));
    if (!back || !back->good) std::abort();
  }
  parse_result_line(text);
  return 0;
}
