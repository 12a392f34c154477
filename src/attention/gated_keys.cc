#include "attention/gated_keys.h"

#include <algorithm>
#include <limits>

#include "attention/row_formats.h"

namespace millrace {
namespace {

// Consecutive queries of a unit, each of which sees what the one before it sees, and itself: one call of the kernel.
struct Run {
  int64_t first = 0;  // of the unit's queries
  int64_t count = 0;
  int64_t older = 0;  // keys that the first one sees before its own
};

class GatedAttention {
 public:
  GatedAttention(const VisibleUnit& unit, const KeyLifetimes::Span& lifetimes, const Partial& total,
                 const Partial& partial)
      : u_(unit),
        lifetimes_(lifetimes),
        total_(total),
        partial_(partial),
        group_(unit.layer.heads / unit.layer.kv_heads),
        own_values_(unit.kv.layout().layers[static_cast<size_t>(unit.layer.layer)].planes() > 1) {}

  void run() {
    std::fill_n(total_.max, u_.queries * group_, -std::numeric_limits<float>::infinity());
    std::fill_n(total_.sum, u_.queries * group_, 0.0f);
    std::fill_n(total_.top, u_.queries * group_, -std::numeric_limits<float>::infinity());
    for (int64_t i = 0; i < u_.queries;) {
      if (!lifetimes_.attends(slot_of(i))) {
        ++i;
        continue;
      }
      const Run run = run_from(i);
      attend(run);
      i += run.count;
    }
  }

 private:
  int64_t slot_of(int64_t query) const { return u_.span.first_slot + u_.first + query; }

  Run run_from(int64_t first) const {
    Run run{first, 1, 0};
    const int64_t slot = slot_of(first);
    int32_t end = lifetimes_.ends[slot];  // the first token that no longer sees some key of the run
    for (int64_t s = 0; s < slot; ++s) {
      if (!lifetimes_.sees(slot, s)) continue;
      ++run.older;
      end = std::min(end, lifetimes_.ends[s]);
    }
    for (; first + run.count < u_.queries; ++run.count) {
      const int64_t next = slot_of(first + run.count);
      if (next + lifetimes_.shift >= end || !lifetimes_.attends(next)) break;
      end = std::min(end, lifetimes_.ends[next]);
    }
    return run;
  }

  void attend(const Run& run) {
    const int64_t slot = slot_of(run.first), end = slot + run.count;
    int64_t count = 0, rank = 0;  // of the keys in the partition; the number of the first one
    for (int64_t s = 0; s < end; ++s) {
      if (s < slot && !lifetimes_.sees(slot, s)) continue;
      point(s, count++);
      if (count < kAttentionPartition && s + 1 < end) continue;  // the last slot is seen
      run_partition(run, rank, count);
      rank += count;
      count = 0;
    }
  }

  void point(int64_t slot, int64_t at) {
    const int64_t block_tokens = u_.kv.layout().block_tokens, layer = u_.layer.layer, within = slot % block_tokens;
    const BlockId block = u_.batch.tables(u_.layer.group)[static_cast<size_t>(u_.span.table + slot / block_tokens)];
    keys_[at] = u_.kv.keys(layer, block, u_.kv_head) + within * u_.kv.row_bytes(layer);
    if (own_values_) values_[at] = u_.kv.values(layer, block, u_.kv_head) + within * u_.kv.value_row_bytes(layer);
  }

  void run_partition(const Run& run, int64_t rank, int64_t count) {
    const int64_t head_dim = u_.layer.head_dim, width = u_.layer.q_width();
    const int64_t rows = run.count * group_, row = run.first * group_, dims = u_.layer.values();
    AttentionArgs args;
    args.q = u_.q + (u_.span.begin + u_.first + run.first) * width + u_.kv_head * group_ * head_dim;
    args.q_stride = width;
    args.queries = run.count;
    args.group = group_;
    args.head_dim = head_dim;
    args.value_dim = u_.layer.value_dim;
    args.first_query = run.older - rank;
    args.key_end = count;
    args.softcap = u_.layer.softcap;
    args.unify = u_.layer.switches.unify;
    args.unified_max = u_.layer.switches.unified_max;
    args.k_blocks = keys_;
    args.v_blocks = own_values_ ? values_ : keys_;
    args.block_tokens = 1;
    set_row_formats(u_.kernels, u_.kv, u_.layer.layer, u_.residuals, args);
    args.key_ahead = count;
    args.cold = true;
    const Partial part = partial_at(partial_.max, rows);
    set_partial(part, args);
    u_.kernel.run(args);
    join_partial(u_.kernels, rows, dims, part, total_.from(row, dims));
  }

  const VisibleUnit& u_;
  const KeyLifetimes::Span& lifetimes_;
  const Partial total_, partial_;
  const int64_t group_;
  const bool own_values_;
  const uint8_t* keys_[kAttentionPartition];
  const uint8_t* values_[kAttentionPartition];
};

}  // namespace

void attend_gated(const VisibleUnit& unit, const KeyLifetimes::Span& lifetimes, const Partial& total,
                  const Partial& partial) {
  GatedAttention(unit, lifetimes, total, partial).run();
}

}  // namespace millrace
