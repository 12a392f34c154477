// How often a draft model's token is the one that the model chooses, by how both draw, as exact probabilities:
//
//   shared_numbers MODEL DRAFT TEMPERATURE PLAIN SEEDS TOKENS PROMPT...
//
//   inverse CDF   both draw with the same uniform number, as the sampler does
//   Gumbel        both draw with the same Gumbel noise a token: the token that maximises log p + noise
//   sampling      independent draws and the acceptance min(1, p / q): the sum of min(p, q), which is the most
//
// For every prompt and seed the model writes TOKENS tokens at the temperature. At each of these positions p and q are
// the two models' distributions after the sampling steps: temperature alone if PLAIN is 1, else the default ones too.
// Prints the means as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "evaluate/scorer.h"
#include "millrace/engine.h"
#include "sampling/chain.h"

namespace {

using namespace millrace;

struct Interval {
  double begin = 0, end = 0;
  double size() const { return end - begin; }
};
// By token, in the order in which the sampler adds the candidates up.
using Distribution = std::map<TokenId, Interval>;

Distribution distribution(const float* row, int64_t vocab, const SamplingOptions& options) {
  SamplerSetup setup;
  setup.options = options;
  setup.vocab_size = static_cast<int32_t>(vocab);
  auto chain = SamplerChain::create(setup).value();
  std::vector<float> logits(row, row + vocab);
  SamplingRow candidates;
  chain.apply(logits, 0, candidates);
  const Softmax softmax = candidates.softmax();
  Distribution out;
  double sum = 0;
  for (const Candidate& one : candidates.candidates()) {
    const double p = softmax.probability(one.logit);
    out[one.token] = {sum, sum + p};
    sum += p;
  }
  return out;
}

struct Agreement {
  double inverse = 0, gumbel = 0, most = 0;
};

// Gumbel: token x wins in both with probability 1 / sum over y of max(p(y) / p(x), q(y) / q(x)).
Agreement agreement(const Distribution& p, const Distribution& q) {
  Agreement out;
  struct Pair {
    double p, q;
    double ratio() const { return p / q; }  // infinite where q is 0
  };
  std::vector<Pair> pairs;
  for (const auto& [token, own] : p) {
    const auto other = q.find(token);
    const Interval drafted = other == q.end() ? Interval{} : other->second;
    if (own.size() > 0 || drafted.size() > 0) pairs.push_back({own.size(), drafted.size()});
    out.inverse += std::max(0.0, std::min(own.end, drafted.end) - std::max(own.begin, drafted.begin));
    out.most += std::min(own.size(), drafted.size());
  }
  for (const auto& [token, drafted] : q)
    if (!p.contains(token) && drafted.size() > 0) pairs.push_back({0, drafted.size()});
  std::ranges::sort(pairs, std::greater(), &Pair::ratio);
  double above = 0, below = 1;  // mass of p where the ratio is at least the pair's, mass of q where it is less
  for (const Pair& pair : pairs) {
    above += pair.p;
    below -= pair.q;
    if (pair.p > 0 && pair.q > 0) out.gumbel += 1 / (above / pair.p + std::max(0.0, below) / pair.q);
  }
  return out;
}

std::vector<float> rows_of(const std::shared_ptr<const LanguageModel>& model, std::span<const TokenId> tokens,
                           int64_t first) {
  auto scorer = Scorer::create(model, {.threads = 1, .context = std::ssize(tokens)}).value();
  const ScoreWindow window{0, std::ssize(tokens), first};
  std::vector<float> out;
  const auto vocab = static_cast<size_t>(scorer->vocab());
  const auto done =
      scorer->run(tokens, std::span(&window, 1), -1, [&](std::span<const ScoredRow> rows) -> Result<void> {
        for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + vocab);
        return {};
      });
  if (!done.ok()) throw std::runtime_error(done.error().message);
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    fmt::print(stderr, "usage: shared_numbers MODEL DRAFT TEMPERATURE PLAIN SEEDS TOKENS PROMPT...\n");
    return 2;
  }
  const auto load = [](const char* path) {
    auto loaded = LanguageModel::load(path, {.threads = 1, .context = 512});
    if (!loaded.ok()) {
      fmt::print(stderr, "{}\n", loaded.error().message);
      std::exit(1);
    }
    return std::move(*loaded);
  };
  const auto model = load(argv[1]), draft = load(argv[2]);
  SamplingOptions sampling;
  sampling.temperature = std::atof(argv[3]);
  if (std::atoi(argv[4]) == 1) {
    sampling.top_k = 0;
    sampling.top_p = 1;
    sampling.min_p = 0;
  }
  EngineOptions options;
  options.threads = 1;
  auto engine = Engine::create(model, options).value();
  Agreement sum;
  int64_t rows = 0;
  for (int prompt = 7; prompt < argc; ++prompt) {
    for (int seed = 1; seed <= std::atoi(argv[5]); ++seed) {
      Request request;
      request.prompt = model->encode(argv[prompt]).value();
      request.sampling = sampling;
      request.sampling.seed = static_cast<uint64_t>(seed);
      request.max_tokens = std::atoi(argv[6]);
      request.ignore_eos = true;
      std::vector<TokenId> tokens = request.prompt;
      const auto first = std::ssize(tokens);
      auto stream = engine->submit(std::move(request)).value();
      while (auto event = stream->next())
        if (event->token >= 0) tokens.push_back(event->token);
      const auto vocab = model->info().vocab;
      const std::vector<float> p = rows_of(model, tokens, first), q = rows_of(draft, tokens, first);
      for (size_t at = 0; at < p.size(); at += static_cast<size_t>(vocab)) {
        const Agreement one =
            agreement(distribution(p.data() + at, vocab, sampling), distribution(q.data() + at, vocab, sampling));
        sum.inverse += one.inverse;
        sum.gumbel += one.gumbel;
        sum.most += one.most;
        ++rows;
      }
    }
  }
  const auto n = static_cast<double>(rows);
  fmt::print("{{\"positions\": {}, \"inverse_cdf\": {:.4f}, \"gumbel\": {:.4f}, \"sampling\": {:.4f}}}\n", rows,
             sum.inverse / n, sum.gumbel / n, sum.most / n);
}
