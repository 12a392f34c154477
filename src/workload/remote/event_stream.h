// EventStream: an incremental parser of text/event-stream (WHATWG HTML, 9.2). It uses only the data of an event and
// skips names and ids. The buffer is bounded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

class EventStream {
 public:
  explicit EventStream(size_t most_bytes = size_t{1} << 20) : most_bytes_(most_bytes) {}

  // Calls `event` with the data of each event that `bytes` completes. If `event` returns false, parsing stops and the
  // remaining bytes are dropped. Errors: resource (a line or an event is longer than the limit); push() must not be
  // called after an error.
  Result<void> push(std::string_view bytes, const std::function<bool(std::string_view)>& event);

 private:
  bool take_line(std::string_view line, const std::function<bool(std::string_view)>& event);

  size_t most_bytes_;
  std::string line_;  // incomplete line
  std::string data_;  // data of the current event
  bool has_data_ = false, after_return_ = false, stopped_ = false;
};

}  // namespace millrace
