// Fills the float panels described in matmul_pack.h and those of FP8 (matmul_f8.h). Runs once at load, on all threads
// (each packs its own panels). Steps of four and two bytes are moved by transposing tiles in registers:
//
//   stored rows                                panel
//   row 0  | s0 | s1 | s2 | s3 | ...           step 0  | r0 | r1 | r2 | r3 | ...
//   row 1  | s0 | s1 | s2 | s3 | ...   ----->  step 1  | r0 | r1 | r2 | r3 | ...
//
// A cache line of every row is consumed before the next: rows may be a power of two apart, and then share a cache set.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/vector/matmul_pack.h"

#if defined(__x86_64__) || defined(__aarch64__)
#include "kernels/vector/bytes16.h"
#include "kernels/vector/transpose.h"

namespace millrace {
namespace {

constexpr int64_t kLine = 64;

// `rows` is a multiple of four, `row` points to a line of each; step s of row r goes to out + (s * lanes + r) * 4.
void move_words(const uint8_t* row, int64_t row_bytes, int lanes, uint8_t* out) {
  for (int r = 0; r < lanes; r += 4) {
    const uint8_t* from = row + r * row_bytes;
    for (int64_t at = 0; at < kLine; at += 16) {
      Bytes16::Bytes rows[4], columns[4];
      for (int i = 0; i < 4; ++i) rows[i] = Bytes16::load_rows(from + i * row_bytes + at, 0);
      transpose_words<Bytes16>(rows, columns);
      for (int i = 0; i < 4; ++i) Bytes16::store(out + (at / 4 + i) * lanes * 4 + r * 4, columns[i]);
    }
  }
}

// The same for steps of two bytes, with rows a multiple of eight.
void move_halves(const uint8_t* row, int64_t row_bytes, int lanes, uint8_t* out) {
  for (int r = 0; r < lanes; r += 8) {
    const uint8_t* from = row + r * row_bytes;
    for (int64_t at = 0; at < kLine; at += 16) {
      Bytes16::Bytes rows[8], columns[8];
      for (int i = 0; i < 8; ++i) rows[i] = Bytes16::load_rows(from + i * row_bytes + at, 0);
      transpose_halves<Bytes16>(rows, columns);
      for (int i = 0; i < 8; ++i) Bytes16::store(out + (at / 2 + i) * lanes * 2 + r * 2, columns[i]);
    }
  }
}

// Position of column k (0..3) of a lane in an FP8 quad. 8 lanes: column after column. 16: each 128-bit part holds
// four rows' first pairs, then their second pairs, so that byte unpacking leaves every row in its own lane.
int quad_byte(int lanes, int lane, int k) {
  if (lanes == 16) return lane / 4 * 16 + k / 2 * 8 + lane % 4 * 2 + k % 2;
  return k * lanes + lane;
}

}  // namespace

const Format* float_format(const char* name, Activation activation) {
  const Format* format = find_format(name);
  return format != nullptr && format->activation == activation ? format : nullptr;
}

void pack_value_panels(int value_bytes, int k_step, int lanes, const uint8_t* stored, int64_t rows, int64_t cols,
                       int64_t row_begin, int64_t row_end, uint8_t* packed) {
  const int64_t step_bytes = static_cast<int64_t>(value_bytes) * k_step;
  const int64_t steps = (cols + k_step - 1) / k_step;
  const int64_t panel_bytes = steps * step_bytes * lanes;
  const int64_t row_bytes = cols * value_bytes;
  const auto move = step_bytes == 4 && lanes % 4 == 0   ? move_words
                    : step_bytes == 2 && lanes % 8 == 0 ? move_halves
                                                        : nullptr;
  for (int64_t first = row_begin; first < row_end; first += lanes) {
    uint8_t* panel = packed + first / lanes * panel_bytes;
    const uint8_t* from = stored + first * row_bytes;
    int64_t done = 0;  // bytes of each row
    if (move != nullptr && first + lanes <= rows) {
      for (; done + kLine <= row_bytes; done += kLine) move(from + done, row_bytes, lanes, panel + done * lanes);
    }
    for (int64_t lane = 0; lane < lanes; ++lane) {  // the remainder, step by step
      for (int64_t at = done; at < steps * step_bytes; at += step_bytes) {
        const int64_t here = first + lane < rows ? std::min(step_bytes, row_bytes - at) : 0;
        uint8_t* out = panel + at * lanes + lane * step_bytes;
        std::memset(out, 0, static_cast<size_t>(step_bytes));
        if (here > 0) std::memcpy(out, from + lane * row_bytes + at, static_cast<size_t>(here));
      }
    }
  }
}

void pack_f8_panels(int lanes, const uint8_t* stored, const BlockScales* scales, int64_t rows, int64_t cols,
                    int64_t row_begin, int64_t row_end, uint8_t* packed) {
  int64_t folds = fold_count(cols);
  int64_t fold_bytes = f8_fold_bytes(lanes);
  for (int64_t first = row_begin; first < row_end; first += lanes) {
    uint8_t* panel = packed + first / lanes * folds * fold_bytes;
    std::memset(panel, 0, static_cast<size_t>(folds * fold_bytes));
    int count = static_cast<int>(std::min<int64_t>(lanes, rows - first));
    for (int lane = 0; lane < count; ++lane) {
      const uint8_t* row = stored + (first + lane) * cols;
      for (int64_t fold = 0; fold < folds; ++fold) {
        uint8_t* out = panel + fold * fold_bytes;
        int64_t begin = fold * kFoldColumns;
        int64_t here = std::min(kFoldColumns, cols - begin);
        float scale = fold_scale(scales, cols, first + lane, fold);
        for (int64_t k = 0; k < here; ++k) {
          uint8_t code = row[begin + k];
          out[k / 4 * 4 * lanes + quad_byte(lanes, lane, static_cast<int>(k % 4))] = code;
          if ((code & 0x7f) == 0x7f) scale = std::numeric_limits<float>::quiet_NaN();  // decoders need not check
        }
        std::memcpy(out + kFoldColumns * lanes + lane * 4, &scale, 4);
      }
    }
  }
}

}  // namespace millrace
#endif
