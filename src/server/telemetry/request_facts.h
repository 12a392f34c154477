// RequestFacts: the record of one HTTP request, for metrics, log and trace. It travels with the request's Exchange,
// which reports when and how the answer ended; the code that handles the request fills in the rest before that.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "millrace/events.h"
#include "server/http/http.h"
#include "server/telemetry/trace_context.h"

namespace millrace {

struct GenerationParameters {
  int64_t max_tokens = 0, top_k = 0, answers = 1;
  double temperature = 0, top_p = 0;
  uint64_t seed = 0;
};

struct RequestFacts {
  std::string method, path;
  std::string handler;  // the endpoint's path; "none": unknown path
  std::string id;       // X-Request-Id
  int status = 0;
  std::string error;  // kind of error; "": none
  std::string error_message;
  bool gone = false;  // the client disconnected
  bool streamed = false;
  bool kept = false;            // a resumable stream, which may outlive its connection
  std::atomic<int> resumed{0};  // times the stream was resumed

  // Facts of a generation request.
  bool generates = false;
  std::string model, answer_id, tenant;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  GenerationParameters parameters;
  RequestTimings timings;   // timings of the last answer to end
  int64_t finished_ns = 0;  // steady: when the engine ended it
  std::vector<std::string> finish_reasons;
  std::string prompt;  // only if prompts are logged

  std::optional<TraceContext> parent;
  TraceContext trace;     // trace of this request's span
  bool exported = false;  // export its spans

  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point began_at = std::chrono::system_clock::now();
  double seconds = 0;         // from `began` to the end
  HttpHeaders reply_headers;  // headers added to the answer

  // Called once, when the answer has ended.
  std::function<void(RequestFacts&)> on_end;

  void end(int with_status, bool disconnected) {
    if (ended_.exchange(true)) return;
    status = with_status;
    gone = disconnected;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (on_end) on_end(*this);
  }
  // Records an answer's head and adds `reply_headers` to it.
  void open(HttpReply& head, bool stream) {
    streamed = streamed || stream;
    if (error.empty() && !head.error.empty()) error = head.error, error_message = head.why;
    for (const auto& [name, value] : head.headers)
      if (name == "X-Request-Id") id = value;
    head.headers.insert(head.headers.end(), reply_headers.begin(), reply_headers.end());
  }

 private:
  std::atomic<bool> ended_{false};
};

}  // namespace millrace
