// An executor whose tokens, times, tier and prefix store are scripted by the test (scripted_engine_test.h). It stores
// every token's id as its key and its position as its value, and checks all stored keys of a stream before it computes
// a chunk, so a block that is shared, copied, swapped or loaded wrongly fails the test at once. A step takes 1 ms of a
// manual clock.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cctype>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine/engine_core.h"

namespace millrace::testing {

inline constexpr int64_t kScriptedLayers = 4;

struct Script {
  double step_seconds = 0, token_seconds = 1, swap_seconds = 1e9,
         load_seconds = 1e-3;  // cost model: per step, per token
  int64_t outputs = 64;
  int64_t step_ns = 1'000'000, token_ns = 0;  // on the clock
  bool has_costs = true;                      // false: the engine learns what steps cost
  bool joins_early = false;
  std::vector<TokenId> end_tokens;
  std::function<std::vector<TokenLogprob>(const std::vector<TokenId>& tokens)> likeliest;  // for beams
  std::function<float(const Sequence& stream)> logprob;                                    // the next token's
  // After each step, with its streams.
  std::function<void(const StepInput& input, std::span<const Sequence* const> streams)> forwarded;
  int64_t fails_at = -1;         // choose() fails for a stream with this many generated tokens
  std::optional<Error> failure;  // a failure of the weights, after the next steps
  std::set<uint64_t> unread;     // seeds of the streams whose keys cannot be read in the next steps
  std::function<bool(const Sequence& stream, int64_t& budget)> documents;  // empty: all that are encoded are held
  bool prompts_apart = false;
  bool has_contexts = false;  // moves keys of documents
  // Tier
  TierState tier_state = TierState::ready;
  bool put_fails = false, get_fails = false;
  // Store
  bool load_ready = true, lookup_ready = true, room = true;
  bool waiting_helps = true;  // true: a wait makes the awaited data ready
  bool layers_stall = false;  // a pass waits for a layer in vain
  bool shared = false;
  double deadline = PrefixStore::kNoDeadline;
  int64_t layers_ready = 0;
  double load_took = 0;
  std::set<TokenId> damaged;            // blocks, by their first token
  std::set<TokenId> lost;               // no longer stored, by first token
  std::map<TokenId, float> importance;  // importance of stored blocks, by first token
  PrefixStoreStats store_stats;
  // Recorded calls
  std::vector<std::string> shapes, loads_observed, loads, puts, key_moves;
  int64_t waits = 0, flushes = 0, layer_waits = 0, observed_attention = 0, erased = 0, lookups = 0, lookups_erased = 0;
};

class ScriptedCost final : public CostModel {
 public:
  explicit ScriptedCost(Script& script) : script_(script) {}
  double step_seconds(const StepShape& s) const override {
    return script_.step_seconds + script_.token_seconds * static_cast<double>(s.tokens);
  }
  double swap_seconds(int64_t tokens) const override { return script_.swap_seconds * static_cast<double>(tokens); }
  double load_seconds(int64_t tokens) const override { return script_.load_seconds * static_cast<double>(tokens); }
  void observe(const StepShape& s, double seconds) override {
    script_.shapes.push_back(
        fmt::format("{} tokens {} outputs {} keys {:g} pairs {:g} s", s.tokens, s.outputs, s.keys, s.pairs, seconds));
  }
  void observe_load(int64_t tokens, double seconds) override {
    script_.loads_observed.push_back(fmt::format("{} in {:g}", tokens, seconds));
  }

