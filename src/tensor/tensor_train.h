// TensorTrain: the shape of rows that are stored as tensor trains. A row of n1 n2 ... nk values is an array with k
// modes; each mode has a core [rank before, mode, rank after], and a value is the product of one slice of each core:
//
//   row[i1, i2, ..., ik] = G1[i1] G2[i2] ... Gk[ik]        Gj[ij] is a matrix; G1[i1] has one row, Gk[ik] one column
//
// The cores of a row lie one after the other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace millrace {

struct TensorTrain {
  static constexpr int kMaxModes = 8;
  static constexpr int64_t kMaxRank = 64;

  int modes = 0;
  std::array<int32_t, kMaxModes> sizes = {};
  std::array<int32_t, kMaxModes> ranks = {};  // rank after each mode; the last is 1

  int64_t rank_before(int mode) const { return mode == 0 ? 1 : ranks[static_cast<size_t>(mode - 1)]; }
  int64_t core_values(int mode) const {
    return rank_before(mode) * sizes[static_cast<size_t>(mode)] * ranks[static_cast<size_t>(mode)];
  }
  // Returns the number of stored values per row.
  int64_t values() const {
    int64_t sum = 0;
    for (int mode = 0; mode < modes; ++mode) sum += core_values(mode);
    return sum;
  }
  int64_t width() const {
    int64_t product = modes > 0 ? 1 : 0;
    for (int mode = 0; mode < modes; ++mode) product *= sizes[static_cast<size_t>(mode)];
    return product;
  }
  // Computes `row` [width()] from its `cores` [values()].
  void decode(const float* cores, float* row) const;
};

}  // namespace millrace
