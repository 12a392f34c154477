// ProgramCall: one running program of a client (docs/programs.md). Each generation is a request that the server sends
// to itself, with the client's key and priority: the limits, the queues and the bits are those of the same requests
// sent one by one.
//
//   client --POST /v1/programs--> ProgramCall --> ProgramRun --> begin() --POST /v1/completions--> Service
//
// Everything runs on the strand of the client's exchange. When the client leaves, the open generations are cancelled.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "program/run.h"
#include "server/http/http.h"
#include "server/json.h"

namespace millrace {

class Service;
struct Dialect;

class ProgramCall final : public Generator, public std::enable_shared_from_this<ProgramCall> {
 public:
  struct Settings {
    std::string model;  // model of steps that name none; "": the server's first
    bool stream = false;
    int64_t at_once = 16;
    int64_t priority = 0;
    double timeout_seconds = 0;  // limit of the whole program; 0: the server's, for each generation
    HttpHeaders headers;         // headers of the answer
  };

  // Starts the program, which check_program() has accepted, on the exchange's strand. `request`: the client's.
  static void start(Service& service, const Dialect& dialect, Settings settings, Program program,
                    const ProgramVariables& given, const HttpRequest& request, const Exchange& exchange);

  // For ProgramRun, on the strand.
  void begin(const GenerationAsk& ask, Done done) override;
  void cancel_all() override;

 private:
  class StepTaker;

  ProgramCall(Service& service, const Dialect& dialect, Settings settings, const HttpRequest& request,
              const Exchange& exchange);
  Json body_of(const GenerationAsk& ask) const;
  void received(const std::shared_ptr<StepTaker>& taker, const HttpReply& reply);
  void finished(Result<ProgramResult> result);
  void gone();

  Service& service_;
  const Dialect& dialect_;
  const Settings settings_;
  const Exchange exchange_;
  const std::string id_, client_;
  const std::shared_ptr<KeyAccount> account_;
  const std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
  int64_t sent_ = 0;
  bool left_ = false;  // the client
  std::vector<std::shared_ptr<StepTaker>> open_;
  std::shared_ptr<ProgramRun> run_;
};

}  // namespace millrace
