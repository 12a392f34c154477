// The kernel of recurrent states that are matrices: gated delta nets and Mamba-2. It follows the rules of KernelTable,
// and is outside of it since only those mixers include its arguments.
#pragma once

#include <cstdint>

#include "base/cpu.h"

namespace millrace {

inline constexpr int64_t kMatrixScanColumns = 32;  // a group of columns that stays in the first-level cache

// Consecutive tokens of one stream and some columns of one head's matrix S. Each token changes S, and then reads it:
//
//   d = rate * (v - decay * S^T k)   if `corrects`, which is the delta rule; otherwise d = rate * v
//   S = decay * S + k d^T
//   y = S^T q
//
// A column's arithmetic does not depend on `columns` or `tokens`: a call with more tokens gives the same bits as
// several calls, and other columns in the call do not change it.
struct MatrixScanArgs {
  int64_t tokens = 0;
  int64_t keys = 0;     // rows of S
  int64_t columns = 0;  // columns of S in this call, for speed at most kMatrixScanColumns
  bool corrects = false;
  float* state = nullptr;        // [keys, columns]; updated
  const float* q = nullptr;      // [tokens, keys]
  const float* k = nullptr;      // [tokens, keys]
  int64_t key_stride = 0;        // floats from one token's q and k to the next
  const float* v = nullptr;      // [tokens, columns]
  int64_t v_stride = 0;          // likewise
  const float* decay = nullptr;  // [tokens]
  const float* rate = nullptr;   // [tokens]
  int64_t rate_stride = 0;       // floats from one token's decay and rate to the next
  float* y = nullptr;            // [tokens, columns]
  int64_t y_stride = 0;
};

using MatrixScan = void (*)(const MatrixScanArgs& args);

// Returns the version for the features of `isa`.
MatrixScan matrix_scan_kernel(Isa isa);

MatrixScan matrix_scan_ref();
MatrixScan matrix_scan_avx2();
MatrixScan matrix_scan_avx512();
MatrixScan matrix_scan_neon();

}  // namespace millrace
