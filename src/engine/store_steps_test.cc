// The engine over a scripted prefix store, step by step: what is loaded and what is computed instead, streams that run
// while their last layers arrive, damaged blocks, and partial fetches of prompts.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions with_store(int64_t blocks, const char* order = "arrival", double fetch = 1) {
  EngineOptions o = scripted_options(blocks);
  o.kv_store = SsdStoreFlags{.path = "scripted", .order = order, .fetch = fetch}.text();
  return o;
}

// An engine with twelve blocks whose store holds the eight full blocks of the prompt 1000 ... 1034; the pool holds
// none.
struct Stored : ScriptedEngine {
  explicit Stored(Script given = {}, const EngineOptions& options = with_store(12))
      : ScriptedEngine(options, nullptr, std::move(given)) {
    add(1, scripted_request(1000, 35, 1));
    run();
    add(2, scripted_request(5000, 46, 1));
    run();
    script.puts.clear();
    all.clear();
  }
  KvStoreStats figures_of_store() const { return core->stats().store; }
  // Blocks of the first prompt that were stored.
  Lines repaired() const {
    Lines lines;
    for (const std::string& put : script.puts)
      if (put.starts_with("10")) lines.push_back(put);
    return lines;
  }
  const TokenEvent& end_of(RequestId id) const {
    return *std::ranges::find_if(all, [&](const TokenEvent& e) { return e.request == id && e.last; });
  }
  std::string store_figures() const {
    const KvStoreStats s = figures_of_store();
    return fmt::format("hit {} passed {} failed {} left out {}", s.hit_tokens, s.passed_tokens, s.failed_tokens,
                       s.left_out_tokens);
  }
};

TEST(StoreSteps, BlocksEvictedFromThePrefixIndexAreStored) {
  ScriptedEngine e(with_store(12));
  e.add(1, scripted_request(1000, 35, 1));
  e.run();
  EXPECT_TRUE(e.script.puts.empty());
  const int64_t flushes = e.script.flushes;
  e.add(2, scripted_request(5000, 46, 1));
  EXPECT_EQ(e.watch(), (Lines{"admit 2; 2:[0+16] | 2 runs 16/46 4", "2:[16+16] | 2 runs 32/46 8", "2:[32+14]* | "}));
  EXPECT_EQ(e.script.puts, (Lines{"1028 importance 0", "1024 importance 0", "1020 importance 0", "1016 importance 0",
                                  "1012 importance 0", "1008 importance 0", "1004 importance 0", "1000 importance 0"}));
  EXPECT_EQ(e.script.flushes, flushes + 3);  // once a step
  EXPECT_EQ(e.core->stats().store.blocks, 8);
  e.script.store_stats.capacity = 10;  // the first of eleven indexed blocks to be evicted is not written
  e.script.puts.clear();
  e.core.reset();
  EXPECT_EQ(e.script.puts, (Lines{"5036 importance 0 waits", "5032 importance 0 waits", "5028 importance 0 waits",
                                  "5024 importance 0 waits", "5020 importance 0 waits", "5016 importance 0 waits",
                                  "5012 importance 0 waits", "5008 importance 0 waits", "5004 importance 0 waits",
                                  "5000 importance 0 waits"}));
}

TEST(StoreSteps, LoadsStoredBlocksAndComputesTheRest) {
  Stored e;
  e.script.load_ready = false;
  e.script.load_took = 0.5;
  e.add(4, scripted_request(7000, 4, 4));
  e.step();
  e.add(3, scripted_request(1000, 35, 2));
  EXPECT_EQ(e.watch(2),
            (Lines{"admit 3; 4:[4+1]* | 4 runs 5/6 2, 3 loads 0/35 8", "4:[5+1]* | 4 runs 6/7 2, 3 loads 0/35 8"}));
  EXPECT_EQ(e.script.loads, (Lines{"1000 1004 1008 1012 1016 1020 1024 1028"}));
  EXPECT_EQ(e.script.waits, 0);  // another stream ran
  e.script.load_ready = true;
  EXPECT_EQ(e.watch(), (Lines{"4:[6+1]* 3:[32+3]* | 3 runs 35/36 9 +32", "3:[35+1]* | "}));
  EXPECT_EQ(e.store_figures(), "hit 32 passed 0 failed 0 left out 0");
  EXPECT_EQ(e.script.loads_observed, (Lines{"32 in 0.5"}));
  EXPECT_EQ(e.end_of(3).timings.cached_tokens, 32);
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 11);
}

