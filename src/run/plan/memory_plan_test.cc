// How many KV blocks fit in a budget: as many as possible and at least the required number; if those do not fit, an
// error with the figures.
#include "run/plan/memory_plan.h"

#include <gtest/gtest.h>

#include <map>

#include "formats/format.h"
#include "run/plan/engine_plan.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 16;

KvLayout layout() { return {find_format("f16"), kBlock, {{2, 64}, {2, 64}}}; }  // 16 KiB a block
constexpr int64_t kBlockBytes = 2 * 2 * 2 * kBlock * 64 * 2;

EnginePlan planned(const EngineOptions& options) {
  auto made = EnginePlan::create(options, make_kernel_table(Isa::ref));
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : EnginePlan();
}

EngineMemory some_memory() {
  EngineMemory memory;
  memory.activations = 1'000'000;
  memory.logits = 200'000;
  memory.requests = 3'000'000;
  return memory;
}

Result<int64_t> plan(const MemoryAccounts& accounts, int64_t wanted, int64_t least,
                     const EngineMemory& memory = some_memory(), const KvPoolOptions& places = {}) {
  return plan_kv_blocks(layout(), places, memory, accounts, wanted, least);
}

// All memory that is allocated along with the blocks.
int64_t taken(const EngineMemory& memory, int64_t blocks, const KvPoolOptions& places = {}) {
  auto accounts = std::make_shared<MemoryAccounts>(0);
  const auto holds = take_engine_memory(memory, layout(), places, blocks, accounts);
  EXPECT_TRUE(holds.ok());
  return accounts->total();
}

TEST(MemoryPlan, WithoutABudgetGrantsTheRequestedBlocks) {
  EXPECT_EQ(layout().block_bytes(), kBlockBytes);
  const MemoryAccounts none;
  for (auto [tokens, blocks] : {std::pair{1, 1}, {16, 1}, {17, 2}, {160, 10}, {161, 11}})
    EXPECT_EQ(*plan(none, tokens, tokens), blocks);
}

