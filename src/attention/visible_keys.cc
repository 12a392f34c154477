#include "attention/visible_keys.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/document_choice.h"
#include "attention/row_formats.h"
#include "attention/visible_slots.h"

namespace millrace {
namespace {

constexpr int64_t kMaxQueries = 256;

// Up to a partition's keys, of one band. `rank`: the number of the first one among all keys that are seen.
struct KeyPart {
  int64_t rank = 0;
  int64_t count = 0;
  KeyBand band;
  int64_t slots[kAttentionPartition];

  bool full() const { return count == kAttentionPartition; }
};

// Cuts visible slots into partitions.
class KeyParts {
 public:
  explicit KeyParts(MarkedSlots slots) : slots_(slots) {}

  bool next(KeyPart& part) {
    part.rank += part.count;
    part.count = 0;
    while (!part.full() && (run_.begin < run_.end || slots_.next(run_))) {
      if (part.count == 0) part.band = run_.band;
      if (!(part.band == run_.band)) break;
      const int64_t count = std::min(run_.end - run_.begin, kAttentionPartition - part.count);
      for (int64_t i = 0; i < count; ++i) part.slots[part.count++] = run_.begin++;
    }
    return part.count > 0;
  }

 private:
  MarkedSlots slots_;
  SlotRun run_;
};

// Consecutive queries, each of which sees what the one before it sees, and itself: one call of the kernel.
struct Chain {
  int64_t first = 0;  // of the unit's queries
  int64_t count = 0;
  int64_t rank = 0;  // of the first query's own key
  int64_t window = 0;
  uint64_t path = 0;  // tokens of the tree that the last one sees; 0: the queries are not in the tree
};

class VisibleAttention {
 public:
  VisibleAttention(const VisibleUnit& unit, const MarkedBlocks& marked, const Partial& total, float* scratch)
      : u_(unit),
        marked_(marked),
        visibility_(unit.batch.visibility[static_cast<size_t>(unit.span.visibility)]),
        segments_(segments_of(unit.batch, visibility_, unit.kv.layout(), unit.layer.layer, unit.kv_head)),
        total_(total),
        group_(unit.layer.heads / unit.layer.kv_heads),
        scratch_(scratch),
        scaled_(scratch + partial_floats(unit.queries * group_, unit.layer.values())),
        choice_(scaled_ + group_ * unit.layer.head_dim, unit.queries * group_, visibility_.documents.most) {
    const int64_t last = slot_of(u_.queries - 1);
    shared_end_ = visibility_.whole ? std::numeric_limits<int64_t>::max()
                  : in_tree(last)   ? visibility_.tree_slot
                                    : last + 1;
    shared_ = seen_before(shared_end_);
  }

  void run() {
    std::fill_n(total_.max, u_.queries * group_, -std::numeric_limits<float>::infinity());
    std::fill_n(total_.sum, u_.queries * group_, 0.0f);
    std::fill_n(total_.top, u_.queries * group_, -std::numeric_limits<float>::infinity());
    find_chains();
    const bool apart = !(visibility_.documents == DocumentWeights{});
    if (apart) run_documents();
    KeyPart part;
    KeyParts parts(slots(shared_end_));
    const bool tree = chains_[chain_count_ - 1].path != 0;
    while (parts.next(part)) {
      if (apart && part.band.document != 0) continue;
      const bool last = part.rank + part.count == shared_;
      if (tree && last && !part.full() && part.band == tree_band()) return run_tree(part);
      run_part(part);
    }
    if (!tree) return;
    part.band = tree_band();
    run_tree(part);  // which is empty
  }

 private:
  int64_t slot_of(int64_t query) const { return u_.span.first_slot + u_.first + query; }
  bool in_tree(int64_t slot) const { return visibility_.tree_tokens > 0 && slot >= visibility_.tree_slot; }
  uint64_t path_of(int64_t slot) const {
    return u_.batch.ancestors[static_cast<size_t>(visibility_.ancestors + slot - visibility_.tree_slot)];
  }
  int32_t position_of(int64_t slot) const {
    return u_.batch.slot_positions[static_cast<size_t>(visibility_.positions + slot)];
  }
  MarkedSlots slots(int64_t end) const {
    return {{u_.batch, visibility_, segments_, u_.kv_head, u_.kv.layout().block_tokens, end}, marked_};
  }