 private:
  Script& script_;
};

using Rows = std::vector<float>;  // the keys of one block

inline Rows read_rows(KvPool& pool, BlockId block) {
  const auto* rows = reinterpret_cast<const float*>(pool.keys(0, block, 0));
  return {rows, rows + pool.layout().block_tokens};
}
inline void write_rows(KvPool& pool, BlockId block, const Rows& rows) {
  for (int64_t layer = 0; layer < kScriptedLayers; ++layer)
    std::copy(rows.begin(), rows.end(), reinterpret_cast<float*>(pool.keys(layer, block, 0)));
}

class ScriptedTier final : public KvTier {
 public:
  ScriptedTier(Script& script, KvPool& pool, int64_t tokens) : script_(script), pool_(pool), free_(tokens) {}
  int64_t free_tokens() const override { return free_; }
  Result<TierTicket> put(std::span<const BlockId> blocks, int64_t tokens) override {
    if (script_.put_fails) return Error::resource("tier: full");
    EXPECT_EQ(static_cast<int64_t>(blocks.size()), pool_.blocks_for(tokens));
    Entry entry{tokens, {}};
    for (BlockId block : blocks) entry.rows.push_back(read_rows(pool_, block));
    free_ -= tokens;
    entries_[++last_] = std::move(entry);
    return last_;
  }
  Result<void> get(TierTicket ticket, std::span<const BlockId> into) override {
    if (script_.get_fails) return Error::internal("tier: no such ticket");
    const Entry& entry = entries_.at(ticket);
    EXPECT_EQ(into.size(), entry.rows.size());
    for (size_t i = 0; i < into.size(); ++i) write_rows(pool_, into[i], entry.rows[i]);
    return {};
  }
  TierState poll(TierTicket ticket) override {
    return entries_.contains(ticket) ? script_.tier_state : TierState::failed;
  }
  void erase(TierTicket ticket) override {
    const auto found = entries_.find(ticket);
    ASSERT_NE(found, entries_.end());
    free_ += found->second.tokens;
    entries_.erase(found);
    ++script_.erased;
  }

 private:
  struct Entry {
    int64_t tokens = 0;
    std::vector<Rows> rows;
  };
  Script& script_;
  KvPool& pool_;
  int64_t free_;
  TierTicket last_ = 0;
  std::map<TierTicket, Entry> entries_;
};

class ScriptedStore final : public PrefixStore {
 public:
  ScriptedStore(Script& script, KvPool& pool, ManualClock& clock) : script_(script), pool_(pool), clock_(clock) {}
  TierTicket lookup(std::span<const ChainLink> chain, int64_t) override {
    ++script_.lookups;
    int64_t found = 0;
    while (found < std::ssize(chain) && holds(chain[static_cast<size_t>(found)])) ++found;
    lookups_[++last_] = found;
    return last_;
  }
  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = lookups_.find(ticket);
    if (found == lookups_.end()) return {};
    return script_.lookup_ready ? LookupProgress{TierState::ready, found->second} : LookupProgress{TierState::busy};
  }
  double deadline_seconds() const override { return script_.deadline; }
  bool is_shared() const override { return script_.shared; }
  void put(const ChainLink& link, BlockId block, bool wait) override {
    script_.puts.push_back(
        fmt::format("{} importance {:g}{}", link.tokens.front(), link.importance, wait ? " waits" : ""));
    stored_[{link.key.low, link.key.high}] = read_rows(pool_, block);
    script_.damaged.erase(link.tokens.front());
    script_.lost.erase(link.tokens.front());
  }
  bool has_room() override { return script_.room; }
  bool holds(const ChainLink& link) const override {
    return stored_.contains({link.key.low, link.key.high}) && !script_.lost.contains(link.tokens.front());
  }
  void flush() override { ++script_.flushes; }
  float importance(const ChainLink& link) const override {
    const auto found = script_.importance.find(link.tokens.front());
    return found == script_.importance.end() ? 0 : found->second;
  }
  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind&) override {
    EXPECT_EQ(chain.size(), into.size());
    Load load;
    std::string text;
    for (size_t i = 0; i < chain.size(); ++i) {
      const TokenId first = chain[i].tokens.front();
      text += fmt::format("{}{}", i ? " " : "", first);
      load.blocks.push_back(
          {into[i], stored_.at({chain[i].key.low, chain[i].key.high}), script_.damaged.contains(first)});
    }
    script_.loads.push_back(text);
    loads_[++last_] = std::move(load);
    return last_;
  }
  LoadProgress poll(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return {};
    if (!script_.load_ready && !found->second.done) return {TierState::busy, script_.layers_ready};
    return {TierState::ready, kScriptedLayers, bring(found->second), script_.load_took};
  }
  bool wait_layer(TierTicket ticket, int64_t layer, double seconds) override {
    ++script_.layer_waits;
    EXPECT_TRUE(loads_.contains(ticket));
    if (script_.layers_stall) {
      clock_.advance_ns(static_cast<int64_t>(seconds * 1e9));
      return false;
    }
    if (layer + 1 == kScriptedLayers) bring(loads_.at(ticket));
    return true;
  }
  void erase(TierTicket ticket) override {
    if (lookups_.erase(ticket) > 0) {
      ++script_.lookups_erased;
      return;
    }
    EXPECT_EQ(loads_.erase(ticket), 1u);
    ++script_.erased;
  }
  void wait() override {
    ++script_.waits;
    if (script_.waiting_helps) script_.load_ready = script_.lookup_ready = true;
  }
  int64_t loading_blocks() const override {
    int64_t blocks = 0;
    for (const auto& [ticket, load] : loads_) blocks += load.done ? 0 : std::ssize(load.blocks);
    return blocks;
  }
  PrefixStoreStats stats() const override {
    PrefixStoreStats stats = script_.store_stats;
    stats.blocks = std::ssize(stored_);
    return stats;
  }

 private:
  struct Block {
    BlockId into;
    Rows rows;
    bool damaged;
  };
  struct Load {
    std::vector<Block> blocks;
    bool done = false;
  };
  int64_t bring(Load& load) {
    int64_t whole = 0;
    bool damaged = false;
    for (const Block& block : load.blocks) {
      write_rows(pool_, block.into, block.damaged ? Rows(block.rows.size(), -7) : block.rows);
      damaged |= block.damaged;
      whole += !damaged;
    }
    load.done = true;
    return whole;
  }
  Script& script_;
  KvPool& pool_;
  ManualClock& clock_;
  std::map<std::pair<uint64_t, uint64_t>, Rows> stored_;
  std::map<TierTicket, int64_t> lookups_;  // blocks that were found
  std::map<TierTicket, Load> loads_;
  TierTicket last_ = 0;
};

