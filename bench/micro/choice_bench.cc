// The cost of choosing the next tokens of all streams of a step, from random rows of logits:
//
//   bench_choice_bench [Google Benchmark flags]
//
// Arguments: vocabulary, streams, threads; 0 threads: one stream after the other on the calling thread.
#include <benchmark/benchmark.h>

#include <random>

#include "base/cpu.h"
#include "run/token_choice.h"
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

void choose_step(benchmark::State& state, const SamplingOptions& sampling) {
  const int64_t vocab = state.range(0), streams = state.range(1);
  ThreadPool pool(static_cast<int>(std::max<int64_t>(1, state.range(2))));
  TokenChoice choice(nullptr, vocab, pool, streams);
  const auto exact = make_acceptance("exact").value();
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(static_cast<size_t>(vocab * streams));
  for (float& logit : logits) logit = normal(random);
  std::vector<std::unique_ptr<LiveStream>> live;
  std::vector<StepWork> work;
  for (int64_t i = 0; i < streams; ++i) {
    auto stream = std::make_unique<LiveStream>();
    SamplerSetup setup;
    setup.options = sampling;
    setup.options.seed = static_cast<uint64_t>(i);
    setup.vocab_size = static_cast<int32_t>(vocab);
    stream->sequence.request.sampling = setup.options;
    stream->sequence.max_total = 1;
    stream->sampler = SamplerChain::create(setup).value();
    work.push_back({stream.get(), {.request = 1, .first = 0, .count = 1, .sample = true}});
    live.push_back(std::move(stream));
  }
  for (auto _ : state) {  // these samplers leave the rows as they are
    if (state.range(2) > 0) choice.choose_ahead(work, *exact, logits.data());
    for (int64_t i = 0; i < streams; ++i) {
      TokenEvent event;
      benchmark::DoNotOptimize(choice.choose(*live[static_cast<size_t>(i)], i, logits.data(), event));
    }
  }
  state.SetItemsProcessed(state.iterations() * streams);
}

void sizes(benchmark::internal::Benchmark* bench) {
  const int64_t all = available_cores();
  for (const int64_t vocab : {32'000, 128'000})
    for (const int64_t streams : {1, 2, 16})
      for (const int64_t threads : {int64_t{0}, all}) bench->Args({vocab, streams, threads});
  bench->UseRealTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(choose_step, greedy, greedy())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, top_k_and_p, top_k_and_p())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, top_p, top_p_only())->Apply(sizes);
BENCHMARK_CAPTURE(choose_step, logprobs, with_logprobs())->Apply(sizes);

}  // namespace
