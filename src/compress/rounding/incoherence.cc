#include "compress/rounding/incoherence.h"

#include <string_view>

#include "base/philox.h"
#include "compress/matrix_parts.h"

namespace millrace {
namespace {

constexpr int64_t kLargestHadamard = 65536;

uint64_t signs_of(const LinearId& id) {
  return static_cast<uint64_t>(id.layer + 1) << 32 | static_cast<uint64_t>(id.kind) << 24 |
         static_cast<uint64_t>(id.expert + 2);
}

float sign(uint64_t seed, uint64_t stream, int64_t i) {
  return philox_uniform(seed, stream, static_cast<uint64_t>(i)) < 0.5 ? -1.0f : 1.0f;
}

int64_t block_of_rows(const PassMatrix& matrix) {
  if (matrix.name.find("attn_qkv") != std::string::npos) return 1;
  int64_t block = 1;
  while (block < kLargestHadamard && matrix.rows % (4 * block) == 0) block *= 2;
  return block;
}

// Q, K and V (gate and up) have the same place of inputs, and still signs of their own.
uint64_t name_hash(std::string_view name) {
  uint64_t hash = 14695981039346656037u;  // FNV-1a
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return hash;
}

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
  for (int64_t c = 0; c < matrix.cols; ++c) change.scale.push_back(sign(seed, signs_of(id), c));
  pool.parallel_for(matrix.rows, [&](int64_t r, int) {
    std::vector<float> scratch;
    store_row(change, matrix.values.data() + r * matrix.cols, matrix.cols, scratch);
  });
}

void make_rows_incoherent(PassMatrix& matrix, uint64_t seed, ThreadPool& pool) {
  const int64_t block = block_of_rows(matrix);
  if (block == 1) return;
  OutputChange& change = matrix.parts.output;
  change.hadamard = block;
  for (int64_t r = 0; r < matrix.rows; ++r) change.scale.push_back(sign(seed + 1, name_hash(matrix.name), r));
  store_rows(change, matrix.cols, matrix.values, pool);
}

void preview_rows_incoherent(PassMatrix& matrix) {
  if (block_of_rows(matrix) == 1) return;
  matrix.parts.output.hadamard = 2;
  matrix.parts.output.scale.assign(static_cast<size_t>(matrix.rows), 1);
}

void preview_incoherent(PassMatrix& matrix) {
  if (matrix.cols % 2 == 0) matrix.parts.input.hadamard = 2;
  matrix.parts.input.scale.assign(static_cast<size_t>(matrix.cols), 1);
}

}  // namespace millrace
