#include "cluster/event_relay.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

#include "base/json_text.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

// Fields whose values depend on the clock, or on what a node has cached.
bool varies(const std::string& key) {
  return key == "usage" || key == "timings" || key == "completed_at" || key.ends_with("_duration") ||
         key.ends_with("_ms");
}

void leave_out_varying(Json& json, int depth = 0) {
  constexpr int kDeepest = 8;  // where an API's own fields are; deeper values are compared as they are
  if (depth > kDeepest) return;
  if (json.is_object()) {
    for (auto it = json.begin(); it != json.end();) it = varies(it.key()) ? json.erase(it) : std::next(it);
    for (auto& [key, value] : json.items()) leave_out_varying(value, depth + 1);
  } else if (json.is_array()) {
    for (Json& value : json) leave_out_varying(value, depth + 1);
  }
}

// A comment, or an event of the type ping.
bool is_ping(std::string_view event) {
  return event.starts_with(":") || event.starts_with("event: ping\n") || event.starts_with("event: ping\r");
}

}  // namespace

uint64_t event_digest(std::string_view event) {
  const size_t begin = event.find('{'), end = event.rfind('}');
  if (begin == std::string_view::npos || end < begin) return XXH3_64bits(event.data(), event.size());
  Json json = parse_json(event.substr(begin, end - begin + 1));
  if (!json.is_object()) return XXH3_64bits(event.data(), event.size());
  leave_out_varying(json);
  const std::string text =
      std::string(event.substr(0, begin)) + json.dump(-1, ' ', false, Json::error_handler_t::replace);
  return XXH3_64bits(text.data(), text.size());
}

EventRelay::EventRelay(Kind kind, std::string goodbye) : kind_(kind), goodbye_(std::move(goodbye)) {
  if (const size_t end = end_of_event(goodbye_, 0); end != std::string::npos) goodbye_.resize(end);
}

size_t EventRelay::end_of_event(std::string_view text, size_t from) const {
  const std::string_view mark = kind_ == Kind::lines ? "\n" : "\n\n";
  const size_t end = text.find(mark, from);
  return end == std::string_view::npos ? end : end + mark.size();
}

Result<void> EventRelay::push(std::string_view bytes, std::string& out) {
  unfinished_ += bytes;
  size_t begin = 0;
  for (size_t end; (end = end_of_event(unfinished_, begin)) != std::string::npos; begin = end)
    MILLRACE_TRY_VOID(take(std::string_view(unfinished_).substr(begin, end - begin), out));
  unfinished_.erase(0, begin);
  if (unfinished_.size() > kMaxEventBytes)
    return Error::internal(fmt::format("a node sent an event of more than {} bytes", kMaxEventBytes));
  return {};
}

Result<void> EventRelay::take(std::string_view event, std::string& out) {
  if (gave_up_ || (kind_ == Kind::events && is_ping(event))) return {};
  if (event == goodbye_) {
    gave_up_ = true;
    return {};
  }
  const uint64_t digest = event_digest(event);
  const size_t number = at_++;
  if (number >= sent_.size()) {
    sent_.push_back(digest);
    out += event;
    return {};
  }
  if (sent_[number] == digest) return {};
  return Error::internal(
      fmt::format("event {} of the stream is not what another node sent before it was lost", number));
}

void EventRelay::restart() {
  unfinished_.clear();
  at_ = 0;
  gave_up_ = false;
}

}  // namespace millrace
