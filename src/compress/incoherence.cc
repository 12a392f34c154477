#include "compress/incoherence.h"

#include "base/philox.h"
#include "compress/matrix_parts.h"

namespace millrace {
namespace {

constexpr int64_t kLargestHadamard = 65536;

}  // namespace

std::string why_not_incoherent(const PassMatrix& matrix) {
  if (!matrix.kept.empty()) return "it is pruned, and a rotation would fill its zeros";
  if (!matrix.parts.input.empty()) return "its inputs are changed already";
  return "";
}

void make_incoherent(PassMatrix& matrix, const LinearId& id, uint64_t seed, ThreadPool& pool) {
  int64_t block = 1;
  while (block < kLargestHadamard && matrix.cols % (2 * block) == 0) block *= 2;
  InputChange& change = matrix.parts.input;
  if (block > 1) change.hadamard = block;
  const auto stream = static_cast<uint64_t>(id.layer + 1) << 32 | static_cast<uint64_t>(id.kind) << 24 |
                      static_cast<uint64_t>(id.expert + 2);
  for (int64_t c = 0; c < matrix.cols; ++c)
    change.scale.push_back(philox_uniform(seed, stream, static_cast<uint64_t>(c)) < 0.5 ? -1.0f : 1.0f);
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> scratch;
    store_row(change, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
  });
}

void preview_incoherent(PassMatrix& matrix) {
  if (matrix.cols % 2 == 0) matrix.parts.input.hadamard = 2;
  matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
}

}  // namespace millrace
