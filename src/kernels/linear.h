// linear(): y = x W^T for any Weight, threads and batch alike. The one way matrices are multiplied.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/weight.h"

namespace millrace {

// Repacks `weight` for `table` on `pool`, filling weight.kernel and weight.packed; weight.data is no longer needed.
// Errors: unsupported (no kernel for this format), user (cols not whole blocks), resource (no memory).
Result<void> pack_weight(Weight& weight, const KernelTable& table, ThreadPool& pool);

// Rounded input rows, shared by every weight that reads the same x (Q, K, V; gate and up).
struct ActivationRows {
  Activation kind = Activation::f32;
  const uint8_t* data = nullptr;
  int64_t stride = 0;  // bytes
  int64_t tokens = 0;
  int64_t cols = 0;
};

// Rounds x [tokens, x_stride floats] into `scratch` (tokens * activation_row_bytes(kind, cols) bytes, 64-byte aligned).
ActivationRows encode_activations(const KernelTable& table, ThreadPool& pool, Activation kind, const float* x,
                                  int64_t x_stride, int64_t tokens, int64_t cols, uint8_t* scratch);

// y[t][0..rows) for every token; y_stride in floats. x.kind must be weight.format->activation.
void linear(ThreadPool& pool, const Weight& weight, const ActivationRows& x, float* y, int64_t y_stride);

}  // namespace millrace
