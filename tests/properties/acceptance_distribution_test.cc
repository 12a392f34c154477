// The acceptance rules that keep the model's distribution, over the joint distribution of three tokens, with top-k and
// top-p in force: against enumeration, and with rules that are wrong on purpose. `typical` against its definition.
#include <cmath>
#include <map>
#include <random>

#include "properties/draft_runs.h"
#include "sampling/chain.h"
#include "speculate/acceptance.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int kWords = 7;      // vocabulary
constexpr int kPositions = 3;  // tokens of a sample
#ifdef MILLRACE_SANITIZED
constexpr int64_t kFewer = 10;  // a sample takes 25 times as long, and what sanitizers find shows in fewer
#else
constexpr int64_t kFewer = 1;
#endif
constexpr int64_t kSamples = 100000 / kFewer;
constexpr float kNoLogit = -std::numeric_limits<float>::infinity();

using Path = std::vector<TokenId>;
using Logits = std::array<float, kWords>;

// Exceeded once in a million by a correct rule (Wilson and Hilferty's approximation).
double limit_of(int degrees) {
  const double n = degrees, t = 1 - 2 / (9 * n) + 4.753 * std::sqrt(2 / (9 * n));
  return n * t * t * t;
}

// Chi-square of counts against probabilities, as a share of its limit. Cells expected less than 10 times are one;
// whatever should never occur and did makes it infinite.
double misfit(const std::map<Path, double>& expected, const std::map<Path, int64_t>& counts, int64_t samples) {
  double statistic = 0, rare_expected = 0, rare = 0;
  int cells = 0;
  const auto add = [&](double want, double got) {
    statistic += (got - want) * (got - want) / want;
    ++cells;
  };
  for (const auto& [path, count] : counts)
    if (!expected.contains(path)) return std::numeric_limits<double>::infinity();
  for (const auto& [path, p] : expected) {
    const double want = p * static_cast<double>(samples);
    const auto found = counts.find(path);
    const double got = found == counts.end() ? 0 : static_cast<double>(found->second);
    if (want >= 10) {
      add(want, got);
    } else {
      rare_expected += want;
      rare += got;
    }
  }
  if (rare_expected > 0) add(std::max(rare_expected, 1.0), rare);
  return cells > 1 ? statistic / limit_of(cells - 1) : 0;
}

// A language of three-token texts: the sampler's final logits after every path, of the model and of its draft model.
class Tables {
 public:
  explicit Tables(double temperature) {
    SamplerSetup setup;
    setup.vocab_size = kWords;
    setup.options.temperature = temperature;
    setup.options.top_k = 6;
    setup.options.top_p = 0.95;
    auto chain = SamplerChain::create(setup).value();
    SamplingRow row;
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<Path> paths = {{}};
    for (size_t at = 0; at < paths.size(); ++at) {
      const Path path = paths[at];
      Logits p, q;
      for (int i = 0; i < kWords; ++i) {
        p[static_cast<size_t>(i)] = 1.2f * normal(random);
        q[static_cast<size_t>(i)] = p[static_cast<size_t>(i)] + 0.8f * normal(random);
      }
      for (auto [raw, out] : {std::pair(&p, &p_), {&q, &q_}}) {
        chain.apply(*raw, 0, row);
        Logits final;
        final.fill(kNoLogit);
        for (const Candidate& one : row.candidates()) final[static_cast<size_t>(one.token)] = one.logit;
        (*out)[number(path)] = final;
      }
      if (path.size() + 1 == kPositions) continue;
      for (TokenId token = 0; token < kWords; ++token) {
        paths.push_back(path);
        paths.back().push_back(token);
      }
    }
  }
  const Logits& p(const Path& path) const { return p_[number(path)]; }
  const Logits& q(const Path& path) const { return q_[number(path)]; }
  static double share(const Logits& logits, TokenId token) {
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    return std::exp(static_cast<double>(logits[static_cast<size_t>(token)])) / total;
  }
  std::map<Path, double> joint() const {
    std::map<Path, double> all = {{{}, 1.0}};
    for (int i = 0; i < kPositions; ++i) {
      std::map<Path, double> longer;
      for (const auto& [path, probability] : all)
        for (TokenId token = 0; token < kWords; ++token) {
          Path next = path;
          next.push_back(token);
          if (const double p = share(this->p(path), token); p > 0) longer[next] = probability * p;
        }
      all = std::move(longer);
    }
    return all;
  }

