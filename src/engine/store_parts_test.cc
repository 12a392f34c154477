// Parts of prompts from the prefix store at their smallest: three blocks, blocks of one token, and a gap behind blocks
// that come back damaged.
#include "engine/scripted_engine_test.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions parts_of(double fetch, int64_t kv_tokens, int64_t block_tokens) {
  EngineOptions o = scripted_options(12);
  o.kv_tokens = kv_tokens;
  o.block_tokens = block_tokens;
  o.kv_store = SsdStoreFlags{.path = "scripted", .order = fetch < 1 ? "importance" : "arrival", .fetch = fetch}.text();
  return o;
}

// An engine whose store has the prompt 1000 ... 1034; another prompt has displaced it from the pool.
struct Displaced : ScriptedEngine {
  explicit Displaced(const EngineOptions& options) : ScriptedEngine(options) {
    add(1, scripted_request(1000, 35, 1));
    run();
    add(2, scripted_request(5000, 46, 1));
    run();
    script.puts.clear();
    script.loads.clear();
    all.clear();
  }
};

TEST(StoreParts, OfThreeBlocksTheMiddleOneMayStayOut) {
  Displaced e(parts_of(0.1, 48, 4));
  e.add(3, scripted_request(1000, 14, 1));
  e.run();
  EXPECT_EQ(e.script.loads, (Lines{"1000 1008"}));
  EXPECT_EQ(e.all.back().timings.left_out_tokens, 4);
}

TEST(StoreParts, OfBlocksOfOneToken) {
  Displaced e(parts_of(0.5, 47, 1));
  e.add(3, scripted_request(1000, 5, 2));
  EXPECT_EQ(e.watch(), (Lines{"admit 3; | 3 loads 1/5 3 +1", "3:[4+1]* | 3 runs 5/6 4 +3", "3:[5+1]* | "}));
  EXPECT_EQ(e.script.loads, (Lines{"1001 1003"}));  // the first token is in the pool
  EXPECT_EQ(e.core->stats().store.left_out_tokens, 1);
  EXPECT_EQ(e.all.back().timings.left_out_tokens, 1);
}

// The store lost 1012, and 1004 comes back damaged: all from there on goes to the store again.
TEST(StoreParts, ADamagedBlockBeforeAGap) {
  Displaced e(parts_of(1, 48, 4));
  e.script.lost = {1012};
  e.script.damaged = {1004};
  e.add(3, scripted_request(1000, 35, 2));
  e.run();
  EXPECT_EQ(e.script.loads, (Lines{"1000 1004 1008"}));
  Lines repaired;
  for (const std::string& put : e.script.puts)
    if (put.starts_with("10")) repaired.push_back(put.substr(0, 4));
  EXPECT_EQ(repaired, (Lines{"1004", "1008", "1012", "1016", "1020", "1024", "1028"}));
}

}  // namespace
}  // namespace millrace
