#include "kv/tiers/ssd_store.h"

#include <algorithm>
#include <unordered_map>

#include "kv/tiers/block_runs.h"
#include "kv/tiers/store_index.h"
#include "kv/tiers/store_packing.h"
#include "kv/tiers/store_reader.h"
#include "kv/tiers/store_writer.h"

namespace millrace {
namespace {

class SsdStore final : public PrefixStore {
 public:
  SsdStore(KvPool& pool, StoreFile file, StoreIndex index, const SsdStoreOptions& options)
      : pool_(pool), file_(std::move(file)), index_(std::move(index)),
        buffers_(std::clamp<int64_t>(options.write_bytes / std::max<int64_t>(1, file_.geometry().slot_bytes), 1, 64)),
        writer_(file_, buffers_, options.uring),
        reader_(file_, pool, options.uring) {
    stats_.corrupt_blocks = file_.bad_records();
  }
  ~SsdStore() override { flush(); }  // then the reader stops, the writer finishes

  int64_t find(std::span<const ChainLink> chain) override {
    collect();
    found_.clear();
    for (const ChainLink& link : chain) {
      const int64_t slot = index_.find(link);
      if (slot < 0) break;
      found_.push_back(slot);
    }
    for (size_t i = found_.size(); i-- > 0;) index_.use(found_[i]);  // the first block is the last to go
    return static_cast<int64_t>(found_.size());
  }

  void put(const ChainLink& link, BlockId block, bool wait) override {
    collect();
    if (index_.known(link.key)) {
      if (const int64_t slot = index_.find(link); slot >= 0) index_.use(slot);
      return;
    }
    if (std::ranges::any_of(staged_, [&](const StagedBlock& one) { return one.key == link.key; })) return;
    AlignedBuffer bytes = writer_.take(wait);
    if (bytes.data() == nullptr) {
      ++stats_.dropped_blocks;
      return;
    }
    const StoreGeometry& g = file_.geometry();
    for (int64_t layer = 0; layer < g.layers(); ++layer) copy_out(pool_, layer, block, bytes.data() + g.part_at[static_cast<size_t>(layer)]);
    staged_.push_back({link.key, link.parent, {link.tokens.begin(), link.tokens.end()}, link.importance, std::move(bytes)});
    // Staged blocks hold buffers that a put() may be waiting for: never all of them.
    if (g.chunk_slots == 1 || std::ssize(staged_) >= std::max<int64_t>(1, buffers_ / 2)) flush();
  }

  void flush() override {
    if (staged_.empty()) return;
    if (file_.geometry().chunk_slots > 1) pack_by_importance(staged_);
    slots_.clear();
    for (size_t i = 0; i < staged_.size(); ++i)
      if (const int64_t slot = index_.take_slot(); slot >= 0) slots_.push_back(slot);
    std::ranges::sort(slots_);
    for (size_t i = 0; i < staged_.size(); ++i) {
      StagedBlock& block = staged_[i];
      if (i >= slots_.size()) {
        ++stats_.dropped_blocks;
        writer_.give_back(std::move(block.bytes));
        continue;
      }
      StoreWriter::Job job;
      job.slot = slots_[i];
      job.dirty = index_.assign(job.slot, {block.key, block.parent, block.tokens, block.importance});
      job.record = index_.record(job.slot);
      job.bytes = std::move(block.bytes);
      writer_.push(std::move(job));
    }
    staged_.clear();
  }

  float importance(const ChainLink& link) const override {
    const int64_t slot = index_.find(link);
    return slot < 0 ? 0 : index_.record(slot).importance;
  }

  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into) override {
    auto load = std::make_shared<StoreLoad>();
    for (size_t i = 0; i < chain.size() && i < into.size(); ++i) {
      const int64_t slot = index_.find(chain[i]);
      if (slot < 0) break;
      index_.pin(slot);
      const StoreRecord& record = index_.record(slot);
      load->blocks.push_back({slot, record.key, record.sums, into[i], record.importance});
    }
    loading_blocks_ += static_cast<int64_t>(load->blocks.size());
    loads_[++last_] = {load, false};
    reader_.push(std::move(load));
    return last_;
  }

  LoadProgress poll(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return {};
    Load& load = found->second;
    LoadProgress progress{TierState::busy};
    reader_.look_at([&] {
      progress.layers = load.load->layers;
      if (!load.load->done) return;
      progress.state = TierState::ready;
      progress.seconds = load.load->seconds;
      progress.blocks = std::ranges::find(load.load->bad, char{1}) - load.load->bad.begin();
    });
    if (progress.state == TierState::ready && !load.settled) settle(load);
    return progress;
  }

