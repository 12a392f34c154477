#include "models/npu/device.h"

namespace millrace {
namespace {

constexpr double kCoreProducts = 2e11;  // int8 multiply-adds of a core in a second, about: AVX-512 with VNNI at 3 GHz
constexpr int64_t kTilesAtOnce = 2;     // kernels multiply two tiles together

}  // namespace

double NpuThreads::run_seconds(const NpuShape& shape) const {
  const double products =
      static_cast<double>(shape.rows) * static_cast<double>(shape.inputs) * static_cast<double>(shape.outputs);
  return products / kCoreProducts / pool_->threads();
}

int NpuThreads::prepare(const Int8Matrix& matrix, int64_t rows, float input_scale) {
  graphs_.push_back({&matrix, rows, matrix.scale * input_scale});
  return static_cast<int>(graphs_.size()) - 1;
}

void NpuThreads::run(int graph, std::span<const NpuChunk> chunks) {
  const Graph& own = graphs_[static_cast<size_t>(graph)];
  const int64_t tiles = (own.matrix->rows + kInt8TileRows - 1) / kInt8TileRows;
  // All chunks multiply the same tiles, which then stay in a cache.
  pool_->parallel_for((tiles + kTilesAtOnce - 1) / kTilesAtOnce, [&](int64_t part, int) {
    for (const NpuChunk& chunk : chunks) {
      const Int8Product product{own.matrix, chunk.levels, chunk.sums, own.rows, own.scale, chunk.y};
      kernels_->multiply(product, part * kTilesAtOnce, std::min(tiles, (part + 1) * kTilesAtOnce));
    }
  });
}

}  // namespace millrace
