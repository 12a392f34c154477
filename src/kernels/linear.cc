// pack_weight, encode_activations and linear: split work over the pool at boundaries that depend only on a kernel's row
// tile and the matrix's shape. Rows are independent, so the split never changes a bit.
#include "kernels/linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/activation.h"
#include "kernels/fold.h"
#include "kernels/shape_table.h"
#include "kernels/vector/packed_scales.h"
#include "tensor/codebook.h"

namespace millrace {
namespace {

constexpr int64_t kMaxBytes = 512 << 10;  // of packed weights at once: a run of memory long enough to hide its startup
constexpr int64_t kMinBytes =
    128 << 10;  // read by one token in 2 to 4 us: with less, claims and cold starts cost more than late ends
constexpr int64_t kWorthThreads = 1 << 15;  // multiply-adds: below this, starting a job costs more than the work
constexpr int64_t kWorthValues = 1 << 12;   // the same for values to be rounded
constexpr int64_t kSliceBytes = 128 << 10;  // packed and then multiplied: with the stored rows, part of a small L2
constexpr int64_t kMappedBytes = 64 << 10;  // by the system, around a page of a file that is read first
constexpr int64_t kStartTokens = 2;         // for which kernels prepare tables
constexpr int64_t kStartsRepaid = 4;        // times the rows of a start: it then takes a fifth of a call
constexpr int64_t kMaxStoredBytes = int64_t{1} << 31;  // of rows multiplied together as they are stored
constexpr int64_t kGemvTiles = 4;  // of rows; kernels multiply one token by up to four tiles together
constexpr int64_t kMaxDimension = int64_t{1} << 31;
constexpr int64_t kMaxValues = int64_t{1} << 48;

int64_t row_tiles(const MatmulKernel& kernel, int64_t rows) { return (rows + kernel.row_tile - 1) / kernel.row_tile; }

// Number of row tiles that a thread claims at once, in a job of `tiles` that are `bytes` long in total, with so many
// tokens.
ThreadPool::Claims claims(int64_t tiles, int64_t bytes, int64_t tokens) {
  const int64_t tile_bytes = std::max<int64_t>(1, bytes / tiles);
  const int64_t most =
      std::max<int64_t>(2, kMaxBytes / tile_bytes);  // two: kernels multiply one token by some together
  return {.least = std::min(most, kMinBytes / (tile_bytes * std::max<int64_t>(1, tokens)) + 1), .most = most};
}

// Calls of kernels that prepare tables for few tokens are longer: at best one for each thread.
ThreadPool::Claims with_starts(ThreadPool::Claims claims, int64_t tiles, std::span<const LinearPart> parts,
                               int threads) {
  int64_t worth = 0;  // tiles
  for (const LinearPart& part : parts)
    if (part.x.tokens <= kStartTokens)
      worth = std::max(worth, part.weight->kernel->start_rows * kStartsRepaid / part.row_tile);
  if (worth == 0) return claims;
  const int64_t share = (tiles + threads - 1) / threads;
  return {.least = std::max(claims.least, std::min(worth, share)), .most = std::max(claims.most, share)};
}

bool is_decoded(const Weight& weight) { return weight.codebook && weight.format->encode; }

// Those of decoded rows are whole blocks; inputs end with zeros.
int64_t packed_cols(const Weight& weight) {
  const int64_t block = weight.format->block_values;
  return is_decoded(weight) ? (weight.cols + block - 1) / block * block : weight.cols;
}

// Threads then read the parts, not the Weight structs: streaming the weights evicts those from the caches.
void prepare(LinearPart& part, const ShapeTable* shapes) {
  const Weight& weight = *part.weight;
  part.run = weight.kernel->run;
  part.row_tile = weight.kernel->row_tile;
  part.gemv_to = shapes ? shapes->gemv_to(weight) : 0;
  const bool packed = !weight.packing || weight.packing->complete.load(std::memory_order_acquire);
  part.args = {.weights = packed ? weight.packed.data() : nullptr,
               .rows = weight.rows,
               .cols = packed_cols(weight),
               .x = part.x.data,
               .x_stride = part.x.stride,
               .tokens = part.x.tokens,
               .y = part.y,
               .y_stride = part.y_stride,
               .codebook = weight.codebook.get(),
               .tiles_from = shapes ? shapes->tiles_from(weight) : 0};
}

int64_t slice_rows(const Weight& weight) {
  const int64_t tile = weight.kernel->row_tile;
  return std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(1, packed_bytes(weight, tile))) * tile;
}

// Makes the system map the pages of a file's next rows, which are prefetched while the rows before them are packed:
// prefetches of pages that are not mapped do nothing.
void touch(const uint8_t* rows, int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += kMappedBytes)
    static_cast<void>(*static_cast<const volatile uint8_t*>(rows + at));
}

