// For conformance tests of kernels: the tables this machine can run, seeded values, comparisons.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/philox.h"
#include "kernels/kernel_table.h"
#include "kernels/x86/bf16_products.h"

namespace millrace::testing {

// ref first, then from fewer features to all that this machine has; those with bf16 also with the instruction for it
// that this machine does not choose.
inline const std::vector<KernelTable>& kernel_tables() {
  static const std::vector<KernelTable> tables = [] {
    std::vector<KernelTable> all;
    for (Isa isa : isa_variants()) all.push_back(make_kernel_table(isa));
#if defined(__x86_64__)
    if (detect_isa().includes(Isa::avx512)) {
      const bool usual = bf16_by_fma();
      set_bf16_by_fma(!usual);
      all.push_back(make_kernel_table(Isa::avx512));
      set_bf16_by_fma(usual);
    }
#endif
    return all;
  }();
  return tables;
}

// Those of kernel_tables() whose attention kernels differ from the table's before.
inline const std::vector<KernelTable>& attention_tables() {
  static const std::vector<KernelTable> tables = [] {
    const auto same = [](const AttentionKernel& a, const AttentionKernel& b) {
      return a.kv_format == b.kv_format && a.value_format == b.value_format && a.run == b.run;
    };
    std::vector<KernelTable> all;
    for (const KernelTable& table : kernel_tables())
      if (all.empty() || !std::ranges::equal(all.back().attention, table.attention, same) ||
          !std::ranges::equal(all.back().mixed_attention, table.mixed_attention, same) ||
          all.back().attention_merge != table.attention_merge)
        all.push_back(table);
    return all;
  }();
  return tables;
}

// Uniform in [-2, 2).
inline std::vector<float> random_values(int64_t n, uint64_t seed) {
  std::vector<float> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) {
    values[static_cast<size_t>(i)] = static_cast<float>(philox_uniform(seed, 77, static_cast<uint64_t>(i)) * 4.0 - 2.0);
  }
  return values;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

// |actual - expected| <= bound * max(1, largest |expected|), everywhere; NaN equals nothing.
inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, double bound) {
  ASSERT_EQ(actual.size(), expected.size());
  double top = 1;
  for (float x : expected) top = std::max(top, std::fabs(static_cast<double>(x)));
  size_t wrong = 0, worst = 0;
  double error = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double e = std::fabs(static_cast<double>(actual[i]) - expected[i]);
    if (e <= bound * top) continue;
    if (wrong++ == 0 || e > error) worst = i, error = e;
  }
  EXPECT_EQ(wrong, 0u) << "worst at " << worst << ": " << actual[worst] << ", expected " << expected[worst]
                       << ", bound " << bound * top;
}

}  // namespace millrace::testing