// With nothing else to run, the engine waits for the load, a little at a time.
TEST(StoreSteps, IdleEngineWaitsForTheLoad) {
  Stored e;
  e.script.load_ready = false;
  e.add(3, scripted_request(1000, 35, 1));
  EXPECT_EQ(e.step(), "admit 3;");
  EXPECT_EQ(e.script.waits, 0);
  EXPECT_EQ(e.step(), "");
  EXPECT_EQ(e.script.waits, 1);
  EXPECT_EQ(e.step(), "3:[32+3]*");
  EXPECT_TRUE(e.script.loads_observed.empty());  // its duration is unknown
}

TEST(StoreSteps, PoolBlocksAreNotLoaded) {
  Stored e;
  e.add(3, scripted_request(1000, 14, 1));
  e.run();
  e.script.loads.clear();
  e.add(4, scripted_request(1000, 35, 1));
  e.run();
  EXPECT_EQ(e.script.loads, (Lines{"1012 1016 1020 1024 1028"}));
  EXPECT_EQ(e.all.back().timings.cached_tokens, 32);
}

// Loads that take at least as long as computing are not started: 32 tokens in two steps of one second per token.
TEST(StoreSteps, LoadsSlowerThanComputingAreSkipped) {
  for (const auto& [token, passed] : {std::pair(0.999, 0), {1.0, 32}, {1.5, 32}}) {
    Stored e;
    e.script.load_seconds = token;
    e.add(3, scripted_request(1000, 35, 1));
    e.run();
    EXPECT_EQ(e.figures_of_store().passed_tokens, passed) << token;
    EXPECT_EQ(e.figures_of_store().hit_tokens, 32 - passed) << token;
  }
}

// ... and earlier loads count: the later of two is skipped.
TEST(StoreSteps, PendingLoadsDelayLaterOnes) {
  EngineOptions o = with_store(24);
  Stored e({}, o);
  for (RequestId id : {14, 15, 16}) {
    e.add(id, scripted_request(static_cast<TokenId>(id * 1000), 60, 1));
    e.run();
  }
  e.script.loads.clear();
  e.script.load_seconds = 0.6;
  e.script.load_ready = false;
  e.add(3, scripted_request(1000, 35, 1));
  e.add(4, scripted_request(5000, 35, 1));
  e.step();
  EXPECT_EQ(e.script.loads.size(), 1u);
  EXPECT_EQ(e.figures_of_store().passed_tokens, 32);
  e.script.load_ready = true;
  e.run();
}

TEST(StoreSteps, DamagedBlocksAreRecomputedAndStoredAgain) {
  Stored e;
  e.script.damaged = {1012};
  e.add(3, scripted_request(1000, 35, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 3; | 3 loads 0/35 8", "3:[12+16] | 3 runs 28/35 8 +12",
                              "3:[28+7]* | 3 runs 35/36 9 +12", "3:[35+1]* | "}));
  EXPECT_EQ(e.store_figures(), "hit 12 passed 0 failed 20 left out 0");
  EXPECT_EQ(e.repaired(), (Lines{"1012 importance 0", "1016 importance 0", "1020 importance 0", "1024 importance 0",
                                 "1028 importance 0"}));
  EXPECT_EQ(e.all.back().timings.cached_tokens, 12);
}

TEST(StoreSteps, RepairsKeepTheirImportance) {
  Script script;
  script.importance = {{1012, 0.5f}, {1020, 2.0f}};
  Stored e(script);
  e.script.damaged = {1012};
  e.add(3, scripted_request(1000, 35, 1));
  e.run();
  EXPECT_EQ(e.repaired(), (Lines{"1012 importance 0.5", "1016 importance 0", "1020 importance 2", "1024 importance 0",
                                 "1028 importance 0"}));
}

TEST(StoreSteps, RepairsWaitForSpace) {
  Stored e;
  e.script.damaged = {1012};
  e.script.room = false;
  e.add(3, scripted_request(1000, 35, 4));
  while (e.streams().find("3 runs 36/37") == std::string::npos) e.step();
  EXPECT_TRUE(e.repaired().empty());
  e.script.room = true;
  e.step();
  EXPECT_EQ(e.repaired().size(), 5u);
  e.step();
  EXPECT_EQ(e.repaired().size(), 5u);  // once each
}

TEST(StoreSteps, CancelledLoadIsDropped) {
  Stored e;
  e.script.load_ready = false;
  e.add(3, scripted_request(1000, 35, 1));
  e.step();
  const int64_t erased = e.script.erased;
  e.core->cancel(3);
  e.step();
  EXPECT_EQ(e.script.erased, erased + 1);
  EXPECT_EQ(e.store_figures(), "hit 0 passed 0 failed 0 left out 0");
  EXPECT_EQ(e.step(), "");
  EXPECT_EQ(e.script.waits, 0);
  Stored open;
  open.script.load_ready = false;
  open.add(3, scripted_request(1000, 35, 1));
  open.step();
  const int64_t before = open.script.erased;
  open.core.reset();
  EXPECT_EQ(open.script.erased, before + 1);
}

