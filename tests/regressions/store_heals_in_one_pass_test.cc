// After bits of a prefix store's file had flipped, answers were correct but the store healed only over several passes
// of the same prompts: after the first missing block the others counted as stored although they had not been checked,
// so the recomputed blocks were not stored again. The tests damaged a file and checked the answers, not the file
// afterwards.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "kv/tiers/store_format.h"
#include "properties/costed_executor.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kPrompts = 4, kPromptTokens = 90, kHealBlock = 8;

struct Pass {
  std::vector<std::vector<TokenId>> answers;
  KvStoreStats store;
  int64_t prompt_tokens = 0;  // computed
};

class StoreHealsInOnePass : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), *select_isa());
    ASSERT_TRUE(model_);
    std::string pattern = ::testing::TempDir() + "store_heals_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    path_ = folder_ + "/store";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::unique_ptr<EngineCore> open() {
    EngineOptions o = options(1, 48, kHealBlock);
    o.kv_tokens = 1024;
    o.kv_store = SsdStoreFlags{path_, 4 << 20, GetParam()}.text();
    auto executor = CpuExecutor::create(model_, o);
    EXPECT_TRUE(executor.ok());
    auto core = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{.load = 1e-9}),
                                   o);  // stored blocks are loaded
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    return core.ok() ? std::move(*core) : nullptr;
  }

  Pass ask_all(EngineCore& core) {
    Pass pass;
    for (int64_t i = 0; i < kPrompts; ++i) {
      std::vector<TokenEvent> events;
      EXPECT_TRUE(
          core.add(static_cast<RequestId>(i + 1), make_request(i, kPromptTokens, 4, model_->info().vocab)).ok());
      for (int step = 0; !core.idle() && step < 100'000; ++step) core.step(events);
      pass.answers.emplace_back();
      for (const TokenEvent& event : events) pass.answers.back().push_back(event.token);
    }
    pass.store = core.stats().store;
    pass.prompt_tokens = core.stats().prompt_tokens;
    return pass;
  }
  Pass pass() {
    auto core = open();
    return core ? ask_all(*core) : Pass{};
  }

  // Flips a bit in about every third page of the file, records and blocks.
  void damage(uint64_t seed) {
    const int fd = ::open(path_.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    uint64_t draw = 0;
    int64_t flipped = 0;
    const int64_t size = ::lseek(fd, 0, SEEK_END);
    for (int64_t page = kStorePage; page < size; page += kStorePage) {
      if (philox_uniform(seed, 1, draw++) * 3 >= 1) continue;
      const int64_t at = page + static_cast<int64_t>(philox_uniform(seed, 2, draw++) * 128);
      uint8_t byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
      if (byte == 0) continue;  // possibly an empty page
      byte ^= 1;
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
      ++flipped;
    }
    ::close(fd);
    ASSERT_GT(flipped, 10);
  }

  std::shared_ptr<const LanguageModel> model_;
  std::string folder_, path_;
};

TEST_P(StoreHealsInOnePass, OnePassRepairsAllTheDamage) {
  const Pass first = pass(), stored = pass();
  ASSERT_EQ(stored.store.failed_tokens, 0);
  ASSERT_EQ(stored.store.hit_tokens, kPrompts * (kPromptTokens / kHealBlock) * kHealBlock);
  for (const uint64_t seed : {1, 2, 3, 4}) {
    damage(seed);
    if (HasFatalFailure()) return;
    const Pass damaged = pass();
    EXPECT_EQ(damaged.answers, first.answers);
    EXPECT_LT(damaged.store.hit_tokens, stored.store.hit_tokens);
    const Pass healed = pass();
    EXPECT_EQ(healed.answers, first.answers);
    EXPECT_EQ(healed.store.corrupt_blocks, 0) << "seed " << seed;
    EXPECT_EQ(healed.store.failed_tokens, 0) << "seed " << seed;
    EXPECT_EQ(healed.store.hit_tokens, stored.store.hit_tokens) << "seed " << seed;
    EXPECT_EQ(healed.prompt_tokens, stored.prompt_tokens) << "seed " << seed;
  }
}

// Recomputed blocks are stored again at once, not when they are evicted from memory: the store has healed even if the
// process is killed after the pass.
TEST_P(StoreHealsInOnePass, HealsBeforeTheEngineEnds) {
  const Pass first = pass(), stored = pass();
  damage(5);
  if (HasFatalFailure()) return;
  auto core = open();
  ASSERT_TRUE(core);
  EXPECT_EQ(ask_all(*core).answers, first.answers);
  // The writer lags behind: it finishes, and the steps of further prompts see that.
  const int64_t all = kPrompts * (kPromptTokens / kHealBlock);
  for (int i = 0; i < 600 && core->stats().store.blocks < all; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::vector<TokenEvent> events;
    ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), make_request(50 + i, 9, 2, model_->info().vocab)).ok());
    while (!core->idle()) core->step(events);
  }
  EXPECT_EQ(core->stats().store.blocks, all);
  std::filesystem::copy_file(path_, folder_ + "/killed");
  core.reset();
  std::filesystem::rename(folder_ + "/killed", path_);
  const Pass healed = pass();
  EXPECT_EQ(healed.answers, first.answers);
  EXPECT_EQ(healed.store.failed_tokens, 0);
  EXPECT_EQ(healed.store.hit_tokens, stored.store.hit_tokens);
}

INSTANTIATE_TEST_SUITE_P(Orders, StoreHealsInOnePass, ::testing::Values("arrival", "importance"));

}  // namespace
}  // namespace millrace
