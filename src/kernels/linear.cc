// pack_weight, encode_activations and linear: cuts work over the pool at boundaries that a kernel's row tile and the
// matrix's shape fix. Rows are independent, so how they are cut never changes a bit.
#include "kernels/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/fold.h"

namespace millrace {
namespace {

constexpr int64_t kPieceBytes = 256 << 10;  // of packed weights: half of a small L2, so a piece serves many tokens
constexpr int64_t kWorthThreads = 1 << 15;  // multiply-adds, or values: below, waking a thread costs more than the work
constexpr int64_t kMaxDimension = int64_t{1} << 31;
constexpr int64_t kMaxValues = int64_t{1} << 48;

// Rows per piece: about kPieceBytes, a multiple of the tile, and several pieces a thread for balance.
int64_t piece_rows(const MatmulKernel& kernel, int64_t rows, int64_t packed_bytes, int threads) {
  int64_t tile = kernel.row_tile;
  int64_t tiles = (rows + tile - 1) / tile;
  int64_t by_bytes = std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, packed_bytes / tiles));
  int64_t by_balance = std::max<int64_t>(1, tiles / (4 * threads));
  return std::min(by_bytes, by_balance) * tile;
}

Result<void> check_scales(const Weight& weight) {
  const BlockScales& scales = weight.scales;
  if (scales.values.empty()) return {};
  if (weight.format->name != "f8_e4m3") {
    return Error::unsupported(
        fmt::format("{}: block scales beside a {} matrix; only f8_e4m3 has them", weight.name, weight.format->name));
  }
  bool whole_folds = scales.block_cols >= weight.cols || scales.block_cols % kFoldColumns == 0;
  if (scales.block_rows <= 0 || scales.block_cols <= 0 || !whole_folds) {
    return Error::unsupported(fmt::format("{}: scale blocks must be whole rows or multiples of {} columns, not {} x {}",
                                          weight.name, kFoldColumns, scales.block_rows, scales.block_cols));
  }
  int64_t block_rows = (weight.rows - 1) / scales.block_rows + 1;
  int64_t block_cols = (weight.cols - 1) / scales.block_cols + 1;
  if (static_cast<int64_t>(scales.values.size()) != block_rows * block_cols) {
    return Error::corrupt(fmt::format("{}: needs {} x {} block scales, has {}", weight.name, block_rows, block_cols,
                                      scales.values.size()));
  }
  return {};
}

}  // namespace

Result<int64_t> plan_packing(Weight& weight, const KernelTable& table) {
  if (weight.format == nullptr || weight.data == nullptr) {
    return Error::internal(fmt::format("{}: no stored data to pack", weight.name));
  }
  const MatmulKernel* kernel = table.find_matmul(weight.format);
  if (kernel == nullptr) {
    return Error::unsupported(fmt::format("{}: no matmul kernel for format {}", weight.name, weight.format->name));
  }
  if (weight.rows <= 0 || weight.cols <= 0 || weight.rows > kMaxDimension || weight.cols > kMaxDimension ||
      weight.rows > kMaxValues / weight.cols) {
    return Error::user(
        fmt::format("{}: a matrix of {} x {} cannot be multiplied", weight.name, weight.rows, weight.cols));
  }
  if (weight.cols % weight.format->block_values != 0) {
    return Error::user(fmt::format("{}: {} needs columns in blocks of {}, has {}; store it in another format",
                                   weight.name, weight.format->name, weight.format->block_values, weight.cols));
  }
  if (Result<void> checked = check_scales(weight); !checked) return checked.error();
  weight.kernel = kernel;
  return kernel->packed_bytes(weight.rows, weight.cols);
}

void pack_rows(const Weight& weight, int64_t begin, int64_t end, uint8_t* packed) {
  const MatmulKernel& kernel = *weight.kernel;
  if (weight.column_format == nullptr) {
    kernel.pack(weight.data, &weight.scales, weight.rows, weight.cols, begin, end, packed);
    return;
  }
  const int64_t rows = end - begin;
  std::vector<float> columns(static_cast<size_t>(rows * weight.cols));  // a tile's columns, as they are stored
  std::vector<float> turned(columns.size());
  for (int64_t c = 0; c < weight.cols; ++c) {
    const uint8_t* column = weight.data + c * weight.column_stride + begin * weight.column_format->block_bytes;
    weight.column_format->decode(column, columns.data() + c * rows, rows);
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < weight.cols; ++c) turned[r * weight.cols + c] = columns[c * rows + r];
  }
  kernel.pack(reinterpret_cast<const uint8_t*>(turned.data()), nullptr, rows, weight.cols, 0, rows,
              packed + kernel.packed_bytes(begin, weight.cols));
}

Result<void> pack_weight(Weight& weight, const KernelTable& table, ThreadPool& pool) {
  MILLRACE_TRY(int64_t bytes, plan_packing(weight, table));
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes, weight.name.c_str()));
  int64_t piece = piece_rows(*weight.kernel, weight.rows, bytes, pool.threads());
  int64_t pieces = (weight.rows + piece - 1) / piece;
  auto pack_piece = [&](int64_t i, int) {
    pack_rows(weight, i * piece, std::min(weight.rows, (i + 1) * piece), buffer.data());
  };
  if (weight.rows * weight.cols < kWorthThreads) {
    for (int64_t i = 0; i < pieces; ++i) pack_piece(i, 0);
  } else {
    pool.parallel_for(pieces, pack_piece);
  }
  weight.packed = std::move(buffer);
  return {};
}

ActivationRows encode_activations(const KernelTable& table, ThreadPool& pool, Activation kind, const float* x,
                                  int64_t x_stride, int64_t tokens, int64_t cols, uint8_t* scratch) {
  int64_t stride = activation_row_bytes(kind, cols);
  auto encode = [&](int64_t t, int) { table.encode_activation(kind, x + t * x_stride, cols, scratch + t * stride); };
  if (tokens * cols < kWorthThreads) {
    for (int64_t t = 0; t < tokens; ++t) encode(t, 0);
  } else {
    pool.parallel_for(tokens, encode);
  }
  return {.kind = kind, .data = scratch, .stride = stride, .tokens = tokens, .cols = cols};
}

void linear(ThreadPool& pool, const Weight& weight, const ActivationRows& x, float* y, int64_t y_stride) {
  const MatmulKernel& kernel = *weight.kernel;
  int64_t piece = piece_rows(kernel, weight.rows, weight.packed.bytes(), pool.threads());
  int64_t pieces = (weight.rows + piece - 1) / piece;
  auto run_piece = [&](int64_t i, int) {
    kernel.run({.weights = weight.packed.data(),
                .rows = weight.rows,
                .cols = weight.cols,
                .row_begin = i * piece,
                .row_end = std::min(weight.rows, (i + 1) * piece),
                .x = x.data,
                .x_stride = x.stride,
                .tokens = x.tokens,
                .y = y,
                .y_stride = y_stride});
  };
  if (weight.rows * weight.cols * x.tokens < kWorthThreads) {
    for (int64_t i = 0; i < pieces; ++i) run_piece(i, 0);
  } else {
    pool.parallel_for(pieces, run_piece);
  }
}

}  // namespace millrace