// The 3 tokens after the load take 3 s to compute; the load takes 32 x 0.1 s, and less as its layers arrive.
TEST(StoreSteps, StreamStartsWhenTheRemainingLoadIsShorterThanItsChunk) {
  for (int64_t layers : {0, 1}) {
    Script script;
    script.joins_early = true;
    script.load_seconds = 0.1;
    Stored e(script);
    e.script.load_ready = false;
    e.script.layers_ready = layers;
    e.add(3, scripted_request(1000, 35, 2));
    if (layers == 0) {
      EXPECT_EQ(e.step(), "admit 3;");
      EXPECT_EQ(e.streams(), "3 loads 0/35 8");
      EXPECT_EQ(e.script.layer_waits, 0);
      continue;
    }
    EXPECT_EQ(e.step(), "admit 3; 3:[32+3]*");
    EXPECT_EQ(e.script.layer_waits, kScriptedLayers + 1);
    EXPECT_EQ(e.streams(), "3 runs 35/36 9 +32");
    EXPECT_EQ(e.store_figures(), "hit 32 passed 0 failed 0 left out 0");
    e.run();
    EXPECT_EQ(e.all.back().timings.cached_tokens, 32);
  }
}

// A chunk that ran over damaged blocks is discarded; the stream computes those blocks.
TEST(StoreSteps, ChunkOverDamagedBlocksIsRecomputed) {
  Script script;
  script.joins_early = true;
  Stored e(script);
  e.script.damaged = {1016};
  e.script.load_ready = false;
  e.add(3, scripted_request(1000, 35, 2));
  EXPECT_EQ(e.step(), "admit 3; 3:[32+3]*");
  EXPECT_TRUE(e.events.empty());
  EXPECT_EQ(e.streams(), "3 runs 16/35 9 +16");
  EXPECT_EQ(e.store_figures(), "hit 16 passed 0 failed 16 left out 0");
  EXPECT_EQ(e.watch(), (Lines{"3:[16+16] | 3 runs 32/35 9 +16", "3:[32+3]* | 3 runs 35/36 9 +16", "3:[35+1]* | "}));
  EXPECT_EQ(e.core->stats().prompt_tokens, 35 + 46 + 19);
}