// This thread's, of at least `bytes`; null: there is no memory.
uint8_t* slice_memory(int64_t bytes) {
  [[gnu::tls_model("initial-exec")]] thread_local AlignedBuffer memory;  // also in the shared library
  if (memory.bytes() < bytes) {
    memory = AlignedBuffer();
    if (auto made = AlignedBuffer::allocate(bytes, "slices"); made.ok()) memory = std::move(made).value();
  }
  return memory.bytes() < bytes ? nullptr : memory.data();
}

// The first rows of [row_begin, row_end) as they are stored, as many as the kernel can. Returns where it stopped.
int64_t run_stored_rows(const LinearPart& part, int64_t row_begin, int64_t row_end) {
  const Weight& weight = *part.weight;
  const MatmulKernel& kernel = *weight.kernel;
  const int64_t row_bytes = stored_row_bytes(weight);
  if (!kernel.run_stored || part.args.tokens > kernel.stored_tokens) return row_begin;
  if (row_bytes * kernel.stored_rows > kMaxStoredBytes) return row_begin;
  const int64_t rows = std::max<int64_t>(1, kSliceBytes / (row_bytes * kernel.stored_rows)) * kernel.stored_rows;
  const int64_t whole = row_begin + (row_end - row_begin) / kernel.stored_rows * kernel.stored_rows;
  MatmulArgs args = part.args;
  for (int64_t begin = row_begin; begin < whole; begin += rows) {
    const int64_t end = std::min(whole, begin + rows);
    args.weights = weight.data + begin * row_bytes;
    touch(weight.data + end * row_bytes, (std::min(weight.rows, end + rows) - end) * row_bytes);
    args.row_begin = begin;
    args.row_end = end;
    if (!kernel.run_stored(args)) weight.packing->damaged.store(true, std::memory_order_relaxed);
  }
  return whole;
}

// Products of a matrix that is not packed yet; each slice is packed as if it were a matrix of its own.
void run_slices(const LinearPart& part, int64_t row_begin, int64_t row_end) {
  const Weight& weight = *part.weight;
  MatmulArgs args = part.args;
  row_begin = run_stored_rows(part, row_begin, row_end);
  if (row_begin == row_end) return;
  uint8_t* slice = slice_memory(slice_bytes(weight));
  if (!slice) {
    weight.packing->complete.wait(false, std::memory_order_acquire);
    args.weights = weight.packed.data();
    args.row_begin = row_begin;
    args.row_end = row_end;
    return part.run(args);
  }
  const int64_t rows = slice_rows(weight);
  args.weights = slice;
  for (int64_t begin = row_begin; begin < row_end; begin += rows) {
    const int64_t count = std::min(row_end - begin, rows);
    if (!pack_slice(weight, begin, begin + count, slice))
      weight.packing->damaged.store(true, std::memory_order_relaxed);
    args.rows = args.row_end = count;
    args.y = part.args.y + begin;
    part.run(args);
  }
}

// Each token alone, a few tiles of rows at a time, so that all but the first read them from a cache near the core.
void run_gemv(const LinearPart& part, const MatmulArgs& all) {
  for (int64_t begin = all.row_begin; begin < all.row_end; begin += kGemvTiles * part.row_tile) {
    MatmulArgs args = all;
    args.row_begin = begin;
    args.row_end = std::min(all.row_end, begin + kGemvTiles * part.row_tile);
    args.tokens = 1;
    for (int64_t t = 0; t < all.tokens; ++t, args.x += all.x_stride, args.y += all.y_stride) part.run(args);
  }
}

