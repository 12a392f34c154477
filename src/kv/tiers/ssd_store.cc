#include "kv/tiers/ssd_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>

#include "kv/tiers/store_index.h"
#include "kv/tiers/store_packing.h"
#include "kv/tiers/store_reader.h"
#include "kv/tiers/store_scan.h"
#include "kv/tiers/store_writer.h"

namespace millrace {
namespace {

// Buffers for writes: as many blocks as the limit of queued bytes allows, and two copies of the recurrent state,
// because a copy is written as a whole or not at all.
int64_t write_buffers(const StoreGeometry& geometry, const SsdStoreOptions& options) {
  const int64_t blocks = options.write_bytes / std::max<int64_t>(1, geometry.slot_bytes);
  return std::clamp<int64_t>(blocks, 1, 64) + 2 * geometry.state_pieces();
}

class SsdStore final : public PrefixStore {
 public:
  SsdStore(KvPool& pool, StoreFile file, const SsdStoreOptions& options)
      : pool_(pool),
        file_(std::move(file)),
        index_(file_.geometry().capacity),
        deadline_(options.deadline_seconds),
        buffers_(write_buffers(file_.geometry(), options)),
        writer_(file_, buffers_, options.uring),
        reader_(file_, pool, options.uring) {
    if (file_.made_anew()) return;
    index_.forget_all();
    scan_ = std::make_unique<StoreScan>(file_);
  }
  ~SsdStore() override { flush(); }  // then the reader stops and the writer finishes

  // False: the system has refused a thread; the store cannot be used.
  bool started() const { return writer_.started() && reader_.started() && (!scan_ || scan_->started()); }

  // Waits up to `seconds` for the records. Writes made before all records are known are numbered by the clock, above
  // the unknown ones. False: the file cannot be read.
  bool open(double seconds) {
    if (!scan_) return true;
    scan_->wait(seconds);
    if (!take_records()) return false;
    if (scan_)
      index_.number_above(static_cast<uint64_t>(
          std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch())
              .count()));
    return true;
  }

  TierTicket lookup(std::span<const ChainLink> chain, int64_t held) override {
    collect();
    found_.clear();
    held = std::min(held, std::ssize(chain));
    for (const ChainLink& link : chain.subspan(static_cast<size_t>(held))) {
      const int64_t slot = index_.find(link);
      if (slot < 0) break;
      found_.push_back(slot);
    }
    int64_t blocks = held + std::ssize(found_);
    if (file_.geometry().state_pieces() > 0) {
      while (blocks > 0 && !find_state(chain[static_cast<size_t>(blocks - 1)].key)) --blocks;
      found_.resize(static_cast<size_t>(std::max<int64_t>(0, blocks - held)));
      if (blocks > 0)
        for (const int64_t slot : slots_) index_.use(slot);
    }
    for (size_t i = found_.size(); i-- > 0;) index_.use(found_[i]);  // the first block is evicted last
    lookups_[++last_] = blocks;
    return last_;
  }

  LookupProgress poll_lookup(TierTicket ticket) override {
    const auto found = lookups_.find(ticket);
    return found == lookups_.end() ? LookupProgress() : LookupProgress{TierState::ready, found->second};
  }
  double deadline_seconds() const override { return deadline_; }

  void put(const ChainLink& link, BlockId block, bool wait) override {
    collect();
    put_image(link, block, wait);
  }

  // A state is of no use without one of its pieces. If there are too few buffers for those that the file lacks, none of
  // them is written.
  void put_state(const StateBehind& state, bool wait) override {
    collect();
    const StoreGeometry& g = file_.geometry();
    const auto lacks = [&](const PrefixKey& key) { return !index_.known(key) && !staged(key); };
    int64_t missing = 0;
    for (int64_t i = 0; i < g.state_pieces(); ++i)
      missing += lacks(StatePiece(state.key, i, g.block_tokens).link().key);
    const bool room = wait || writer_.has_room(missing);
    for (int64_t i = 0; i < g.state_pieces(); ++i) {
      const StatePiece piece(state.key, i, g.block_tokens);
      if (room || !lacks(piece.link().key))
        put_image(piece.link(), {state.slot, i}, wait);
      else
        ++stats_.dropped_blocks;
    }
  }

  bool has_room() override { return writer_.has_room(1); }
  bool holds(const ChainLink& link) const override { return index_.find(link) >= 0; }

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

