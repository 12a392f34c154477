// The plan of memory at its limits: a budget that is overdrawn, that holds no block or one, what constraints get by
// default, and every part of the message.
#include <gtest/gtest.h>

#include "formats/format.h"
#include "run/constraint_memory.h"
#include "run/language_model.h"
#include "run/plan/engine_plan.h"
#include "run/plan/memory_plan.h"
#include "test_paths.h"

namespace millrace {
namespace {

constexpr int64_t kEdgeBlock = 4096;              // bytes: 16 tokens, keys and values of 64 f16
constexpr int64_t kWithTables = kEdgeBlock + 28;  // and 12 + 16 bytes of tables

Result<int64_t> blocks_in(int64_t left, int64_t wanted, int64_t least, const EngineMemory& memory = {}) {
  MemoryAccounts accounts(1'000'000'000);
  EXPECT_TRUE(accounts.take("weights", 1'000'000'000 - std::max<int64_t>(0, left), "").ok());
  EngineMemory more = memory;
  more.swap += std::max<int64_t>(0, -left);  // is not taken yet
  return plan_kv_blocks({find_format("f16"), 16, {{1, 64}}}, {}, more, accounts, wanted, least);
}

TEST(MemoryPlanEdges, TheFirstBlocks) {
  struct Case {
    int64_t left, blocks;
  };
  for (const Case& one : {Case{-100 * kEdgeBlock, 0},
                          {-1, 0},
                          {0, 0},
                          {1, 0},
                          {kEdgeBlock, 0},
                          {kWithTables - 1, 0},
                          {kWithTables, 1},
                          {2 * kWithTables - 1, 1},
                          {2 * kWithTables, 2},
                          {3 * kWithTables, 3}}) {
    EXPECT_EQ(*blocks_in(one.left, 0, 0), one.blocks) << one.left;
    EXPECT_EQ(blocks_in(one.left, 0, 16).ok(), one.blocks > 0) << one.left;
    EXPECT_EQ(blocks_in(one.left, 0, 17).ok(), one.blocks > 1) << one.left;
    if (one.blocks > 0) {
      EXPECT_EQ(*blocks_in(one.left, 16 * one.blocks, 16), one.blocks);
      EXPECT_EQ(*blocks_in(one.left, 16 * one.blocks + 1, 16), one.blocks);
      EXPECT_EQ(*blocks_in(one.left, 16 * one.blocks - 16, 0), one.blocks - (one.blocks > 1));  // 0: all that fit
    }
  }
}

TEST(MemoryPlanEdges, EveryPartOfTheMessage) {
  const auto message = [](const EngineMemory& memory) {
    const auto refused = blocks_in(100, 0, 20, memory);
    EXPECT_FALSE(refused.ok());
    return refused.ok() ? std::string() : refused.error().message;
  };
  const std::string advice =
      "; lower the context (-c), the KV tokens (--kv-tokens) or their format (--kv-format q8_0), the streams or the "
      "batch, keep keys on a disk (--kv-tier disk:path=FOLDER), or raise the budget (--memory) to ";
  const std::string begin =
      "memory: a KV cache of 20 tokens does not fit in the budget of 1.00 GB next to weights 1000.0 MB, activations ";
  const auto needs = [](int64_t fixed) { return format_bytes(1'000'000'000 - 100 + fixed + 2 * kWithTables); };
  EXPECT_EQ(message({}), begin + format_bytes(0) + ", logits " + format_bytes(0) + ", requests " + format_bytes(0) +
                             advice + needs(0));
  EngineMemory memory{.activations = 2000, .logits = 3000, .requests = 4'000'000};
  const std::string three = begin + "2.0 kB, logits 3.0 kB, requests 4.0 MB";
  memory.swap = 1;
  EXPECT_EQ(message(memory), three + ", swap " + format_bytes(1) + advice + needs(4'005'001));
  memory.swap = 0, memory.store = 1;
  EXPECT_EQ(message(memory), three + ", KV store " + format_bytes(1) + advice + needs(4'005'001));
  memory.store = 0, memory.constraints = 1;
  EXPECT_EQ(message(memory), three + ", constraints " + format_bytes(1) + advice + needs(4'005'001));
  memory.swap = memory.store = 5000;
  EXPECT_EQ(message(memory),
            three + ", swap 5.0 kB, KV store 5.0 kB, constraints " + format_bytes(1) + advice + needs(4'015'001));
}

TEST(MemoryPlanEdges, TheMessageNamesEveryAccountThatHoldsSomething) {
  MemoryAccounts accounts(1'000'000);
  for (const auto& [name, bytes] : {std::pair{"one", 1}, {"none", 0}, {"rest", 999'999}})
    EXPECT_TRUE(accounts.take(name, bytes, "").ok());
  const auto refused = plan_kv_blocks({find_format("f16"), 16, {{1, 64}}}, {}, {}, accounts, 16, 16);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find(" next to one " + format_bytes(1) + ", rest " + format_bytes(999'999) +
                                         ", activations "),
            std::string::npos)
      << refused.error().message;
}

TEST(MemoryPlanEdges, OfConstraints) {
  const auto model =
      LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf", {.threads = 1});
  ASSERT_TRUE(model.ok());
  const LanguageModel::Parts& parts = (*model)->parts();
  const KvLayout layout{find_format("f16"), 16, parts.model->kv_layers()};
  const auto plan = [&](int64_t constraint_memory, bool tokenizer, int64_t budget) {
    EngineOptions options;
    options.constraint_memory = constraint_memory;
    const auto made = EnginePlan::create(options, **model);
    EXPECT_TRUE(made.ok());
    return plan_engine_memory(parts.model->spec(), *made, {}, 1, layout, tokenizer ? parts.tokenizer.get() : nullptr,
                              budget);
  };
  constexpr int64_t kBudget = int64_t{1} << 30;
  const int64_t least = least_constraint_memory(*parts.tokenizer);
  const int64_t usual = default_constraint_memory(parts.tokenizer.get(), kBudget);
  EXPECT_GT(usual, least);
  EXPECT_EQ(plan(0, true, kBudget)->constraints, usual);
  EXPECT_EQ(plan(0, false, kBudget)->constraints, 0);
  EXPECT_EQ(plan(0, true, 0)->constraints, 0);
  EXPECT_EQ(plan(least, true, kBudget)->constraints, least);
  EXPECT_EQ(plan(1, true, 0)->constraints, 1);         // without a budget nothing is refused,
  EXPECT_EQ(plan(1, false, kBudget)->constraints, 1);  // nor without a vocabulary
  for (int64_t bytes : {int64_t{1}, least - 1}) {
    const auto refused = plan(bytes, true, kBudget);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().kind, ErrorKind::user);
    EXPECT_EQ(refused.error().message, "constraint memory: this vocabulary needs " + format_bytes(least) +
                                           " at least, got " + format_bytes(bytes));
  }
}

}  // namespace
}  // namespace millrace