 private:
  static size_t number(const Path& path) {
    size_t n = 1;
    for (const TokenId token : path) n = n * kWords + static_cast<size_t>(token);
    return n;
  }
  // By number(): a 1, and the path as digits behind it.
  std::vector<Logits> p_ = std::vector<Logits>(2 * kWords * kWords), q_ = p_;
};

// Samples texts as the engine does: drafts a tree of chains, walks it, and drafts anew behind the first token that no
// branch has.
class Speculation {
 public:
  Speculation(const Tables& tables, const Acceptance& rule, int64_t branches)
      : tables_(tables), rule_(rule), branches_(branches) {}

  Path sample(uint64_t seed) {
    Path text;
    while (text.size() < kPositions) {
      propose(text, seed);
      for (int64_t at = -1; text.size() < kPositions;) {
        const TokenId token = choose(text, seed, at);
        text.push_back(token);
        at = kept_child(draft_, at, draft_.size(), token);
        if (text.size() == 1) accepted += at >= 0;
        if (at < 0) break;
      }
    }
    return text;
  }

  int64_t accepted = 0;  // first tokens that were drafted

 private:
  void propose(const Path& text, uint64_t seed) {
    draft_.clear();
    odds_.clear();
    const auto levels = static_cast<int64_t>(kPositions - text.size());
    for (int64_t i = 0; i < levels * branches_; ++i) {
      Path path = text;
      for (int64_t before = i % branches_; before < i; before += branches_)
        path.push_back(draft_.tokens[static_cast<size_t>(before)]);
      const Logits& q = tables_.q(path);
      begin(q, seed, path.size());
      const auto branch = static_cast<uint64_t>(i % branches_);
      draft_.tokens.push_back(draw(row_, row_.uniform(RandomStream::draft, branch)).value());
      draft_.parents.push_back(static_cast<int32_t>(std::max<int64_t>(-1, i - branches_)));
      odds_.push_back({q.data(), row_.softmax()});
    }
  }

  TokenId choose(const Path& text, uint64_t seed, int64_t at) {
    begin(tables_.p(text), seed, text.size());
    drafted_.clear();
    visit_children(draft_, at, draft_.size(), [&](int64_t i) {
      drafted_.push_back({draft_.tokens[static_cast<size_t>(i)], &odds_[static_cast<size_t>(i)]});
      return true;
    });
    if (drafted_.empty() || row_.candidates().size() < 2) return draw(row_).value();
    return rule_.choose(row_, drafted_, scratch_);
  }

  void begin(const Logits& logits, uint64_t seed, size_t position) {
    logits_ = logits;
    row_.begin(logits_, seed, static_cast<int64_t>(position));
  }

  const Tables& tables_;
  const Acceptance& rule_;
  int64_t branches_;
  Draft draft_;
  std::vector<DraftOdds> odds_;
  std::vector<DraftedToken> drafted_;
  std::vector<double> scratch_;
  Logits logits_;
  SamplingRow row_;
};

struct Sampled {
  double misfit = 0;
  double accepted = 0;  // share of first tokens that were drafted
};

Sampled sample_with(const Tables& tables, const Acceptance& rule, int64_t branches, int64_t samples = kSamples) {
  Speculation speculation(tables, rule, branches);
  std::map<Path, int64_t> counts;
  for (int64_t i = 0; i < samples; ++i) ++counts[speculation.sample(static_cast<uint64_t>(i))];
  return {misfit(tables.joint(), counts, samples),
          static_cast<double>(speculation.accepted) / static_cast<double>(samples)};
}

// A sum over all tokens of what their p and q for the first position give.
template <typename Part>
double sum_of(const Tables& tables, Part part) {
  double sum = 0;
  for (TokenId token = 0; token < kWords; ++token)
    sum += part(Tables::share(tables.p({}), token), Tables::share(tables.q({}), token));
  return sum;
}

// How often k-sequential selection accepts, with the smallest rho that leaves nothing negative, found by trying many.
double k_sequential(const Tables& tables, double k) {
  for (double rho = 1; rho < k; rho += 1e-4) {
    const double b = sum_of(tables, [&](double p, double q) { return std::min(q, p / rho); });
    const double any = 1 - std::pow(1 - b, k);
    if (any / b <= rho) return any;
  }
  return sum_of(tables, [&](double p, double q) { return std::min(q, p / k); });
}

