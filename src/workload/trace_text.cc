// Text utilities for the readers: timestamps, and prompts given as text.
#include <xxhash.h>

#include <algorithm>
#include <cmath>

#include "workload/trace_format.h"

namespace millrace {
namespace {

// Parses digits; empty if there are other characters.
std::optional<int64_t> digits(std::string_view text) {
  int64_t value = 0;
  if (text.empty() || text.size() > 9) return std::nullopt;
  for (char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + (c - '0');
  }
  return value;
}

// Days since 1970-01-01 in the Gregorian calendar: years begin in March, so that the leap day comes last.
int64_t days_since_1970(int64_t year, int64_t month, int64_t day) {
  if (month <= 2) --year;
  const int64_t era = year / 400, year_of_era = year - era * 400;
  const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
  return era * 146097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719468;
}

int64_t days_in_month(int64_t year, int64_t month) {
  constexpr int64_t kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  const bool leap = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
  return month == 2 && leap ? 29 : kDays[month - 1];
}

}  // namespace

std::optional<int64_t> parse_timestamp(std::string_view text) {
  int64_t offset_minutes = 0;
  if (text.ends_with('Z')) {
    text.remove_suffix(1);
  } else if (text.size() >= 25 && (text[text.size() - 6] == '+' || text[text.size() - 6] == '-')) {
    const auto hours = digits(text.substr(text.size() - 5, 2)), minutes = digits(text.substr(text.size() - 2));
    if (text[text.size() - 3] != ':' || !hours || !minutes || *hours > 23 || *minutes > 59) return std::nullopt;
    offset_minutes = (*hours * 60 + *minutes) * (text[text.size() - 6] == '+' ? 1 : -1);
    text.remove_suffix(6);
  }
  if (text.size() < 19 || text[4] != '-' || text[7] != '-' || (text[10] != ' ' && text[10] != 'T') || text[13] != ':' ||
      text[16] != ':')
    return std::nullopt;
  const auto year = digits(text.substr(0, 4)), month = digits(text.substr(5, 2)), day = digits(text.substr(8, 2));
  const auto hour = digits(text.substr(11, 2)), minute = digits(text.substr(14, 2)),
             second = digits(text.substr(17, 2));
  if (!year || !month || !day || !hour || !minute || !second) return std::nullopt;
  if (*year < 1970 || *year > 2200 || *month < 1 || *month > 12 || *day < 1 || *day > days_in_month(*year, *month))
    return std::nullopt;
  if (*hour > 23 || *minute > 59 || *second > 60) return std::nullopt;
  int64_t ns = 0;
  if (text.size() > 19) {
    const std::string_view fraction = text.substr(20);
    const auto value = digits(fraction);
    if (text[19] != '.' || !value) return std::nullopt;
    ns = *value;
    for (size_t i = fraction.size(); i < 9; ++i) ns *= 10;
  }
  const int64_t seconds =
      ((days_since_1970(*year, *month, *day) * 24 + *hour) * 60 + *minute - offset_minutes) * 60 + *second;
  return seconds * 1'000'000'000 + ns;
}

Result<int64_t> count_tokens(std::string_view text, const TraceOptions& options) {
  if (options.encode) {
    MILLRACE_TRY(const auto tokens, options.encode(text));
    return static_cast<int64_t>(tokens.size());
  }
  return static_cast<int64_t>(std::ceil(static_cast<double>(text.size()) / options.bytes_per_token));
}

Result<void> set_text_prompt(WorkloadRequest& request, std::string_view text, int64_t known_tokens,
                             const TraceOptions& options) {
  // A call whose text was not recorded, or was empty, had at least a start token.
  if (options.encode) {
    MILLRACE_TRY(request.tokens, options.encode(text));
    request.prompt_tokens = std::max<int64_t>(1, static_cast<int64_t>(request.tokens.size()));
    return {};
  }
  MILLRACE_TRY(const int64_t estimate, count_tokens(text, options));
  request.prompt_tokens = known_tokens >= 0 ? known_tokens : std::max<int64_t>(1, estimate);
  request.hash_block_tokens = options.text_block_tokens;
  // Only whole blocks: lengths do not tell what a tail shares with another prompt.
  const auto block_bytes = static_cast<size_t>(
      std::max(1.0, std::round(static_cast<double>(options.text_block_tokens) * options.bytes_per_token)));
  const auto blocks =
      std::min(static_cast<int64_t>(text.size() / block_bytes), request.prompt_tokens / options.text_block_tokens);
  uint64_t hash = 0;
  for (int64_t i = 0; i < blocks; ++i) {
    hash = XXH3_64bits_withSeed(text.data() + static_cast<size_t>(i) * block_bytes, block_bytes, hash);
    request.prefix_hashes.push_back(hash);
  }
  return {};
}

}  // namespace millrace
