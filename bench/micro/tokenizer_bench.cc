// Bytes of text encoded per second on one core:
//
//   bench_tokenizer TEXT FILE[:PATTERN] ... [Google Benchmark flags]
//
// FILE is a tokenizer.json, a SentencePiece model, or a tiktoken file with the name of its PATTERN. Each is
// timed with a warm word cache (encode) and in the first call of a new tokenizer (first). The first
// megabyte of TEXT is used. Without arguments a built-in byte vocabulary and text are used.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer_files.h"
#include "text/unicode.h"

namespace {

using namespace millrace;

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

Result<TokenizerSpec> read_spec(const std::string& argument) {
  const size_t colon = argument.rfind(':');
  const std::string bytes = read_file(argument.substr(0, colon));
  if (colon != std::string::npos) return read_tiktoken(bytes, argument.substr(colon + 1));
  if (sniff_tokenizer_file(bytes) == "tokenizer.json") return read_tokenizer_json(bytes);
  return read_sentencepiece_model(bytes);
}

TokenizerSpec byte_vocabulary() {
  TokenizerSpec spec;
  spec.kind = "bpe";
  spec.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte) spec.tokens.push_back(spell_bytes(std::string(1, static_cast<char>(byte))));
  for (std::string word : {"he", "in", "an", "the", "and"}) {
    spec.merges.push_back(word.substr(0, word.size() - 1) + " " + word.back());
    spec.tokens.push_back(word);
  }
  return spec;
}

void add_benchmarks(const std::string& name, const TokenizerSpec& spec, const std::string& text) {
  const auto make = [spec] { return std::shared_ptr<Tokenizer>(std::move(Tokenizer::create(spec)).value()); };
  const auto run = [text](benchmark::State& state, const std::shared_ptr<Tokenizer>& tokenizer) {
    const auto ids = tokenizer->encode(text, {.add_special = false, .parse_special = false});
    state.counters["bytes_per_token"] = static_cast<double>(text.size()) / static_cast<double>(ids.size());
  };
  benchmark::RegisterBenchmark((name + "/encode").c_str(), [make, run, text](benchmark::State& state) {
    const auto tokenizer = make();
    run(state, tokenizer);
    for (auto _ : state) run(state, tokenizer);
    state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((name + "/first").c_str(),
                               [make, run, text](benchmark::State& state) {
                                 for (auto _ : state) {
                                   state.PauseTiming();
                                   auto tokenizer = make();
                                   state.ResumeTiming();
                                   run(state, tokenizer);
                                   state.PauseTiming();
                                   tokenizer.reset();
                                   state.ResumeTiming();
                                 }
                                 state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
                               })
      ->Unit(benchmark::kMillisecond)
      ->Iterations(5);
  benchmark::RegisterBenchmark((name + "/decode").c_str(), [make, text](benchmark::State& state) {
    const auto tokenizer = make();
    const auto ids = tokenizer->encode(text);
    for (auto _ : state) benchmark::DoNotOptimize(tokenizer->decode(ids, false));
    state.SetBytesProcessed(static_cast<int64_t>(text.size()) * state.iterations());
  })->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark((name + "/create").c_str(),
                               [make](benchmark::State& state) {
                                 for (auto _ : state) benchmark::DoNotOptimize(make());
                               })
      ->Unit(benchmark::kMillisecond)
      ->Iterations(3);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::string text = argc > 1 ? read_file(argv[1]).substr(0, 1 << 20) : "";
  while (text.size() < (1 << 20) && argc < 2)
    text += "The miller's wheel turns while the water runs, and 12 sacks are filled. ";
  if (argc < 3) add_benchmarks("bytes", byte_vocabulary(), text);
  for (int i = 2; i < argc; ++i) {
    auto spec = read_spec(argv[i]);
    if (!spec.ok()) {
      std::fprintf(stderr, "%s: %s\n", argv[i], spec.error().message.c_str());
      return 2;
    }
    const std::string path = argv[i];
    add_benchmarks(path.substr(path.rfind('/') + 1), *spec, text);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
