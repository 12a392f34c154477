// Timing of forward passes for `millrace bench`: prompts, generation, or one after the other, of one stream or of
// several together. Random tokens, no sampling: what is measured is the model.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "engine/language_model.h"
#include "flow/batch.h"

namespace millrace {

struct BenchTest {
  int64_t prompt = 0;   // tokens of each stream, run in batches
  int64_t generate = 0;  // tokens of each stream, one a step
  int64_t depth = 0;    // tokens that each stream holds before the clock starts
  int64_t streams = 1;
  int threads = 1;
  int64_t batch_tokens = 512;
  std::string kv_format = "f16";

  int64_t longest() const { return depth + prompt + generate; }
  int64_t tokens() const { return streams * (prompt + generate); }
};

struct BenchWork {
  double bytes = 0;       // weights and KV that the passes have to read
  double operations = 0;  // two a multiply-add
};

struct BenchResult {
  std::vector<int64_t> samples_ns;
  BenchWork work;  // of one repetition
};

// Matrix parameters that one token meets, without the head.
int64_t active_parameters(const ArchSpec& spec);
// Of the passes that `test` is made of.
BenchWork bench_work(const LanguageModel& model, const BenchTest& test, double kv_bytes_per_token);

// `passed` is called after each forward pass with the fraction done; false stops. Errors: user, resource, cancelled.
Result<BenchResult> run_bench(const LanguageModel& model, const BenchTest& test, int repetitions, bool warmup,
                              const std::function<bool(double)>& passed);

}  // namespace millrace
