#include "models/weight_packer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <mutex>

#include "base/memory.h"
#include "base/system.h"
#include "models/converted_rows.h"

namespace millrace {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;     // of the file: large enough to stream, small enough to balance
constexpr int64_t kCachedBytes = int64_t{256} << 10;  // checked and packed in turn: part of a small L2
constexpr int64_t kStretchBytes = int64_t{16}
                                  << 20;  // released together, at most: a release interrupts the other cores
constexpr int64_t kShortestStretch = int64_t{2} << 20;
constexpr int64_t kAlignment = 4096;  // of each matrix in the packed memory

Error not_finite(const Weight& weight, int64_t row, int64_t block, int64_t byte) {
  return Error::corrupt(fmt::format("tensor {}: NaN or infinity in row {}, block {} (byte {} of the tensor)",
                                    weight.name, row, block, byte));
}

// The first failure in weight order, whichever thread finds it when.
class FirstFailure {
 public:
  void set(size_t order, Error error) {
    std::lock_guard lock(mutex_);
    if (order >= order_) return;
    order_ = order;
    error_ = std::move(error);
  }
  Result<void> get() const { return order_ == SIZE_MAX ? Result<void>() : error_; }

 private:
  std::mutex mutex_;
  size_t order_ = SIZE_MAX;
  Error error_;
};

}  // namespace

// Adjacent pieces of a file. The thread that finishes the last one releases its pages.
struct WeightPacker::Stretch {
  const uint8_t* begin = nullptr;
  const uint8_t* end = nullptr;
  std::atomic<int64_t> left{0};
};

struct WeightPacker::Piece {
  const Weight* weight = nullptr;
  size_t planned = 0;  // index of planned_
  int64_t begin = 0;   // rows
  int64_t end = 0;
  int64_t stored_bytes = 0;
  Stretch* stretch = nullptr;

  // Extent in the file. A transposed matrix's rows are spread over all of its bytes.
  const uint8_t* first() const {
    return weight->column_format ? weight->data : weight->data + begin * stored_row_bytes(*weight);
  }
  const uint8_t* last() const {
    if (weight->column_format) return weight->data + weight->cols * weight->column_stride;
    return weight->data + end * stored_row_bytes(*weight);
  }
};

Result<void> check_rows_finite(const Weight& weight, int64_t begin, int64_t end) {
  if (const Format* format = weight.column_format) {
    const int64_t first = begin / format->block_values, last = (end + format->block_values - 1) / format->block_values;
    for (int64_t c = 0; c < weight.cols && format->find_non_finite; ++c) {
      const int64_t byte = c * weight.column_stride + first * format->block_bytes;
      const int64_t block = format->find_non_finite(weight.data + byte, (last - first) * format->block_values);
      if (block >= 0)
        return not_finite(weight, (first + block) * format->block_values, c, byte + block * format->block_bytes);
    }
    return {};
  }
  if (weight.codebook || !weight.format->find_non_finite) return {};
  const int64_t row_bytes = weight.format->row_bytes(weight.cols);
  for (int64_t row = begin; row < end; ++row) {
    const int64_t block = weight.format->find_non_finite(weight.data + row * row_bytes, weight.cols);
    if (block >= 0) return not_finite(weight, row, block, row * row_bytes + block * weight.format->block_bytes);
  }
  return {};
}

Result<void> WeightPacker::add_table(const Weight& weight) {
  for (float scale : weight.scales.values) {
    if (!(scale - scale == 0.0f))
      return Error::corrupt(fmt::format("tensor {}: a block scale is NaN or infinite", weight.name));
  }
  planned_.push_back({.stored = &weight});
  return {};
}

Result<void> WeightPacker::add(Weight& weight) { return add(weight, weight); }

Result<void> WeightPacker::add(Weight& weight, const Weight& stored) {
  MILLRACE_TRY(int64_t bytes, plan_packing(weight, table_));
  MILLRACE_TRY_VOID(add_table(stored));
  planned_.back().weight = &weight;
  planned_.back().bytes = bytes;
  return {};
}

