// Recordings of a server: any bytes are one or an error of one line, and what is read is within the bounds.
#include <cstdint>
#include <cstdlib>

#include "server/recording.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (const bool whole : {true, false}) {
    const auto recording = millrace::parse_recording(bytes, "fuzz", whole);
    if (!recording.ok()) {
      const std::string& message = recording.error().message;
      if (message.empty() || message.find('\n') != std::string::npos) std::abort();
      continue;
    }
    double before = 0;
    for (const millrace::RecordedRequest& one : recording->requests) {
      if (one.arrival_seconds < before || one.prompt_tokens < 1 || one.request.n < 1 || one.request.max_tokens < -1 || one.answers.empty()) std::abort();
      before = one.arrival_seconds;
      for (const millrace::RecordedAnswer& answer : one.answers)
        if (answer.tokens < 0 || answer.digest.size() != 32) std::abort();
    }
  }
  return 0;
}