TEST(AcceptanceDistribution, ThreeTokensAreThoseOfThePlainModel) {
  for (const double temperature : {0.3, 1.0, 1.5}) {
    const Tables tables(temperature);
    for (const auto& [name, branches] : {std::pair("sampling", 1), {"spectr", 3}, {"specinfer", 3}}) {
      SCOPED_TRACE(fmt::format("{} with {} branches at {}", name, branches, temperature));
      const auto rule = make_acceptance(name).value();
      EXPECT_TRUE(rule->needs_odds());
      const Sampled got = sample_with(tables, *rule, branches);
      EXPECT_LT(got.misfit, 1);
      // Of one draft, of any rule, and of this many, where a rule can do no better than keep each drafted token as
      // often as the model has it.
      const double one = sum_of(tables, [](double p, double q) { return std::min(p, q); });
      const double most = sum_of(tables, [k = branches](double p, double q) {
        return std::min(p, 1 - std::pow(1 - q, static_cast<double>(k)));
      });
      const double spread = 5 * std::sqrt(one * (1 - one) / kSamples);
      EXPECT_GT(got.accepted, one - spread);
      EXPECT_LT(got.accepted, most + spread);
      if (branches == 1 || temperature < 1) continue;  // at 0.3 the model has a token that the draft model never draws
      EXPECT_GT(got.accepted, one + spread) << "more branches have the token more often";
      if (std::string(name) == "spectr") {
        EXPECT_GT(got.accepted, k_sequential(tables, branches) - spread);
      }
    }
  }
}

class AcceptAlways final : public Acceptance {
 public:
  TokenId choose(SamplingRow&, std::span<const DraftedToken> drafted, std::vector<double>&) const override {
    return drafted.front().token;
  }
};

// min(1, p / q), but a rejected token is replaced by one from p itself.
class NothingSubtracted final : public Acceptance {
 public:
  TokenId choose(SamplingRow& row, std::span<const DraftedToken> drafted, std::vector<double>&) const override {
    const Softmax softmax = row.softmax();
    const auto [token, odds] = drafted.front();
    double p = 0;
    for (const Candidate& one : row.candidates())
      if (one.token == token) p = softmax.probability(one.logit);
    if (row.uniform(RandomStream::accept) * odds->of(token) < p) return token;
    return draw(row, row.uniform(RandomStream::residual)).value();
  }
};

TEST(AcceptanceDistribution, WrongRulesAreFound) {
  const auto typical = make_acceptance("typical").value(), in_turn = make_acceptance("sampling").value();
  for (const double temperature : {0.3, 1.0, 1.5}) {
    SCOPED_TRACE(temperature);
    const Tables tables(temperature);
    EXPECT_GT(sample_with(tables, AcceptAlways(), 1, 10000).misfit, 2);
    EXPECT_GT(sample_with(tables, NothingSubtracted(), 1, 10000).misfit, 2);
    EXPECT_GT(sample_with(tables, *typical, 1, 10000).misfit, 2);
    EXPECT_LT(sample_with(tables, *in_turn, 1, 10000).misfit, 1);
  }
}

// Drafts without odds: the token is plain sampling's.
TEST(AcceptanceDistribution, UnknownOddsArePlainSampling) {
  const Tables tables(1);
  SamplingRow row;
  std::vector<double> scratch;
  const DraftedToken drafted[] = {{2, nullptr}, {5, nullptr}};
  for (const char* name : {"exact", "sampling", "spectr", "specinfer"}) {
    const auto rule = make_acceptance(name).value();
    for (uint64_t seed = 0; seed < 200; ++seed) {
      Logits logits = tables.p({});
      row.begin(logits, seed, 4);
      const TokenId plain = draw(row).value();
      logits = tables.p({});
      row.begin(logits, seed, 4);
      row.softmax();
      ASSERT_EQ(rule->choose(row, drafted, scratch), plain) << name;
    }
  }
}

