// The simulated executor, its tier and its prefix store, with exact times: a step takes 1 s plus 0.1 s per token, a
// swap 0.01 s per token, a load 0.02 s per token.
#include "run/executors/simulated_executor.h"

#include <gtest/gtest.h>

#include "run/compatibility/checked_request_test.h"
#include "run/executors/simulated_store.h"
#include "run/executors/stepped_stream_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

class PlainCost final : public CostModel {
 public:
  double step_seconds(const StepShape& s) const override {
    return s.tokens == 0 ? 0 : 1 + 0.1 * static_cast<double>(s.tokens) + 10 * static_cast<double>(s.outputs);
  }
  double swap_seconds(int64_t tokens) const override { return 0.01 * static_cast<double>(tokens); }
  double load_seconds(int64_t tokens) const override { return 0.02 * static_cast<double>(tokens); }
};

EngineOptions machine() {
  EngineOptions o;
  o.context = 100;
  o.block_tokens = 16;
  o.batch_tokens = 40;
  o.max_streams = 8;
  return o;
}

class SimulatedExecutorTest : public ::testing::Test {
 protected:
  std::unique_ptr<SimulatedExecutor> make(const EngineOptions& o) {
    auto made = SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(*made) : nullptr;
  }
  ManualClock clock_;
};

TEST_F(SimulatedExecutorTest, SizesComeFromTheOptions) {
  EngineOptions o = machine();
  auto executor = make(o);
  EXPECT_EQ(executor->limits().context, 100);
  EXPECT_EQ(executor->limits().tokens, 40);
  EXPECT_EQ(executor->limits().outputs, 8);
  EXPECT_EQ(executor->limits().scratch_bytes, 0);
  EXPECT_EQ(executor->home().kv().total_blocks(), 7);  // one context
  o.max_streams = 50;
  o.kv_tokens = 33;
  executor = make(o);
  EXPECT_EQ(executor->limits().tokens, 50);
  EXPECT_EQ(executor->home().kv().total_blocks(), 3);
  o.kv_tokens = 32;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 2);
  o.context = 1;
  EXPECT_EQ(make(o)->limits().context, 1);
  o.context = 0;
  const auto refused = SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::user);
  EXPECT_EQ(refused.error().message, "context: a simulation must be given one");
}

// An evictor's memory and time are simulated, but for gates.
TEST_F(SimulatedExecutorTest, EvictorsStoreAndReadFewerTokens) {
  EngineOptions o = machine();
  o.evictor = "streamingllm:sinks=1,window=20,slack=11,prompt=evicted";
  auto executor = make(o);
  EXPECT_EQ(executor->home().kv().total_blocks(), 2);  // 32 tokens
  o.evictor = "streamingllm:sinks=1,window=20,slack=11";
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 7) << "the prompt may be as long as the context";
  EXPECT_EQ(testing::evictor_refusal(*executor, o.evictor), "");
  EXPECT_EQ(testing::evictor_refusal(*executor, "h2o"), "");
  EXPECT_EQ(testing::evictor_refusal(*executor, "seqboat"),
            "evictor seqboat does not go with a simulation: it computes no layers whose gates could choose; choose "
            "another evictor");
  EXPECT_NE(testing::evictor_refusal(*executor, "pyramidkv"), "") << "its layers share blocks";
  o.evictor = "lru";
  EXPECT_FALSE(SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o).ok());
}

// Every layer has blocks of its own, as many as its budget needs.
TEST_F(SimulatedExecutorTest, BudgetsDifferByLayer) {
  EngineOptions o = machine();
  o.evictor = "pyramidkv:budget=32,window=2,beta=2,slack=16,prompt=evicted";  // keeps 47, 32 and 17 tokens
  auto executor = SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o, {.layers = 3});
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  EXPECT_EQ((*executor)->home().kv().layout().tables(), 3);
  EXPECT_EQ((*executor)->home().kv().total_blocks(), 12);  // 4, 3 and 3, up to as many in each layer
  EXPECT_EQ(testing::evictor_refusal(**executor, o.evictor), "");
  o.kv_tokens = 160;
  EXPECT_EQ(
      (*SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o, {.layers = 3}))->home().kv().total_blocks(),
      30);
  o.kv_tier = memory_tier(100);
  EXPECT_FALSE(SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o, {.layers = 3}).ok());
}

