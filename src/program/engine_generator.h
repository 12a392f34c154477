// EngineGenerator: generations of programs on engines of this process, over the public API. Each is one request: the
// same step sent alone receives the same bits. run_program() executes a program on the calling thread.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "millrace/engine.h"
#include "program/generator.h"
#include "program/run.h"

namespace millrace {

// A model that programs may name.
struct ProgramModel {
  std::string name;  // the first model of a generator is also that of steps that name none
  std::shared_ptr<const LanguageModel> model;
  Engine* engine = nullptr;
  SamplingOptions sampling;  // for what a step leaves out
};

// Returns the request of one generation: what ProgramRun asks, as a client would send it alone. Errors: user, and those
// of the chat template.
Result<Request> request_of(const GenerationAsk& ask, const ProgramModel& model);

class EngineGenerator final : public Generator {
 public:
  // `models`: at least one; the engines outlive the generator.
  explicit EngineGenerator(std::vector<ProgramModel> models)
      : models_(std::move(models)), inbox_(std::make_shared<Inbox>()) {}
  ~EngineGenerator() override { cancel_all(); }

  void begin(const GenerationAsk& ask, Done done) override;
  void cancel_all() override;

  // Waits up to `limit` for finished generations and calls their `done` on this thread.
  void wait(std::chrono::milliseconds limit);

 private:
  struct Open;
  // Finished generations. The engine's thread writes; wait() reads.
  struct Inbox {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Open>> finished;
  };

  std::vector<ProgramModel> models_;
  std::shared_ptr<Inbox> inbox_;
  std::vector<std::shared_ptr<Open>> open_;
};

// Runs a program to its end. `wanted` is called about 20 times a second; if it returns false, the run ends with the
// error cancelled. Errors: those of ProgramRun and of its generations.
Result<ProgramResult> run_program(
    Program program, const ProgramVariables& given, EngineGenerator& generator, ProgramRun::Options options = {},
    const std::function<bool()>& wanted = [] { return true; });

}  // namespace millrace
