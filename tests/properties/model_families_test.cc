// Families whose layers have more than keys of their own and one residual stream (Gemma 4, Gemma 3n) or sinks
// (gpt-oss): LoRA adapters by request, KV formats, tiers, stores and prefix files give the bits of a stream alone, or
// are refused by name.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>

#include "properties/preempted_run.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;
namespace fs = std::filesystem;

constexpr int64_t kFamilyContext = 500;  // longer than a partition of keys, so that windows have blocks of their own

class ModelFamilies : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    WithIsa scope(*select_isa());
    auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = kFamilyContext});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *loaded;
    vocab_ = model_->info().vocab;
    folder_ = fs::path(::testing::TempDir()) / fmt::format("model_families_{}", getpid());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  static EngineOptions wide(int threads = 1, int64_t batch_tokens = 64, int64_t block_tokens = 16) {
    EngineOptions o = options(threads, batch_tokens, block_tokens);
    o.context = kFamilyContext;
    o.kv_tokens = 8192;
    return o;
  }
  static EngineOptions with_adapters(EngineOptions o) {
    const std::string folder = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/lora/" + GetParam();
    o.adapters = {"one=" + folder, "two=" + folder + "/adapter.gguf"};
    return o;
  }
  // Too little memory for three streams at once, so that some are preempted.
  static EngineOptions narrow(EngineOptions o) {
    o.kv_tokens = 304;
    o.policy = "fcfs:reserve=prompt";
    return o;
  }
  Request asking(int64_t seed, int64_t prompt, std::vector<AdapterUse> adapters = {}) const {
    Request request = make_request(seed, prompt, 24, vocab_);
    request.adapters = std::move(adapters);
    return request;
  }
  Shown alone(const EngineOptions& o, const Request& request) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, request).ok());
    return run_all(*core, vocab_)[1];
  }
  // Expects of each stream of a batch the bits of the stream alone. A preempted stream's rows are computed again, so
  // that only its tokens are compared.
  void expect_as_alone(const EngineOptions& o, const std::vector<Request>& requests, const std::vector<Shown>& expected,
                       const std::string& what) {
    auto core = make_core(model_, o);
    for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(core->add(i + 1, requests[i]).ok()) << what;
    auto shown = run_all(*core, vocab_);
    preemptions_ += core->stats().preemptions;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(shown[i + 1].tokens, expected[i].tokens) << what << ", request " << i;
      if (core->stats().preemptions == 0) {
        EXPECT_TRUE(shown[i + 1].same_bits(expected[i])) << what << ", request " << i;
      }
    }
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0, preemptions_ = 0;
  fs::path folder_;
};

TEST_P(ModelFamilies, AdaptersOfRequestsKeepTheBits) {
  const std::vector<Request> requests = {asking(1, 90),
                                         asking(1, 90, {{"one"}}),
                                         asking(1, 90, {{"one", 0.5}}),
                                         asking(2, 61, {{"two", -1}}),
                                         asking(3, 120, {{"one", 0.25}, {"two", 0.5}}),
                                         asking(4, 7, {{"one"}})};
  std::vector<Shown> expected;
  for (const Request& request : requests) expected.push_back(alone(with_adapters(wide()), request));
  EXPECT_FALSE(expected[0].same_bits(expected[1]));
  EXPECT_FALSE(expected[1].same_bits(expected[2]));
  EXPECT_TRUE(expected[0].same_bits(alone(wide(), requests[0])));  // adapters that it does not name change nothing
  expect_as_alone(with_adapters(wide(2, 512)), requests, expected, "one batch");
  expect_as_alone(with_adapters(wide(2, 11, 4)), requests, expected, "small steps");
  expect_as_alone(narrow(with_adapters(wide(1, 40, 8))), requests, expected, "little memory");
  EXPECT_GT(preemptions_, 0);
}

TEST_P(ModelFamilies, PrefixesOfAdaptersAreTheirOwn) {
  auto core = make_core(model_, with_adapters(wide(1, 512, 4)));
  RequestId next = 1;
  for (const auto& [adapters, cached] : std::vector<std::pair<std::vector<AdapterUse>, int64_t>>{
           {{}, 0}, {{{"one"}}, 0}, {{}, 88}, {{{"one"}}, 88}, {{{"one", 0.5}}, 0}}) {
    const Request request = asking(1, 90, adapters);
    ASSERT_TRUE(core->add(next, request).ok());
    const Shown shown = run_all(*core, vocab_)[next];
    EXPECT_EQ(shown.cached, cached) << next;
    EXPECT_TRUE(shown.same_bits(alone(with_adapters(wide()), request))) << next;
    ++next;
  }
}

