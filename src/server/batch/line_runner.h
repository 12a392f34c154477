// LineRunner: many requests from a list, a bounded number at a time, answered whole: what batches are made of. What
// waits for the engine of live requests goes first: no line begins while any does. A line that is refused for want of
// room, or by its key's limits of a minute, is asked again later. Not thread-safe: run() works on its caller's thread,
// where every line's events come to.
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

inline constexpr size_t kMostLineBytes = size_t{8} << 20;

// Whether lines may ask this path.
bool is_batch_url(const std::string& url);
// Errors: user.
Result<BatchLine> parse_batch_line(std::string_view text);
// One line of an output file: {"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error": null}.
std::string result_line(const LineResult& result);
// Of a line that result_line wrote: its custom_id, and whether it was answered with success; nothing where it is none.
struct FinishedLine {
  std::string custom_id;
  bool good = false;
};
std::optional<FinishedLine> parse_result_line(std::string_view text);

class LineRunner {
 public:
  // `account`: whom the lines are charged to; null: nobody.
  LineRunner(Service& service, int most_in_flight, std::shared_ptr<KeyAccount> account = nullptr)
      : service_(service), most_in_flight_(most_in_flight), account_(std::move(account)) {}

  using Next = std::function<std::optional<BatchLine>()>;       // nothing: that was the last one
  using Done = std::function<Result<void>(const LineResult&)>;  // an error ends the run

  // Until the last line is answered, `stop` is set, or `done` fails; lines under way are given up then, and not told
  // of. Once `yield` says so no more begin, and it ends when those under way are answered.
  Result<void> run(
      const Next& next, const Done& done, const std::atomic<bool>& stop,
      const std::function<bool()>& yield = [] { return false; });

 private:
  Service& service_;
  int most_in_flight_;
  std::shared_ptr<KeyAccount> account_;
};

}  // namespace millrace
