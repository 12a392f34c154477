#include "attention/block_sparse.h"

#include <algorithm>

#include "attention/codec_tiles.h"
#include "attention/row_formats.h"

namespace millrace {
namespace {

constexpr int64_t kAheadKeys = 256;  // beyond a partition, for the kernel's prefetch

// Calls use(number, block) for the KV blocks that are seen, ascending; returns how many there are.
template <typename Use>
int64_t each_seen(const VisibleUnit& u, const BlockMarks& marks, int64_t kv_blocks_each, const Use& use) {
  const int64_t own_end = (u.span.first_slot + u.first + u.queries - 1) / u.kv.layout().block_tokens + 1;
  int64_t next = 0;
  const auto run = [&](int64_t first, int64_t end) {
    for (int64_t b = first; b < end; ++b) use(next++, b);
  };
  marks.each([&](int64_t block) { run(block * kv_blocks_each, (block + 1) * kv_blocks_each); });
  run(marks.end() * kv_blocks_each, own_end);
  return next;
}

// Sets pointers [0, count) to this head's keys, and [count, 2 * count) to its values, of the KV blocks that are seen.
// Returns count.
int64_t point_at_blocks(const VisibleUnit& u, const BlockMarks& marks, int64_t kv_blocks_each, bool own_values,
                        const uint8_t** pointers) {
  const int64_t own_end = (u.span.first_slot + u.first + u.queries - 1) / u.kv.layout().block_tokens + 1;
  const int64_t count = marks.count() * kv_blocks_each + own_end - marks.end() * kv_blocks_each;
  const int32_t* table = u.batch.tables(u.layer.group).data() + u.span.table;
  return each_seen(u, marks, kv_blocks_each, [&](int64_t number, int64_t block) {
    const BlockId id = table[block];
    pointers[number] = u.kv.keys(u.layer.layer, id, u.kv_head);
    if (!own_values) return;
    pointers[count + number] =
        u.value_layer < 0 ? u.kv.values(u.layer.layer, id, u.kv_head) : u.kv.keys(u.value_layer, id, u.kv_head);
  });
}

}  // namespace

const AttentionPattern* pattern_of(const AttentionLayer& layer, int64_t context) {
  return layer.window > 0 && layer.window < context ? nullptr : layer.switches.pattern;
}

void attend_blocks(const VisibleUnit& u, const AttentionPattern& pattern, const Partial& total, const Partial& scratch,
                   const uint8_t** pointers) {
  const int64_t query_block = (u.span.first_slot + u.first) / pattern.block();
  BlockMarks marks(query_block);
  pattern.mark({u.layer.layer, u.kv_head, u.layer.kv_heads}, query_block, marks);
  attend_marked(u, pattern.block(), marks, total, scratch, pointers);
}

void attend_marked(const VisibleUnit& u, int64_t block, const BlockMarks& marks, const Partial& total,
                   const Partial& scratch, const uint8_t** pointers) {
  const int64_t group = u.layer.heads / u.layer.kv_heads, width = u.layer.heads * u.layer.head_dim;
  const int64_t slot = u.span.first_slot + u.first;
  const bool own_values = u.kv.layout().layers[static_cast<size_t>(u.layer.layer)].planes() > 1;
  AttentionArgs args;
  args.block_tokens = u.kv.layout().block_tokens;
  int32_t* places = u.encoded ? u.encoded->places(u.worker) : nullptr;
  const auto note_place = [&](int64_t number, int64_t one) { places[number] = static_cast<int32_t>(one); };
  const int64_t blocks = u.encoded ? each_seen(u, marks, block / args.block_tokens, note_place)
                                   : point_at_blocks(u, marks, block / args.block_tokens, own_values, pointers);
  args.q = u.q + (u.span.begin + u.first) * width + u.kv_head * group * u.layer.head_dim;
  args.q_stride = width;
  args.queries = u.queries;
  args.group = group;
  args.head_dim = u.layer.head_dim;
  args.value_dim = u.layer.value_dim;
  args.first_query = marks.count() * block + slot % block;
  args.softcap = u.layer.softcap;
  args.unify = u.layer.switches.unify;
  args.unified_max = u.layer.switches.unified_max;
  args.k_blocks = pointers;
  args.v_blocks = own_values ? pointers + blocks : pointers;
  set_row_formats(u.kernels, u.kv, u.layer.layer, u.residuals, args);
  const int64_t keys = args.first_query + u.queries, rows = u.queries * group;
  for (args.key_begin = 0; args.key_begin < keys; args.key_begin += kAttentionPartition) {
    const Partial& partial = args.key_begin == 0 ? total : scratch;
    args.key_end = std::min(args.key_begin + kAttentionPartition, keys);
    args.key_ahead = std::min(args.key_end + kAheadKeys, keys);
    args.cold = args.key_begin == 0;
    set_partial(partial, args);
    if (u.encoded)
      u.encoded->attend(u.kernel, {u.span, u.batch.tables(u.layer.group).data() + u.span.table, u.kv_head, places},
                        args, u.worker, pointers);
    else
      u.kernel.run(args);
    if (args.key_begin > 0) join_partial(u.kernels, rows, u.layer.values(), scratch, total);
  }
}

}  // namespace millrace
