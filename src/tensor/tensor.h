// Tensor: a non-owning view of row-major, contiguous numbers in some stored Format.
#pragma once

#include <array>
#include <cstdint>

namespace millrace {

struct Format;  // formats/format.h

struct Tensor {
  const Format* format = nullptr;
  int rank = 0;
  std::array<int64_t, 4> dims = {1, 1, 1, 1};  // outermost first; the last one is contiguous
  const uint8_t* data = nullptr;
  int64_t bytes = 0;

  int64_t values() const { return dims[0] * dims[1] * dims[2] * dims[3]; }
  // As a matrix: the last dimension is the columns, all others together are the rows.
  int64_t cols() const { return dims[rank > 0 ? rank - 1 : 0]; }
  int64_t rows() const { return cols() == 0 ? 0 : values() / cols(); }
};

}  // namespace millrace
