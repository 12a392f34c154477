// Generator: what a program asks of a model. ProgramRun passes it one generation at a time and keeps several open,
// which the engine computes in one batch; their common beginnings are computed once, by the engine's prefix cache.
// EngineGenerator (engine_generator.h) asks an engine of this process; the server's sends requests to itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "program/program.h"

namespace millrace {

// One generation. Its answer depends on this alone.
struct GenerationAsk {
  std::vector<ProgramMessage> messages;  // empty: `text` is the prompt; otherwise the beginning of the answer to them
  std::string text;
  GenSettings settings;  // with a seed
  bool score = false;    // the log-probability of each token is wanted
};

struct GenerationOutcome {
  std::string text;
  std::vector<float> logprobs;  // log-probability of each token, if the ask has `score`
  int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
  std::string finish;  // "stop" or "length"
};

class Generator {
 public:
  virtual ~Generator() = default;

  using Done = std::function<void(Result<GenerationOutcome>)>;
  // Begins a generation. Calls `done` once, on the thread that runs the program, and never before begin() has returned;
  // after cancel_all() it may leave the call out.
  virtual void begin(const GenerationAsk& ask, Done done) = 0;
  // Cancels the open generations. Called on the thread that runs the program.
  virtual void cancel_all() = 0;
};

}  // namespace millrace
