#include "sampling/stop_strings.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

constexpr size_t kMaxStrings = 256;
constexpr size_t kMaxBytes = 4096;

std::vector<uint32_t> borders(const std::string& text) {
  std::vector<uint32_t> out(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    uint32_t length = out[i - 1];
    while (length > 0 && text[i] != text[length]) length = out[length - 1];
    out[i] = length + (text[i] == text[length] ? 1 : 0);
  }
  return out;
}

}  // namespace

Result<StopMatcher> StopMatcher::create(std::vector<std::string> stop, bool keep) {
  if (stop.size() > kMaxStrings) {
    return Error::user(fmt::format("stop: at most {} strings, got {}", kMaxStrings, stop.size()));
  }
  StopMatcher out;
  out.keep_ = keep;
  for (auto& text : stop) {
    if (text.empty() || text.size() > kMaxBytes) {
      return Error::user(fmt::format("stop: each string must have 1 to {} bytes, got {}", kMaxBytes, text.size()));
    }
    auto border = borders(text);
    out.patterns_.push_back({std::move(text), std::move(border), 0});
  }
  return out;
}

std::string StopMatcher::push(std::string_view text) {
  if (stopped()) return {};
  if (patterns_.empty()) return std::string(text);
  for (char byte : text) {
    held_.push_back(byte);
    size_t longest = 0;  // of the stop strings that end here
    for (size_t p = 0; p < patterns_.size(); ++p) {
      Pattern& pattern = patterns_[p];
      while (pattern.state > 0 && pattern.text[pattern.state] != byte)
        pattern.state = pattern.border[pattern.state - 1];
      if (pattern.text[pattern.state] == byte) ++pattern.state;
      if (pattern.state == pattern.text.size() && pattern.state > longest) {
        longest = pattern.state;
        matched_ = static_cast<int>(p);
      }
    }
    if (longest > 0) {
      if (!keep_) held_.resize(held_.size() - longest);
      return std::exchange(held_, {});
    }
  }
  size_t open = 0;  // bytes at the end that may begin a stop string
  for (const auto& pattern : patterns_) open = std::max<size_t>(open, pattern.state);
  std::string ready = held_.substr(0, held_.size() - open);
  held_.erase(0, ready.size());
  return ready;
}

std::string StopMatcher::flush() {
  for (auto& pattern : patterns_) pattern.state = 0;
  return std::exchange(held_, {});
}

}  // namespace millrace
