#include "server/telemetry/request_log.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "base/enum_table.h"

namespace millrace {
namespace {

constexpr size_t kMaxLines = 8192;
constexpr size_t kBatch = 256;
constexpr size_t kMaxPathBytes = 256, kMaxMessageBytes = 500, kMaxPromptBytes = 4096;
constexpr EnumNames<LogLevel> kLevels("debug", "info", "warn", "error", "off");

std::string timestamp(std::chrono::system_clock::time_point now) {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(ms / 1000)), ms % 1000);
}

void write_all(int descriptor, const std::string& bytes) {
  for (size_t at = 0; at < bytes.size();) {
    const ssize_t count = ::write(descriptor, bytes.data() + at, bytes.size() - at);
    if (count <= 0) return;  // nothing reads it
    at += static_cast<size_t>(count);
  }
}

double to_microseconds(double seconds) { return std::round(seconds * 1e6) / 1e6; }

bool is_plain(const std::string& text) {
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return c > ' ' && c < 0x7F && c != '"' && c != '=' && c != '\\'; });
}

}  // namespace

Result<LogLevel> find_log_level(const std::string& name) {
  if (const auto level = kLevels.find(name)) return *level;
  return Error::user(fmt::format("log level: must be debug, info, warn, error or off, got '{}'", name));
}

std::string log_text(const Json& line) {
  std::string out;
  for (const auto& [key, value] : line.items()) {
    if (!out.empty()) out += ' ';
    out += key + "=";
    // Escapes non-ASCII characters too: terminals interpret some of them.
    if (value.is_string())
      out += is_plain(value.get_ref<const std::string&>()) ? value.get_ref<const std::string&>()
                                                           : value.dump(-1, ' ', true, Json::error_handler_t::replace);
    else
      out += value.dump(-1, ' ', true, Json::error_handler_t::replace);
  }
  return out;
}

RequestLog::RequestLog(const LogOptions& options) : json_(options.format == "json"), prompts_(options.prompts) {
  const auto level = find_log_level(options.level);
  level_ = level.ok() ? *level : LogLevel::info;
  if (level_ == LogLevel::off) return;
  outbox_ = std::make_unique<Outbox>(kMaxLines, kBatch, std::chrono::milliseconds(0),
                                     [descriptor = options.descriptor](const std::vector<std::string>& lines) {
                                       std::string bytes;
                                       for (const std::string& line : lines) bytes += line;
                                       write_all(descriptor, bytes);
                                     });
}

void RequestLog::write(LogLevel level, Json line) {
  if (!outbox_ || level < level_) return;
  Json all = {{"time", timestamp(std::chrono::system_clock::now())}, {"level", kLevels[level]}};
  for (auto& [key, value] : line.items()) all[key] = std::move(value);
  outbox_->put((json_ ? all.dump(-1, ' ', true, Json::error_handler_t::replace) : log_text(all)) + "\n");
}

void RequestLog::event(LogLevel level, const std::string& message, Json fields) {
  Json line = {{"message", message}};
  for (auto& [key, value] : fields.items()) line[key] = std::move(value);
  write(level, std::move(line));
}

void RequestLog::request(const RequestFacts& f) {
  const LogLevel level = f.status >= 500 || f.error == "internal" ? LogLevel::error
                         : f.status >= 400 || !f.error.empty()    ? LogLevel::warn
                                                                  : LogLevel::info;
  // Health checks and scrapes are only logged at debug level.
  const bool probe =
      f.status < 400 && (f.handler.starts_with("/health") || f.handler == "/v1/health" || f.handler == "/metrics");
  if (!outbox_ || (probe ? LogLevel::debug : level) < level_) return;
  Json line = {{"message", "request"},
               {"request_id", f.id},
               {"method", f.method.substr(0, 20)},
               {"path", f.path.substr(0, kMaxPathBytes)},
               {"status", f.status},
               {"seconds", to_microseconds(f.seconds)}};
  if (!f.tenant.empty()) line["tenant"] = f.tenant;
  if (f.generates) {
    line["model"] = f.model;
    line["stream"] = f.streamed;
    if (f.kept) line["resumed"] = f.resumed.load();
    line["prompt_tokens"] = f.prompt_tokens;
    line["cached_tokens"] = f.cached_tokens;
    line["generated_tokens"] = f.generated_tokens;
    line["queue_seconds"] = to_microseconds(f.timings.queue_seconds);
    line["ttft_seconds"] = to_microseconds(f.timings.first_token_seconds);
    std::string reasons;
    for (const std::string& reason : f.finish_reasons) reasons += (reasons.empty() ? "" : ",") + reason;
    line["finish_reason"] = f.gone ? "cancelled" : reasons;
    line["seed"] = f.parameters.seed;
  }
  if (!f.error.empty()) line["error"] = f.error;
  if (!f.error_message.empty()) line["why"] = f.error_message.substr(0, kMaxMessageBytes);
  if (f.parent) line["trace_id"] = f.trace.trace_id;
  if (prompts_ && f.generates) line["prompt"] = f.prompt.substr(0, kMaxPromptBytes);
  write(probe ? LogLevel::debug : level, std::move(line));
}

}  // namespace millrace