  bool wants_importance() const override { return file_.geometry().chunk_slots > 1; }
  float importance(const ChainLink& link) const override {
    const int64_t slot = index_.find(link);
    return slot < 0 ? 0 : index_.record(slot).importance;
  }

  TierTicket load(std::span<const ChainLink> chain, std::span<const BlockId> into, const StateBehind& state) override {
    Load load{std::make_shared<StoreLoad>()};
    load.load->state = state.slot;
    const auto add = [&](const ChainLink& link, BlockId block, int64_t piece) {
      const int64_t slot = index_.find(link);
      if (slot < 0) return false;
      index_.pin(slot);
      const StoreRecord& record = index_.record(slot);
      load.load->blocks.push_back({slot, record.key, record.sums, block, record.importance, piece});
      return true;
    };
    bool all = true;
    for (size_t i = 0; i < chain.size() && i < into.size() && all; ++i) all = add(chain[i], into[i], -1);
    load.blocks = std::ssize(load.load->blocks);
    load.pieces = state.slot < 0 ? 0 : file_.geometry().state_pieces();
    for (int64_t i = 0; i < load.pieces && all; ++i)
      all = add(StatePiece(state.key, i, file_.geometry().block_tokens).link(), -1, i);
    loading_blocks_ += std::ssize(load.load->blocks);
    reader_.push(load.load);
    loads_[++last_] = std::move(load);
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
      const int64_t whole = std::ranges::find(load.load->bad, char{1}) - load.load->bad.begin();
      progress.blocks = std::min(load.blocks, whole);
      progress.state_arrived = load.pieces > 0 && whole == load.blocks + load.pieces;
    });
    if (progress.state == TierState::ready && !load.settled) settle(load);
    return progress;
  }

  bool wait_layer(TierTicket ticket, int64_t layer, double seconds) override {
    const auto found = loads_.find(ticket);
    return found == loads_.end() || reader_.wait_layer(*found->second.load, layer, seconds);
  }

  void erase(TierTicket ticket) override {
    lookups_.erase(ticket);
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
    stats.unread_slots = index_.unknown();
    stats.state_blocks = file_.geometry().state_pieces();
    return stats;
  }

 private:
  struct Load {
    std::shared_ptr<StoreLoad> load;
    int64_t blocks = 0;    // blocks in it; pieces of a state follow
    int64_t pieces = 0;    // pieces that the state has; the load has fewer if one has left the file
    bool settled = false;  // its result has been accounted for
  };

  bool staged(const PrefixKey& key) const {
    return std::ranges::any_of(staged_, [&](const StagedBlock& one) { return one.key == key; });
  }

  // Stages an image, or verifies the stored one.
  void put_image(const ChainLink& link, const ImagePlace& place, bool wait) {
    if (index_.known(link.key)) {
      if (const int64_t slot = index_.find(link); slot >= 0) check(slot, place, wait);
      return;
    }
    if (staged(link.key)) return;
    AlignedBuffer bytes = writer_.take(wait);
    if (bytes.data() == nullptr) {
      ++stats_.dropped_blocks;
      return;
    }
    copy(place, bytes);
    staged_.push_back(
        {link.key, link.parent, {link.tokens.begin(), link.tokens.end()}, link.importance, std::move(bytes)});
    // Staged blocks hold buffers that a put() may be waiting for, so they must never hold all of them.
    if (file_.geometry().chunk_slots == 1 || std::ssize(staged_) >= std::max<int64_t>(1, buffers_ / 2)) flush();
  }

  // Returns true if all pieces of the state behind a block are stored. Fills slots_.
  bool find_state(const PrefixKey& behind) {
    const StoreGeometry& g = file_.geometry();
    slots_.clear();
    for (int64_t i = 0; i < g.state_pieces(); ++i) {
      const int64_t slot = index_.find(StatePiece(behind, i, g.block_tokens).link());
      if (slot < 0) return false;
      slots_.push_back(slot);
    }
    return true;
  }

  void copy(const ImagePlace& from, AlignedBuffer& to) {
    const StoreGeometry& g = file_.geometry();
    for (int64_t layer = 0; layer < g.layers(); ++layer)
      copy_part_out(pool_, from, g, layer, to.data() + g.part_at[static_cast<size_t>(layer)]);
  }

  // The block is stored, and these are its bytes. If the stored bytes have not been verified since the file was opened,
  // the writer verifies them and replaces damaged ones.
  void check(int64_t slot, const ImagePlace& place, bool wait) {
    index_.use(slot);
    if (index_.seen_whole(slot)) return;
    AlignedBuffer bytes = writer_.take(wait);
    if (bytes.data() == nullptr) return;  // no buffer: try another time
    if (!index_.check(slot)) {            // a load is verifying it
      writer_.give_back(std::move(bytes));
      return;
    }
    copy(place, bytes);
    writer_.push({slot, true, true, index_.record(slot), std::move(bytes)});
  }

  // Adds scanned records to the index. False: not all of them could be read, and no more will come.
  bool take_records() {
    StoreScan::Found found = scan_->take();
    for (auto& [slot, record] : found.records) index_.restore(slot, std::move(record));
    index_.restored(found.slots);
    stats_.corrupt_blocks += found.bad;
    if (found.failed) index_.leave_out_unknown();
    if (index_.unknown() == 0) scan_.reset();
    return !found.failed;
  }

  // Collects completed writes.
  void collect() {
    if (scan_) take_records();
    writer_.collect(written_);
    for (StoreWriter::Written& one : written_) {
      if (one.ok) {
        index_.publish(one.slot, std::move(one.sums));
        if (one.was_whole) continue;
        stats_.corrupt_blocks += one.was_stored;
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

  // Settles a completed load, which no longer changes. Damaged blocks leave the store.
  void settle(Load& load) {
    load.settled = true;
    for (size_t i = 0; i < load.load->blocks.size(); ++i) {
      const StoreLoad::Block& block = load.load->blocks[i];
      if (load.load->bad[i]) {
        // Two loads may have read it: drop and count it only once.
        if (index_.record(block.slot).key == block.key && !index_.record(block.slot).sums.empty()) {
          index_.drop(block.slot);
          ++stats_.corrupt_blocks;
        }
      } else {
        if (index_.record(block.slot).key == block.key) index_.saw_whole(block.slot);
        ++stats_.read_blocks;
        stats_.read_bytes += file_.geometry().slot_bytes;
      }
    }
    unpin(*load.load);
  }

  KvPool& pool_;
  StoreFile file_;
  StoreIndex index_;
  double deadline_;
  int64_t buffers_;
  StoreWriter writer_;
  StoreReader reader_;
  std::unique_ptr<StoreScan> scan_;  // null: all records are known
  std::vector<StoreWriter::Written> written_;
  std::vector<StagedBlock> staged_;
  std::vector<int64_t> found_, slots_;
  std::unordered_map<TierTicket, int64_t> lookups_;  // blocks that were found
  std::unordered_map<TierTicket, Load> loads_;
  TierTicket last_ = 0;
  int64_t loading_blocks_ = 0;
  PrefixStoreStats stats_;
};

}  // namespace

Result<int64_t> ssd_store_memory(const KvLayout& layout, const SsdStoreOptions& options) {
  constexpr int64_t kSlotBytes = 512;  // state, keys and locations of one block, in addition to its tokens and sums
  MILLRACE_TRY(const StoreGeometry geometry, StoreGeometry::create(layout, options.bytes, options.order));
  const int64_t index = geometry.capacity * (kSlotBytes + 4 * geometry.block_tokens + 8 * geometry.layers());
  const int64_t writes = std::max(options.write_bytes, geometry.slot_bytes) + geometry.slot_bytes +
                         64 * geometry.record_bytes +
                         2 * geometry.state_pieces() * (geometry.slot_bytes + geometry.record_bytes);
  return index + writes + StoreReader::most_bytes(geometry);
}

Result<std::unique_ptr<PrefixStore>> make_ssd_store(KvPool& pool, const SsdStoreOptions& options) {
  MILLRACE_TRY(StoreFile file, StoreFile::open({options.path, options.bytes, options.identity_text, options.direct,
                                                options.lock_seconds, options.order},
                                               pool.layout()));
  auto store = std::make_unique<SsdStore>(pool, std::move(file), options);
  if (!store->started())
    return Error::resource("KV store: the system starts no thread for it; raise its limit of threads");
  if (!store->open(options.scan_seconds))
    return Error::resource(fmt::format("KV store: {} cannot be read", options.path));
  return std::unique_ptr<PrefixStore>(std::move(store));
}

}  // namespace millrace