  // Visible slots before `end`.
  int64_t seen_before(int64_t end) const {
    int64_t seen = 0;
    MarkedSlots visible = slots(end);
    for (SlotRun run; visible.next(run);) seen += run.end - run.begin;
    return seen;
  }

  // Of those, the ones at positions after `after`.
  int64_t seen_before(int64_t end, int64_t after) const {
    int64_t seen = 0;
    MarkedSlots visible = slots(end);
    const int32_t* positions = u_.batch.slot_positions.data() + visibility_.positions;
    const auto before = [after](int32_t position) { return position <= after; };
    for (SlotRun run; visible.next(run);) {
      const int32_t* run_end = positions + run.end;
      seen += run_end - std::partition_point(positions + run.begin, run_end, before);
    }
    return seen;
  }

  // The window of the query at `slot`, counted in keys that it sees.
  int64_t window_of(int64_t slot) const {
    if (u_.layer.window == 0 || visibility_.position_count == 0) return u_.layer.window;
    const int64_t after = int64_t{position_of(slot)} - u_.layer.window;
    if (!in_tree(slot)) return seen_before(slot + 1, after);
    int64_t seen = seen_before(visibility_.tree_slot, after);
    for (uint64_t path = path_of(slot); path != 0; path &= path - 1)
      if (position_of(visibility_.tree_slot + std::countr_zero(path)) > after) ++seen;
    return seen;
  }

  // Appends query i to the last chain, or begins another.
  void add_query(int64_t i) {
    const int64_t slot = slot_of(i), window = window_of(slot);
    const uint64_t path = in_tree(slot) ? path_of(slot) : 0;
    const uint64_t parents = path == 0 ? 0 : path & ~(uint64_t{1} << (slot - visibility_.tree_slot));
    if (chain_count_ > 0) {
      Chain& before = chains_[chain_count_ - 1];
      if (before.path == parents && before.window == window) {
        ++before.count;
        before.path = path;
        return;
      }
    }
    const int64_t rank = visibility_.whole ? shared_ - 1
                         : path == 0       ? shared_ - (shared_end_ - slot)
                                           : shared_ + std::popcount(path) - 1;
    chains_[chain_count_++] = {i, 1, rank, window, path};
  }

  void find_chains() {
    for (int64_t i = 0; i < u_.queries; ++i) add_query(i);
  }

  // The keys of documents, before all others: their total is changed as a whole.
  void run_documents() {
    if (visibility_.documents.most > 0) {
      choice_.clear();
      phase_ = Phase::score;
      run_document_parts();
      choice_.finish();
      phase_ = Phase::choose;
    }
    run_document_parts();
    phase_ = Phase::all;
    const float power = visibility_.documents.power;
    const int64_t dims = u_.layer.values();
    for (int64_t row = 0; power != 1 && row < u_.queries * group_; ++row) {
      if (total_.sum[row] == 0) continue;
      const float all = total_.max[row] + std::log(total_.sum[row]);  // of their weights, which keep their shares
      total_.max[row] = power * all;
      total_.top[row] += total_.max[row] - all;
      u_.kernels.scale(total_.acc + row * dims, 1 / total_.sum[row], dims);
      total_.sum[row] = 1;
    }
  }

  void run_document_parts() {
    KeyPart part;
    KeyParts parts(slots(shared_end_));
    while (parts.next(part))
      if (part.band.document != 0) run_part(part);
  }

  KeyBand tree_band() const {
    for (const KeySegment& segment : segments_)
      if (segment.end > visibility_.tree_slot) return {segment.scale, segment.bias, segment.document};
    return {};
  }

  // Keys that are not of the tree: one call where every query sees all of them.
  void run_part(const KeyPart& part) {
    const int64_t end = part.rank + part.count;
    bool all = true;
    for (int64_t c = 0; c < chain_count_; ++c) {
      const Chain& chain = chains_[c];
      all = all && chain.rank >= end - 1 &&
            (chain.window == 0 || chain.rank + chain.count - 1 - chain.window < part.rank);
    }
    if (all) return run_chain(part, {0, u_.queries, end - 1, 0, 0});
    for (int64_t c = 0; c < chain_count_; ++c) run_chain(part, chains_[c]);
  }

