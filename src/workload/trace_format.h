// A trace format: how to recognize its first line, and how a line becomes requests. A format is one file in readers/
// plus its line in readers/builtin.cc.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/registry.h"
#include "workload/request.h"

namespace millrace {

// One line and its location.
struct TraceLine {
  std::string_view text;
  const std::string& file;
  int64_t number = 0;

  // "file:12: what"
  Error defect(std::string_view what) const { return Error::corrupt(fmt::format("{}:{}: {}", file, number, what)); }
};

// Reads the lines of one file, in order. Not reused for a second file.
class TraceReader {
 public:
  virtual ~TraceReader() = default;
  // Appends the line's requests. arrival_seconds may be relative to any fixed moment; the caller sets id.
  virtual Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) = 0;

 protected:
  // Seconds since the first timestamp passed in: whole nanoseconds since 1970 do not fit in a double.
  double since_first(int64_t ns) {
    if (!first_ns_) first_ns_ = ns;
    return static_cast<double>(ns - *first_ns_) * 1e-9;
  }

 private:
  std::optional<int64_t> first_ns_;
};

struct TraceFormat {
  std::string_view name;  // as typed: --format mooncake
  std::string_view summary;
  std::string_view paper;  // or specification
  bool (*recognises)(std::string_view first_line);
  std::unique_ptr<TraceReader> (*make)(const TraceOptions& options);
};

const Registry<const TraceFormat*>& trace_formats();
const TraceFormat* find_trace_format(std::string_view name);  // null: unknown name

// Nanoseconds since 1970 from "2023-11-16 18:17:03.9799600", with a space or a T, up to nine fractional digits, and Z,
// an offset like +01:00 or nothing at the end (read as UTC). Empty: not a timestamp, or a year outside [1970, 2200].
std::optional<int64_t> parse_timestamp(std::string_view text);

// Fills prompt_tokens, prefixes and, if options.encode is set, tokens. `known_tokens` < 0: counted from the text.
Result<void> set_text_prompt(WorkloadRequest& request, std::string_view text, int64_t known_tokens,
                             const TraceOptions& options);
Result<int64_t> count_tokens(std::string_view text, const TraceOptions& options);

}  // namespace millrace