  void wait_layer(TierTicket ticket, int64_t layer) override {
    if (const auto found = loads_.find(ticket); found != loads_.end()) reader_.wait_layer(*found->second.load, layer);
  }

  void erase(TierTicket ticket) override {
    const auto found = loads_.find(ticket);
    if (found == loads_.end()) return;
    Load& load = found->second;
    reader_.give_up(*load.load);
    if (!load.settled) unpin(*load.load);
    loads_.erase(found);
  }

  void wait() override { reader_.wait_a_little(); }
  int64_t loading_blocks() const override { return loading_blocks_; }

  PrefixStoreStats stats() const override {
    PrefixStoreStats stats = stats_;
    stats.io = reader_.io();
    stats.direct = file_.direct();
    stats.capacity = index_.capacity();
    stats.blocks = index_.size();
    return stats;
  }

 private:
  struct Load {
    std::shared_ptr<StoreLoad> load;
    bool settled = false;  // its end is in the accounts
  };

  // What the writer has ended.
  void collect() {
    writer_.collect(written_);
    for (StoreWriter::Written& one : written_) {
      if (one.ok) {
        index_.publish(one.slot, std::move(one.sums));
        ++stats_.written_blocks;
        stats_.written_bytes += file_.geometry().slot_bytes;
      } else {
        index_.drop(one.slot);
        ++stats_.dropped_blocks;
      }
    }
  }

  void unpin(const StoreLoad& load) {
    for (const StoreLoad::Block& block : load.blocks) index_.unpin(block.slot);
    loading_blocks_ -= static_cast<int64_t>(load.blocks.size());
  }

  // A load that has ended: nobody changes it any more. Damaged blocks leave the store.
  void settle(Load& load) {
    load.settled = true;
    for (size_t i = 0; i < load.load->blocks.size(); ++i) {
      const StoreLoad::Block& block = load.load->blocks[i];
      if (load.load->bad[i]) {
        // Two loads may have read it: it goes once, and is counted once.
        if (index_.record(block.slot).key == block.key && !index_.record(block.slot).sums.empty()) {
          index_.drop(block.slot);
          ++stats_.corrupt_blocks;
        }
      } else {
        ++stats_.read_blocks;
        stats_.read_bytes += file_.geometry().slot_bytes;
      }
    }
    unpin(*load.load);
  }

  KvPool& pool_;
  StoreFile file_;
  StoreIndex index_;
  int64_t buffers_;
  StoreWriter writer_;
  StoreReader reader_;
  std::vector<StoreWriter::Written> written_;
  std::vector<StagedBlock> staged_;
  std::vector<int64_t> found_, slots_;
  std::unordered_map<TierTicket, Load> loads_;
  TierTicket last_ = 0;
  int64_t loading_blocks_ = 0;
  PrefixStoreStats stats_;
};

}  // namespace

Result<int64_t> ssd_store_memory(const KvLayout& layout, const SsdStoreOptions& options) {
  constexpr int64_t kSlotBytes = 512;  // state, keys and places of one block, beside its tokens and sums
  MILLRACE_TRY(const StoreGeometry geometry, StoreGeometry::create(layout, options.bytes, options.order));
  const int64_t index = geometry.capacity * (kSlotBytes + 4 * geometry.block_tokens + 8 * geometry.layers());
  const int64_t writes = std::max(options.write_bytes, geometry.slot_bytes) + 64 * geometry.record_bytes;
  return index + writes + StoreReader::most_bytes(geometry);
}

Result<std::unique_ptr<PrefixStore>> make_ssd_store(KvPool& pool, const SsdStoreOptions& options) {
  MILLRACE_TRY(const StoreGeometry geometry, StoreGeometry::create(pool.layout(), options.bytes, options.order));
  StoreIndex index(geometry.capacity);
  MILLRACE_TRY(StoreFile file, StoreFile::open({options.path, options.bytes, options.identity_text, options.direct, options.lock_seconds, options.order}, pool.layout(),
                                               [&](int64_t slot, StoreRecord&& record) { index.restore(slot, std::move(record)); }));
  index.restored();
  return std::unique_ptr<PrefixStore>(std::make_unique<SsdStore>(pool, std::move(file), std::move(index), options));
}

}  // namespace millrace
