// Levels: a matrix of a published quantized checkpoint as integers under scales, and how it becomes one of our formats.
//
//   value[row, col] = scales[row, col / group] * level[row, col]          level = stored integer - zero point
//
// Levels of 2 and 3 bits in groups of whole blocks become Q2_G64, Q2_G128, Q3_G64 or Q3_G128 if the minimum of every
// block is an f16 number too. Otherwise the format is the smallest whose levels hold [low, high]: Q4_0 for 4 signed
// bits, Q5_0 for 5, Q8_0 for 8. So a matrix runs at the speed of that format, and its values are exact where each scale
// is an f16 number, as in most checkpoints; others are rounded to f16. Three things become F32, because these formats
// cannot hold them: levels of more than 8 signed bits, groups that are not whole blocks of 32, and scales outside the
// normal range of f16.
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
  int low = 0, high = 0;      // no level is outside
  std::vector<float> scales;  // [rows, groups()], finite
  int64_t groups() const { return (cols + group - 1) / group; }
  // Levels of columns [first, first + count) of a row; count <= kLevelBlock.
  std::function<void(int64_t row, int64_t first, int64_t count, int16_t* out)> read;
};

// Gives `matrix` this shape and format in new memory, which `model` owns; returns it, to be filled. The caller has
// checked that the sizes fit the file. Errors: resource.
Result<uint8_t*> replace_matrix(ModelFiles& model, StoredTensor& matrix, int64_t rows, int64_t cols,
                                const Format& format);

// Returns true if an f16 holds the scale, except for rounding.
bool fits_f16(float scale);

// Replaces the contents of `matrix` in memory that `model` owns from then on. Errors: resource.
Result<void> store_levels(ModelFiles& model, StoredTensor& matrix, const Levels& levels);

}  // namespace millrace
