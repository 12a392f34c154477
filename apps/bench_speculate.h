// `millrace bench --speculate`: what drafters gain, measured in turns with plain decoding.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "run/language_model.h"

namespace millrace {

struct SpeculationPlan {
  std::vector<std::string> drafters;  // NAME[:key=value,...]; oracle[:accept=A,k=K] is right at a set rate
  std::vector<int64_t> streams;
  int64_t prompt = 0;    // tokens of a made-up prompt, a phrase that repeats itself
  int64_t generate = 0;  // tokens of an answer, at most
  std::string prompts;  // JSON lines with "messages", "prompt" or "turns", as from `millrace lab generate`; "": made up
  std::string draft_length = "auto";
  int threads = 0;
  int64_t batch_tokens = 512;
  int repetitions = 5;
  std::string output = "md";  // or json
};

// Errors: of the engine, of the file, internal (a drafter changed an answer).
Result<int> run_bench_speculate(const std::shared_ptr<const LanguageModel>& model, const SpeculationPlan& plan);

}  // namespace millrace
