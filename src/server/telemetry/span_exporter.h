// SpanExporter: sends the spans of finished requests to a collector, as OTLP over HTTP with JSON bodies (OpenTelemetry
// Protocol 1.x, POST .../v1/traces). A background thread sends them in batches. Spans that the collector rejects, or
// that arrive faster than it accepts them, are dropped and counted.
//
//   request ----------------------------------------------  HTTP method, path and status; gen_ai.* attributes
//     queue ------|prefill -----|decode -----------------    as the engine timed them
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http/http_post.h"
#include "server/telemetry/otlp_settings.h"
#include "server/telemetry/outbox.h"
#include "server/telemetry/request_facts.h"

namespace millrace {

class SpanExporter {
 public:
  // Errors: as PostTarget::parse().
  static Result<std::unique_ptr<SpanExporter>> create(const OtlpSettings& settings, const std::string& version = "");

  void request(const RequestFacts& facts);  // all its spans
  int64_t exported() const { return exported_; }
  int64_t dropped() const { return (outbox_ ? outbox_->dropped() : 0) + failed_; }  // in spans

 private:
  SpanExporter() = default;
  void send(const std::vector<std::string>& spans);

  PostTarget target_;
  OtlpSettings settings_;
  std::string version_;
  std::atomic<int64_t> exported_{0}, failed_{0};
  std::unique_ptr<Outbox> outbox_;  // last: its thread uses the members above
};

// The spans of a request, each in OTLP's JSON format.
std::vector<std::string> spans_of(const RequestFacts& facts);

}  // namespace millrace
