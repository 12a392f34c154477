// Streams of random keys and queries for tests of attention patterns, and softmax attention over a mask in double.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "attention/block_lines.h"
#include "attention/block_sums.h"
#include "attention/full.h"
#include "attention/pattern_layers.h"
#include "kernel_tables.h"
#include "tensor/half.h"

namespace millrace::testing {

inline constexpr int64_t kSparseKvHeads = 3, kSparseGroup = 2, kSparseHeads = kSparseKvHeads * kSparseGroup;
inline constexpr int64_t kSparseContext = 1100;

inline std::shared_ptr<const AttentionPattern> pattern_from(const std::string& text) {
  auto made = make_attention_pattern(text);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? *made : nullptr;
}

// Streams in one pool; the last tokens of each are the batch.
struct SparseStreams {
  // With layers of a pattern's own, for no other.
  SparseStreams(const KernelTable& kernel_table, const Format& format, int64_t dim, int64_t tokens_per_block, float cap,
                const AttentionPattern* own = nullptr)
      : table(kernel_table),
        head_dim(dim),
        block_tokens(tokens_per_block),
        softcap(cap),
        codec(*kernel_table.find_codec(&format)),
        summarizer(own),
        pool(KvPool::create(layout(format), 3 * kSparseContext / block_tokens).value()) {}

  KvLayout layout(const Format& format) const {
    const KvLayer layer{.kv_heads = kSparseKvHeads, .head_dim = head_dim, .heads_each = kSparseGroup};
    KvLayout out{&format, block_tokens, {layer}};
    EXPECT_TRUE(add_pattern_layers(out, summarizer, kSparseContext).ok());
    return out;
  }

  // Rows depend on the seed and the slot.
  void add(int64_t slots, int64_t count, uint64_t seed) {
    const BatchSpan span{batch.size(), count, slots - count, std::ssize(batch.block_tables), pool.blocks_for(slots)};
    for (int64_t b = 0; b < span.table_size; ++b) batch.block_tables.push_back(*pool.allocate());
    batch.tokens.resize(static_cast<size_t>(batch.size() + count));
    batch.spans.push_back(span);
    for (int64_t slot = 0; slot < slots; ++slot)
      for (int64_t h = 0; h < kSparseKvHeads; ++h)
        for (int64_t plane : {0, 1}) {
          const auto place = static_cast<uint64_t>((slot * kSparseKvHeads + h) * 2 + plane);
          codec.encode(random_values(head_dim, seed << 32 | place).data(), at(span, slot, h, plane), head_dim);
        }
    if (dynamic_pattern(summarizer)) summarize(span, 0, slots);
  }

  // As if slots [begin, end) of the stream were the batch. `answer`: they were sampled.
  void summarize(const BatchSpan& span, int64_t begin, int64_t end, bool answer = false) {
    ThreadPool threads(2);
    Batch part;
    part.block_tables = batch.block_tables;
    part.spans = {{0, end - begin, begin, span.table, span.table_size}};
    part.spans[0].answer = answer;
    summarize_keys(part, attention(summarizer), table, threads, pool, kSparseContext);
    std::vector<float> q;
    for (int64_t slot = begin; slot < end; ++slot) std::ranges::copy(query(slot), std::back_inserter(q));
    std::vector<float> scratch = scratch_for(summarizer, 2);
    std::vector<const uint8_t*> pointers = pointers_for(2);
    for (const auto find : {find_lines, find_sums})
      find(part, attention(summarizer), table, threads, pool, q.data(), kSparseContext, scratch.data(), pointers.data(),
           nullptr);
  }

  AttentionLayer attention(const AttentionPattern* pattern) const {
    AttentionLayer layer{0, kSparseHeads, kSparseKvHeads, head_dim, 0, softcap};
    layer.switches.pattern = pattern;
    return layer;
  }

  uint8_t* at(const BatchSpan& span, int64_t slot, int64_t head, int64_t plane) {
    const BlockId block = batch.block_tables[static_cast<size_t>(span.table + slot / block_tokens)];
    uint8_t* rows = plane ? pool.values(0, block, head) : pool.keys(0, block, head);
    return rows + slot % block_tokens * pool.row_bytes(0);
  }

