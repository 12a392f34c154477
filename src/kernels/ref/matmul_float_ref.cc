// Portable matmul for F32, F16, BF16 and FP8 E4M3 weights: stored rows unchanged, each followed by one f32 scale per
// fold. A fold of 128 columns is summed in 16 interleaved partial sums (so that compilers vectorize), which are then
// added in order; folds are added in order.
//
//   packed row:  [cols values][pad to 4 bytes][fold_count(cols) float scales]
#include <algorithm>
#include <cstring>

#include "kernels/activation.h"
#include "kernels/families.h"
#include "kernels/fold.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int kPartials = 16;

float e4m3_to_f32(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::bit_cast<float>(0x7fc00000u);
  float magnitude = std::bit_cast<float>(static_cast<uint32_t>(bits & 0x7f) << 20) * 0x1p120f;
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

struct F32Value {
  using Stored = float;
  static float load(float stored) { return stored; }
};
struct F16Value {
  using Stored = uint16_t;
  static float load(uint16_t stored) { return f16_to_f32(stored); }
};
struct Bf16Value {
  using Stored = uint16_t;
  static float load(uint16_t stored) { return bf16_to_f32(stored); }
};
struct E4m3Value {
  using Stored = uint8_t;
  static float load(uint8_t stored) { return e4m3_to_f32(stored); }
};

template <typename W>
constexpr int64_t values_bytes(int64_t cols) {
  return (cols * static_cast<int64_t>(sizeof(typename W::Stored)) + 3) / 4 * 4;
}
template <typename W>
constexpr int64_t packed_row_bytes(int64_t cols) {
  return values_bytes<W>(cols) + fold_count(cols) * 4;
}

template <typename W>
int64_t packed_bytes(int64_t rows, int64_t cols) {
  return rows * packed_row_bytes<W>(cols);
}

template <typename W>
void pack(const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols, int64_t row_begin,
          int64_t row_end, uint8_t* packed) {
  int64_t stored_row = cols * static_cast<int64_t>(sizeof(typename W::Stored));
  for (int64_t row = row_begin; row < row_end; ++row) {
    uint8_t* out = packed + row * packed_row_bytes<W>(cols);
    std::memcpy(out, stored + row * stored_row, static_cast<size_t>(stored_row));
    for (int64_t fold = 0; fold < fold_count(cols); ++fold) {
      float scale = fold_scale(scales, cols, row, fold);
      std::memcpy(out + values_bytes<W>(cols) + fold * 4, &scale, 4);
    }
  }
}

// w, x: [kFoldColumns]; w is zero beyond the row's end.
template <typename X>
float dot_fold(const float* w, const typename X::Stored* x, int64_t count) {
  float partial[kPartials] = {};
  int64_t whole = count / kPartials * kPartials;
  for (int64_t k = 0; k < whole; k += kPartials) {
    for (int i = 0; i < kPartials; ++i) partial[i] += w[k + i] * X::load(x[k + i]);
  }
  for (int64_t k = whole; k < count; ++k) partial[k - whole] += w[k] * X::load(x[k]);
  float sum = 0;
  for (float p : partial) sum += p;
  return sum;
}

template <typename W, typename X>
void run(const MatmulArgs& a) {
  for (int64_t row = a.row_begin; row < a.row_end; ++row) {
    const uint8_t* values = a.weights + row * packed_row_bytes<W>(a.cols);
    const uint8_t* scales = values + values_bytes<W>(a.cols);
    for (int64_t t = 0; t < a.tokens; ++t) a.y[t * a.y_stride + row] = 0;
    for (int64_t begin = 0; begin < a.cols; begin += kFoldColumns) {
      int64_t count = std::min(kFoldColumns, a.cols - begin);
      typename W::Stored stored[kFoldColumns];
      float w[kFoldColumns];
      float scale;
      std::memcpy(stored, values + begin * static_cast<int64_t>(sizeof(stored[0])),
                  static_cast<size_t>(count) * sizeof(stored[0]));
      std::memcpy(&scale, scales + begin / kFoldColumns * 4, 4);
      for (int64_t k = 0; k < count; ++k) w[k] = W::load(stored[k]);
      for (int64_t t = 0; t < a.tokens; ++t) {
        auto* x = reinterpret_cast<const typename X::Stored*>(a.x + t * a.x_stride) + begin;
        a.y[t * a.y_stride + row] += scale * dot_fold<X>(w, x, count);
      }
    }
  }
}

template <typename W, typename X>
MatmulKernel make_kernel(const char* format, Activation activation) {
  const Format* found = find_format(format);
  if (found == nullptr || found->activation != activation) return {};
  return {.format = found,
          .layout = "stored",
          .row_tile = 1,
          .packed_bytes = packed_bytes<W>,
          .pack = pack<W>,
          .run = run<W, X>};
}

}  // namespace

void add_matmul_float_ref(KernelTable& table) {
  set_matmul(table, make_kernel<F32Value, F32Value>("f32", Activation::f32));
  set_matmul(table, make_kernel<F16Value, F32Value>("f16", Activation::f32));
  set_matmul(table, make_kernel<Bf16Value, Bf16Value>("bf16", Activation::bf16));
  set_matmul(table, make_kernel<E4m3Value, F32Value>("f8_e4m3", Activation::f32));
}

}  // namespace millrace
