// The cost of choosing the next tokens of all streams of a step, from random rows of logits:
//
//   bench_choice_bench [Google Benchmark flags]
//
// Arguments: vocabulary; streams; threads, 0: one stream after the other on the calling thread; 1: logits with few
// likely tokens, as of a trained model, 0: normal ones with deviation 3, whose mass thousands of tokens share.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <random>

#include "base/cpu.h"
#include "run/executors/token_choice.h"
#include "speculate/acceptance.h"

namespace {

using namespace millrace;

SamplingOptions greedy() {
  SamplingOptions s;
  s.temperature = 0;
  return s;
}

SamplingOptions top_k_and_p() {
  SamplingOptions s;
  s.temperature = 0.8;
  s.top_k = 40;
  s.top_p = 0.95;
  return s;
}

SamplingOptions top_p_only() {
  SamplingOptions s = top_k_and_p();
  s.top_k = 0;
  return s;
}

SamplingOptions with_logprobs() {
  SamplingOptions s = top_k_and_p();
  s.logprobs = 5;
  return s;
}

SamplingOptions temperature_only() {
  SamplingOptions s;
  s.temperature = 0.8;
  s.top_k = 0;
  s.top_p = 1;
  s.min_p = 0;
  return s;
}

// What the target of the sampling share is about (docs/performance.md).
SamplingOptions nucleus() {
  SamplingOptions s = temperature_only();
  s.top_p = 0.9;
  return s;
}

SamplingOptions nucleus_and_penalties() {
  SamplingOptions s = nucleus();
  s.repetition_penalty = 1.1;
  s.frequency_penalty = 0.1;
  s.presence_penalty = 0.1;
  return s;
}

SamplingOptions nucleus_and_logprobs() {
  SamplingOptions s = nucleus();
  s.logprobs = 5;
  return s;
}

SamplingOptions min_p_only() {
  SamplingOptions s = temperature_only();
  s.min_p = 0.05;
  return s;
}

void fill_rows(std::vector<float>& logits, int64_t vocab, bool trained) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, trained ? 2 : 3);
  for (float& logit : logits) logit = normal(random);
  if (!trained) return;
  std::uniform_int_distribution<int64_t> any(0, vocab - 1);
  std::exponential_distribution<float> below(0.5f);
  for (size_t row = 0; row < logits.size(); row += static_cast<size_t>(vocab))
    for (int i = 0; i < 200; ++i) logits[row + static_cast<size_t>(any(random))] = 18 - below(random);
}

void choose_step(benchmark::State& state, const SamplingOptions& sampling) {
  const int64_t vocab = state.range(0), streams = state.range(1);
  ThreadPool pool(static_cast<int>(std::max<int64_t>(1, state.range(2))));
  TokenChoice choice(nullptr, vocab, pool, streams);
  const auto exact = make_acceptance("exact").value();
  std::vector<float> logits(static_cast<size_t>(vocab * streams));
  fill_rows(logits, vocab, state.range(3) != 0);
  const std::vector<float> fresh = logits;
  std::mt19937 random(2);
  struct Stream {
    Sequence sequence;
    ExecutorStream own;
  };
  std::vector<std::unique_ptr<Stream>> live;
  std::vector<ChoiceWork> work;
  for (int64_t i = 0; i < streams; ++i) {
    auto stream = std::make_unique<Stream>();
    SamplerSetup setup;
    setup.options = sampling;
    setup.options.seed = static_cast<uint64_t>(i);
    setup.vocab_size = static_cast<int32_t>(vocab);
    stream->sequence.request.sampling = setup.options;
    stream->sequence.max_total = 1;
    stream->own.sampler = SamplerChain::create(setup).value();
    for (int past = 0; past < 1000; ++past)
      stream->own.sampler->accept(static_cast<TokenId>(random() % static_cast<uint32_t>(vocab)));
    work.push_back({.sequence = &stream->sequence,
                    .own = &stream->own,
                    .chunk = {.request = 1, .first = 0, .count = 1, .sample = true},
                    .chooses = true});
    live.push_back(std::move(stream));
  }
  for (auto _ : state) {
    state.PauseTiming();  // the head of the model writes the rows
    std::ranges::copy(fresh, logits.begin());
    state.ResumeTiming();
    if (state.range(2) > 0) choice.choose_ahead(work, *exact, logits.data());
    for (int64_t i = 0; i < streams; ++i) {
      TokenEvent event;
      Stream& stream = *live[static_cast<size_t>(i)];
      benchmark::DoNotOptimize(choice.choose({stream.sequence, stream.own}, i, logits.data(), event));
    }
  }
  state.SetItemsProcessed(state.iterations() * streams);
}

void sizes(benchmark::internal::Benchmark* bench) {
  const int64_t all = available_cores();
  for (const int64_t vocab : {32'000, 128'000})
    for (const int64_t streams : {1, 2, 16, 32})
      for (const int64_t threads : {int64_t{0}, all})
        for (const int64_t trained : {0, 1}) bench->Args({vocab, streams, threads, trained});
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(choose_step, greedy, greedy())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, top_k_and_p, top_k_and_p())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, top_p, top_p_only())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, logprobs, with_logprobs())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, nucleus, nucleus())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, nucleus_and_penalties, nucleus_and_penalties())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, nucleus_and_logprobs, nucleus_and_logprobs())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, min_p, min_p_only())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, temperature, temperature_only())->Apply(sizes);

}  // namespace