  // The query of a slot of any stream.
  std::vector<float> query(int64_t slot) const {
    auto row = random_values(kSparseHeads * head_dim, static_cast<uint64_t>(slot) + 99);
    for (float& x : row) x *= 1.5f / std::sqrt(static_cast<float>(head_dim));
    return row;
  }

  std::vector<float> queries() const {
    std::vector<float> q;
    for (const BatchSpan& span : batch.spans)
      for (int64_t i = 0; i < span.count; ++i) std::ranges::copy(query(span.first_slot + i), std::back_inserter(q));
    return q;
  }

  std::vector<float> scratch_for(const AttentionPattern* pattern, int threads) const {
    return std::vector<float>(static_cast<size_t>(attention_scratch_floats(
        threads, kSparseContext, kSparseGroup, head_dim, kSparseKvHeads, 0, {.pattern = pattern})));
  }
  std::vector<const uint8_t*> pointers_for(int threads) const {
    return std::vector<const uint8_t*>(
        static_cast<size_t>(attention_scratch_pointers(threads, kSparseContext, block_tokens)));
  }

  std::vector<float> run(const AttentionPattern* pattern, int thread_count = 1) {
    ThreadPool threads(thread_count);
    const std::vector<float> q = queries();
    std::vector<float> out(q.size(), NAN);
    std::vector<float> scratch = scratch_for(pattern, thread_count);
    std::vector<const uint8_t*> pointers = pointers_for(thread_count);
    attend(batch, attention(pattern), table, threads, pool, q.data(), out.data(), kSparseContext, scratch.data(),
           pointers.data());
    return out;
  }

  // Softmax attention of the query of a span's token over the slots that `sees` allows: [head_dim].
  std::vector<double> reference(const BatchSpan& span, int64_t slot, const float* q, int64_t kv_head,
                                const std::function<bool(int64_t)>& sees, bool rounded) {
    const auto operand = [&](float x) { return double{rounded ? bf16_to_f32(f32_to_bf16(x)) : x}; };
    std::vector<float> row(static_cast<size_t>(head_dim));
    std::vector<double> out(static_cast<size_t>(head_dim));
    double sum = 0;
    for (int64_t key = 0; key <= slot; ++key) {
      if (!sees(key)) continue;
      codec.decode(at(span, key, kv_head, 0), row.data(), head_dim);
      double score = 0;
      for (size_t d = 0; d < row.size(); ++d) score += operand(q[d]) * operand(row[d]);
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      const double weight = std::exp(score);
      codec.decode(at(span, key, kv_head, 1), row.data(), head_dim);
      for (size_t d = 0; d < row.size(); ++d) out[d] += weight * operand(row[d]);
      sum += weight;
    }
    for (double& x : out) x /= sum;
    return out;
  }

  const KernelTable& table;
  int64_t head_dim, block_tokens;
  float softcap;
  const RowCodec& codec;
  const AttentionPattern* summarizer;
  KvPool pool;
  Batch batch;
};

// Expects that the last rows of a stream have the same bits as in a pass over the whole stream, for any chunks and any
// number of threads, also with another stream in the batch.
inline void expect_bits_of_whole(const std::vector<std::string>& patterns, int64_t dim) {
  for (const KernelTable& table : attention_tables())
    for (const std::string& text : patterns) {
      SCOPED_TRACE(isa_name(table.isa) + " " + text);
      const auto pattern = pattern_from(text);
      SparseStreams whole(table, *find_format("f16"), dim, 16, 0, pattern.get());
      whole.add(420, 420, 1);
      const auto expected = whole.run(pattern.get());
      EXPECT_FALSE(same_bits(whole.run(nullptr), expected));
      const int64_t width = kSparseHeads * dim;
      for (const auto& [slots, count] : {std::pair<int64_t, int64_t>{420, 1}, {419, 7}, {410, 130}, {63, 5}}) {
        SparseStreams part(table, *find_format("f16"), dim, 16, 0, pattern.get());
        part.add(100, 70, 9);
        part.add(slots, count, 1);
        const auto actual = part.run(pattern.get(), static_cast<int>(count % 3 + 1));
        const auto first = expected.begin() + (slots - count) * width;
        EXPECT_TRUE(same_bits(std::vector<float>(actual.begin() + 70 * width, actual.end()),
                              std::vector<float>(first, first + count * width)))
            << slots << " " << count;
      }
    }
}

}  // namespace millrace::testing