TEST(AcceptanceTypical, KeepsWhatIsAboveItsThresholdAndElseSamplesPlainly) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  int64_t kept = 0, plain = 0;
  for (int round = 0; round < 2000; ++round) {
    const double epsilon = (round % 5) * 0.1, delta = (round % 7) * 0.15;
    const auto rule = make_acceptance(fmt::format("typical:epsilon={},delta={}", epsilon, delta)).value();
    EXPECT_FALSE(rule->needs_odds());
    Logits logits;
    for (float& logit : logits) logit = 2 * normal(random);
    double total = 0, entropy = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit));
    std::array<double, kWords> p;
    for (size_t i = 0; i < p.size(); ++i) {
      p[i] = std::exp(static_cast<double>(logits[i])) / total;
      entropy -= p[i] * std::log(p[i]);
    }
    const double threshold = std::min(epsilon, delta * std::exp(-entropy));
    const DraftedToken drafted[] = {{static_cast<TokenId>(random() % kWords)},
                                    {static_cast<TokenId>(random() % kWords)},
                                    {static_cast<TokenId>(random() % kWords)}};
    TokenId expected = -1;
    for (const DraftedToken& one : drafted) {
      const double share = p[static_cast<size_t>(one.token)];
      if (share > threshold && (expected < 0 || share > p[static_cast<size_t>(expected)])) expected = one.token;
    }
    SamplingRow row;
    std::vector<double> scratch;
    Logits copy = logits;
    row.begin(copy, static_cast<uint64_t>(round), 0);
    if (expected < 0) {
      expected = draw(row).value();
      ++plain;
    } else {
      ++kept;
    }
    copy = logits;
    row.begin(copy, static_cast<uint64_t>(round), 0);
    ASSERT_EQ(rule->choose(row, drafted, scratch), expected) << round;
  }
  EXPECT_GT(kept, 300);
  EXPECT_GT(plain, 300);
}

// ---- through the engine, with a draft model -----------------------------------------------------

// Seven tokens are allowed, so that two random models often agree.
Request three_tokens(uint64_t seed, double temperature, const Path& prefix) {
  Request request;
  request.prompt = {11, 7, 19, 3};
  request.prompt.insert(request.prompt.end(), prefix.begin(), prefix.end());
  request.ignore_eos = true;
  request.max_tokens = 7;  // room for a whole tree
  request.sampling.seed = seed;
  request.sampling.temperature = temperature;
  request.sampling.top_k = 5;
  request.sampling.top_p = 0.9;
  request.sampling.allowed_tokens = {20, 21, 22, 23, 24, 25, 26};
  return request;
}

// Probabilities of the first three tokens, one request a context.
std::map<Path, double> enumerate(const std::shared_ptr<const LanguageModel>& model, double temperature) {
  auto core = make_core(model, options());
  const auto vocab = static_cast<size_t>(model->info().vocab);
  std::map<Path, double> all = {{{}, 1.0}};
  RequestId id = 0;
  for (int i = 0; i < kPositions; ++i) {
    std::map<Path, double> longer;
    for (const auto& [path, probability] : all) {
      Request request = three_tokens(1, temperature, path);
      request.max_tokens = 1;
      SamplerSetup setup;
      setup.options = request.sampling;
      setup.vocab_size = static_cast<int32_t>(vocab);
      request.sampling = {.temperature = 0};  // leaves the logits as they are
      EXPECT_TRUE(core->add(++id, request).ok());
      std::vector<TokenEvent> events;
      core->step(events);
      std::vector<float> logits(core->last_logits(), core->last_logits() + vocab);
      while (!core->idle()) core->step(events);
      auto chain = SamplerChain::create(setup).value();
      SamplingRow row;
      chain.apply(logits, 0, row);
      const Softmax softmax = row.softmax();
      for (const Candidate& one : row.candidates()) {
        Path next = path;
        next.push_back(one.token);
        longer[next] = probability * softmax.probability(one.logit);
      }
    }
    all = std::move(longer);
  }
  return all;
}

TEST(AcceptanceDistribution, ThreeTokensThroughTheEngine) {
  const auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  constexpr int64_t kRequests = 2000 / kFewer;
  const double temperature = 1.0;
  const std::map<Path, double> expected = enumerate(model, temperature);
  for (const auto& [rule, branches] : {std::pair("sampling", 1), {"spectr", 2}, {"specinfer", 2}}) {
    SCOPED_TRACE(rule);
    EngineOptions o = options(1, 256, 8);
    o.max_streams = 16;
    o.prefix_cache = false;
    o.drafter = fmt::format("draft:k=3,branches={},model={}", branches, golden_model("llama3"));
    o.acceptance = rule;
    auto core = core_with(model, o);
    ASSERT_TRUE(core);
    std::vector<Request> requests;
    for (int64_t i = 0; i < kRequests; ++i)
      requests.push_back(three_tokens(static_cast<uint64_t>(1000 + i), temperature, {}));
    std::map<Path, int64_t> counts;
    const DraftOutcome run = run_requests(*core, requests, 0);
    for (const auto& [id, answer] : run.truth) ++counts[Path(answer.begin(), answer.begin() + kPositions)];
    EXPECT_LT(misfit(expected, counts, kRequests), 1);
    EXPECT_GT(run.stats.accepted_tokens, kRequests);
  }
}

}  // namespace
}  // namespace millrace
