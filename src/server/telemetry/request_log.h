// RequestLog: logs one line per finished request and a few server events, to stderr or a file descriptor. A background
// thread writes the lines; when it cannot keep up, lines are dropped and counted, and callers never block. Text from
// clients is escaped, so that it cannot forge lines.
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
  std::string format = "text";  // or json: one object per line
  std::string level = "info";   // lower levels are omitted
  bool prompts = false;         // log prompts too, truncated to 4 KiB
  int descriptor = 2;
};

class RequestLog {
 public:
  explicit RequestLog(const LogOptions& options);

  // A client error is logged as a warning, a server error as an error.
  void request(const RequestFacts& facts);
  // `fields`: an object of values.
  void event(LogLevel level, const std::string& message, Json fields = Json::object());

  bool wants_prompts() const { return prompts_; }
  int64_t dropped() const { return outbox_ ? outbox_->dropped() : 0; }

 private:
  void write(LogLevel level, Json line);

  bool json_, prompts_;
  LogLevel level_;
  std::unique_ptr<Outbox> outbox_;  // null: logging is off
};

// An object as `key=value key="a value"`; control characters are escaped.
std::string log_text(const Json& line);

}  // namespace millrace
