#include "kernels/training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/cpu.h"

namespace millrace {
namespace training_portable {

#include "kernels/training_basics.inc"
#include "kernels/training_plain.inc"

void tile(const uint32_t* a, int64_t a_row, int64_t a_pair, const uint32_t* b, int64_t pairs, float* c, int64_t c_row,
          bool add) {
  constexpr int64_t kRows = 8, kColumns = 32;
  for (int64_t r = 0; r < kRows; ++r) {
    float sums[kColumns];
    for (int64_t j = 0; j < kColumns; ++j) sums[j] = add ? c[r * c_row + j] : 0.0f;
    for (int64_t p = 0; p < pairs; ++p) {
      const uint32_t pair = a[r * a_row + p * a_pair];
      const auto low = std::bit_cast<float>(pair << 16), high = std::bit_cast<float>(pair & 0xffff0000u);
      for (int64_t j = 0; j < kColumns; ++j) {
        const uint32_t other = b[p * kColumns + j];
        sums[j] += low * std::bit_cast<float>(other << 16) + high * std::bit_cast<float>(other & 0xffff0000u);
      }
    }
    for (int64_t j = 0; j < kColumns; ++j) c[r * c_row + j] = sums[j];
  }
}

void product(const TrainingProduct& p) {
  const int64_t at_once = p.a_tile == 0 ? p.pairs : 16, step = p.a_tile == 0 ? 16 * p.a_pair : p.a_tile;
  for (int64_t column = 0; column < p.columns; column += 32) {
    const uint32_t* b = p.b + column / 32 * p.b_panel;
    for (int64_t row = 0; row < p.rows; row += 8)
      for (int64_t from = 0; from < p.pairs; from += at_once)
        tile(p.a + row * p.a_row + from / 16 * step, p.a_row, p.a_pair, b + from * 32, at_once,
             p.c + row * p.c_row + column / 32 * p.c_panel, p.c_row, p.add || from > 0);
  }
}

#include "kernels/training_loops.inc"

}  // namespace training_portable

const TrainingKernels& portable_training_kernels() {
  using namespace training_portable;
  static constexpr TrainingKernels kKernels = {
      "portable", product,       round_all, pack_columns,  pack_rows, norm,    norm_backward, silu,   silu_backward,
      relu,       relu_backward, rotate,    cross_entropy, mix,       squares, adam,          attend, attend_backward};
  return kKernels;
}

int64_t training_scratch(int64_t tokens, int64_t dim) {
  using namespace training_portable;
  const int64_t keys = padded(tokens);
  const int64_t forward = keys * dim * 2 + kQueries * keys * 2 + kQueries * dim * 2;
  const int64_t backward = keys * dim * 5 + (kBackQueries * 6 + kPanel) * dim + kBackQueries * kBackKeys * 5;
  return std::max(forward, backward) + 4096;
}

std::vector<const TrainingKernels*> available_training_kernels() {
  std::vector<const TrainingKernels*> out = {&portable_training_kernels()};
#if defined(__x86_64__)
  const auto isa = select_isa();  // a bad MILLRACE_ISA is reported where a model is loaded
  if (isa.ok() && isa->has(Feature::avx512_bf16)) out.push_back(&avx512_training_kernels());
  if (isa.ok() && isa->has(Feature::amx_bf16)) out.push_back(&amx_training_kernels());
#endif
  return out;
}

const TrainingKernels& training_kernels() { return *available_training_kernels().back(); }

}  // namespace millrace
