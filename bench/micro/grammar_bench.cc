// The cost of constraining a stream to a grammar, on one core:
//
//   bench_grammar [FILE:PATTERN] [Google Benchmark flags]
//
// FILE is a tiktoken vocabulary, PATTERN its pre-tokenizer (llama-bpe, o200k_base ...). The default is a
// synthetic vocabulary of 128,000 tokens. For each constraint: compile, the first text (nothing cached), mask and
// accept along a text whose states are cached, and the same with the mask applied to a row of logits.
#include <benchmark/benchmark.h>

#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "sampling/chain.h"
#include "text/grammar/constraint.h"
#include "text/tokenizer_files.h"

namespace {

using namespace millrace;

// Words of random letters, some with a space or a capital in front, digits, and punctuation as in code and JSON.
std::vector<std::string> synthetic_vocabulary() {
  std::mt19937 random(1);
  std::set<std::string> pieces;
  for (int byte = 0; byte < 256; ++byte) pieces.insert(std::string(1, static_cast<char>(byte)));
  for (int n = 0; n < 1000; ++n) pieces.insert(std::to_string(n));
  const std::string punctuation = "\"'(){}[]:,.;=<>/\\-_+*&|!?#@ \n\t";
  while (pieces.size() < 6000) {
    std::string piece;
    for (uint32_t i = 0, n = 2 + random() % 3; i < n; ++i) piece += punctuation[random() % punctuation.size()];
    pieces.insert(piece);
  }
  while (pieces.size() < 128'000) {
    std::string piece = random() % 2 ? " " : "";
    for (uint32_t i = 0, n = 2 + random() % 9; i < n; ++i) piece += static_cast<char>('a' + random() % 26);
    if (random() % 40 == 0) piece += punctuation[random() % punctuation.size()];
    if (random() % 20 == 0) piece += "\xC3\xA9";
    pieces.insert(piece);
  }
  return {pieces.begin(), pieces.end()};
}

std::vector<std::string> read_vocabulary(const std::string& argument) {
  const size_t colon = argument.rfind(':');
  std::ifstream in(argument.substr(0, colon), std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  auto spec = read_tiktoken(bytes, argument.substr(colon + 1));
  if (!spec.ok()) return {};
  auto tokenizer = Tokenizer::create(std::move(spec).value());
  return tokenizer.ok() ? constrained_pieces(**tokenizer) : std::vector<std::string>{};
}

struct Work {
  const char* name;
  Constraint constraint;
  std::string text;
};

std::vector<Work> make_work() {
  const auto make = [](Constraint::Kind kind, std::string text) {
    Constraint constraint;
    constraint.kind = kind;
    constraint.text = std::move(text);
    return constraint;
  };
  const std::string schema =
      R"({"type":"object","properties":{"name":{"type":"string","minLength":1,"maxLength":200},"age":{"type":"integer","minimum":0,"maximum":150},
    "email":{"type":"string","format":"email"},"tags":{"type":"array","items":{"type":"string"},"maxItems":10},
    "address":{"type":"object","properties":{"street":{"type":"string"},"city":{"type":"string"}},"required":["street","city"],"additionalProperties":false},
    "kind":{"enum":["person","company"]},"notes":{"type":"string"}},"required":["name","age","tags","address","kind","notes"],"additionalProperties":false})";
  std::string text =
      R"({"name": "Ada of the old mill", "age": 36, "email": "ada@example.org", "tags": ["water", "wheel and stone", "flour"],
  "address": {"street": "By the river 12", "city": "Millbrook"}, "kind": "person", "notes": ")";
  for (int i = 0; i < 12; ++i) text += "The wheel turns while the water runs, and twelve sacks are filled by noon. ";
  text += "\"}";
  const std::string gbnf = "root ::= item+\nitem ::= \"- \" [^\\r\\n]+ \"\\n\"\n";
  std::string list;
  for (int i = 0; i < 12; ++i) list += "- The wheel turns while the water runs, and twelve sacks are filled.\n";
  return {{"schema", make(Constraint::Kind::json_schema, schema), text},
          {"json_object", make(Constraint::Kind::json_object, ""), text},
          {"gbnf_list", make(Constraint::Kind::grammar, gbnf), list}};
}

