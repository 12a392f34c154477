// Attention over tiles of levels, of every table: each row of a partition against softmax attention in double over the
// values that the levels stand for, and bit for bit against itself alone.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernel_tables.h"
#include "kernels/kernel_table.h"

namespace millrace::testing {

struct LevelCall {
  int64_t heads = 1, first = 0, queries = 1, encoded = 0, window = 0;
  float softcap = 0;
  bool unify = false;
};

// One head's blocks, as tiles, of which the first `encoded` slots are read, and as raw rows of f16 behind them.
struct LevelHead {
  struct Part {
    std::vector<std::vector<uint8_t>> tiles, rows;
    std::vector<float> decoded, raw;  // [slot, dim]
  };

  std::vector<const uint8_t*> blocks(const Part& part, int64_t encoded) const {
    std::vector<const uint8_t*> out(static_cast<size_t>(first_slot / block_tokens), nullptr);
    for (size_t b = 0; b < part.tiles.size(); ++b)
      out.push_back((std::ssize(out) * block_tokens < encoded ? part.tiles : part.rows)[b].data());
    return out;
  }
  double at(const Part& part, int64_t slot, int64_t d, int64_t encoded) const {
    return (slot < encoded ? part.decoded : part.raw)[static_cast<size_t>((slot - first_slot) * dim + d)];
  }

  int64_t dim = 0, block_tokens = 0;
  int64_t first_slot = 0;  // slot of the first block
  LevelTiles tiles;
  Part keys, values;
};

struct LevelPartial {
  std::vector<float> max, sum, acc;
};

// Rows [head, head + heads) of each query of the call; q: [queries, call.heads, dim].
inline LevelPartial run_levels(const KernelTable& table, const LevelHead& of, const LevelCall& call, int64_t key_begin,
                               const std::vector<float>& q, int64_t query, int64_t queries, int64_t head,
                               int64_t heads) {
  const int64_t dim = of.dim, rows = queries * heads;
  const auto k = of.blocks(of.keys, call.encoded), v = of.blocks(of.values, call.encoded);
  LevelPartial out{std::vector<float>(static_cast<size_t>(rows), NAN),
                   std::vector<float>(static_cast<size_t>(rows), NAN),
                   std::vector<float>(static_cast<size_t>(rows * dim), NAN)};
  AttentionArgs a{.q = q.data() + (query * call.heads + head) * dim, .q_stride = call.heads * dim};
  a.queries = queries;
  a.group = heads;
  a.head_dim = dim;
  a.first_query = call.first + query;
  a.key_begin = key_begin;
  a.key_end = std::min(key_begin + kAttentionPartition, call.first + query + queries);
  a.key_ahead = a.key_end;
  a.window = call.window;
  a.softcap = call.softcap;
  a.unify = call.unify;
  a.unified_max = 1;
  a.k_blocks = k.data();
  a.v_blocks = v.data();
  a.block_tokens = of.block_tokens;
  a.row_bytes = 2 * dim;
  a.tiles = &of.tiles;
  a.encoded_end = call.encoded;
  a.max = out.max.data();
  a.sum = out.sum.data();
  a.acc = out.acc.data();
  table.attend_tiles(a);
  return out;
}

// A row's mean of values, and the logarithm of its sum of exponentials.
inline std::vector<double> plain_row(const LevelHead& of, const LevelCall& call, int64_t begin, int64_t slot,
                                     const float* q) {
  const int64_t dim = of.dim;
  std::vector<double> scores, out(static_cast<size_t>(dim + 1));
  const int64_t end = std::min(begin + kAttentionPartition, slot + 1);
  const int64_t first = std::max(begin, call.window > 0 ? slot + 1 - call.window : 0);
  double top = -std::numeric_limits<double>::infinity(), total = 0;
  for (int64_t s = first; s < end; ++s) {
    double dot = 0;
    for (int64_t d = 0; d < dim; ++d) dot += q[d] * of.at(of.keys, s, d, call.encoded);
    if (call.softcap > 0) dot = call.softcap * std::tanh(dot / call.softcap);
    scores.push_back(dot);
    top = std::max(top, dot);
  }
  for (double& score : scores) total += score = std::exp(score - top);
  for (int64_t s = first; s < end; ++s)
    for (int64_t d = 0; d < dim; ++d)
      out[static_cast<size_t>(d)] +=
          scores[static_cast<size_t>(s - first)] / total * of.at(of.values, s, d, call.encoded);
  out[static_cast<size_t>(dim)] = top + std::log(total);
  return out;
}

// Those of kernel_tables() that read tiles; each kernel once.
inline std::vector<KernelTable> level_tables() {
  std::vector<KernelTable> out;
  for (const KernelTable& table : kernel_tables())
    if (table.attend_tiles && (out.empty() || out.back().attend_tiles != table.attend_tiles)) out.push_back(table);
  return out;
}

inline bool by_bytes(const KernelTable& table) {
  return table.isa.has(Feature::avx512_vnni) && table.isa.has(Feature::avx512_bf16);
}

inline void check_levels(const LevelHead& of, const LevelCall& call) {
  const int64_t dim = of.dim;
  std::vector<float> q = random_values(call.queries * call.heads * dim, 3);
  for (float& x : q) x *= 0.5f / std::sqrt(static_cast<float>(dim));
  const int64_t partition = (call.first + call.queries - 1) / kAttentionPartition * kAttentionPartition;
  std::vector<std::vector<double>> wanted;
  for (int64_t row = 0; row < call.queries * call.heads; ++row)
    wanted.push_back(plain_row(of, call, partition, call.first + row / call.heads, q.data() + row * dim));
  for (const KernelTable& table : level_tables()) {
    SCOPED_TRACE(isa_name(table.isa) + " bits " + std::to_string(of.tiles.bits) + " dim " + std::to_string(dim) +
                 " first " + std::to_string(call.first));
    // Where anything is rounded to bf16, weights and raw rows are; queries by bytes are not.
    const bool mostly_bytes = call.encoded - partition >= 96;
    const double bound = !by_bytes(table) ? 2e-5 : mostly_bytes ? 2e-3 : 6e-3;
    const LevelPartial all = run_levels(table, of, call, partition, q, 0, call.queries, 0, call.heads);
    for (int64_t row = 0; row < call.queries * call.heads; ++row) {
      const int64_t i = row / call.heads, slot = call.first + i;
      const LevelPartial one = run_levels(table, of, call, partition, q, i, 1, row % call.heads, 1);
      ASSERT_EQ(one.max[0], all.max[static_cast<size_t>(row)]) << row;
      ASSERT_EQ(one.sum[0], all.sum[static_cast<size_t>(row)]) << row;
      ASSERT_EQ(std::memcmp(one.acc.data(), all.acc.data() + row * dim, static_cast<size_t>(dim) * sizeof(float)), 0)
          << row;
      if (slot < partition) continue;
      const auto& want = wanted[static_cast<size_t>(row)];
      for (int64_t d = 0; d < dim; ++d)
        ASSERT_NEAR(one.acc[static_cast<size_t>(d)] / one.sum[0], want[static_cast<size_t>(d)], bound)
            << row << ", " << d;
      ASSERT_NEAR(one.max[0] + std::log(one.sum[0]), want[static_cast<size_t>(dim)], 2 * bound) << row;
    }
  }
}

}  // namespace millrace::testing