void run_piece(const LinearPart& part, int64_t row_begin, int64_t row_end) {
  MatmulArgs args = part.args;
  args.row_begin = row_begin;
  args.row_end = row_end;
  if (!args.weights)
    run_slices(part, row_begin, row_end);
  else if (args.tokens > 1 && args.tokens <= part.gemv_to)
    run_gemv(part, args);
  else
    part.run(args);
  if (part.bias == nullptr) return;
  for (int64_t t = 0; t < args.tokens; ++t) {
    float* y = args.y + t * args.y_stride;
    for (int64_t r = row_begin; r < row_end; ++r) y[r] += part.bias[r];
  }
}

// Tiles [begin, end) of all parts.
void run_tiles(std::span<const LinearPart> parts, int64_t begin, int64_t end) {
  auto part = std::ranges::upper_bound(parts, begin, {}, &LinearPart::tiles_end);
  for (int64_t first = part == parts.begin() ? 0 : std::prev(part)->tiles_end; begin < end; ++part) {
    const int64_t until = std::min(end, part->tiles_end);
    run_piece(*part, (begin - first) * part->row_tile, std::min(part->args.rows, (until - first) * part->row_tile));
    begin = first = until;
  }
}

// Parts of one layer's job are stored inline with the job, so that they reach another core at once.
constexpr size_t kFewParts = 4;
struct alignas(64) FewParts {
  size_t count = 0;
  LinearPart parts[kFewParts];
  void operator()(int64_t begin, int64_t end, int) const { run_tiles({parts, count}, begin, end); }
};

