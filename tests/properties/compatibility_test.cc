// Every pair of members that an engine or a request can choose, and random triples, on tiny models: what the table of
// rules (run/compatibility/rules.h) does not refuse answers, and equally for any number of threads and beside other
// streams; what is refused is refused by a rule, with its message, before anything runs.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "properties/member_choices.h"
#include "run/compatibility/rules.h"
#include "speculate/datastore.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kPairShards = 8;
constexpr int64_t kSampleShards = 64;  // a model of the sample runs one of this many shards
constexpr int64_t kSampleStep = 17;    // between the shards of one run's models, so that they run different pairs
const std::string kHeadFiles = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/draft_heads/";

using PairedAnswers = std::map<int64_t, std::vector<TokenId>>;

// Steps until all requests have ended; the answers of the first one.
PairedAnswers answers_of_first(EngineCore& core, const std::string& what) {
  PairedAnswers out;
  std::vector<TokenEvent> events;
  for (int64_t steps = 0; !core.idle(); ++steps) {
    events.clear();
    core.step(events);
    for (const TokenEvent& event : events) {
      EXPECT_NE(event.finish, FinishReason::error) << what << ": " << event.error.message;
      if (event.request == 1 && event.token >= 0) out[event.answer].push_back(event.token);
    }
    if (steps > 2000) {
      ADD_FAILURE() << what << ": does not end";
      break;
    }
  }
  const auto blocks = core.check_blocks();
  EXPECT_TRUE(blocks.ok()) << what << ": " << (blocks.ok() ? "" : blocks.error().message);
  return out;
}

// Whether the error is the message of a rule.
bool is_of_a_rule(const Error& error) {
  return error.kind == ErrorKind::unsupported && error.message.find(" does not go with ") != std::string::npos &&
         std::ranges::any_of(compatibility_rules(), [&](const Rule& rule) {
           return error.message.ends_with(fmt::format(": {}; {}", rule.why, rule.advice));
         });
}

using ChosenMembers = std::vector<const MemberChoice*>;

std::string names_of(const ChosenMembers& members) {
  std::string out;
  for (const MemberChoice* one : members) out += (out.empty() ? "" : " + ") + one->family + " " + one->text;
  return out;
}

// A model, and the members that it can have at all: those whose formats and files suit its sizes, or that a rule
// refuses.
class Combinations {
 public:
  explicit Combinations(const std::string& name) {
    const std::string folder = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name;
    model_ = load_for(std::filesystem::exists(folder + "/model.gguf") ? folder + "/model.gguf" : folder, *select_isa());
    if (!model_) return;
    const std::string file = fmt::format("{}compatibility_{}", ::testing::TempDir(), getpid());
    files_ = {kHeadFiles, file + ".rest", file + ".store"};
    std::vector<TokenId> text;
    for (TokenId i = 0; i < 400; ++i) text.push_back(i * 7 % 23);
    const auto& tokenizer = model_->parts().tokenizer;
    const auto vocabulary =
        tokenizer ? std::span<const std::string>(tokenizer->spec().tokens) : std::span<const std::string>();
    const auto written = write_datastore(files_.datastore, model_->info().vocab, vocabulary_hash(vocabulary), text);
    EXPECT_TRUE(written.ok());
    for (const int threads : {1, 2}) threads_.push_back(model_->parts().threads->get(threads));
    choices_ = member_choices(files_, model_->parts().model->spec().width);
    for (const MemberChoice& one : choices_) {
      const std::string refused = run({&one}, true);
      if (refused.empty() || refused.find(" does not go with ") != std::string::npos)
        usable_.push_back(&one);
      else
        left_out_ += fmt::format("  {} {}: {}\n", one.family, one.text, refused);
    }
  }
  ~Combinations() {
    std::error_code ignored;
    for (const std::string& file : {files_.datastore, files_.store}) std::filesystem::remove(file, ignored);
  }

  const ChosenMembers& usable() const { return usable_; }
  const std::string& left_out() const { return left_out_; }

  // The message that refuses these members; "" if they answer. `alone`: a refusal may be of another kind.
  std::string run(const ChosenMembers& members, bool alone = false) {
    const std::string what = names_of(members);
    EngineOptions o = options();
    o.max_streams = 4;
    Request r = make_request(3, 48, 8, model_->info().vocab);
    bool others_show = false;
    for (const MemberChoice* one : members) {
      if (one->engine) one->engine(o);
      if (one->request) one->request(r);
      others_show |= one->other_streams_show;
    }
    const auto error_of = [&](const Error& error) {
      EXPECT_TRUE(alone || is_of_a_rule(error)) << what << ": " << error.message;
      return error.message;
    };
    PairedAnswers before;
    for (const bool beside : {false, true}) {
      std::filesystem::remove(files_.store);
      o.threads = beside ? 2 : 1;
      o.batch_tokens = beside ? 24 : 64;
      auto core = EngineCore::create(model_, o);
      if (!core.ok()) return error_of(core.error());
      if (beside) {
        EXPECT_TRUE((*core)->add(7, make_request(8, 20, 12, model_->info().vocab)).ok()) << what;
      }
      const auto added = (*core)->add(1, r);
      if (!added.ok()) return error_of(added.error());
      const PairedAnswers answers = answers_of_first(**core, what);
      EXPECT_FALSE(answers.empty()) << what;
      if (beside && !others_show) {
        EXPECT_EQ(answers, before) << what;
      }
      before = answers;
      if (alone) break;
    }
    return "";
  }

