// LineRunner: runs the lines of a batch as requests, a bounded number concurrently, with complete answers. Live
// requests have precedence: no line starts while one is waiting for the engine. A line rejected because the server is
// overloaded, or by its key's per-minute limits, is retried later. Not thread-safe: run() works on the caller's thread,
// which also receives the events of all lines.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/json.h"

namespace millrace {

class KeyAccount;
class Service;

// {"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {...}}
struct BatchLine {
  std::string custom_id;
  std::string url;
  Json body;
};

struct LineResult {
  std::string custom_id;
  std::string request_id;
  int status = 0;
  Json body;
};

inline constexpr size_t kMaxLineBytes = size_t{8} << 20;

// Returns true if batch lines may use this endpoint.
bool is_batch_url(const std::string& url);
// Errors: user.
Result<BatchLine> parse_batch_line(std::string_view text);
// One line of an output file: {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}.
std::string result_line(const LineResult& result);
// The custom_id of a line written by result_line(), and whether it succeeded; nullopt: not such a line.
struct FinishedLine {
  std::string custom_id;
  bool good = false;
};
std::optional<FinishedLine> parse_result_line(std::string_view text);

class LineRunner {
 public:
  // `account`: charged for the lines; null: none.
  LineRunner(Service& service, int most_in_flight, std::shared_ptr<KeyAccount> account = nullptr)
      : service_(service), most_in_flight_(most_in_flight), account_(std::move(account)) {}

  using Next = std::function<std::optional<BatchLine>()>;       // nullopt: no more lines
  using Done = std::function<Result<void>(const LineResult&)>;  // an error ends the run

  // Runs until the last line is answered, `stop` is set, or `done` fails; running lines are then cancelled without a
  // result. Once `yield` returns true, no more lines start, and run() returns when the running ones are answered.
  Result<void> run(
      const Next& next, const Done& done, const std::atomic<bool>& stop,
      const std::function<bool()>& yield = [] { return false; });

 private:
  Service& service_;
  int most_in_flight_;
  std::shared_ptr<KeyAccount> account_;
};

}  // namespace millrace
