// Reference attention over one partition of keys, and the merge of partitions. One query and one head at
// a time; scores of at most kAttentionPartition keys on the stack; every sum in double, keys ascending.
// Softmax by its maximum (Milakov and Gimelshein, 2018, "Online normalizer calculation for softmax");
// merge of partial results as in Dao et al., 2022, "FlashAttention". Thread-safe: no state.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/ops.h"
#include "kernels/ref/kv_rows.h"

namespace millrace {
namespace {

constexpr float kNoKey = -std::numeric_limits<float>::infinity();
constexpr int64_t kChunk = 64;  // values of a row decoded at a time; a multiple of every KV block

struct KeyRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// Slots of [key_begin, key_end) that the query at `slot` sees.
KeyRange visible_keys(const AttentionArgs& a, int64_t slot) noexcept {
  KeyRange range{a.key_begin, a.key_end};
  if (range.end - range.begin > kAttentionPartition) range.end = range.begin + kAttentionPartition;
  if (slot < range.end - 1) range.end = slot + 1;
  if (a.window > 0 && slot - a.window >= range.begin) range.begin = slot - a.window + 1;
  return range;
}

const uint8_t* key_row(const AttentionArgs& a, int64_t slot) noexcept {
  return a.k_blocks[slot / a.block_tokens] + slot % a.block_tokens * a.row_bytes;
}

const uint8_t* value_row(const AttentionArgs& a, int64_t slot) noexcept {
  const int64_t bytes = a.value_row_bytes > 0 ? a.value_row_bytes : a.row_bytes;
  return a.v_blocks[slot / a.block_tokens] + slot % a.block_tokens * bytes;
}

// How rows are read: in a format of this file, or by the decoders of the call.
template <typename Kv>
struct FormatRows {
  static void decode_key(const AttentionArgs& a, const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    Kv::decode(row, begin, n, out);
    if (a.residual_offset == 0) return;
    float residual[kChunk];
    Kv::decode(row + a.residual_offset, begin, n, residual);
    for (int64_t i = 0; i < n; ++i) out[i] += residual[i];
  }
  static void decode_value(const AttentionArgs& a, const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    decode_key(a, row, begin, n, out);
  }
};

struct AnyRows {
  static constexpr const char* kName = "any";
  static void decode_key(const AttentionArgs& a, const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    decode(a, a.decode_key, row, begin, n, out);
  }
  static void decode_value(const AttentionArgs& a, const uint8_t* row, int64_t begin, int64_t n, float* out) noexcept {
    decode(a, a.decode_value, row, begin, n, out);
  }

 private:
  static void decode(const AttentionArgs& a, void (*whole_row)(const uint8_t*, float*, int64_t), const uint8_t* row,
                     int64_t begin, int64_t n, float* out) noexcept {
    float whole[kMaxMixedHeadDim];
    whole_row(row, whole, a.head_dim);
    std::memcpy(out, whole + begin, static_cast<size_t>(n) * sizeof(float));
    if (a.residual_offset == 0) return;
    whole_row(row + a.residual_offset, whole, a.head_dim);
    for (int64_t i = 0; i < n; ++i) out[i] += whole[begin + i];
  }
};

template <typename Stored>
float score(const AttentionArgs& a, const float* q, int64_t slot) noexcept {
  const uint8_t* row = key_row(a, slot);
  float key[kChunk];
  double dot = 0;
  for (int64_t d = 0; d < a.head_dim; d += kChunk) {
    int64_t n = a.head_dim - d < kChunk ? a.head_dim - d : kChunk;
    Stored::decode_key(a, row, d, n, key);
    for (int64_t i = 0; i < n; ++i) dot += static_cast<double>(q[d + i]) * key[i];
  }
  if (a.softcap > 0) dot = a.softcap * std::tanh(dot / a.softcap);
  return static_cast<float>(dot);
}

// acc[d] = sum over keys of weight * value, for one chunk of dims at a time.
template <typename Stored>
void weighted_values(const AttentionArgs& a, KeyRange keys, const double* weights, float* acc) noexcept {
  const int64_t dims = value_dim_of(a);
  float value[kChunk];
  for (int64_t d = 0; d < dims; d += kChunk) {
    int64_t n = dims - d < kChunk ? dims - d : kChunk;
    double total[kChunk] = {};
    for (int64_t slot = keys.begin; slot < keys.end; ++slot) {
      Stored::decode_value(a, value_row(a, slot), d, n, value);
      for (int64_t i = 0; i < n; ++i) total[i] += weights[slot - keys.begin] * value[i];
    }
    for (int64_t i = 0; i < n; ++i) acc[d + i] = static_cast<float>(total[i]);
  }
}

template <typename Stored>
void attend_row(const AttentionArgs& a, int64_t query, int64_t head) noexcept {
  const int64_t row = query * a.group + head;
  const float* q = a.q + query * a.q_stride + head * a.head_dim;
  const KeyRange keys = visible_keys(a, a.first_query + query);

  float scores[kAttentionPartition];
  float max = kNoKey;
  for (int64_t slot = keys.begin; slot < keys.end; ++slot) {
    float s = score<Stored>(a, q, slot);
    scores[slot - keys.begin] = s;
    if (!(s <= max)) max = s;  // a NaN score stays visible
  }
  if (a.scores) {
    for (int64_t slot = keys.begin; slot < keys.end; ++slot)
      a.scores[row * a.score_stride + slot - a.key_begin] = scores[slot - keys.begin];
    return;
  }
  if (a.top) a.top[row] = max;
  float* acc = a.acc + row * value_dim_of(a);
  if (max == kNoKey) {
    a.max[row] = kNoKey;
    a.sum[row] = 0;
    for (int64_t d = 0; d < value_dim_of(a); ++d) acc[d] = 0;
    return;
  }
  double weights[kAttentionPartition];
  const auto weigh = [&](float shift) {
    double sum = 0;
    for (int64_t slot = keys.begin; slot < keys.end; ++slot) {
      double w = std::exp(static_cast<double>(scores[slot - keys.begin]) - shift);
      weights[slot - keys.begin] = w;
      sum += w;
    }
    return sum;
  };
  double sum = 0;
  if (a.unify) sum = weigh(a.unified_max);
  if (a.unify && within_unified_range(static_cast<float>(sum)))
    max = a.unified_max;
  else
    sum = weigh(max);
  a.max[row] = max;
  a.sum[row] = static_cast<float>(sum);
  weighted_values<Stored>(a, keys, weights, acc);
}

template <typename Stored>
void attend(const AttentionArgs& a) noexcept {
  for (int64_t query = 0; query < a.queries; ++query) {
    for (int64_t head = 0; head < a.group; ++head) attend_row<Stored>(a, query, head);
  }
}

void join_row(int64_t head_dim, float max, float sum, const float* acc, float& total_max, float& total_sum,
              float* total) noexcept {
  if (sum == 0) return;
  if (total_sum == 0) {
    total_max = max;
    total_sum = sum;
    std::memcpy(total, acc, static_cast<size_t>(head_dim) * sizeof(float));
    return;
  }
  const float top = max <= total_max ? total_max : max;  // a NaN stays
  const double old_factor = std::exp(static_cast<double>(total_max) - top);
  const double new_factor = std::exp(static_cast<double>(max) - top);
  for (int64_t d = 0; d < head_dim; ++d) total[d] = static_cast<float>(old_factor * total[d] + new_factor * acc[d]);
  total_sum = static_cast<float>(old_factor * total_sum + new_factor * sum);
  total_max = top;
}

void join(int64_t rows, int64_t head_dim, const float* max, const float* sum, const float* acc, float* total_max,
          float* total_sum, float* total_acc) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    join_row(head_dim, max[row], sum[row], acc + row * head_dim, total_max[row], total_sum[row],
             total_acc + row * head_dim);
  }
}

