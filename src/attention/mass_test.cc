#include "attention/mass.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/cpu.h"
#include "base/philox.h"

namespace millrace {
namespace {

constexpr int64_t kBlock = 4, kHeads = 6, kKvHeads = 2, kDim = 8;

float draw(uint64_t stream, int64_t i) {
  return static_cast<float>(philox_uniform(3, stream, static_cast<uint64_t>(i))) * 4 - 2;
}

struct Bench {
  Bench()
      : pool(KvPool::create({find_format("f32"), kBlock, {{kKvHeads, kDim}}}, 16).value()),
        table(make_kernel_table(Isa::ref)) {}

  // A stream of `slots` tokens whose last `count` are in the batch.
  void add(int64_t slots, int64_t count) {
    BatchSpan span{batch.size(), count, slots - count, static_cast<int64_t>(batch.block_tables.size()),
                   pool.blocks_for(slots)};
    for (int64_t b = 0; b < span.table_size; ++b) batch.block_tables.push_back(*pool.allocate());
    for (int64_t slot = 0; slot < slots; ++slot)
      for (int64_t h = 0; h < kKvHeads; ++h) {
        const BlockId block = batch.block_tables[static_cast<size_t>(span.table + slot / kBlock)];
        auto* key = reinterpret_cast<float*>(pool.keys(0, block, h) + slot % kBlock * pool.row_bytes(0));
        for (int64_t d = 0; d < kDim; ++d)
          key[d] = draw(static_cast<uint64_t>(batch.spans.size()), (slot * kKvHeads + h) * kDim + d);
      }
    batch.tokens.resize(static_cast<size_t>(batch.size() + count));
    batch.spans.push_back(span);
  }

  // The definition, computed in double.
  std::vector<double> expected(size_t index, const std::vector<float>& q, int64_t window, double softcap) {
    const BatchSpan& span = batch.spans[index];
    const int64_t slots = span.first_slot + span.count;
    std::vector<double> mass(static_cast<size_t>(span.table_size));
    for (int64_t h = 0; h < kHeads; ++h) {
      std::vector<double> scores(static_cast<size_t>(slots));
      double sum = 0;
      for (int64_t slot = 0; slot < slots; ++slot) {
        if (window > 0 && slot + window < slots) continue;
        double dot = 0;
        for (int64_t d = 0; d < kDim; ++d)
          dot += static_cast<double>(q[static_cast<size_t>(((span.begin + span.count - 1) * kHeads + h) * kDim + d)]) *
                 static_cast<double>(draw(index, (slot * kKvHeads + h / (kHeads / kKvHeads)) * kDim + d));
        if (softcap > 0) dot = softcap * std::tanh(dot / softcap);
        sum += scores[static_cast<size_t>(slot)] = std::exp(dot);
      }
      for (int64_t slot = 0; slot < slots; ++slot)
        mass[static_cast<size_t>(slot / kBlock)] += scores[static_cast<size_t>(slot)] / sum / kHeads;
    }
    return mass;
  }

  KvPool pool;
  KernelTable table;
  Batch batch;
};

TEST(AttentionMass, MatchesSoftmaxOfLastQueryPerBlock) {
  for (int64_t window : {0, 6}) {
    for (float softcap : {0.0f, 2.0f}) {
      Bench bench;
      bench.add(9, 3);
      bench.add(5, 1);
      bench.add(14, 14);
      std::vector<float> q(static_cast<size_t>(bench.batch.size() * kHeads * kDim));
      for (size_t i = 0; i < q.size(); ++i) q[i] = draw(99, static_cast<int64_t>(i));
      AttentionMass mass;
      mass.spans = {0, 2};
      observe_mass(bench.batch, {0, kHeads, kKvHeads, kDim, window, softcap}, bench.table, bench.pool, q.data(), mass);
      std::vector<double> expected = bench.expected(0, q, window, static_cast<double>(softcap));
      for (double one : bench.expected(2, q, window, static_cast<double>(softcap))) expected.push_back(one);
      ASSERT_EQ(mass.mass.size(), expected.size());
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_NEAR(static_cast<double>(mass.mass[i]), expected[i], 1e-5) << window << " " << i;
    }
  }
}

}  // namespace
}  // namespace millrace
