// Times forward passes for `millrace bench`: prompts, generation, or both in sequence, for one stream or a batch of
// several. Uses random tokens and no sampling, so that only the model is measured.
#pragma once

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/enum_table.h"
#include "flow/batch.h"
#include "kv/token_evictor.h"
#include "models/weight_source.h"
#include "run/language_model.h"

namespace millrace {

struct BenchTest {
  int64_t prompt = 0;    // tokens per stream, run in batches
  int64_t generate = 0;  // tokens per stream, one per step
  int64_t depth = 0;     // tokens in each stream's context before timing starts
  int64_t streams = 1;
  int threads = 1;
  int64_t batch_tokens = 512;
  std::string kv_format = "f16";
  bool alike = false;  // token 0 everywhere, so that every stream chooses the same experts
  std::string kv_pool = "paged";
  int64_t block_tokens = 16;
  bool scatter = false;              // blocks in random order
  bool beside = false;               // after each step, a plain read of the same number of bytes
  std::string evictor;               // token evictor of every stream, NAME[:key=value,...]; "": none
  std::vector<std::string> kernels;  // NAME[:key=value,...] each (models/forward_switches.h)
  int64_t shared = 0;  // first tokens of the context that all streams share, in whole blocks; at most depth

  int64_t longest() const { return depth + prompt + generate; }
  int64_t prefilled() const { return depth + prompt; }
  int64_t tokens() const { return streams * (prompt + generate); }
};

// The minimum work of a test's passes. Bytes are counted as stored in the file: a wider layout in memory must not make
// the engine look closer to the roof.
struct BenchWork {
  double bytes = 0;                          // weights, once per pass, and keys and values
  EnumTable<Activation, double> operations;  // two per multiply-add

  double all_operations() const { return std::accumulate(operations.begin(), operations.end(), 0.0); }
};

struct BenchResult {
  std::vector<int64_t> samples_ns;
  BenchWork work;                      // work of one repetition
  std::vector<double> reads_gb_per_s;  // with `beside`: the plain read after each step ...
  std::vector<double> read_fractions;  // ... and the share of its rate that the step reached
  std::optional<WeightFigures> disk;   // reads of weights in all repetitions; {}: none
  std::vector<double> times_first;     // for tests in turns: by repetition, the first test's time over this one's
};

// The work of the passes of `test`. Matrices count as multiplications, embedding tables do not; the head multiplies
// only the rows whose logits are needed. Attention is counted in bfloat16, or in f32 with an f32 cache; with an
// evictor, to the stored tokens, and without what the evictor itself observes.
BenchWork bench_work(const LanguageModel& model, const BenchTest& test, const EvictionRule* rule = nullptr);

// Runs tests of as many threads in turns: a repetition of each, then the next of each. Calls `passed` after each
// forward pass with the fraction done; stops if it returns false. Errors: user, resource, cancelled.
Result<std::vector<BenchResult>> run_bench(const LanguageModel& model, std::span<const BenchTest> tests,
                                           int repetitions, bool warmup, const std::function<bool(double)>& passed);

}  // namespace millrace
