#include "kernels/training.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/cpu.h"

namespace millrace {
namespace training_portable {

#include "kernels/training_bf16.inc"
#include "kernels/training_plain.inc"

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
  const int64_t keys = padded(tokens);  // the sums count F32 factors; bfloat16 ones take half
  const int64_t forward = keys * dim * 3 + kQueries * keys * 2 + kQueries * dim * 2;
  const int64_t backward = keys * dim * 6 + (kBackQueries * 6 + kPanel) * dim + kBackQueries * kBackKeys * 5;
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