  // The last keys before the tree, fewer than a partition, and behind them each chain's path.
  void run_tree(const KeyPart& shared) {
    KeyPart part;
    for (int64_t c = 0; c < chain_count_; ++c) {
      part.rank = shared.rank;
      part.band = shared.band;
      part.count = shared.count;
      std::copy_n(shared.slots, shared.count, part.slots);
      for (uint64_t path = chains_[c].path; path != 0; path &= path - 1) {
        part.slots[part.count++] = visibility_.tree_slot + std::countr_zero(path);
        if (!part.full()) continue;
        run_chain(part, chains_[c]);
        part.rank += part.count;
        part.count = 0;
      }
      if (part.count > 0) run_chain(part, chains_[c]);
    }
  }

  void run_chain(const KeyPart& part, const Chain& chain) {
    if (chain.rank + chain.count - 1 < part.rank) return;                                     // before the part
    if (chain.window > 0 && chain.rank - chain.window >= part.rank + part.count - 1) return;  // it has left the window
    AttentionArgs args;
    const uint8_t* pointers[2 * kAttentionPartition];
    point(part, chain.first, pointers);
    const int64_t head_dim = u_.layer.head_dim, width = u_.layer.q_width();
    args.q = u_.q + (u_.span.begin + u_.first + chain.first) * width + u_.kv_head * group_ * head_dim;
    args.q_stride = width;
    args.queries = chain.count;
    args.group = group_;
    args.head_dim = head_dim;
    args.value_dim = u_.layer.value_dim;
    args.first_query = chain.rank - part.rank;
    args.key_end = part.count;
    args.window = chain.window;
    args.softcap = u_.layer.softcap;
    args.unify = u_.layer.switches.unify;
    args.unified_max = u_.layer.switches.unified_max;
    args.k_blocks = pointers;
    args.v_blocks = own_values() ? pointers + kAttentionPartition : pointers;
    args.block_tokens = 1;
    set_row_formats(u_.kernels, u_.kv, u_.layer.layer, u_.residuals, args);
    args.key_ahead = part.count;
    args.cold = true;
    if (part.band.scale == 1) return run_kernel(args, chain.first, part.band);
    args.queries = 1;
    for (int64_t i = 0; i < chain.count; ++i, args.q += width, ++args.first_query) {
      AttentionArgs one = args;
      one.q = scaled_;
      std::copy_n(args.q, group_ * head_dim, scaled_);
      u_.kernels.scale(scaled_, part.band.scale, group_ * head_dim);
      run_kernel(one, chain.first + i, part.band);
    }
  }

  bool own_values() const { return u_.kv.layout().layers[static_cast<size_t>(u_.layer.layer)].planes() > 1; }

  void point(const KeyPart& part, int64_t query, const uint8_t** pointers) const {
    if (u_.encoded) {
      const int32_t* table = u_.batch.tables(u_.layer.group).data() + u_.span.table;
      return u_.encoded->point({u_.span, table, u_.kv_head},
                               std::span(part.slots).first(static_cast<size_t>(part.count)), slot_of(query), u_.worker,
                               pointers, pointers + kAttentionPartition);
    }
    const int64_t block_tokens = u_.kv.layout().block_tokens, layer = u_.layer.layer;
    const int64_t key_bytes = u_.kv.row_bytes(layer), value_bytes = u_.kv.value_row_bytes(layer);
    const std::vector<int32_t>& tables = u_.batch.tables(u_.layer.group);
    const bool values = own_values();
    for (int64_t i = 0; i < part.count; ++i) {
      const int64_t slot = part.slots[i], within = slot % block_tokens;
      const BlockId block = tables[static_cast<size_t>(u_.span.table + slot / block_tokens)];
      pointers[i] = u_.kv.keys(layer, block, u_.kv_head) + within * key_bytes;
      if (values) pointers[kAttentionPartition + i] = u_.kv.values(layer, block, u_.kv_head) + within * value_bytes;
    }
  }