void WeightPacker::pack_rows(const Planned& planned, int64_t begin, int64_t end, uint8_t* packed) {
  if (planned.converted())
    pack_converted_rows(*planned.stored, *planned.weight, begin, end, packed);
  else
    millrace::pack_rows(*planned.weight, begin, end, packed);
}

void WeightPacker::arrange() {
  std::vector<Planned*> in_files;
  for (Planned& planned : planned_) in_files.push_back(&planned);
  std::ranges::stable_sort(in_files, std::less<>(), [](const Planned* planned) { return planned->stored->data; });
  packed_bytes_ = 0;
  for (Planned* planned : in_files) {
    planned->offset = packed_bytes_;
    packed_bytes_ += (planned->bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
}

// In file order.
std::vector<WeightPacker::Piece> WeightPacker::cut(bool (*takes)(const Planned&)) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < planned_.size(); ++i) {
    if (takes && !takes(planned_[i])) continue;
    const Weight& weight = *planned_[i].stored;
    const int64_t tile = planned_[i].weight ? planned_[i].weight->kernel->row_tile : 1;
    const int64_t rows =
        std::max<int64_t>(1, kPieceBytes / std::max<int64_t>(1, tile * stored_row_bytes(weight))) * tile;
    for (int64_t begin = 0; begin < weight.rows; begin += rows) {
      const int64_t end = std::min(weight.rows, begin + rows);
      pieces.push_back({&weight, i, begin, end, (end - begin) * stored_row_bytes(weight)});
    }
  }
  std::ranges::stable_sort(pieces, std::less<>(), &Piece::first);
  return pieces;
}

// Packs and checks a few rows at a time, while they are cached.
Result<void> WeightPacker::pack_piece(const Piece& piece, uint8_t* packed) const {
  const Weight& weight = *piece.weight;
  const Planned& planned = planned_[piece.planned];
  const int64_t tile = planned.weight ? planned.weight->kernel->row_tile : 1;
  const int64_t rows =
      std::max<int64_t>(1, kCachedBytes / std::max<int64_t>(1, tile * stored_row_bytes(weight))) * tile;
  for (int64_t begin = piece.begin; begin < piece.end; begin += rows) {
    const int64_t end = std::min(piece.end, begin + rows);
    if (packs_later(planned)) {
      uint8_t* to = packed + planned.offset + millrace::packed_bytes(weight, begin);
      if (!pack_slice(weight, begin, end, to)) MILLRACE_TRY_VOID(check_rows_finite(weight, begin, end));
      continue;
    }
    MILLRACE_TRY_VOID(check_rows_finite(weight, begin, end));
    if (planned.weight) pack_rows(planned, begin, end, packed + planned.offset);
  }
  return {};
}

// Each worker has its own range of pieces, so a stretch that spans two ranges remains until both are done; ranges that
// other workers take over may also end in the middle of one.
constexpr int64_t open_stretches(int threads) { return 3 * threads + 1; }

int64_t WeightPacker::stretch_bytes(int threads, int64_t window) const {
  return std::clamp(window / open_stretches(threads) - kPieceBytes - kHugePageBytes, kShortestStretch, kStretchBytes);
}

int64_t WeightPacker::most_in_memory(int threads, int64_t window) const {
  int64_t stored = 0, transposed = 0;
  for (const Planned& planned : planned_) {
    const int64_t bytes = planned.stored->rows * stored_row_bytes(*planned.stored);
    stored += bytes;
    if (planned.stored->column_format) transposed = std::max(transposed, bytes);
  }
  // Partial pages at the start of a stretch, and huge pages, are read whole.
  return std::min(
      stored, open_stretches(threads) * (stretch_bytes(threads, window) + kPieceBytes + kHugePageBytes) + transposed);
}

