#include "attention/kept_mass.h"

#include <vector>

#include "attention/chosen_blocks.h"
#include "attention/query_weights.h"

namespace millrace {
namespace {

// Of the heads of one KV head of the query at `slot`.
void add_query(const float* weights, int64_t group, int64_t slot, const BlockMarks& marks, int64_t block,
               KeptMass& kept) {
  const int64_t slots = slot + 1;
  const auto keys = static_cast<double>(marks.count() * block + slots - marks.end() * block);
  for (int64_t g = 0; g < group; ++g) {
    double mass = 0;
    const auto add = [&](int64_t first, int64_t end) {
      for (int64_t i = first; i < end; ++i) mass += weights[g * slots + i];
    };
    marks.each([&](int64_t b) { add(b * block, (b + 1) * block); });
    add(marks.end() * block, slots);
    kept.mass += mass;
    kept.keys += keys / static_cast<double>(slots);
    ++kept.queries;
  }
}

}  // namespace

void observe_kept_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, KvPool& kv,
                       const float* q, int64_t context, const KeptMassHeads& kept, const CodecTiles* tiles) {
  const AttentionPattern* pattern = pattern_of(layer, context);
  if (!pattern) return;
  const int64_t group = layer.heads / layer.kv_heads, block = pattern->block();
  const auto blocks = static_cast<size_t>(context / block + 1);
  const DynamicPattern* dynamic = dynamic_pattern(pattern);
  std::vector<float> features(static_cast<size_t>(dynamic ? dynamic->summary_floats(layer.head_dim) : 0));
  std::vector<float> scores(blocks), work(static_cast<size_t>(choose_work_floats(*pattern, context / block + 1)));
  std::vector<float> weights(static_cast<size_t>(layer.head_dim + group * context));
  for (const BatchSpan& span : batch.spans_of(layer.group)) {
    if (!kept.every_phase && !pattern->applies(span.answer)) continue;
    const int32_t* table = batch.tables(layer.group).data() + span.table;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t slot = span.first_slot + i;
      if (slot % kKeptMassEvery != kKeptMassEvery - 1) continue;
      const float* query = q + (span.begin + i) * layer.heads * layer.head_dim;
      for (int64_t kv_head = 0; kv_head < layer.kv_heads; ++kv_head) {
        BlockMarks marks(slot / block);
        choose_blocks(kv, layer, *pattern, table, kv_head, marks.end(), query + kv_head * group * layer.head_dim,
                      features.data(), scores.data(), work.data(), marks);
        query_weights(span, batch, layer, kernels, kv, kv_head, query, 0, slot + 1, weights.data(), tiles);
        add_query(weights.data() + layer.head_dim, group, slot, marks, block,
                  kept.heads[kept.heads.size() > 1 ? static_cast<size_t>(kv_head) : 0]);
      }
    }
  }
}

}  // namespace millrace
