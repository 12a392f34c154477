// What a dashboard sees: counters and histograms of the requests, and the engine's accounts at the moment of asking.
// Names begin with millrace_; another server's names for the same things can be printed beside them. Thread-safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "millrace/engine.h"
#include "server/answer.h"
#include "server/api_error.h"
#include "server/http.h"

namespace millrace {

class Metrics {
 public:
  explicit Metrics(std::string model);
  ~Metrics();

  void token_gap(double seconds);                                     // between two tokens of an answer, as the engine made them
  void finished(const Answer& answer, const Choice& choice, const RequestTimings& timings);  // one answer
  void answered(const Answer& answer);                                // the whole request
  void aborted();                                                     // its reader left
  void refused(ApiErrorKind kind);

  // Prometheus's text format. `alias`: "" or "vllm". Of several engines each has a label model_name.
  struct OfModel {
    std::string name;
    EngineStats engine;
  };
  std::string text(const std::vector<OfModel>& models, const HttpCounts& http, const std::string& alias);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace millrace