Result<AlignedBuffer> WeightPacker::pack(ThreadPool& pool, const std::function<void(double)>& progress,
                                         int64_t window) const {
  MILLRACE_TRY_VOID(check_memory(packed_bytes_, "weights", kWeightsAdvice));
  MILLRACE_TRY(AlignedBuffer packed, AlignedBuffer::allocate(packed_bytes_, "weights"));
  MILLRACE_TRY_VOID(pack_job(packed.data(), pool, {.progress = progress, .window = window}));
  return packed;
}

Result<void> WeightPacker::pack_into(uint8_t* packed, ThreadPool& pool, const std::function<void(double)>& progress,
                                     int64_t window) const {
  return pack_job(packed, pool, {.progress = progress, .window = window, .release_packed = true});
}

// The whole pages between; of a shared mapping, whose bytes stay in the file.
void WeightPacker::release_packed(uint8_t* packed, const Piece& piece) const {
  const Weight* weight = planned_[piece.planned].weight;
  if (!weight) return;
  const auto at = [&](int64_t rows) {
    return packed + planned_[piece.planned].offset + millrace::packed_bytes(*weight, rows);
  };
  const auto down = [](uint8_t* address) { return reinterpret_cast<uintptr_t>(address) / kAlignment * kAlignment; };
  const uintptr_t begin = down(at(piece.begin)), end = down(at(piece.end));
  if (begin < end) advise_pages(reinterpret_cast<void*>(begin), end - begin, PageAdvice::drop);
}

Result<void> WeightPacker::pack_job(uint8_t* packed, ThreadPool& pool, const Job& job) const {
  const int64_t stretch = stretch_bytes(pool.threads(), job.window);
  std::vector<Piece> pieces = cut(job.takes);
  std::vector<std::atomic<int64_t>> pieces_left(planned_.size());
  std::deque<Stretch> stretches;
  int64_t total = 0;
  for (int64_t in_stretch = 0; Piece & piece : pieces) {
    if (stretches.empty() || in_stretch >= stretch) {
      in_stretch = 0;
      stretches.emplace_back().begin = piece.first();
    }
    piece.stretch = &stretches.back();
    piece.stretch->end = std::max(piece.stretch->end, piece.last(), std::less<>());
    ++piece.stretch->left;
    ++pieces_left[piece.planned];
    in_stretch += piece.stored_bytes;
    total += piece.stored_bytes;
  }
  FirstFailure failure;
  std::atomic<int64_t> done{0};
  pool.parallel_for(static_cast<int64_t>(pieces.size()), [&](int64_t i, int worker) {
    const Piece& piece = pieces[static_cast<size_t>(i)];
    if (job.goes_on && !job.goes_on()) return;
    if (auto packed_piece = pack_piece(piece, packed); !packed_piece.ok()) {
      failure.set(piece.planned, packed_piece.error());
      if (job.failed) job.failed(packed_piece.error());
    }
    if (job.release_packed) release_packed(packed, piece);
    if (pieces_left[piece.planned].fetch_sub(1) == 1 && job.done) job.done(planned_[piece.planned]);
    if (piece.stretch->left.fetch_sub(1) == 1) files_.release(piece.stretch->begin, piece.stretch->end);
    const int64_t bytes = done.fetch_add(piece.stored_bytes) + piece.stored_bytes;
    if (worker == 0 && job.progress) job.progress(static_cast<double>(bytes) / static_cast<double>(total));
  });
  return failure.get();
}

void WeightPacker::point_weights(const uint8_t* packed, PackingState* later) const {
  for (const Planned& planned : planned_) {
    if (!planned.weight) continue;
    planned.weight->packed = AlignedBuffer::view(packed + planned.offset, planned.bytes);
    if (planned.converted()) planned.weight->data = nullptr;  // the files' rows are in another format
    if (later && packs_later(planned)) planned.weight->packing = later++;
  }
}

int64_t WeightPacker::stored_bytes() const {
  int64_t bytes = 0;
  for (const Planned& planned : planned_)
    if (packs_later(planned)) bytes += planned.stored->rows * stored_row_bytes(*planned.stored);
  return bytes;
}

}  // namespace millrace