class ScriptedHome final : public KvHome {
 public:
  ScriptedHome(Script& script, KvPool& pool, ManualClock& clock) : KvHome(pool), script_(script), clock_(clock) {}
  Result<std::unique_ptr<KvTier>> make_tier(int64_t tokens) override {
    return std::unique_ptr<KvTier>(std::make_unique<ScriptedTier>(script_, kv(), tokens));
  }
  Result<std::unique_ptr<PrefixStore>> make_store(const ChosenStore&) override {
    return std::unique_ptr<PrefixStore>(std::make_unique<ScriptedStore>(script_, kv(), clock_));
  }
  bool before_attention(std::function<void(int64_t)> ready) override {
    if (script_.joins_early) ready_ = std::move(ready);
    return script_.joins_early;
  }
  void move_keys(std::span<const BlockId>, int64_t slot, int64_t count, int64_t positions) override {
    script_.key_moves.push_back(fmt::format("move {} from {} by {}", count, slot, positions));
  }
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override {
    script_.key_moves.push_back(fmt::format("changed {} to {} of {} blocks", begin, end, blocks.size()));
  }
  // A pass calls this before its first layer; it reports every layer as ready.
  void before_layers() {
    for (int64_t layer = 0; layer < kScriptedLayers && ready_; ++layer) ready_(layer);
  }
  // Keys are the tokens' ids.
  void store(const Sequence& s, int64_t token) {
    for (int64_t layer = 0; layer < kScriptedLayers; ++layer)
      *row(s, token - s.kv.left_out, layer) = static_cast<float>(s.token_at(token));
  }
  void compare(const Sequence& s, int64_t tokens) {
    if (s.kv.left_out > 0) return;
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t layer = 0; layer < kScriptedLayers; ++layer)
        ASSERT_EQ(*row(s, i, layer), static_cast<float>(s.tokens.at(static_cast<size_t>(i))))
            << "stream " << s.id << ", token " << i;
  }

 private:
  float* row(const Sequence& s, int64_t slot, int64_t layer) {
    const BlockId block = s.kv.blocks.at(static_cast<size_t>(slot / kv().layout().block_tokens));
    return reinterpret_cast<float*>(kv().keys(layer, block, 0)) + slot % kv().layout().block_tokens;
  }

  Script& script_;
  ManualClock& clock_;
  std::function<void(int64_t)> ready_;
};

