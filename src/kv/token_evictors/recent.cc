#include "kv/token_evictors/recent.h"

#include <fmt/format.h>

#include <charconv>

namespace millrace {
namespace {

constexpr int64_t kMaxRecent = 1 << 30;

template <typename Number>
bool read_whole(std::string_view text, Number& number) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && stop == text.data() + text.size();
}

}  // namespace

Result<int64_t> read_recent(std::string_view evictor, const OptionValues& options, int64_t budget, bool was_share) {
  const std::string_view text = options.text("recent");
  const bool percent = text.ends_with('%');
  const auto wrong = [&] {
    return Error::user(fmt::format(
        "evictor {}: recent: must be a number of tokens from 0 to {}, such as 32, or a share of the budget, such as "
        "50% or 0.5, got '{}'",
        evictor, kMaxRecent, text));
  };
  if (percent || text.find('.') != std::string_view::npos) {
    const double whole = percent ? 100 : 1;
    double share = 0;
    if (!read_whole(percent ? text.substr(0, text.size() - 1) : text, share) || !(share >= 0 && share <= whole))
      return wrong();
    return static_cast<int64_t>(static_cast<double>(budget) * share / whole);
  }
  int64_t tokens = 0;
  if (!read_whole(text, tokens) || tokens < 0 || tokens > kMaxRecent) return wrong();
  if (was_share && tokens == 1)
    return Error::user(
        fmt::format("evictor {}: recent: 1 is ambiguous: it was all of the budget, and is one token in other evictors; "
                    "write 100% for all of the budget, or at least 2 tokens",
                    evictor));
  return tokens;
}

OptionSpec recent_option(const char* standard, const char* of) {
  return {
      "recent",
      OptionSpec::Type::text,
      standard,
      0,
      0,
      fmt::format("newest tokens that are kept: a number of tokens, such as 32, or a share of {}, such as 50%", of)};
}

}  // namespace millrace