void merge_row(int64_t partials, int64_t rows, int64_t row, int64_t head_dim, const float* max, const float* sum,
               const float* acc, const float* sink, float* out) noexcept {
  float top = kNoKey;
  float total = 0;
  for (int64_t p = 0; p < partials; ++p) {
    join_row(head_dim, max[p * rows + row], sum[p * rows + row], acc + (p * rows + row) * head_dim, top, total, out);
  }
  if (total == 0) {
    for (int64_t d = 0; d < head_dim; ++d) out[d] = 0;
    return;
  }
  double factor = 1, divisor = total;
  if (sink) {
    const double shared = *sink > top ? *sink : top;
    factor = std::exp(top - shared);
    divisor = factor * total + std::exp(*sink - shared);
  }
  for (int64_t d = 0; d < head_dim; ++d) out[d] = static_cast<float>(factor * out[d] / divisor);
}

void merge(int64_t partials, int64_t rows, int64_t group, int64_t head_dim, const float* max, const float* sum,
           const float* acc, const float* sink, float* out) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    merge_row(partials, rows, row, head_dim, max, sum, acc, sink ? sink + row % group : nullptr, out + row * head_dim);
  }
}

struct Entry {
  const char* format;
  AttentionFunction run;
};

constexpr Entry kEntries[] = {
    {ref::KvF32::kName, attend<FormatRows<ref::KvF32>>},   {ref::KvF16::kName, attend<FormatRows<ref::KvF16>>},
    {ref::KvBf16::kName, attend<FormatRows<ref::KvBf16>>}, {ref::KvQ8::kName, attend<FormatRows<ref::KvQ8>>},
    {ref::KvQ40::kName, attend<FormatRows<ref::KvQ40>>},   {ref::KvQ41::kName, attend<FormatRows<ref::KvQ41>>},
    {ref::KvQ50::kName, attend<FormatRows<ref::KvQ50>>},   {ref::KvF8::kName, attend<FormatRows<ref::KvF8>>},
};

}  // namespace

void attend_reference(const char* format, const AttentionArgs& args) noexcept {
  if (std::strcmp(AnyRows::kName, format) == 0) return attend<AnyRows>(args);
  for (const Entry& entry : kEntries) {
    if (std::strcmp(entry.format, format) == 0) entry.run(args);
  }
}

void add_attention_ref(KernelTable& table) {
  for (const Entry& entry : kEntries) set_attention_named(table, entry.format, entry.run);
  table.any_attention.run = attend<AnyRows>;
  table.attention_join = join;
  table.attention_merge = merge;
}

}  // namespace millrace
