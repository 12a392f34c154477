#include "kv/tiers/memory_tier.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>
#include <unordered_map>

#include "kv/tiers/block_runs.h"
#include "tensor/aligned_buffer.h"

namespace millrace {
namespace {

class MemoryTier final : public KvTier {
 public:
  MemoryTier(KvPool& pool, int64_t tokens) : pool_(pool), free_tokens_(tokens), free_blocks_(pool.blocks_for(tokens)) {}

  int64_t free_tokens() const override { return free_tokens_; }

  Result<TierTicket> put(std::span<const BlockId> blocks, int64_t tokens) override {
    const auto count =
        static_cast<int64_t>(blocks.size());  // whole blocks are copied, even if the last one is partly used
    if (tokens > free_tokens_ || count > free_blocks_)
      return Error::resource(fmt::format("KV tier: {} tokens in {} blocks do not fit, {} and {} are free", tokens,
                                         count, free_tokens_, free_blocks_));
    Entry entry;
    MILLRACE_TRY(entry.bytes, AlignedBuffer::allocate(pool_.layout().block_bytes() * count, "KV tier"));
    entry.tokens = tokens;
    entry.blocks = blocks.size();
    uint8_t* to = entry.bytes.data();
    each_row_run(blocks, [&](uint8_t* row, size_t bytes) {
      std::memcpy(to, row, bytes);
      to += bytes;
    });
    entry.checksum = XXH3_64bits(entry.bytes.data(), static_cast<size_t>(entry.bytes.bytes()));
    free_tokens_ -= tokens;
    free_blocks_ -= count;
    entries_[++last_] = std::move(entry);
    return last_;
  }

  Result<void> get(TierTicket ticket, std::span<const BlockId> into) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end() || found->second.blocks != into.size())
      return Error::internal("KV tier: no such ticket for that many blocks");
    Entry& entry = found->second;
    entry.good = XXH3_64bits(entry.bytes.data(), static_cast<size_t>(entry.bytes.bytes())) == entry.checksum;
    const uint8_t* from = entry.bytes.data();
    if (entry.good) {
      each_row_run(into, [&](uint8_t* row, size_t bytes) {
        std::memcpy(row, from, bytes);
        from += bytes;
      });
    }
    return {};
  }

  TierState poll(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    return found != entries_.end() && found->second.good ? TierState::ready : TierState::failed;
  }

  void erase(TierTicket ticket) override {
    auto found = entries_.find(ticket);
    if (found == entries_.end()) return;
    free_tokens_ += found->second.tokens;
    free_blocks_ += static_cast<int64_t>(found->second.blocks);
    entries_.erase(found);
  }

 private:
  struct Entry {
    AlignedBuffer bytes;  // [block][layer][K, V][head][token in block][row bytes]
    uint64_t checksum = 0;
    int64_t tokens = 0;
    size_t blocks = 0;
    bool good = true;
  };

  template <typename Use>
  void each_row_run(std::span<const BlockId> blocks, Use&& use) {
    for (BlockId block : blocks)
      for (int64_t layer = 0; layer < static_cast<int64_t>(pool_.layout().layers.size()); ++layer)
        each_run_of(pool_, layer, block, use);
  }

  KvPool& pool_;
  int64_t free_tokens_;
  int64_t free_blocks_;
  TierTicket last_ = 0;
  std::unordered_map<TierTicket, Entry> entries_;
};

}  // namespace

Result<std::unique_ptr<KvTier>> make_memory_tier(KvPool& pool, int64_t tokens) {
  if (tokens < 0) return Error::user(fmt::format("swap tokens: must be 0 or more, got {}", tokens));
  return std::unique_ptr<KvTier>(std::make_unique<MemoryTier>(pool, tokens));
}

}  // namespace millrace