// Sizes and the cost model are for F16.
TEST_F(SimulatedExecutorTest, SmallerFormatsHoldMoreAndMoveLess) {
  EngineOptions o = machine();
  o.kv_tokens = 160;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 10);
  EXPECT_DOUBLE_EQ(make(o)->cost()->swap_seconds(1600), 16);
  o.kv_format = "q8_0";  // 8.5 bits a value
  const auto executor = make(o);
  EXPECT_EQ(executor->home().kv().total_blocks(), 19);  // 301 tokens
  EXPECT_DOUBLE_EQ(executor->cost()->swap_seconds(1600), 8.5);
  EXPECT_DOUBLE_EQ(executor->cost()->load_seconds(1600), 17);
  EXPECT_EQ((*executor->home().make_tier(160))->free_tokens(), 301);
  o.kv_format = "kivi:bits=2";  // 3 bits a value, in blocks of 32 tokens, and a tail of 64 for each stream
  o.max_streams = 2;
  o.kv_tokens = 128;
  EXPECT_EQ(
      SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o).error().message,
      "KV cache: 128 tokens of F16 have no room next to the tails of KV format kivi:bits=2,group=32,residual=0, 64 "
      "tokens for each of 2 streams; enlarge it or let fewer streams run (--max-streams)");
  o.kv_tokens = 160 + 2 * 64;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 27);  // 853 tokens
  o.resident_streams = 4;
  o.kv_tokens = 160 + 4 * 64;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 27);
  o.kv_tier = memory_tier(100);  // the tails of streams there stay
  o.kv_tokens = 160 + 8 * 64;
  EXPECT_EQ(make(o)->home().kv().total_blocks(), 27);
  EXPECT_TRUE(make(o)->shares_prefixes());
  o.kv_tokens = 160 + 8 * 96;
  o.kv_format = "kivi:bits=2,residual=1";
  EXPECT_FALSE(make(o)->shares_prefixes());
  o.kv_format = "q9";
  EXPECT_EQ(SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o).error().message,
            "KV format 'q9' is unknown");
}

// A decode reads the keys that its pattern leaves.
TEST_F(SimulatedExecutorTest, PatternsReadFewerKeys) {
  class KeyCost final : public CostModel {
   public:
    double step_seconds(const StepShape& s) const override { return static_cast<double>(s.keys); }
    double swap_seconds(int64_t) const override { return 0; }
  };
  EngineOptions o = machine();
  o.context = 1024;
  testing::SteppedStream stream;
  stream.sequence.tokens.resize(641);
  const auto seconds = [&] {
    ManualClock clock;
    auto executor = SimulatedExecutor::create(std::make_unique<KeyCost>(), clock, o);
    EXPECT_TRUE(executor.ok()) << (executor.ok() ? "" : executor.error().message);
    testing::run_chunks(**executor, {{&stream, {1, 640, 1, true}}});
    return (clock.now_ns() - 1) / 1'000'000'000;
  };
  EXPECT_EQ(seconds(), 641);
  o.kernels = {"attention=longformer:window=2,global=1"};
  EXPECT_EQ(seconds(), 64 + 64 + 1);
  // Chosen: the first block, three others, the newest and the query's own key; and the summaries of ten blocks, of 128
  // floats each, in keys of 128 and values of 128 numbers of 16 bits.
  o.kernels = {"attention=minference:block=64,top=3,sinks=1,window=2"};
  EXPECT_EQ(seconds(), 5 * 64 + 1 + 10);
  o.kernels = {"attention=quest:block=64,top=3,sinks=1,window=2,first=0"};  // two numbers for each of a key
  EXPECT_EQ(seconds(), 5 * 64 + 1 + 2 * 10);
  o.kernels = {"attention=quest:block=64,top=100,first=0"};
  EXPECT_EQ(seconds(), 641 + 2 * 10);
  o.kernels = {"attention=diffuser:block=64,window=2,global=1,random=0,hops=3,alpha=0.5"};
  EXPECT_EQ(seconds(), 3 * (64 + 64 + 1));
  o.evictor = "window:budget=32";  // a stream of its own forgets nothing
  EXPECT_EQ(seconds(), 3 * (64 + 64 + 1));
  o.evictor = "pyramidkv";
  EXPECT_EQ(SimulatedExecutor::create(std::make_unique<KeyCost>(), clock_, o).error().kind, ErrorKind::unsupported);
}

