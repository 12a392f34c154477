// linear(): y = x W^T for any Weight, any number of threads and any batch. The only way matrices are multiplied.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/weight.h"

namespace millrace {

// Repacks `weight` for `table` on `pool`, filling weight.kernel and weight.packed; weight.data is no longer needed
// afterwards.
// Errors: unsupported (no kernel for this format), user (cols not whole blocks), resource (no memory).
Result<void> pack_weight(Weight& weight, const KernelTable& table, ThreadPool& pool);

// Bytes of the first `rows` packed rows of a weight that has its kernel; `rows` is a multiple of kernel->row_tile, or
// all.
int64_t packed_bytes(const Weight& weight, int64_t rows);
// Bytes of a stored row.
int64_t stored_row_bytes(const Weight& weight);

// Variant of packing in two steps, for callers that pack many weights at once. The first one sets weight.kernel and
// returns the packed size in bytes (errors as above, except for memory) ...
Result<int64_t> plan_packing(Weight& weight, const KernelTable& table);
// ... and packs rows [begin, end) of a planned weight; begin is a multiple of kernel->row_tile. `packed` is the
// destination of the whole matrix. Any number of threads may pack different rows at once.
void pack_rows(const Weight& weight, int64_t begin, int64_t end, uint8_t* packed);

// Returns true if linear() can multiply a planned weight by its stored rows, a slice at a time. Each thread packs and
// checks the rows of a slice in its own memory, which stays in its cache, and multiplies it by all tokens. The bits are
// those of the packed matrix. Returns false for matrices with a codebook or scales of blocks or rows, and for
// transposed ones.
bool multiplies_stored(const Weight& weight);
// Memory of a thread that multiplies slices of this weight.
int64_t slice_bytes(const Weight& weight);
// Packs rows [begin, end) of a weight that multiplies_stored() accepts as a separate matrix, at `slice`. Returns false
// if they have a NaN or an infinity, as value or as scale.
bool pack_slice(const Weight& weight, int64_t begin, int64_t end, uint8_t* slice);

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

// The result of encode_activations(), for a caller that rounds the rows itself.
ActivationRows activation_rows(Activation kind, int64_t tokens, int64_t cols, uint8_t* scratch);

class ShapeTable;  // kernels/shape_table.h

// y[t][0..rows) for every token; y_stride in floats. x.kind must be weight.format->activation. A weight whose packing
// is not complete must be one that multiplies_stored() accepts.
void linear(ThreadPool& pool, const Weight& weight, const ActivationRows& x, float* y, int64_t y_stride);

// One of several products that run as one job: threads synchronize once at the end, not after each.
struct LinearPart {
  const Weight* weight = nullptr;
  ActivationRows x;
  float* y = nullptr;
  int64_t y_stride = 0;         // floats
  const float* bias = nullptr;  // [rows], added to each token's outputs; may be null
  // Internal to linear(): the arguments common to all calls, rows per tile, tiles of this part and of those before it.
  MatmulArgs args;
  void (*run)(const MatmulArgs& args) = nullptr;
  int64_t row_tile = 0;
  int64_t tiles_end = 0;
  int64_t gemv_to = 0;  // maximum number of tokens that are multiplied one by one
};

// The parts' outputs must not overlap. `shapes`: which way of a kernel to take; null: the kernels' own choice.
void linear(ThreadPool& pool, std::span<LinearPart> parts, const ShapeTable* shapes = nullptr);

}  // namespace millrace
