// Timing of forward passes for `millrace bench`: prompts, generation, or one after the other, of one stream or of
// several together. Random tokens, no sampling: what is measured is the model.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <vector>

#include "base/enum_table.h"
#include "flow/batch.h"
#include "run/language_model.h"

namespace millrace {

struct BenchTest {
  int64_t prompt = 0;    // tokens of each stream, run in batches
  int64_t generate = 0;  // tokens of each stream, one a step
  int64_t depth = 0;     // tokens that each stream holds before the clock starts
  int64_t streams = 1;
  int threads = 1;
  int64_t batch_tokens = 512;
  std::string kv_format = "f16";
  bool alike = false;  // token 0 everywhere, so that every stream chooses the same experts
  std::string kv_pool = "paged";
  int64_t block_tokens = 16;
  bool scatter = false;  // blocks in random order
  bool beside = false;   // after each generated token, plain reads of as many bytes as its step reads

  int64_t longest() const { return depth + prompt + generate; }
  int64_t tokens() const { return streams * (prompt + generate); }
};

// What the passes of a test cannot do without. Bytes count as the files store them: a layout that is wider in memory is
// the engine's own affair, and does not make it look nearer to the roof.
struct BenchWork {
  double bytes = 0;                          // weights, once a pass, and keys and values
  EnumTable<Activation, double> operations;  // two a multiply-add

  double all_operations() const { return std::accumulate(operations.begin(), operations.end(), 0.0); }
};

struct BenchResult {
  std::vector<int64_t> samples_ns;
  BenchWork work;                      // of one repetition
  std::vector<double> reads_gb_per_s;  // with `beside`, of each step: the plain read after it ...
  std::vector<double> read_fractions;  // ... and what share of its rate the step's own reads reached
};

// Of the passes that `test` is made of. A matrix multiplies, a table that rows are looked up in does not; the head
// multiplies only the rows whose logits are wanted. What the keys cost is counted in bfloat16, or in f32 where the
// cache holds that.
BenchWork bench_work(const LanguageModel& model, const BenchTest& test);

// `passed` is called after each forward pass with the fraction done; false stops. Errors: user, resource, cancelled.
Result<BenchResult> run_bench(const LanguageModel& model, const BenchTest& test, int repetitions, bool warmup,
                              const std::function<bool(double)>& passed);

}  // namespace millrace