// The first, the last and the most important blocks of a prompt are loaded; omitted blocks stay omitted.
TEST(StoreSteps, PartialFetchSelectsByImportance) {
  Script script;
  script.importance = {{1004, 0.5f}, {1008, 3.0f}, {1012, 0.25f}, {1016, 2.0f}, {1020, 0.75f}, {1024, 0.1f}};
  Stored e(script, with_store(12, "importance", 0.5));
  EXPECT_EQ(e.script.observed_attention, 1);
  e.add(3, scripted_request(1000, 35, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 3; | 3 loads 0/35 4", "3:[32+3]* | 3 runs 35/36 5 +16", "3:[35+1]* | "}));
  EXPECT_EQ(e.script.loads, (Lines{"1000 1008 1016 1028"}));
  EXPECT_EQ(e.store_figures(), "hit 16 passed 0 failed 0 left out 16");
  EXPECT_EQ(e.all.back().timings.left_out_tokens, 16);
  EXPECT_EQ(e.all.back().timings.cached_tokens, 16);
  EXPECT_EQ(e.core->cached_tokens(scripted_request(1000, 35, 1)), 0);  // a stream with omitted blocks is not cached
}

TEST(StoreSteps, FetchedShareOfAPrompt) {
  struct Case {
    double fetch;
    const char* loads;
  };
  for (const Case& one :
       {Case{0.01, "1000 1028"}, Case{0.25, "1000 1028"}, Case{0.26, "1000 1004 1028"}, Case{0.375, "1000 1004 1028"},
        Case{0.9, "1000 1004 1008 1012 1016 1020 1024 1028"}, Case{1, "1000 1004 1008 1012 1016 1020 1024 1028"}}) {
    Stored e({}, with_store(12, "importance", one.fetch));  // unknown importance: even shares, the first blocks
    e.add(3, scripted_request(1000, 35, 1));
    e.run();
    EXPECT_EQ(e.script.loads, (Lines{one.loads})) << one.fetch;
  }
  Stored few({}, with_store(12, "importance", 0.1));
  few.add(3, scripted_request(1000, 10, 1));
  few.run();
  EXPECT_EQ(few.script.loads, (Lines{"1000 1004"}));  // both of two blocks
  Stored answers({}, with_store(12, "importance", 0.1));
  Request two = scripted_request(1000, 35, 1);
  two.n = 2;
  answers.add(3, two);
  answers.run();
  EXPECT_EQ(answers.script.loads.size(), 1u);
  EXPECT_EQ(answers.figures_of_store().left_out_tokens, 0);
}

// A partial fetch with a damaged block is discarded: the whole prompt is computed.
TEST(StoreSteps, DamagedPartialFetchRecomputesThePrompt) {
  Stored e({}, with_store(12, "importance", 0.5));
  e.script.damaged = {1028};
  e.add(3, scripted_request(1000, 35, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 3; | 3 loads 0/35 4", "3:[0+16] | 3 runs 16/35 4", "3:[16+16] | 3 runs 32/35 8",
                              "3:[32+3]* | 3 runs 35/36 9", "3:[35+1]* | "}));
  EXPECT_EQ(e.all.back().timings.left_out_tokens, 0);
  EXPECT_EQ(e.all.back().timings.cached_tokens, 0);
  EXPECT_EQ(e.figures_of_store().failed_tokens, 4);
}

// If the store lost a block in the middle, it is stored again as soon as it is computed, and the blocks after it are
// verified.
TEST(StoreSteps, GapIsRefilled) {
  Stored e;
  e.script.lost = {1012};
  e.add(3, scripted_request(1000, 35, 2));
  Lines repaired;
  while (!e.core->idle()) {
    e.step();
    repaired.push_back(fmt::format("{} of {}", e.repaired().size(), e.streams()));
  }
  EXPECT_EQ(e.script.loads, (Lines{"1000 1004 1008"}));
  EXPECT_EQ(repaired, (Lines{"0 of 3 loads 0/35 3", "4 of 3 runs 28/35 7 +12", "5 of 3 runs 35/36 9 +12", "5 of "}));
  EXPECT_EQ(e.repaired(), (Lines{"1012 importance 0", "1016 importance 0", "1020 importance 0", "1024 importance 0",
                                 "1028 importance 0"}));
  for (const std::set<TokenId>& end : {std::set<TokenId>{1028}, {1024, 1028}}) {  // nothing is stored after these
    Stored cut;
    cut.script.lost = end;
    cut.add(3, scripted_request(1000, 35, 2));
    cut.run();
    EXPECT_TRUE(cut.repaired().empty());
    EXPECT_EQ(cut.figures_of_store().hit_tokens, 32 - 4 * std::ssize(end));
  }
}

TEST(StoreSteps, ImportanceIsRestoredWithBlocks) {
  Script script;
  script.importance = {{1004, 0.5f}, {1028, 2.0f}};
  Stored e(script);
  e.add(3, scripted_request(1000, 35, 1));
  e.run();
  e.script.puts.clear();
  e.add(4, scripted_request(5000, 46, 1));
  e.run();
  const auto has = [&](const char* put) { return std::ranges::find(e.script.puts, put) != e.script.puts.end(); };
  EXPECT_TRUE(has("1004 importance 0.5"));
  EXPECT_TRUE(has("1028 importance 2"));
  EXPECT_TRUE(has("1008 importance 0"));
}

TEST(StoreSteps, StatsComeFromTheStore) {
  Stored e;
  e.script.store_stats = {.io = "io_uring",
                          .direct = true,
                          .capacity = 77,
                          .unread_slots = 5,
                          .written_blocks = 1,
                          .written_bytes = 11,
                          .read_blocks = 2,
                          .read_bytes = 22,
                          .dropped_blocks = 3,
                          .corrupt_blocks = 4};
  KvStoreStats s = e.figures_of_store();
  EXPECT_TRUE(s.open && s.io_uring && s.direct);
  EXPECT_EQ(s.capacity_blocks, 77);
  EXPECT_EQ(s.unread_slots, 5);
  EXPECT_EQ(s.read_bytes, 22);
  EXPECT_EQ(s.written_bytes, 11);
  EXPECT_EQ(s.dropped_blocks, 3);
  EXPECT_EQ(s.corrupt_blocks, 4);
  EXPECT_EQ(s.blocks, 8);
  e.script.store_stats = {.io = "pread"};
  s = e.figures_of_store();
  EXPECT_FALSE(s.io_uring || s.direct);
  EXPECT_TRUE(s.open);
}

}  // namespace
}  // namespace millrace