Result<void> check_scales(const Weight& weight) {
  const BlockScales& scales = weight.scales;
  if (scales.values.empty()) return {};
  if (weight.format->matrix_limit > 0) {
    if (scales.values.size() == 1) return {};
    return Error::unsupported(fmt::format("{}: {} scales for a {} matrix, which has one", weight.name,
                                          scales.values.size(), weight.format->name));
  }
  if (weight.format->name != "f8_e4m3") {
    return Error::unsupported(
        fmt::format("{}: scales for a {} matrix; only f8_e4m3 and nvfp4 have them", weight.name, weight.format->name));
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

// Rows [begin, end) of a matrix whose transpose is stored, in its format.
std::vector<uint8_t> turned_rows(const Weight& weight, int64_t begin, int64_t end) {
  const Format& stored = *weight.column_format;
  const int64_t first = begin / stored.block_values, last = (end + stored.block_values - 1) / stored.block_values;
  const int64_t skipped = begin - first * stored.block_values, taken = (last - first) * stored.block_values;
  std::vector<float> columns(static_cast<size_t>(taken * weight.cols));  // the whole blocks of each column
  for (int64_t c = 0; c < weight.cols; ++c)
    stored.decode(weight.data + c * weight.column_stride + first * stored.block_bytes, columns.data() + c * taken,
                  taken);
  const int64_t row_bytes = weight.format->row_bytes(weight.cols);
  std::vector<uint8_t> out(static_cast<size_t>((end - begin) * row_bytes));
  std::vector<float> row(static_cast<size_t>(weight.cols));
  for (int64_t r = 0; r < end - begin; ++r) {
    for (int64_t c = 0; c < weight.cols; ++c) row[c] = columns[c * taken + skipped + r];
    weight.format->encode(row.data(), out.data() + r * row_bytes, weight.cols);
  }
  return out;
}

// Packs rows [begin, end) that a codebook stands for and that are multiplied in a format of weights, a tile at a time.
void pack_decoded(const Weight& weight, int64_t begin, int64_t end, uint8_t* packed) {
  const Codebook& book = *weight.codebook;
  const int64_t cols = packed_cols(weight), tile = weight.kernel->row_tile, row_bytes = weight.format->row_bytes(cols);
  std::vector<float> row(static_cast<size_t>(cols));
  std::vector<uint8_t> stored(static_cast<size_t>(std::min(tile, end - begin) * row_bytes));
  for (int64_t first = begin; first < end; first += tile) {
    const int64_t rows = std::min(tile, end - first);
    for (int64_t r = 0; r < rows; ++r) {
      const uint8_t* indices = weight.data + (first + r) * book.row_bytes(weight.cols);
      decode_codebook(book, indices, first + r, 0, weight.cols, row.data());
      weight.format->encode(row.data(), stored.data() + r * row_bytes, cols);
    }
    weight.kernel->pack(stored.data(), nullptr, rows, cols, 0, rows, packed + weight.kernel->packed_bytes(first, cols));
  }
}

}  // namespace

int64_t packed_bytes(const Weight& weight, int64_t rows) {
  const MatmulKernel& kernel = *weight.kernel;
  return weight.codebook && !is_decoded(weight) ? kernel.codebook_bytes(*weight.codebook, rows, weight.cols)
                                                : kernel.packed_bytes(rows, packed_cols(weight));
}

int64_t stored_row_bytes(const Weight& weight) {
  if (weight.codebook) return weight.codebook->row_bytes(weight.cols);
  if (const Format* columns = weight.column_format)
    return (weight.cols * columns->block_bytes + columns->block_values - 1) / columns->block_values;  // its share
  return weight.format->row_bytes(weight.cols);
}

bool multiplies_stored(const Weight& weight) {
  const bool of_rows = weight.format->matrix_limit == 0 && !weight.scales.values.empty();
  return !weight.codebook && !weight.column_format && !of_rows;
}

int64_t slice_bytes(const Weight& weight) { return packed_bytes(weight, std::min(weight.rows, slice_rows(weight))); }

bool pack_slice(const Weight& weight, int64_t begin, int64_t end, uint8_t* slice) {
  const MatmulKernel& kernel = *weight.kernel;
  const int64_t rows = end - begin, row_bytes = weight.format->row_bytes(weight.cols);
  const uint8_t* stored = weight.data + begin * row_bytes;
  touch(weight.data + end * row_bytes, (std::min(weight.rows, end + rows) - end) * row_bytes);
  const int source = packed_scales_source(kernel);
  bool finite = true;  // checked first where that reads the rows in order, which memory delivers faster
  if (source < 0 && weight.format->find_non_finite)
    finite = weight.format->find_non_finite(stored, rows * weight.cols) < 0;
  kernel.pack(stored, &weight.scales, rows, weight.cols, 0, rows, slice);
  return source < 0 ? finite : packed_scales_finite(source, slice, rows, weight.cols);
}

Result<int64_t> plan_packing(Weight& weight, const KernelTable& table) {
  if (weight.format == nullptr || weight.data == nullptr) {
    return Error::internal(fmt::format("{}: no stored data to pack", weight.name));
  }
  const MatmulKernel* kernel =
      weight.codebook && !is_decoded(weight) ? table.find_codebook(*weight.codebook) : table.find_matmul(weight.format);
  if (kernel == nullptr) {
    return Error::unsupported(fmt::format("{}: no matmul kernel for format {}", weight.name, weight.format->name));
  }
  if (weight.rows <= 0 || weight.cols <= 0 || weight.rows > kMaxDimension || weight.cols > kMaxDimension ||
      weight.rows > kMaxValues / weight.cols) {
    return Error::user(
        fmt::format("{}: a matrix of {} x {} cannot be multiplied", weight.name, weight.rows, weight.cols));
  }
  if (packed_cols(weight) % weight.format->block_values != 0) {
    return Error::user(fmt::format("{}: {} needs columns in blocks of {}, has {}; store it in another format",
                                   weight.name, weight.format->name, weight.format->block_values, weight.cols));
  }
  if (Result<void> checked = check_scales(weight); !checked) return checked.error();
  weight.kernel = kernel;
  return packed_bytes(weight, weight.rows);
}

void pack_rows(const Weight& weight, int64_t begin, int64_t end, uint8_t* packed) {
  const MatmulKernel& kernel = *weight.kernel;
  if (is_decoded(weight)) return pack_decoded(weight, begin, end, packed);
  if (weight.codebook) return kernel.pack_codebook(*weight.codebook, weight.data, weight.cols, begin, end, packed);
  if (weight.column_format == nullptr) {
    kernel.pack(weight.data, &weight.scales, weight.rows, weight.cols, begin, end, packed);
    return;
  }
  const std::vector<uint8_t> turned = turned_rows(weight, begin, end);
  kernel.pack(turned.data(), nullptr, end - begin, weight.cols, 0, end - begin,
              packed + kernel.packed_bytes(begin, weight.cols));
}

Result<void> pack_weight(Weight& weight, const KernelTable& table, ThreadPool& pool) {
  MILLRACE_TRY(int64_t bytes, plan_packing(weight, table));
  MILLRACE_TRY(AlignedBuffer buffer, AlignedBuffer::allocate(bytes, weight.name.c_str()));
  const int64_t tile = weight.kernel->row_tile;
  const int64_t tiles = row_tiles(*weight.kernel, weight.rows);
  const int64_t work = weight.rows * weight.cols;
  auto pack_tiles = [&](int64_t begin, int64_t end, int) {
    pack_rows(weight, begin * tile, std::min(weight.rows, end * tile), buffer.data());
  };
  if (work < kWorthThreads) {
    pack_tiles(0, tiles, 0);
  } else {
    pool.parallel_ranges(tiles, claims(tiles, bytes, 1), pack_tiles);
  }
  weight.packed = std::move(buffer);
  return {};
}

ActivationRows encode_activations(const KernelTable& table, ThreadPool& pool, Activation kind, const float* x,
                                  int64_t x_stride, int64_t tokens, int64_t cols, uint8_t* scratch) {
  int64_t stride = activation_row_bytes(kind, cols);
  auto encode = [&](int64_t t, int) { table.encode_activation(kind, x + t * x_stride, cols, scratch + t * stride); };
  if (tokens * cols < kWorthValues) {
    for (int64_t t = 0; t < tokens; ++t) encode(t, 0);
  } else {
    pool.parallel_for(tokens, encode);
  }
  return activation_rows(kind, tokens, cols, scratch);
}

ActivationRows activation_rows(Activation kind, int64_t tokens, int64_t cols, uint8_t* scratch) {
  return {.kind = kind, .data = scratch, .stride = activation_row_bytes(kind, cols), .tokens = tokens, .cols = cols};
}

void linear(ThreadPool& pool, const Weight& weight, const ActivationRows& x, float* y, int64_t y_stride) {
  LinearPart part{.weight = &weight, .x = x, .y = y, .y_stride = y_stride};
  linear(pool, {&part, 1});
}

void linear(ThreadPool& pool, std::span<LinearPart> parts, const ShapeTable* shapes) {
  int64_t tiles = 0;
  int64_t bytes = 0;
  int64_t work = 0;
  for (LinearPart& part : parts) {
    prepare(part, shapes);
    tiles += row_tiles(*part.weight->kernel, part.weight->rows);
    part.tiles_end = tiles;
    bytes += part.weight->packed.bytes();
    work += part.weight->rows * part.weight->cols * part.x.tokens;
  }
  if (work < kWorthThreads) {
    for (const LinearPart& part : parts) run_piece(part, 0, part.args.rows);
    return;
  }
  const ThreadPool::Claims each =
      with_starts(claims(tiles, bytes, parts.front().x.tokens), tiles, parts, pool.threads());
  if (parts.size() > kFewParts)
    return pool.parallel_ranges(tiles, each,
                                [parts](int64_t begin, int64_t end, int) { run_tiles(parts, begin, end); });
  FewParts few{.count = parts.size()};
  std::ranges::copy(parts, few.parts);
  pool.parallel_ranges(tiles, each, few);
}

}  // namespace millrace