// What a pattern stores beside the keys takes room in the cache.
TEST_F(SimulatedExecutorTest, PatternsThatStoreRowsHaveRoomForFewerTokens) {
  EngineOptions o = machine();
  o.context = 1024;
  o.kv_tokens = 4096;
  const int64_t plain = make(o)->home().kv().total_blocks();
  o.kernels = {"attention=diffuser:block=64,hops=3,alpha=0.5"};  // values twice more
  EXPECT_EQ(make(o)->home().kv().total_blocks(), plain / 2);
}

TEST_F(SimulatedExecutorTest, RejectsUnsupportedFeatures) {
  auto executor = make(machine());
  const auto message = [&](const Request& request) {
    const auto checked = testing::checked_request(*executor, request);
    return checked.ok() ? std::string() : checked.error().message;
  };
  Request request;
  request.prompt = {0, kSimulatedVocab - 1};
  EXPECT_EQ(message(request), "");
  request.prompt[1] = kSimulatedVocab;
  EXPECT_EQ(message(request), "prompt: token 1048576 is outside the vocabulary of 1048576");
  request.prompt[1] = -1;
  EXPECT_EQ(message(request), "prompt: token -1 is outside the vocabulary of 1048576");
  request.prompt = {1};
  request.beams = 2;
  EXPECT_EQ(message(request),
            "beam search does not go with a simulation: simulated tokens have no log-probabilities; use one beam");
  EXPECT_EQ(testing::checked_request(*executor, request).error().kind, ErrorKind::unsupported);
  request.beams = 1;
  request.constraint.kind = Constraint::Kind::regex;
  EXPECT_EQ(message(request), "a constraint does not go with a simulation: it writes no text; omit the constraint");
}

