// PlacedDocuments over an executor that records what it is asked for. Every row tells which token it is of.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/bare_executor_test.h"
#include "engine/placed_documents.h"
#include "formats/format.h"
#include "run/documents/own_stream.h"

namespace millrace::testing {

inline constexpr int64_t kPartBlock = 4;

using PartCalls = std::vector<std::string>;

class PartsHome final : public BareHome {
 public:
  PartsHome(KvPool& pool, PartCalls& calls) : BareHome(pool), calls_(calls) {}
  void move_keys(std::span<const BlockId> blocks, int64_t slot, int64_t count, int64_t positions) override {
    calls_.push_back(fmt::format("move {} of {} blocks from {} by {}", count, blocks.size(), slot, positions));
  }
  void keys_changed(std::span<const BlockId> blocks, int64_t begin, int64_t end) override {
    calls_.push_back(fmt::format("changed {} to {} of {} blocks", begin, end, blocks.size()));
  }

 private:
  PartCalls& calls_;
};

// hold_part() costs `held_cost` tokens and put_part() finds `known` rows.
class PartsExecutor final : public BareExecutor, public DocumentPlacer {
 public:
  explicit PartsExecutor(int64_t blocks) : BareExecutor({find_format("f32"), kPartBlock, {{2, 1}, {2, 1}}}, blocks) {
    set_parts({.home = &home_, .chooser = &chooser(), .documents = this});
  }
  bool hold_part(StreamRef, const ContextPart& part, int64_t& budget) override {
    calls.push_back(fmt::format("hold {} with {}", part.begin, budget));
    budget -= held_cost;
    return complete;
  }
  int64_t put_part(StreamRef, const ContextPart& part, int64_t count) override {
    calls.push_back(fmt::format("put {} of {}", count, part.begin));
    return known;
  }

  PartCalls calls;
  int64_t held_cost = 0, known = 0;
  bool complete = true;

 private:
  PartsHome home_{home().kv(), calls};
};

// A part that sees the first `before` tokens and itself.
inline ContextPart part_with(int64_t begin, int64_t end, int64_t before) {
  ContextPart part{.begin = begin, .end = end, .moved = begin - before};
  if (before > 0) part.sees.push_back({0, before});
  part.sees.push_back({begin, end});
  return part;
}

inline float row_value(TokenId token, int64_t layer, int64_t kind, int64_t head) {
  return static_cast<float>(8 * token + 4 * layer + 2 * kind + head);
}

class PlacedDocumentsTest : public ::testing::Test {
 protected:
  void open(int64_t blocks, bool with_index = true) {
    auto executor = std::make_unique<PartsExecutor>(blocks);
    executor_ = executor.get();
    loop_.executor = std::move(executor);
    if (with_index) index_ = std::make_unique<PrefixIndex>(loop_.kv(), 0);
    ledger_ = std::make_unique<BlockLedger>(loop_.kv(), index_.get());
    documents_ = std::make_unique<PlacedDocuments>(loop_, *ledger_, index_.get());
  }
  LiveStream& stream(std::vector<TokenId> tokens, std::vector<ContextPart> parts) {
    auto made = std::make_unique<LiveStream>();
    Sequence& s = made->sequence;
    s.id = static_cast<RequestId>(lists_.running().size()) + 1;
    s.phase = StreamPhase::running;
    s.prompt_tokens = std::ssize(tokens);
    s.tokens = std::move(tokens);
    made->context.parts = std::move(parts);
    note_border(*made);
    lists_.add_running(std::move(made));
    return *lists_.running().back();
  }
  // Computes the stream's tokens up to `end` as a chunk, and reports them.
  void compute(LiveStream& stream, int64_t end) {
    Sequence& s = stream.sequence;
    ASSERT_TRUE(s.kv.border < 0 || end <= s.kv.border);
    ASSERT_TRUE(ledger_->reserve(stream, end));
    for (int64_t slot = s.computed; slot < end; ++slot) each_row(s, slot, [](float& row, float value) { row = value; });
    s.computed = end;
    s.progress.furthest = std::max(s.progress.furthest, end);
    documents_->run(stream);
  }
  template <typename Use>
  void each_row(const Sequence& s, int64_t slot, Use use) {
    KvPool& kv = loop_.kv();
    const BlockId block = s.kv.blocks.at(static_cast<size_t>(slot / kPartBlock));
    for (int64_t layer = 0; layer < 2; ++layer)
      for (int64_t kind = 0; kind < 2; ++kind)
        for (int64_t head = 0; head < 2; ++head)
          use(reinterpret_cast<float*>(kv.plane(layer, block, kind, head))[slot % kPartBlock],
              row_value(s.tokens.at(static_cast<size_t>(slot)), layer, kind, head));
  }
  // Every computed row is that of the stream's token.
  void expect_rows(const Sequence& s) {
    for (int64_t slot = 0; slot < s.computed; ++slot)
      each_row(s, slot, [&](float& row, float value) { EXPECT_EQ(row, value) << "slot " << slot; });
  }
  std::string checked() const {
    const auto result = ledger_->check(lists_.table());
    return result.ok() ? "" : result.error().message;
  }
  int64_t known_blocks(const LiveStream& stream, size_t part) const {
    return index_->known_blocks(own_stream(stream.sequence, stream.context.parts[part], kPartBlock));
  }

  LoopContext loop_;
  PartsExecutor* executor_ = nullptr;
  std::unique_ptr<PrefixIndex> index_;
  std::unique_ptr<BlockLedger> ledger_;
  std::unique_ptr<PlacedDocuments> documents_;
  StreamLists lists_;
};

using Calls = std::vector<std::string>;

// A start of one token, two documents of five, and a question.
inline const std::vector<TokenId> kTwoDocuments = {1, 10, 11, 12, 13, 14, 20, 21, 22, 23, 24, 30, 31};
inline const std::vector<TokenId> kOtherOrder = {1, 20, 21, 22, 23, 24, 10, 11, 12, 13, 14, 40};
inline std::vector<ContextPart> two_parts() { return {part_with(1, 6, 1), part_with(6, 11, 1)}; }

}  // namespace millrace::testing
