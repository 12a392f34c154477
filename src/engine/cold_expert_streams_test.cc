// Streams of an engine whose experts have two precisions (weights=experts with the option cold): the bits that each has
// alone, for any threads, chunks, batch mates and cache; the bits of weights=resident where nothing is cold; and the
// memory of both parts in the account.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "copied_models.h"
#include "models/weight_source.h"
#include "offload/expert_profile.h"
#include "properties/stream_bits.h"
#include "run/executors/cpu_executor.h"

namespace millrace {
namespace {

constexpr const char* kMixture = "models/millrace-lab-experts-2m.gguf";

class ColdExpertStreams : public CopiedModels {
 protected:
  static constexpr int64_t kStreams = 5;

  void SetUp() override {
    CopiedModels::SetUp();
    path_ = copy_of(kMixture);
    auto plain = load("resident");
    ASSERT_TRUE(plain);
    vocab_ = plain->info().vocab;
    resident_ = run(plain, testing::options(1, 512));
    ExpertProfile profile{.tokens = 1};
    for (const LayerSpec& layer : plain->parts().model->spec().layers) {
      std::vector<int64_t>& uses = profile.uses.emplace_back();
      for (int64_t e = 0; layer.moe && e < layer.experts.experts; ++e)
        uses.push_back((e * 5 + std::ssize(profile.uses)) % 11);
    }
    profile_ = (folder_ / "uses.experts").string();
    ASSERT_TRUE(write_expert_profile(profile_, profile).ok());
  }
  std::shared_ptr<const LanguageModel> load(const std::string& weights) {
    auto model = LanguageModel::load(path_, {.threads = 2, .context = 128, .weights = weights});
    EXPECT_TRUE(model.ok()) << weights << ": " << (model.ok() ? "" : model.error().message);
    return model.ok() ? *model : nullptr;
  }
  Request request(RequestId id) const {
    const auto number = static_cast<int64_t>(id);
    return testing::make_request(number, 9 + 17 * number % 60, 16, vocab_);
  }
  // All streams together.
  std::map<RequestId, testing::Shown> run(const std::shared_ptr<const LanguageModel>& model, const EngineOptions& o) {
    auto core = testing::make_core(model, o);
    for (RequestId id = 1; id <= kStreams; ++id) EXPECT_TRUE(core->add(id, request(id)).ok());
    return testing::run_all(*core, vocab_);
  }
  std::map<RequestId, testing::Shown> each_alone(const std::shared_ptr<const LanguageModel>& model) {
    std::map<RequestId, testing::Shown> out;
    for (RequestId id = 1; id <= kStreams; ++id) {
      auto core = testing::make_core(model, testing::options(1, 512));
      EXPECT_TRUE(core->add(id, request(id)).ok());
      out.merge(testing::run_all(*core, vocab_));
    }
    return out;
  }
  static void expect_same(const std::map<RequestId, testing::Shown>& actual,
                          const std::map<RequestId, testing::Shown>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [id, shown] : expected) EXPECT_TRUE(actual.at(id).same_bits(shown)) << "request " << id;
  }
  static WeightFigures figures(const LanguageModel& model) { return *model.parts().model->source()->figures(); }
  static int64_t charged(const LanguageModel& model) {
    for (const MemoryAccount& one : model.parts().accounts->list())
      if (one.name == "weights") return one.bytes;
    return 0;
  }

  std::string path_, profile_;
  int64_t vocab_ = 0;
  std::map<RequestId, testing::Shown> resident_;
};

TEST_F(ColdExpertStreams, HaveTheBitsThatTheyHaveAlone) {
  const std::string cold = fmt::format("experts:cold=q4_0,hot=0.5,profile={}", profile_);
  const auto all = load(cold);
  ASSERT_TRUE(all);
  const auto expected = each_alone(all);
  EXPECT_FALSE(expected.at(1).same_bits(resident_.at(1)));
  const int64_t memory = figures(*all).kept_bytes + figures(*all).cache_bytes / 3;
  for (const char* cache : {"keep=weighed,guess=router", "keep=lru,guess=pairs", "keep=arc,guess=none"}) {
    const auto cached = load(fmt::format("{},{},memory={}", cold, cache, memory));
    ASSERT_TRUE(cached);
    for (const auto& [threads, batch] : {std::pair(1, 512), {2, 11}, {3, 64}}) {
      SCOPED_TRACE(fmt::format("{}, {} threads, batch {}", cache, threads, batch));
      expect_same(run(cached, testing::options(threads, batch)), expected);
    }
    EXPECT_GT(figures(*cached).misses, 0);
    EXPECT_GT(figures(*cached).cold_experts, 0);
    EXPECT_LT(figures(*cached).cold_experts, figures(*cached).experts);
  }
}

TEST_F(ColdExpertStreams, HaveTheBitsOfResidentWeightsWhereNothingIsCold) {
  for (const char* weights : {"experts:cold=q4_0,hot=1", "experts:cold=q8_0,hot=0", "experts:cold=q8_0,hot=0.5"}) {
    const std::string text = std::string(weights) + ",profile=" + profile_;
    const auto model = load(text);
    ASSERT_TRUE(model);
    expect_same(run(model, testing::options(2, 11)), resident_);
    EXPECT_EQ(figures(*model).cold_experts, 0) << weights;
  }
}

// Keys and values in files belong to the format of cold experts, and to the choice of them.
TEST_F(ColdExpertStreams, KeysBelongToTheChoice) {
  std::map<std::string, uint64_t> hashes;
  for (const char* weights : {"cold=q4_0,hot=0.5", "cold=q5_0,hot=0.5", "cold=q4_0,hot=0.25"}) {
    const auto model = load(fmt::format("experts:{},profile={}", weights, profile_));
    ASSERT_TRUE(model);
    const WeightPolicy& policy = model->parts().model->source()->policy();
    for (const auto& [other, hash] : hashes) EXPECT_NE(policy.lossy_hash, hash) << weights << " " << other;
    hashes[weights] = policy.lossy_hash;
    auto executor = CpuExecutor::create(model, testing::options());
    ASSERT_TRUE(executor.ok());
    const auto identity = (*executor)->home().kv_identity();
    ASSERT_TRUE(identity.ok());
    EXPECT_NE(identity->find(fmt::format("cold experts {:016x}", policy.lossy_hash)), std::string::npos) << *identity;
  }
}

TEST_F(ColdExpertStreams, AccountsHaveTheBytesOfBothParts) {
  const auto exact = load("experts"), half = load("experts:cold=q4_0,hot=0.5,profile=" + profile_);
  ASSERT_TRUE(exact && half);
  EXPECT_LT(figures(*half).cache_bytes, figures(*exact).cache_bytes);
  EXPECT_EQ(charged(*exact) - charged(*half), figures(*exact).cache_bytes - figures(*half).cache_bytes);
  EXPECT_EQ(charged(*half), figures(*half).kept_bytes + figures(*half).cache_bytes);
}

}  // namespace
}  // namespace millrace