class ScriptedChooser final : public TokenChooser {
 public:
  ScriptedChooser(Script& script, ScriptedHome& home) : script_(script), home_(home) {}
  Result<void> begin(StreamRef stream) const override {
    if (stream.sequence.request.sampling.seed == 13) return Error::unsupported("seed: 13");
    streams_[stream.sequence.id] = &stream.sequence;
    return {};
  }
  Result<bool> choose(StreamRef stream, int64_t row, TokenEvent& event) override {
    const Sequence& s = stream.sequence;
    EXPECT_EQ(rows.at(static_cast<size_t>(row)), &s);
    home_.compare(s, s.size());
    if (s.generated() == script_.fails_at) return Error::internal("choose: no next token");
    event.token = static_cast<TokenId>(100'000 + 1000 * s.request.sampling.seed + static_cast<uint64_t>(s.generated()));
    event.logprob = {event.token, script_.logprob ? script_.logprob(s) : -1.0f};
    return s.request.known_tokens >= 0 && s.generated() + 1 >= s.request.known_tokens;
  }
  void likeliest(int64_t row, int64_t count, std::vector<TokenLogprob>& out) override {
    const Sequence& s = *rows.at(static_cast<size_t>(row));
    home_.compare(s, s.size());
    out = script_.likeliest(s.tokens);
    if (std::ssize(out) > count) out.resize(static_cast<size_t>(count));
  }
  std::vector<TokenId> end_tokens() const override { return script_.end_tokens; }
  void write(StreamRef, TokenEvent& event) override { event.text = fmt::format("<{}>", event.token); }
  void flush(StreamRef, TokenEvent& event) override { event.text += "."; }

  const Sequence* find(RequestId stream) const { return streams_.at(stream); }

  std::vector<const Sequence*> rows;  // the last pass's streams

 private:
  Script& script_;
  ScriptedHome& home_;
  mutable std::map<RequestId, const Sequence*> streams_;  // that have begun; ended ones, too
};

class ScriptedPlacer final : public DocumentPlacer {
 public:
  explicit ScriptedPlacer(Script& script) : script_(script) {}
  bool hold_documents(StreamRef stream, const DocumentTokens*, int64_t& budget) override {
    return !script_.documents || script_.documents(stream.sequence, budget);
  }

 private:
  Script& script_;
};

class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(Script& script, ManualClock& clock, const EngineOptions& o)
      : script_(script), clock_(clock), cost_(script), pool_(open_pool(o)), home_(script, *pool_, clock) {
    limits_ = {o.context, o.batch_tokens, script.outputs, 12345, 0};
    limits_.prompts_apart = script.prompts_apart;
    set_parts(
        {.home = &home_, .chooser = &chooser_, .documents = &placer_, .cost = script.has_costs ? &cost_ : nullptr});
  }
  const ExecutorLimits& limits() const override { return limits_; }
  Result<void> check(const Request& request) const override {
    if (request.prompt.front() == 0) return Error::unsupported("prompt: begins with 0");
    return {};
  }
  const Facts& facts() const override {
    static const Facts moves = [] {
      Facts out;
      out.add(facts::kPatternRows, "attention quest");
      return out;
    }();
    return script_.has_contexts ? moves : Executor::facts();
  }
  void observe_attention() override { ++script_.observed_attention; }
  Result<void> failure() const override { return script_.failure ? Result<void>(*script_.failure) : Result<void>(); }
  void forward(const StepInput& input, StepOutput& output) override {
    output.clear();
    chooser_.rows.clear();
    home_.before_layers();
    std::vector<const Sequence*> streams;
    int64_t tokens = 0;
    for (const StepChunk& chunk : input.chunks) {
      const Sequence& s = *streams.emplace_back(chooser_.find(chunk.stream));
      if (script_.unread.contains(s.request.sampling.seed)) output.unread.push_back(std::ssize(streams) - 1);
      if (script_.damaged.empty()) home_.compare(s, chunk.first);
      for (int64_t i = chunk.first; i < chunk.first + chunk.tokens; ++i) home_.store(s, i);
      for (int64_t row = 0; row < chunk.outputs; ++row) chooser_.rows.push_back(&s);
      tokens += chunk.tokens;
    }
    clock_.advance_ns(script_.step_ns + tokens * script_.token_ns);
    if (script_.forwarded) script_.forwarded(input, streams);
  }

 private:
  static std::unique_ptr<KvPool> open_pool(const EngineOptions& o) {
    KvLayout layout{find_format("f32"), o.block_tokens, std::vector<KvLayer>(kScriptedLayers, {1, 1})};
    auto pool = KvPool::create(layout, (o.kv_tokens + o.block_tokens - 1) / o.block_tokens);
    EXPECT_TRUE(pool.ok());
    return std::make_unique<KvPool>(std::move(*pool));
  }

  Script& script_;
  ManualClock& clock_;
  ScriptedCost cost_;
  std::unique_ptr<KvPool> pool_;
  ScriptedHome home_;
  ScriptedChooser chooser_{script_, home_};
  ScriptedPlacer placer_{script_};
  ExecutorLimits limits_;
};

}  // namespace millrace::testing