TEST(MemoryPlan, BlocksGetTheRemainingBudget) {
  for (int64_t prefix_block : {0, 576, 5000}) {
    for (const KvPoolOptions& places : {KvPoolOptions{}, KvPoolOptions{KvPoolMode::virtual_ranges, 640, 8}}) {
      for (int64_t budget : {10'000'000, 12'345'678, 64'000'000, 1'000'000'000}) {
        EngineMemory memory = some_memory();
        memory.prefix_block = prefix_block;
        MemoryAccounts accounts(budget);
        ASSERT_TRUE(accounts.take("weights", 2'000'000, "").ok());
        const auto blocks = plan(accounts, 0, 64, memory, places);
        ASSERT_TRUE(blocks.ok()) << blocks.error().message;
        EXPECT_LE(taken(memory, *blocks, places), budget - 2'000'000);
        EXPECT_GT(taken(memory, *blocks + 1, places), budget - 2'000'000) << *blocks;
        EXPECT_EQ(*plan(accounts, 10 * kBlock, kBlock, memory, places), 10)
            << "the wanted blocks fit: no more are taken";
        EXPECT_EQ(*plan(accounts, *blocks * kBlock, kBlock, memory, places), *blocks);
        EXPECT_EQ(*plan(accounts, *blocks * kBlock + 1, kBlock, memory, places), *blocks)
            << "the wanted number is reduced, down to the required one";
        EXPECT_EQ(*plan(accounts, 0, *blocks * kBlock, memory, places), *blocks);
        EXPECT_FALSE(plan(accounts, 0, *blocks * kBlock + 1, memory, places).ok());
      }
    }
  }
}

TEST(MemoryPlan, RejectionReportsTheFigures) {
  MemoryAccounts accounts(6'000'000);
  ASSERT_TRUE(accounts.take("weights", 1'500'000, "").ok());
  ASSERT_TRUE(accounts.take("gone", 1, "").ok());
  accounts.give_back("gone", 1);
  EngineMemory memory = some_memory();
  const auto refused = plan(accounts, 0, 1000, memory);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  const std::string& message = refused.error().message;
  for (const char* part : {"1000 tokens", "budget of 6.0 MB", "weights 1.5 MB", "activations 1.0 MB", "logits 200.0 kB",
                           "requests 3.0 MB"})
    EXPECT_NE(message.find(part), std::string::npos) << message << "\ndoes not contain " << part;
  for (const char* part : {"swap", "KV store", "gone"}) EXPECT_EQ(message.find(part), std::string::npos) << message;
  // The budget in the message is the required one: 63 blocks and the memory that comes with them.
  const int64_t need = 1'500'000 + taken(memory, 63);
  EXPECT_NE(message.find("to " + format_bytes(need)), std::string::npos) << message << " not " << format_bytes(need);
  MemoryAccounts enough(need);
  ASSERT_TRUE(enough.take("weights", 1'500'000, "").ok());
  EXPECT_EQ(*plan(enough, 0, 1000, memory), 63);
  memory.swap = 5'000'000, memory.store = 7'000'000;
  const auto more = plan(accounts, 0, 1000, memory);
  ASSERT_FALSE(more.ok());
  EXPECT_NE(more.error().message.find(", swap 5.0 MB"), std::string::npos) << more.error().message;
  EXPECT_NE(more.error().message.find(", KV store 7.0 MB"), std::string::npos) << more.error().message;
}

// Sizes beyond int64 are passed on to the pool, which refuses them.
TEST(MemoryPlan, OverflowingSizesAreNotReduced) {
  const MemoryAccounts none;
  const int64_t most = INT64_MAX / kBlockBytes;
  EXPECT_EQ(*plan(none, (most + 1) * kBlock, 1), most + 1);
  const auto cut = plan(none, most * kBlock, 1);
  ASSERT_TRUE(cut.ok());
  EXPECT_LT(*cut, most);
  EXPECT_GE(*cut, 1);
  EXPECT_FALSE(plan(none, most * kBlock, most * kBlock).ok()) << "the required blocks do not fit either";
}

TEST(MemoryPlan, ChargesEveryPartToItsAccount) {
  EngineMemory memory{.activations = 1,
                      .logits = 20,
                      .requests = 300,
                      .swap = 4000,
                      .constraints = 50'000,
                      .store = 600'000,
                      .prefix_block = 7};
  EXPECT_EQ(memory.fixed(), 654'321);
  auto accounts = std::make_shared<MemoryAccounts>(int64_t{1} << 40);
  const auto holds = take_engine_memory(memory, layout(), {}, 10, accounts);
  ASSERT_TRUE(holds.ok());
  std::map<std::string, int64_t> taken_by;
  for (const MemoryUse& use : memory_uses(*accounts)) taken_by[use.name] = use.bytes;
  EXPECT_EQ(taken_by["KV"], 10 * kBlockBytes);
  EXPECT_EQ(taken_by["KV tables"], 10 * (12 + 16));
  EXPECT_EQ(taken_by["activations"], 1);
  EXPECT_EQ(taken_by["logits"], 20);
  EXPECT_EQ(taken_by["requests"], 300);
  EXPECT_EQ(taken_by["swap"], 4000);
  EXPECT_EQ(taken_by["constraints"], 50'000);
  EXPECT_EQ(taken_by["KV store"], 600'000);
  EXPECT_EQ(taken_by["prefix index"], 70);
  const auto none = take_engine_memory(memory, layout(), {}, 10, std::make_shared<MemoryAccounts>(1000));
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::resource);
}

TEST(MemoryPlan, RequestMemory) {
  EXPECT_EQ(request_memory(0), 16384);
  EXPECT_EQ(request_memory(100), 16384 + 100 * 16 + 100 * 256);
  EXPECT_EQ(request_memory(4096), 16384 + 4096 * 16 + 4096 * 256);
  EXPECT_EQ(request_memory(10'000), 16384 + 10'000 * 16 + 4096 * 256) << "the number of unread events is bounded";
  Request request;
  EXPECT_EQ(request_logprob_memory(request, 100, false), 0);
  request.sampling.logprobs = 0;
  EXPECT_EQ(request_logprob_memory(request, 100, false), 100 * 32);
  request.sampling.logprobs = 20;
  EXPECT_EQ(request_logprob_memory(request, 100, false), 100 * (32 + 20 * 8));
  EXPECT_EQ(request_logprob_memory(request, 10'000, false), 4096 * (32 + 20 * 8));
  EXPECT_EQ(request_logprob_memory(request, 10'000, true), 0);
  request.best_of = 2;
  EXPECT_EQ(request_logprob_memory(request, 10'000, true), 10'000 * (32 + 20 * 8));
  EXPECT_EQ(request_logprob_memory(request, 10'000, false), 10'000 * (32 + 20 * 8))
      << "held until the best answer is known";
  request.n = 2;
  EXPECT_EQ(request_logprob_memory(request, 10'000, false), 4096 * (32 + 20 * 8));
}

TEST(MemoryPlan, EvictorMemory) {
  ArchSpec spec;
  spec.vocab = 1000, spec.width = 128, spec.heads = 2, spec.kv_heads = 2, spec.head_dim = 64, spec.hidden = 256;
  spec.layers.resize(2);
  EngineOptions options;
  options.max_streams = 10;
  options.resident_streams = 30;
  const ForwardLimits limits{.tokens = 64, .outputs = 8, .context = 10'000};
  const auto evictor = [&](const char* text, const char* drafter) {
    options.evictor = text;
    options.drafter = drafter;
    const auto plan = plan_engine_memory(spec, planned(options), limits, 4, layout(), nullptr, 0);
    EXPECT_TRUE(plan.ok());
    EXPECT_EQ(plan->fixed() - plan->evictor,
              plan->activations + plan->logits + plan->requests + plan->swap + plan->constraints + plan->store);
    return plan.ok() ? plan->evictor : -1;
  };
  EXPECT_EQ(evictor("", ""), 0);
  EXPECT_EQ(evictor("none", "ngram"), 0);
  EXPECT_EQ(evictor("streamingllm:window=20,sinks=4,slack=8,prompt=evicted", ""), 30 * 32 * 12);
  EXPECT_EQ(evictor("streamingllm", ""), 30 * 10'000 * 12) << "a prompt may be as long as the context";
  EXPECT_EQ(evictor("h2o:budget=24,slack=8,prompt=evicted,scope=stream", ""), 30 * 32 * 20 + 4 * 32 * (64 + 8));
  EXPECT_EQ(evictor("h2o:budget=24,slack=8,prompt=evicted,scope=stream", "ngram:k=5"),
            30 * 32 * (12 + 8 * 6) + 4 * 32 * (64 + 8 * 6));
  EXPECT_EQ(evictor("key_norm:budget=24,slack=8,prompt=evicted,scope=stream", "ngram:k=5"), 30 * 32 * (12 + 8 * 6))
      << "no attention is computed again";
  const int64_t heads = layout().heads();
  ASSERT_GT(heads, 1);
  EXPECT_EQ(evictor("h2o:budget=24,slack=8,prompt=evicted", ""), 30 * 32 * (16 + 16 * heads) + 4 * 32 * (64 + 8))
      << "each layer chooses";
  EXPECT_EQ(evictor("h2o:budget=24,slack=8,prompt=evicted,scope=head", ""),
            30 * 32 * (16 + 16 * heads) + 4 * 32 * (64 + 8 * 2));
  EXPECT_EQ(evictor("key_norm:budget=24,slack=8,prompt=evicted", ""), 30 * 32 * (16 + 16 * heads));
}

TEST(MemoryPlan, EngineMemory) {
  ArchSpec spec;
  spec.vocab = 1000, spec.width = 128, spec.heads = 2, spec.kv_heads = 2, spec.head_dim = 64, spec.hidden = 256;
  spec.layers.resize(2);
  EngineOptions options;
  options.max_streams = 100;
  options.prefix_cache = false;
  options.constraint_memory = 5;
  const ForwardLimits limits{.tokens = 64, .outputs = 8, .context = 10'000};
  const auto plain = plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0);
  ASSERT_TRUE(plain.ok());
  const ForwardBytes forward = ForwardContext::plan(spec, limits, 1, kBlock);
  EXPECT_EQ(plain->activations, forward.activations);
  EXPECT_EQ(plain->logits, forward.logits + 32 * 1000);
  EXPECT_EQ(plain->requests, 2 * 100 * request_memory(10'000));
  EXPECT_EQ(plain->swap, 0);
  EXPECT_EQ(plain->store, 0);
  EXPECT_EQ(plain->prefix_block, 0);
  options.drafter = "suffix:history=4096";
  const auto drafting = plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0);
  EXPECT_EQ(plain->drafter, 0);
  EXPECT_GT(drafting->drafter, 4096 * 64);
  EXPECT_EQ(drafting->activations, plain->activations);
  options.drafter.clear();
  options.prefix_cache = true;
  options.resident_streams = 150;
  for (auto [tokens, blocks] : {std::pair{1, 1}, {16, 1}, {17, 2}}) {
    options.kv_tier = memory_tier(tokens);
    EXPECT_EQ(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0)->swap, blocks * kBlockBytes);
  }
  EXPECT_EQ(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0)->prefix_block,
            512 + 4 * kBlock);
  EXPECT_EQ(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0)->requests,
            2 * 150 * request_memory(10'000));
  options.max_streams = options.resident_streams = 1;
  EXPECT_EQ(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0)->requests, 8 << 20)
      << "a short context has a queue, too";
  options.kv_store = "ssd:path=/tmp/store,size=64M";
  EXPECT_GT(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0)->store, 0);
  for (const char* wrong : {"order=none", "size=0", "size=-1", "size=2000T", "size=1T,order="}) {
    options.kv_store = std::string("ssd:path=/tmp/store,") + wrong;
    EXPECT_FALSE(plan_engine_memory(spec, planned(options), limits, 1, layout(), nullptr, 0).ok()) << wrong;
  }
}

}  // namespace
}  // namespace millrace
