// TraceFormat: recognizes a trace format by its first line, and reads requests from lines. A format is one file in
// readers/ plus one line in readers/builtin.cc.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <optional>

#include "base/registry.h"
#include "workload/request.h"

namespace millrace {

// One line of a trace, and its location.
struct TraceLine {
  std::string_view text;
  const std::string& file;
  int64_t number = 0;

  // Returns the error "file:12: what".
  Error defect(std::string_view what) const { return Error::corrupt(fmt::format("{}:{}: {}", file, number, what)); }
};

// Reads the lines of one file, in order. Each file needs a new reader.
class TraceReader {
 public:
  virtual ~TraceReader() = default;
  // Appends the line's requests to `out`. arrival_seconds may be relative to any fixed moment. The caller sets `id`.
  virtual Result<void> read(const TraceLine& line, std::vector<WorkloadRequest>& out) = 0;

 protected:
  // Returns the seconds from the first timestamp that was passed to this one. Used because a double cannot represent
  // nanoseconds since 1970 exactly.
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
  std::string_view paper;  // paper or specification
  bool (*recognises)(std::string_view first_line);
  std::unique_ptr<TraceReader> (*make)(const TraceOptions& options);
};

const Registry<const TraceFormat*>& trace_formats();
const TraceFormat* find_trace_format(std::string_view name);  // null: unknown name

// Parses a timestamp like "2023-11-16 18:17:03.9799600" to nanoseconds since 1970. The separator is a space or T; there
// are up to nine fractional digits; the end is Z, an offset like +01:00, or nothing, which means UTC. Returns nullopt
// if the text is not a timestamp or the year is outside [1970, 2200].
std::optional<int64_t> parse_timestamp(std::string_view text);

// Sets the request's prompt_tokens and prefixes from `text`, and `tokens` if options.encode is set. `known_tokens`:
// number of tokens; negative: it is counted from the text.
Result<void> set_text_prompt(WorkloadRequest& request, std::string_view text, int64_t known_tokens,
                             const TraceOptions& options);
Result<int64_t> count_tokens(std::string_view text, const TraceOptions& options);

}  // namespace millrace