  void run_kernel(AttentionArgs& args, int64_t first, const KeyBand& band) {
    const int64_t rows = args.queries * group_, row = first * group_, dims = u_.layer.values();
    const Partial partial = partial_at(scratch_, rows);
    set_partial(partial, args);
    u_.encoded ? u_.encoded->attend_rows(u_.kernel, args, u_.worker) : u_.kernel.run(args);
    for (int64_t r = 0; band.bias != 0 && r < rows; ++r) {
      partial.max[r] += band.bias;
      partial.top[r] += band.bias;
    }
    for (int64_t r = 0; phase_ == Phase::score && r < rows; ++r)
      choice_.add(band.document, row + r, partial.max[r], partial.sum[r]);
    if (phase_ == Phase::score) return;
    for (int64_t r = 0; phase_ == Phase::choose && r < rows; ++r)
      if (!choice_.has(row + r, band.document)) {
        partial.sum[r] = 0;
        partial.top[r] = -std::numeric_limits<float>::infinity();
      }
    join_partial(u_.kernels, rows, dims, partial, total_.from(row, dims));
  }

  const VisibleUnit& u_;
  const MarkedBlocks marked_;
  const Visibility& visibility_;
  const std::span<const KeySegment> segments_;
  const Partial total_;
  const int64_t group_;
  float* scratch_;
  float* scaled_;
  DocumentChoice choice_;
  enum class Phase : uint8_t { all, score, choose } phase_ = Phase::all;
  int64_t shared_end_ = 0;  // slots before it are not in the tree
  int64_t shared_ = 0;      // keys that the last query sees of those
  int64_t chain_count_ = 0;
  Chain chains_[kMaxQueries];
};

// With a pattern, queries of one of its blocks at a time. All slots between two queries are visible.
void attend_blocks_of(const VisibleUnit& unit, const AttentionPattern* pattern, const Partial& total, float* scratch) {
  const Visibility& visibility = unit.batch.visibility[static_cast<size_t>(unit.span.visibility)];
  if (!pattern || visibility.whole) return VisibleAttention(unit, {}, total, scratch).run();
  const int64_t block = pattern->block(), group = unit.layer.heads / unit.layer.kv_heads;
  int64_t first = 0;  // of the unit's queries, among the visible slots
  VisibleSlots visible(unit.batch, visibility,
                       segments_of(unit.batch, visibility, unit.kv.layout(), unit.layer.layer, unit.kv_head),
                       unit.kv_head, unit.kv.layout().block_tokens, unit.span.first_slot + unit.first);
  for (SlotRun run; visible.next(run);) first += run.end - run.begin;
  for (int64_t i = 0, count; i < unit.queries; i += count) {
    const int64_t own = (first + i) / block;
    count = std::min(unit.queries - i, (own + 1) * block - (first + i));
    BlockMarks marks(own);
    pattern->mark({unit.layer.layer, unit.kv_head, unit.layer.kv_heads}, own, marks);
    VisibleUnit part = unit;
    part.first += i;
    part.queries = count;
    VisibleAttention(part, {&marks, block}, total.from(i * group, unit.layer.values()), scratch).run();
  }
}

}  // namespace

int64_t visible_scratch_floats(int64_t rows, int64_t group, int64_t head_dim, int64_t value_dim) {
  return partial_floats(rows, value_dim) + group * head_dim + DocumentChoice::floats(rows);
}

// Queries of one block of the KV cache at a time, where they see the same blocks raw.
void attend_visible(const VisibleUnit& unit, const AttentionPattern* pattern, const Partial& total, float* scratch) {
  if (!unit.encoded) return attend_blocks_of(unit, pattern, total, scratch);
  const int64_t block = unit.kv.layout().block_tokens, group = unit.layer.heads / unit.layer.kv_heads;
  for (int64_t i = 0, count; i < unit.queries; i += count) {
    const int64_t slot = unit.span.first_slot + unit.first + i;
    count = std::min(unit.queries - i, block - slot % block);
    VisibleUnit part = unit;
    part.first += i;
    part.queries = count;
    attend_blocks_of(part, pattern, total.from(i * group, unit.layer.values()), scratch);
  }
}

}  // namespace millrace