TEST_P(ModelFamilies, FormatsOfRowsKeepTheBits) {
  const std::vector<Request> requests = {asking(1, 120), asking(2, 90), asking(3, 60)};
  const Shown plain = alone(wide(), requests[0]);
  int64_t ran = 0;
  for (const char* format :
       {"f32", "bf16", "f8_e4m3", "q8_0", "f32:values=f16", "f16:window=f32", "progressive:format=f8_e4m3,below=0.2"}) {
    EngineOptions o = wide();
    o.kv_format = format;
    const auto core = EngineCore::create(model_, o);
    if (!core.ok()) {  // heads of 16 dims are no whole blocks
      EXPECT_EQ(std::string(format), "q8_0") << core.error().message;
      EXPECT_NE(core.error().message.find(format), std::string::npos) << core.error().message;
      continue;
    }
    ++ran;
    std::vector<Shown> expected;
    for (const Request& request : requests) expected.push_back(alone(o, request));
    EXPECT_FALSE(expected[0].same_bits(plain)) << format;
    EngineOptions small = wide(2, 13);
    small.kv_format = format;
    expect_as_alone(small, requests, expected, format);
    for (const int64_t swap : {0, 2000}) {
      EngineOptions little = narrow(small);
      little.kv_tier = memory_tier(swap);
      expect_as_alone(little, requests, expected, fmt::format("{}, swap {}", format, swap));
    }
  }
  EXPECT_EQ(ran, 6);
  EXPECT_GT(preemptions_, 0);
}

TEST_P(ModelFamilies, PreemptedAtAnyStageTheyContinue) {
  for (const auto& adapters : {std::vector<AdapterUse>(), std::vector<AdapterUse>{{"one"}}}) {
    const Request request = asking(1, 150, adapters);
    const Shown expected = alone(with_adapters(wide()), request);
    for (const bool swap : {false, true}) {
      EngineOptions o = with_adapters(wide(1, 48));
      o.kv_tier = memory_tier(swap ? 2000 : 0);
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, request).ok());
      EXPECT_EQ(tokens_when_preempted(*core, 3, swap), expected.tokens) << swap;
      EXPECT_EQ(core->stats().swapped_in_tokens > 0, swap);
    }
  }
}

TEST_P(ModelFamilies, StoredPrefixesKeepTheBits) {
  for (const char* format : {"f16", "bf16"}) {
    for (const auto& adapters : {std::vector<AdapterUse>(), std::vector<AdapterUse>{{"two"}}}) {
      EngineOptions o = with_adapters(wide(2, 64, 8));
      o.kv_format = format;
      const Request request = asking(1, 201, adapters);
      const Shown expected = alone(o, request);
      const std::string file = (folder_ / "store").string();
      fs::remove(file);
      o.kv_store = "ssd:size=4M,path=" + file;
      for (const bool second : {false, true}) {  // another engine finds what the first one stored
        auto core = make_core(model_, o);
        ASSERT_TRUE(core->add(7, asking(8, 30)).ok());
        ASSERT_TRUE(core->add(1, request).ok());
        auto shown = run_all(*core, vocab_);
        EXPECT_EQ(shown[1].tokens, expected.tokens) << format;
        EXPECT_TRUE(shown[1].same_bits(expected)) << format;
        EXPECT_EQ(core->stats().store.hit_tokens > 0, second) << format;
      }
    }
  }
}

TEST_P(ModelFamilies, SavedPrefixesKeepTheBitsOrAreRefused) {
  const std::string path = (folder_ / "prefix").string();
  EngineOptions o = with_adapters(wide(2, 16, 4));
  const Request request = asking(1, 121, {{"one"}});
  {
    auto core = make_core(model_, o);
    ASSERT_TRUE(core->add(1, request).ok());
    (void)run_all(*core, vocab_);
    const auto refused = core->save_prefix(request, path);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
    EXPECT_NE(refused.error().message.find("--keep-window-keys"), std::string::npos) << refused.error().message;
  }
  o.keep_window_keys = true;
  const Shown expected = alone(o, request);
  auto saving = make_core(model_, o);
  ASSERT_TRUE(saving->add(1, request).ok());
  (void)run_all(*saving, vocab_);
  const auto saved = saving->save_prefix(request, path);
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(*saved, 120);
  auto loading = make_core(model_, o);
  const auto loaded = loading->load_prefix(request, path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(*loaded, 120);
  ASSERT_TRUE(loading->add(1, request).ok());
  ASSERT_TRUE(loading->add(2, asking(9, 50)).ok());
  auto shown = run_all(*loading, vocab_);
  EXPECT_TRUE(shown[1].same_bits(expected));
  EXPECT_EQ(shown[1].cached, 120);
  const auto other = loading->load_prefix(asking(1, 121), path);  // without the adapter
  EXPECT_FALSE(other.ok());
}

INSTANTIATE_TEST_SUITE_P(Models, ModelFamilies, ::testing::Values("gemma4", "gemma4_e", "gemma3n", "gpt_oss"),
                         [](const auto& one) { return std::string(one.param); });

}  // namespace
}  // namespace millrace
