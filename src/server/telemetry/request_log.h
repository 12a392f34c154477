// RequestLog: one line for each request when it has ended, and a few for the server's own life, to stderr or a file
// descriptor. Lines are written by a thread of their own; when it cannot keep up they are dropped and counted, and
// nobody waits. What clients send is escaped: a line is a line whatever it says.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/json.h"
#include "server/telemetry/outbox.h"
#include "server/telemetry/request_facts.h"

namespace millrace {

enum class LogLevel { debug, info, warn, error, off };
Result<LogLevel> find_log_level(const std::string& name);

struct LogOptions {
  std::string format = "text";  // or json: an object a line
  std::string level = "info";   // what is less is left out
  bool prompts = false;         // prompts too, cut to 4 KiB
  int descriptor = 2;
};

class RequestLog {
 public:
  explicit RequestLog(const LogOptions& options);

  // A request that failed for its own fault is a warning, one that the server failed is an error.
  void request(const RequestFacts& facts);
  // `fields`: an object of values.
  void event(LogLevel level, const std::string& message, Json fields = Json::object());

  bool wants_prompts() const { return prompts_; }
  int64_t dropped() const { return outbox_ ? outbox_->dropped() : 0; }

 private:
  void write(LogLevel level, Json line);

  bool json_, prompts_;
  LogLevel level_;
  std::unique_ptr<Outbox> outbox_;  // null: nothing is logged
};

// "key=value key="a value"" from an object; every control character is escaped.
std::string log_text(const Json& line);

}  // namespace millrace
