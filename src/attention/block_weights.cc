#include "attention/block_weights.h"

#include <algorithm>
#include <cmath>

#include "attention/chosen_blocks.h"
#include "attention/codec_tiles.h"

namespace millrace {

void weigh_block(const VisibleUnit& u, int64_t pattern_block, int64_t block, const float* q, int64_t queries,
                 const Partial& partial, const uint8_t** pointers, float* logs, int64_t stride) {
  const int64_t group = u.layer.heads / u.layer.kv_heads;
  AttentionArgs args = block_args(u, pattern_block, block, pattern_block, partial, pointers);
  args.queries = queries;
  args.first_query = pattern_block;  // all of them see the whole block
  args.q = q;
  args.q_stride = group * u.layer.head_dim;
  if (u.encoded) {
    const int64_t each = pattern_block / u.kv.layout().block_tokens;
    const int64_t raw = u.encoded->first_raw(u.span.first_slot + u.first);
    const int32_t* table = u.batch.tables(u.layer.group).data() + u.span.table;
    u.encoded->attend_before(u.kernel, {u.span, table, u.kv_head, u.encoded->places(u.worker)}, args,
                             std::clamp<int64_t>(raw - block * each, 0, each), u.worker, pointers);
  } else {
    u.kernel.run(args);
  }
  for (int64_t row = 0; row < queries * group; ++row)
    logs[row * stride] = partial.max[row] + std::log(partial.sum[row]);
}

}  // namespace millrace
