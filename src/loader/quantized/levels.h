// Levels: a matrix of a published quantized checkpoint as integers with scales, and its conversion to our formats.
//
//   value[row, col] = scales[row, col / group] * level[row, col]          level = stored integer - zero point
//
// If levels have 2 or 3 bits, groups are whole blocks, and the minimum of every block is an f16 number, the format is
// Q2_G64, Q2_G128, Q3_G64 or Q3_G128. Otherwise it is the smallest format whose levels contain [low, high]: Q4_0 for 4
// signed bits, Q5_0 for 5, Q8_0 for 8. Scales are rounded to f16; in most checkpoints they are f16 numbers, and the
// values are exact. The format is F32 if levels have more than 8 signed bits, if groups are not whole blocks of 32, or
// if a scale is outside the normal range of f16.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

struct Format;  // formats/format.h

inline constexpr int64_t kLevelBlock = 32;

struct Levels {
  int64_t rows = 0, cols = 0;
  int64_t group = 0;          // columns that share a scale; the last group of a row may be shorter
  int low = 0, high = 0;      // bounds of the levels, inclusive
  std::vector<float> scales;  // [rows, groups()], finite
  int64_t groups() const { return (cols + group - 1) / group; }
  // Writes the levels of columns [first, first + count) of a row to `out`; count <= kLevelBlock.
  std::function<void(int64_t row, int64_t first, int64_t count, int16_t* out)> read;
};

// Changes the shape and format of `matrix`, allocates memory for it, which `model` owns, and returns the memory for the
// caller to fill. The caller must check first that the sizes match the file. Errors: resource.
Result<uint8_t*> replace_matrix(ModelFiles& model, StoredTensor& matrix, int64_t rows, int64_t cols,
                                const Format& format);

// Returns true if the scale is within the range of f16; it may still be rounded.
bool fits_f16(float scale);

// Replaces the contents of `matrix` by `levels` in one of our formats, in new memory that `model` owns. Errors:
// resource.
Result<void> store_levels(ModelFiles& model, StoredTensor& matrix, const Levels& levels);

}  // namespace millrace