TEST_F(SimulatedExecutorTest, StepsAdvanceTheClock) {
  auto executor = make(machine());
  testing::SteppedStream stream;
  stream.sequence.tokens.resize(8);
  testing::run_chunks(*executor, {{&stream, {1, 0, 5, false}}, {&stream, {1, 5, 3, true}}});
  EXPECT_EQ(clock_.now_ns(), 1 + 11'800'000'000);
  testing::run_chunks(*executor, {});
  EXPECT_EQ(clock_.now_ns(), 1 + 11'800'000'000 + 1);  // time advances nevertheless
  EXPECT_EQ(executor->next_move_ns(), 0);
}

TEST_F(SimulatedExecutorTest, AnswersEndAtTheirKnownLength) {
  auto executor = make(machine());
  testing::SteppedStream stream;
  stream.sequence.id = 3;
  stream.sequence.tokens = {1, 2, 3, 4};
  stream.sequence.prompt_tokens = 2;
  TokenEvent event, again, other;
  stream.sequence.request.known_tokens = 4;
  EXPECT_FALSE(*executor->chooser().choose(stream.ref(), 0, event));
  EXPECT_GE(event.token, 0);
  EXPECT_LT(event.token, kSimulatedVocab);
  stream.sequence.request.known_tokens = 3;
  EXPECT_TRUE(*executor->chooser().choose(stream.ref(), 0, again));
  EXPECT_EQ(again.token, event.token);  // depends only on stream, seed and position
  stream.sequence.request.known_tokens = 2;
  EXPECT_TRUE(*executor->chooser().choose(stream.ref(), 0, again));
  stream.sequence.request.known_tokens = -1;
  EXPECT_FALSE(*executor->chooser().choose(stream.ref(), 0, again));
  stream.sequence.request.known_tokens = 0;
  EXPECT_TRUE(*executor->chooser().choose(stream.ref(), 0, again));
  stream.sequence.id = 4;
  (void)executor->chooser().choose(stream.ref(), 0, other);
  EXPECT_NE(other.token, event.token);
}

// Moves share one bus and run one after the other.
TEST_F(SimulatedExecutorTest, TierMovesAreSequential) {
  auto executor = make(machine());
  auto tier = std::move(*executor->home().make_tier(100));
  EXPECT_EQ(tier->free_tokens(), 100);
  const auto first = tier->put({}, 60), second = tier->put({}, 40);
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_NE(*first, *second);
  EXPECT_EQ(tier->free_tokens(), 0);
  const auto full = tier->put({}, 1);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().kind, ErrorKind::resource);
  EXPECT_EQ(full.error().message, "KV tier: 1 tokens do not fit, 0 are free");
  EXPECT_TRUE(tier->put({}, 0).ok());
  EXPECT_EQ(executor->next_move_ns(), 1 + 600'000'000 + 400'000'000 + 1);  // an empty move takes a nanosecond
  clock_.advance_ns(600'000'000 - 1);
  EXPECT_EQ(tier->poll(*first), TierState::busy);
  clock_.advance_ns(1);
  EXPECT_EQ(tier->poll(*first), TierState::ready);
  EXPECT_EQ(tier->poll(*second), TierState::busy);
  clock_.advance_ns(1'000'000'000);
  EXPECT_EQ(tier->poll(*second), TierState::ready);
  EXPECT_EQ(executor->next_move_ns(), 0);
  ASSERT_TRUE(tier->get(*first, {}).ok());  // 0.6 s from now
  EXPECT_EQ(tier->poll(*first), TierState::busy);
  EXPECT_EQ(executor->next_move_ns(), clock_.now_ns() + 600'000'000);
  clock_.advance_ns(600'000'000);
  EXPECT_EQ(tier->poll(*first), TierState::ready);
  tier->erase(*first);
  EXPECT_EQ(tier->free_tokens(), 60);
  tier->erase(*first);
  EXPECT_EQ(tier->free_tokens(), 60);
  EXPECT_EQ(tier->poll(*first), TierState::failed);
  const auto gone = tier->get(*first, {});
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().kind, ErrorKind::internal);
  EXPECT_EQ(gone.error().message, "KV tier: no such ticket");
}

std::vector<TokenId> tokens_from(TokenId first, int64_t count) {
  std::vector<TokenId> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(first + static_cast<TokenId>(i));
  return out;
}

TEST_F(SimulatedExecutorTest, StoreSizeIsInTokens) {
  EngineOptions o = machine();
  auto executor = make(o);
  auto store = executor->home().make_store(choose_store("ssd:path=simulated,size=16").value());
  ASSERT_TRUE(store.ok());
  EXPECT_EQ((*store)->stats().capacity, 1);
  const auto small = executor->home().make_store(choose_store("ssd:path=simulated,size=15").value());
  ASSERT_FALSE(small.ok());
  EXPECT_EQ(small.error().kind, ErrorKind::user);
  EXPECT_EQ(small.error().message, "KV store: 15 tokens are less than a block of 16");
  o.kv_store = "ssd:path=simulated,size=15,order=importance,fetch=0.5";
  const auto part = SimulatedExecutor::create(std::make_unique<PlainCost>(), clock_, o);
  ASSERT_FALSE(part.ok());
  EXPECT_EQ(part.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      part.error().message,
      "KV store ssd that fetches a part does not go with a simulation: it fetches all of a prompt's blocks; fetch "
      "all of them");
}

TEST_F(SimulatedExecutorTest, StoreLoadsAreSequential) {
  EngineOptions o = machine();
  auto executor = make(o);
  auto made = executor->home().make_store(choose_store("ssd:path=simulated,size=64").value());
  ASSERT_TRUE(made.ok());
  PrefixStore& store = **made;
  const auto tokens = tokens_from(1000, 64), others = tokens_from(5000, 32);
  const auto chain = prefix_chain(tokens, 16, 0), other = prefix_chain(others, 16, 0);
  EXPECT_EQ(store.find(chain), 0);
  for (size_t i : {0, 1, 3}) store.put(chain[i], 0, false);
  EXPECT_EQ(store.find(chain), 2);  // up to the gap
  EXPECT_EQ(store.stats().blocks, 3);
  EXPECT_EQ(store.stats().written_blocks, 3);
  store.put(chain[1], 0, false);  // already stored
  EXPECT_EQ(store.stats().written_blocks, 3);
  EXPECT_EQ(store.stats().io, "simulated");
  const std::vector<BlockId> into(4);
  const TierTicket two = store.load(chain, into), one = store.load(chain, std::span(into).first(1));
  EXPECT_EQ(store.loading_blocks(), 3);
  EXPECT_EQ(store.stats().read_blocks, 3);
  EXPECT_EQ(executor->next_move_ns(), 1 + 640'000'000 + 320'000'000);
  clock_.advance_ns(640'000'000 - 1);
  EXPECT_EQ(store.poll(two).state, TierState::busy);
  clock_.advance_ns(1);
  EXPECT_EQ(store.poll(two).state, TierState::ready);
  EXPECT_EQ(store.poll(two).blocks, 2);
  EXPECT_EQ(store.poll(two).layers, 0);
  EXPECT_EQ(store.poll(one).state, TierState::busy);
  EXPECT_EQ(store.loading_blocks(), 1);
  store.wait_layer(one, 0, PrefixStore::kNoDeadline);
  EXPECT_EQ(clock_.now_ns(), 1 + 960'000'000);
  EXPECT_EQ(store.poll(one).blocks, 1);
  store.wait_layer(one, 0, PrefixStore::kNoDeadline);  // has ended: no time passes
  store.wait_layer(99, 0, PrefixStore::kNoDeadline);
  EXPECT_EQ(clock_.now_ns(), 1 + 960'000'000);
  clock_.advance_ns(40);
  store.wait_layer(one, 0, PrefixStore::kNoDeadline);
  EXPECT_EQ(clock_.now_ns(), 1 + 960'000'040);  // the clock never goes back
  store.erase(one);
  EXPECT_EQ(store.poll(one).state, TierState::failed);
  EXPECT_EQ(store.loading_blocks(), 0);
  const TierTicket nothing = store.load(other, into);  // evicted: takes no time
  EXPECT_EQ(store.poll(nothing).state, TierState::ready);
  EXPECT_EQ(store.poll(nothing).blocks, 0);
  store.wait();
}

// A full store evicts the least recently used block; within a chain, later blocks before earlier ones.
TEST_F(SimulatedExecutorTest, StoreEvictsLeastRecentlyUsed) {
  int64_t busy = 0;
  PlainCost cost;
  auto store = make_simulated_store(clock_, cost, 3, 16, busy);
  const auto tokens = tokens_from(1000, 48), others = tokens_from(5000, 48);
  const auto chain = prefix_chain(tokens, 16, 0), other = prefix_chain(others, 16, 0);
  for (const ChainLink& link : chain) store->put(link, 0, false);
  EXPECT_EQ(store->find(chain), 3);
  store->put(other[0], 0, false);
  EXPECT_EQ(store->find(chain), 2);
  store->put(other[1], 0, false);  // the other chain's first block was used before these two
  EXPECT_EQ(store->find(chain), 2);
  EXPECT_EQ(store->find(other), 0);
  store->put(chain[1], 0, false);  // counts as a use: now chain[0] is the oldest
  store->put(chain[0], 0, false);  // ... and now the newest
  store->put(other[0], 0, false);
  store->put(other[2], 0, false);
  EXPECT_EQ(store->find(chain), 1);
  EXPECT_EQ(store->stats().blocks, 3);
  EXPECT_EQ(store->stats().dropped_blocks, 0);
}

}  // namespace
}  // namespace millrace
