#include "workload/remote/event_stream.h"

#include <fmt/format.h>

namespace millrace {

// An empty line ends the event. False: the reader wants no more events.
bool EventStream::take_line(std::string_view line, const std::function<bool(std::string_view)>& event) {
  if (line.empty()) {
    const bool more = !has_data_ || event(data_);
    data_.clear();
    has_data_ = false;
    return more;
  }
  constexpr std::string_view kField = "data";
  if (!line.starts_with(kField)) return true;  // a comment, or an unused field
  line.remove_prefix(kField.size());
  if (!line.empty() && line.front() != ':') return true;
  if (!line.empty()) line.remove_prefix(1);
  if (line.starts_with(' ')) line.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_ += line;
  has_data_ = true;
  return true;
}

// Lines end with "\n", "\r\n" or "\r".
Result<void> EventStream::push(std::string_view bytes, const std::function<bool(std::string_view)>& event) {
  while (!bytes.empty() && !stopped_) {
    if (after_return_ && bytes.front() == '\n') bytes.remove_prefix(1);
    after_return_ = false;
    const size_t end = bytes.find_first_of("\r\n");
    const std::string_view piece = bytes.substr(0, end);
    if (line_.size() + piece.size() + data_.size() > most_bytes_)
      return Error::resource(fmt::format("event stream: an event is longer than {} bytes", most_bytes_));
    line_ += piece;
    if (end == std::string_view::npos) break;
    after_return_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    const std::string line = std::move(line_);
    line_.clear();
    stopped_ = !take_line(line, event);
  }
  return {};
}

}  // namespace millrace