// Greedy tokenization: the longest token that matches at each position.
std::vector<TokenId> tokenize(const std::vector<std::string>& pieces, const std::string& text) {
  std::unordered_map<std::string, TokenId> ids;
  for (size_t id = 0; id < pieces.size(); ++id)
    if (!pieces[id].empty()) ids.emplace(pieces[id], static_cast<TokenId>(id));
  std::vector<TokenId> out;
  for (size_t at = 0; at < text.size();) {
    size_t length = std::min<size_t>(24, text.size() - at);
    while (length > 1 && !ids.contains(text.substr(at, length))) --length;
    out.push_back(ids.at(text.substr(at, length)));
    at += length;
  }
  return out;
}

void add_benchmarks(const Work& work, const std::vector<std::string>& pieces) {
  const std::string name = work.name;
  auto cache = std::make_shared<GrammarCache>([pieces] { return pieces; });
  const CompiledGrammar compiled = std::move(cache->get(work.constraint)).value();
  const std::vector<TokenId> tokens = tokenize(pieces, work.text);
  const auto per_token = [tokens](benchmark::State& state) {
    state.counters["per_token"] =
        benchmark::Counter(static_cast<double>(tokens.size()),
                           benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
    state.counters["tokens"] = static_cast<double>(tokens.size());
  };
  benchmark::RegisterBenchmark((name + "/compile").c_str(), [work](benchmark::State& state) {
    for (auto _ : state) benchmark::DoNotOptimize(compile_constraint(work.constraint));
  })->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((name + "/first_text").c_str(),
                               [=](benchmark::State& state) {
                                 for (auto _ : state) {
                                   state.PauseTiming();
                                   GrammarCache fresh([&] { return pieces; });
                                   GrammarMatcher matcher(*fresh.get(work.constraint));
                                   state.ResumeTiming();
                                   std::vector<uint64_t> bits(matcher.words());
                                   for (TokenId token : tokens) {
                                     matcher.mask(bits);
                                     if (!matcher.accept(token)) state.SkipWithError("the text does not fit");
                                   }
                                 }
                                 per_token(state);
                               })
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(3);
  benchmark::RegisterBenchmark((name + "/mask").c_str(), [=](benchmark::State& state) {
    for (auto _ : state) {
      GrammarMatcher matcher(compiled);
      std::vector<uint64_t> bits(matcher.words());
      for (TokenId token : tokens) {
        benchmark::DoNotOptimize(matcher.mask(bits));
        if (!matcher.accept(token)) state.SkipWithError("the text does not fit");
      }
    }
    per_token(state);
  })->Unit(benchmark::kMicrosecond);
  benchmark::RegisterBenchmark((name + "/mask_and_logits").c_str(), [=](benchmark::State& state) {
    SamplerSetup setup;
    setup.vocab_size = static_cast<int32_t>(pieces.size());
    setup.grammar = compiled;
    setup.options.temperature = 0;
    std::vector<float> logits(pieces.size(), 0.0f);
    SamplingRow row;
    for (auto _ : state) {
      auto chain = std::move(SamplerChain::create(setup)).value();
      for (TokenId token : tokens) {
        logits[static_cast<size_t>(token)] = 1.0f;  // earlier ones stay set: the cost is the same
        benchmark::DoNotOptimize(chain.sample(logits, 0, row));
        chain.accept(token);
      }
    }
    per_token(state);
  })->Unit(benchmark::kMicrosecond);
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const std::vector<std::string> pieces = argc > 1 ? read_vocabulary(argv[1]) : synthetic_vocabulary();
  if (pieces.empty()) {
    std::fprintf(stderr, "%s: no vocabulary\n", argv[1]);
    return 2;
  }
  std::printf("vocabulary: %zu tokens\n", pieces.size());
  for (const Work& work : make_work()) add_benchmarks(work, pieces);
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