 private:
  std::shared_ptr<const LanguageModel> model_;
  std::vector<std::shared_ptr<ThreadPool>> threads_;  // kept, so that not every engine starts its own
  ChoiceFiles files_;
  std::vector<MemberChoice> choices_;
  ChosenMembers usable_;
  std::string left_out_;
};

// A model, and one of the parts into which its combinations are divided.
struct CombinationShard {
  std::string model;
  int64_t shard = 0, shards = kPairShards;
  bool is_sample() const { return shards == kSampleShards; }
};

// MILLRACE_PAIR_SHARE: a number that moves each sample to another shard, so that over 64 numbers all pairs run.
int64_t sample_share() {
  const char* share = std::getenv("MILLRACE_PAIR_SHARE");
  return share ? std::max<int64_t>(0, std::strtoll(share, nullptr, 10)) : 0;
}

class Compatibility : public ::testing::TestWithParam<CombinationShard> {
 protected:
  static void TearDownTestSuite() { models().clear(); }
  static std::map<std::string, std::unique_ptr<Combinations>>& models() {
    static std::map<std::string, std::unique_ptr<Combinations>> all;
    return all;
  }
  Combinations& model() {
    auto& one = models()[GetParam().model];
    if (!one) one = std::make_unique<Combinations>(GetParam().model);
    return *one;
  }
  int64_t shard() const {
    const CombinationShard& one = GetParam();
    return one.is_sample() ? (one.shard + sample_share()) % kSampleShards : one.shard;
  }
  void run(const ChosenMembers& members) { model().run(members).empty() ? ++accepted_ : ++refused_; }

  int64_t accepted_ = 0, refused_ = 0;
};

// label(once): the triples run the same code in other combinations
TEST_P(Compatibility, AllPairs) {
  SCOPED_TRACE(fmt::format("shard {} of {}, MILLRACE_PAIR_SHARE={}", shard(), GetParam().shards, sample_share()));
  const ChosenMembers& all = model().usable();
  EXPECT_GT(all.size(), 100u) << model().left_out();
  int64_t index = 0;
  for (size_t i = 0; i < all.size(); ++i)
    for (size_t k = i + 1; k < all.size(); ++k)
      if (all[i]->family != all[k]->family && index++ % GetParam().shards == shard()) run({all[i], all[k]});
  const int64_t ran = accepted_ + refused_;
  EXPECT_GT(ran, 40);
  EXPECT_GT(accepted_, ran / 12);
  EXPECT_GT(refused_, ran / 100);
}

TEST_P(Compatibility, RandomTriples) {
  SCOPED_TRACE(fmt::format("shard {} of {}, MILLRACE_PAIR_SHARE={}", shard(), GetParam().shards, sample_share()));
  const auto seed = static_cast<uint64_t>(shard());
  const ChosenMembers& all = model().usable();
  const auto count = static_cast<uint64_t>(500 / GetParam().shards + 1);
  // A sample has few triples, which rules may all refuse: it goes on until one answers.
  for (uint64_t i = 0; i < count || (accepted_ == 0 && i < 50 * count); ++i) {
    ChosenMembers members;
    for (uint64_t k = 0; members.size() < 3; ++k) {
      const auto at = static_cast<size_t>(philox_uniform(seed, i, k) * static_cast<double>(all.size()));
      const auto same = [&](const MemberChoice* one) { return one->family == all[at]->family; };
      if (std::ranges::none_of(members, same)) members.push_back(all[at]);
    }
    run(members);
  }
  EXPECT_GT(accepted_, 0);
}

// All shards of models with each kind of mixer, and a sample of others: attention next to a gated delta net; heads with
// sinks next to windows and experts; layers that read the keys of others and have their own inputs; several residual
// streams.
std::vector<CombinationShard> combination_shards() {
  std::vector<CombinationShard> out;
  for (const char* model : {"draft_heads/target", "mamba", "falcon_h1"})
    for (int64_t shard = 0; shard < kPairShards; ++shard) out.push_back({model, shard});
  for (const char* model : {"qwen35", "gpt_oss", "gemma4_e", "gemma3n"})
    out.push_back({model, 5 + kSampleStep * (std::ssize(out) % 4), kSampleShards});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Models, Compatibility, ::testing::ValuesIn(combination_shards()), [](const auto& one) {
  const std::string& name = one.param.model;
  const std::string shard = one.param.is_sample() ? "sample" : fmt::format("{}", one.param.shard);
  return fmt::format("{}_{}", name.substr(name.find('/') + 1), shard);
});

}  // namespace
}  // namespace millrace
