// Fuzzes the load generator's client side: an event stream read in chunks of any size, and its events parsed as answers
// of every API. The events do not depend on the chunk size.
#include "workload/remote/event_stream.h"

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "workload/remote/completion_api.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  auto read = [&](size_t piece) {
    millrace::EventStream stream(4096);
    std::vector<std::string> events;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      const auto pushed = stream.push(bytes.substr(at, piece), [&](std::string_view event) {
        events.emplace_back(event);
        return true;
      });
      if (!pushed.ok()) break;
    }
    return events;
  };
  const auto events = read(bytes.size() + 1);
  if (events != read(1 + data[0] % 16)) std::abort();
  for (const std::string& event : events) {
    for (auto api :
         {millrace::CompletionApi::completions, millrace::CompletionApi::chat, millrace::CompletionApi::llama}) {
      const auto chunk = millrace::read_completion_chunk(api, event);
      if (chunk.error.size() > 200 || chunk.error.find('\n') != std::string::npos) std::abort();
    }
  }
  millrace::completion_error(bytes);
  return 0;
}
