// EventStream: the events of a text/event-stream (WHATWG HTML, 9.2), from its bytes as they come. Of an event only the
// data counts here: names and ids are read over. What is held back is bounded.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace millrace {

class EventStream {
 public:
  explicit EventStream(size_t most_bytes = size_t{1} << 20) : most_bytes_(most_bytes) {}

  // Calls `event` with the data of each event that is whole by now; false stops, and the rest is dropped. Errors:
  // resource (a line or an event longer than the bound); nothing may be pushed after that.
  Result<void> push(std::string_view bytes, const std::function<bool(std::string_view)>& event);

 private:
  bool take_line(std::string_view line, const std::function<bool(std::string_view)>& event);

  size_t most_bytes_;
  std::string line_;  // of which the end has not come
  std::string data_;  // of the event that is being read
  bool has_data_ = false, after_return_ = false, stopped_ = false;
};

}  // namespace millrace
