// Scan of states that are matrices, in vectors of columns. Include after the vector type.
//
// A token passes over the matrix once: the pass that updates a row also adds its products with this token's query and
// with the next token's key, which the next token's correction needs. Only a call's first token needs a pass of its own
// for that product. The columns of a pass stay in the first-level cache from token to token.
//
// A column's sums are in kScanChains chains, of every kScanChains-th row: they do not depend on the number of tokens in
// a call or on other columns.
#pragma once

#include "kernels/matrix_scan.h"

namespace millrace {
namespace {

// Two vectors of columns share the loads of keys and queries, and two chains hide the latency of sums.
constexpr int kScanVectors = 2;
constexpr int kScanChains = 2;

// One vector of columns: all its lanes, or the first `count`.
template <bool kWhole>
struct ScanColumns {
  int64_t count;
  Simd::F load(const float* p) const { return kWhole ? Simd::load(p) : Simd::load_n(p, count); }
  void store(float* p, Simd::F v) const {
    if (kWhole)
      Simd::store(p, v);
    else
      Simd::store_n(p, v, count);
  }
};

template <int kVectors>
struct ScanSums {
  Simd::F chains[kScanChains][kVectors];

  [[gnu::always_inline]] void clear() {
    for (auto& chain : chains)
      for (Simd::F& sum : chain) sum = Simd::zero();
  }
  [[gnu::always_inline]] Simd::F total(int v) const {
    Simd::F sum = chains[0][v];
    for (int i = 1; i < kScanChains; ++i) sum = Simd::add(sum, chains[i][v]);
    return sum;
  }
};

// Calls row(state, n, chain) for every row; `chain` is a constant for the compiler.
template <typename Row>
[[gnu::always_inline]] inline void each_row(float* state, int64_t stride, int64_t keys, const Row& row) {
  int64_t n = 0;
  for (; n + kScanChains <= keys; n += kScanChains)
    for (int chain = 0; chain < kScanChains; ++chain, state += stride) row(state, n + chain, chain);
  for (; n < keys; ++n, state += stride) row(state, n, 0);
}

// Returns the products of a key with every row.
template <int kVectors, bool kWhole>
[[gnu::always_inline]] inline ScanSums<kVectors> hold_key(const MatrixScanArgs& a, float* state, const float* key,
                                                          ScanColumns<kWhole> at) {
  ScanSums<kVectors> held;
  held.clear();
  each_row(
      state, a.columns, a.keys, [&](const float* row, int64_t n, int chain) __attribute__((always_inline)) {
        const Simd::F k = Simd::set(key[n]);
        for (int v = 0; v < kVectors; ++v)
          held.chains[chain][v] = Simd::fma(k, at.load(row + v * Simd::kLanes), held.chains[chain][v]);
      });
  return held;
}

// Updates every row by token t, whose change is `change`, and writes the products with its query. Returns the products
// with the next token's key, if kNext.
template <int kVectors, bool kWhole, bool kNext>
[[gnu::always_inline]] inline ScanSums<kVectors> pass_token(const MatrixScanArgs& a, float* state, int64_t t,
                                                            const Simd::F* change, ScanColumns<kWhole> at, float* out) {
  const float* key = a.k + t * a.key_stride;
  const float* query = a.q + t * a.key_stride;
  const float* next = kNext ? key + a.key_stride : nullptr;
  const Simd::F decay = Simd::set(a.decay[t * a.rate_stride]);
  Simd::F d[kVectors];
  for (int v = 0; v < kVectors; ++v) d[v] = change[v];
  ScanSums<kVectors> y, held;
  y.clear();
  held.clear();
  each_row(
      state, a.columns, a.keys, [&](float* row, int64_t n, int chain) __attribute__((always_inline)) {
        const Simd::F k = Simd::set(key[n]), q = Simd::set(query[n]), ahead = kNext ? Simd::set(next[n]) : k;
        for (int v = 0; v < kVectors; ++v) {
          const Simd::F s = Simd::fma(k, d[v], Simd::mul(decay, at.load(row + v * Simd::kLanes)));
          at.store(row + v * Simd::kLanes, s);
          y.chains[chain][v] = Simd::fma(q, s, y.chains[chain][v]);
          if (kNext) held.chains[chain][v] = Simd::fma(ahead, s, held.chains[chain][v]);
        }
      });
  for (int v = 0; v < kVectors; ++v) at.store(out + v * Simd::kLanes, y.total(v));
  return held;
}

template <int kVectors, bool kWhole, bool kCorrects>
inline void scan_columns(const MatrixScanArgs& a, int64_t first, ScanColumns<kWhole> at) {
  float* state = a.state + first;
  ScanSums<kVectors> held;
  if (kCorrects) held = hold_key<kVectors>(a, state, a.k, at);
  for (int64_t t = 0; t < a.tokens; ++t) {
    const Simd::F decay = Simd::set(a.decay[t * a.rate_stride]), rate = Simd::set(a.rate[t * a.rate_stride]);
    Simd::F change[kVectors];
    for (int v = 0; v < kVectors; ++v) {
      change[v] = at.load(a.v + t * a.v_stride + first + v * Simd::kLanes);
      if (kCorrects) change[v] = Simd::fnma(decay, held.total(v), change[v]);
      change[v] = Simd::mul(rate, change[v]);
    }
    float* y = a.y + t * a.y_stride + first;
    if (kCorrects && t + 1 < a.tokens)
      held = pass_token<kVectors, kWhole, true>(a, state, t, change, at, y);
    else
      pass_token<kVectors, kWhole, false>(a, state, t, change, at, y);
  }
}

template <bool kCorrects>
inline void scan_matrix(const MatrixScanArgs& a) {
  constexpr int64_t kPass = kScanVectors * Simd::kLanes;
  int64_t c = 0;
  for (; c + kPass <= a.columns; c += kPass) scan_columns<kScanVectors, true, kCorrects>(a, c, {kPass});
  for (; c + Simd::kLanes <= a.columns; c += Simd::kLanes) scan_columns<1, true, kCorrects>(a, c, {Simd::kLanes});
  if (c < a.columns) scan_columns<1, false, kCorrects>(a, c, {a.columns - c});
}

inline void scan_matrices(const MatrixScanArgs& a) noexcept {
  if (a.tokens < 1) return;
  if (a.corrects)
    scan_matrix<true>(a);
  else
    scan_matrix<false>(a);
}

}  // namespace
}  // namespace millrace
