// Telemetry: metrics, log, traces and recordings of requests. Each request's Exchange carries a RequestFacts, which is
// filled in while the request is handled; when the answer ends, it is counted, logged and traced.
//
//   begin() -> Exchange.facts -> ... started() finished() failed() ... -> end of the answer -> metrics, log, spans
//                                     recorded() with the tokens, when all answers of a request are known
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "server/generation/answer.h"
#include "server/telemetry/metrics.h"
#include "server/telemetry/recording.h"
#include "server/telemetry/request_facts.h"
#include "server/telemetry/request_log.h"
#include "server/telemetry/span_exporter.h"

namespace millrace {

struct TelemetryOptions {
  LogOptions log;
  OtlpSettings otlp;
  std::string record;  // file; "": none
  bool record_prompts = false;
  std::string version;  // version of the program
};

class Telemetry {
 public:
  // Errors: as SpanExporter's and Recorder's create().
  static Result<std::unique_ptr<Telemetry>> create(const TelemetryOptions& options, const std::string& model,
                                                   const RecordingHead& recorded);

  // Creates the record of a new request; its trace context is returned in a header of the answer.
  std::shared_ptr<RequestFacts> begin(const HttpRequest& request);
  // Records a request that was rejected before begin().
  void refused(const HttpRequest& request, HttpReply& reply);

  // Called by the code that generates; `facts` may be null.
  void started(RequestFacts* facts, const Answer& answer) const;
  void finished(RequestFacts* facts, const TokenEvent& event) const;
  static void failed(RequestFacts* facts, const ApiError& error);
  // The request ends before its answers have: counts the tokens they have so far.
  static void unfinished(RequestFacts* facts, const Answer& answer);

  // Records a request if records(), unless its prompt is rows instead of tokens. `tokens`: of each choice.
  bool records() const { return recorder_ != nullptr; }
  void recorded(const RequestFacts* facts, const Answer& answer, const std::vector<std::vector<TokenId>>& tokens);

  Metrics& metrics() { return *metrics_; }
  RequestLog& log() { return *log_; }
  TelemetryCounts counts() const;

 private:
  Telemetry() = default;
  void ended(const RequestFacts& facts);

  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<RequestLog> log_;
  std::unique_ptr<SpanExporter> spans_;
  std::unique_ptr<Recorder> recorder_;
  std::atomic<int64_t> not_recorded_{0};
  std::atomic<bool> recording_fails_{false};  // since the latest request
};

}  // namespace millrace
