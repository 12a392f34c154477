// linear() computes y = x W^T for any Weight, number of threads and batch. All products with weights use it.
#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/kernel_table.h"
#include "tensor/weight.h"

namespace millrace {

// Repacks `weight` for `table` on `pool`, filling weight.kernel and weight.packed; weight.data is no longer needed
// afterwards. Errors: unsupported (no kernel for this format), user (cols is not a multiple of the block size),
// resource (no memory).
Result<void> pack_weight(Weight& weight, const KernelTable& table, ThreadPool& pool);

// Returns the bytes of the first `rows` packed rows. weight.kernel must be set. `rows`: a multiple of kernel->row_tile,
// or all rows.
int64_t packed_bytes(const Weight& weight, int64_t rows);
// Returns the bytes of a stored row.
int64_t stored_row_bytes(const Weight& weight);

// Variant of pack_weight() in two steps, for callers that pack many weights at once. plan_packing() sets weight.kernel
// and returns the packed size in bytes. Errors: unsupported, user, as above.
Result<int64_t> plan_packing(Weight& weight, const KernelTable& table);
// pack_rows() packs rows [begin, end) of a planned weight. `begin`: a multiple of kernel->row_tile. `packed`:
// destination of the whole matrix. Any number of threads may pack different rows at once.
void pack_rows(const Weight& weight, int64_t begin, int64_t end, uint8_t* packed);

// Returns true if linear() can multiply a planned weight from its stored rows, a slice at a time. Each thread packs and
// checks the rows of a slice in its own memory, which stays in its cache, and multiplies them by all tokens. The bits
// equal those of the packed matrix. Returns false for transposed matrices, and for matrices with a codebook or with
// scales of blocks or rows.
bool multiplies_stored(const Weight& weight);
// Returns the bytes that each thread needs to multiply slices of this weight.
int64_t slice_bytes(const Weight& weight);
// Packs rows [begin, end) as a separate matrix at `slice`. multiplies_stored(weight) must be true. Returns false if a
// value or a scale is NaN or infinite.
bool pack_slice(const Weight& weight, int64_t begin, int64_t end, uint8_t* slice);

// Rounded input rows, shared by all weights that read the same x (Q, K and V; gate and up).
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

// Returns what encode_activations() returns, for a caller that rounds the rows itself.
ActivationRows activation_rows(Activation kind, int64_t tokens, int64_t cols, uint8_t* scratch);

class ShapeTable;  // kernels/shape_table.h

// Computes y[t][0..rows) for every token. y_stride: in floats. x.kind must be weight.format->activation. The weight
// must be packed, or multiplies_stored(weight) must be true.
void linear(ThreadPool& pool, const Weight& weight, const ActivationRows& x, float* y, int64_t y_stride);

// One of several products that run as one job, so that threads synchronize only once at the end.
struct LinearPart {
  const Weight* weight = nullptr;
  ActivationRows x;
  float* y = nullptr;
  int64_t y_stride = 0;         // floats
  const float* bias = nullptr;  // [rows], added to each token's outputs; may be null
  // Internal to linear(): the arguments common to all calls, the kernel, rows of a tile, and the number of tiles up to
  // this part's end.
  MatmulArgs args;
  void (*run)(const MatmulArgs& args) = nullptr;
  int64_t row_tile = 0;
  int64_t tiles_end = 0;
  int64_t gemv_to = 0;  // maximum number of tokens that are multiplied one by one
};

// Computes all parts. Their outputs must not overlap. `shapes`: selects the way in which a kernel multiplies; null: the
// kernel's default.
void linear(ThreadPool& pool, std::span<LinearPart> parts, const ShapeTable* shapes = nullptr);

}  // namespace millrace
