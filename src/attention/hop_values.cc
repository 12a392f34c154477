#include "attention/hop_values.h"

#include <fmt/format.h>

#include <vector>

#include "attention/block_sparse.h"
#include "attention/row_formats.h"

namespace millrace {
namespace {

constexpr int64_t kHopRows = 256;  // of queries in a unit; attention_scratch_floats() has room for as many

// Of Z[hop]; hop > 0.
int64_t hop_layer(const KvPool& kv, const DiffusingPattern& pattern, int64_t layer, int64_t hop) {
  return layer + hop * (std::ssize(kv.layout().layers) / pattern.hops());
}

// out = A Z[hop - 1]
void attend_hop(const HopCall& c, const DiffusingPattern& pattern, int64_t hop, float* out) {
  const int64_t group = c.layer.heads / c.layer.kv_heads, dims = c.layer.values(), width = c.layer.heads * dims;
  const int64_t tile = std::max<int64_t>(1, kHopRows / group), most = tile * group;
  const SparseTiles tiles{pattern.block(), tile};
  const int64_t pointer_slot = attention_scratch_pointers(1, c.context, c.kv.layout().block_tokens);
  const AttentionKernel& kernel = attention_kernel(c.kernels, c.kv.layout());
  const std::vector<BatchSpan>& spans = c.batch.spans_of(c.layer.group);
  int64_t units = 0;
  for (const BatchSpan& span : spans) units += tiles.count(span);
  c.pool.parallel_for(units * c.layer.kv_heads, [&](int64_t index, int worker) {
    const int64_t kv_head = index % c.layer.kv_heads;
    int64_t left = index / c.layer.kv_heads;
    size_t s = 0;
    while (left >= tiles.count(spans[s])) left -= tiles.count(spans[s++]);
    const BatchSpan& span = spans[s];
    const int64_t at = tiles.tile_of(span.first_slot) + left;
    const int64_t begin = std::max(span.first_slot, tiles.first_slot(at));
    const int64_t queries = std::min(span.first_slot + span.count, tiles.end_slot(at)) - begin;
    VisibleUnit unit{c.batch, span, c.layer, c.kernels, c.kv, kernel, c.q, kv_head, begin - span.first_slot, queries};
    if (hop > 1) unit.value_layer = hop_layer(c.kv, pattern, c.layer.layer, hop - 1);
    float* own = c.scratch + worker * 2 * partial_floats(most, dims);
    const Partial total = partial_at(own, most), other = partial_at(own + partial_floats(most, dims), most);
    attend_blocks(unit, pattern, total, other, c.pointers + worker * pointer_slot);
    c.kernels.attention_merge(1, queries * group, group, dims, total.max, total.sum, total.acc, nullptr, other.acc);
    float* first = out + (span.begin + unit.first) * width + kv_head * group * dims;
    for (int64_t i = 0; i < queries; ++i) std::copy_n(other.acc + i * group * dims, group * dims, first + i * width);
  });
}

// Z[hop] of one token, of a V and (1 - a) A Z[hop - 1], whose rows of all heads are `attended`.
void store_token(const HopCall& c, const DiffusingPattern& pattern, const BatchSpan& span, int64_t token, int64_t hop,
                 const float* attended) {
  const int64_t group = c.layer.heads / c.layer.kv_heads, dims = c.layer.values();
  const int64_t block_tokens = c.kv.layout().block_tokens, slot = span.first_slot + token - span.begin;
  const int64_t to = hop_layer(c.kv, pattern, c.layer.layer, hop), within = slot % block_tokens;
  const BlockId block = c.batch.tables(c.layer.group)[static_cast<size_t>(span.table + slot / block_tokens)];
  const RowCodec& codec = *c.kernels.find_codec(c.kv.layout().values());
  const float own = pattern.own(), others = (1 - own) / static_cast<float>(group);
  float value[kMaxHopDim];
  for (int64_t h = 0; h < c.layer.kv_heads; ++h) {
    codec.decode(c.kv.values(c.layer.layer, block, h) + within * c.kv.value_row_bytes(c.layer.layer), value, dims);
    for (int64_t d = 0; d < dims; ++d) {
      float sum = 0;
      for (int64_t g = 0; g < group; ++g) sum += attended[(h * group + g) * dims + d];
      value[d] = own * value[d] + others * sum;
    }
    codec.encode(value, c.kv.keys(to, block, h) + within * c.kv.row_bytes(to), dims);
  }
}

}  // namespace

Result<void> add_hop_values(KvLayout& layout, const AttentionPattern* pattern, int64_t context) {
  const DiffusingPattern* diffusing = diffusing_pattern(pattern);
  if (!diffusing || layout.codec || layout.has_residuals()) return {};  // check_pattern() refuses the last two
  if (layout.values() != layout.format)
    return Error::unsupported(fmt::format("attention {}: needs keys and values of one format, not {}", pattern->text(),
                                          layout.format_name()));
  const auto layers = layout.layers;
  for (int64_t hop = 1; hop < diffusing->hops(); ++hop)
    for (int64_t i = 0; i < std::ssize(layers); ++i) {
      const KvLayer& layer = layers[static_cast<size_t>(i)];
      if (layer.values_in_keys)
        return Error::unsupported(fmt::format(
            "attention {}: values that are parts of their keys cannot diffuse; use hops=1", pattern->text()));
      const bool sees_all = layer.kv_heads > 0 && (layer.window <= 0 || layer.window >= context);
      layout.layers.push_back(sees_all ? KvLayer{.kv_heads = layer.kv_heads,
                                                 .head_dim = layer.head_dim,
                                                 .values_in_keys = true,
                                                 .side = KvSide{.layer = i}}
                                       : KvLayer{.side = KvSide{.layer = i}});
    }
  return {};
}

void diffuse_values(const HopCall& call, float* rows) {
  const DiffusingPattern* pattern = diffusing_pattern(pattern_of(call.layer, call.context));
  if (!pattern) return;
  const int64_t width = call.layer.heads * call.layer.values();
  for (int64_t hop = 1; hop < pattern->hops(); ++hop) {
    attend_hop(call, *pattern, hop, rows);
    for (const BatchSpan& span : call.batch.spans_of(call.layer.group))
      call.pool.parallel_for(span.count, [&](int64_t i, int) {
        const int64_t token = span.begin + i;
        store_token(call, *pattern, span, token, hop, rows + token * width);
      });
  }
}

void attend_last_hop(const HopCall& call, float* out) {
  const DiffusingPattern& pattern = *diffusing_pattern(call.layer.switches.pattern);
  attend_hop(call, pattern, pattern.hops(), out);
}

}  // namespace millrace
