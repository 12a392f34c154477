// RequestFacts: what is known of one HTTP request when it has ended, for metrics, log and trace. It travels with the
// request's Exchange, which says when and how the answer ended; who works on the request fills in the rest before that.
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
  std::string handler;  // the endpoint's path; "none": there is no such
  std::string id;       // X-Request-Id
  int status = 0;
  std::string error;  // its kind; "": none
  std::string error_message;
  bool gone = false;  // the reader left
  bool streamed = false;
  bool kept = false;            // its stream may outlive its reader, and ends when its work does
  std::atomic<int> resumed{0};  // times it was read on

  // Of a request for text.
  bool generates = false;
  std::string model, answer_id, tenant;
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  GenerationParameters parameters;
  RequestTimings timings;   // of the answer that ended last
  int64_t finished_ns = 0;  // steady: when the engine ended it
  std::vector<std::string> finish_reasons;
  std::string prompt;  // only where prompts are logged

  std::optional<TraceContext> parent;
  TraceContext trace;     // of this request's span
  bool exported = false;  // its spans are wanted

  std::chrono::steady_clock::time_point began = std::chrono::steady_clock::now();
  std::chrono::system_clock::time_point began_at = std::chrono::system_clock::now();
  double seconds = 0;         // from there to the end
  HttpHeaders reply_headers;  // go out with the answer

  // Called once, by whom the answer's end is told of.
  std::function<void(RequestFacts&)> on_end;

  void end(int with_status, bool reader_left) {
    if (ended_.exchange(true)) return;
    status = with_status;
    gone = reader_left;
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    if (on_end) on_end(*this);
  }
  // Takes note of an answer's head, and adds to it what goes out with it.
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
