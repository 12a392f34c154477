// Functions shared by tests of quantized checkpoints: contents of tensors, and the values of loaded matrices.
#pragma once

#include <vector>

#include "formats/format.h"
#include "loader/model_files.h"
#include "loader/test_bytes.h"

namespace millrace::testing {

inline Bytes ones(size_t count) {  // F32
  Bytes bytes;
  for (size_t i = 0; i < count; ++i) bytes.put(1.0f);
  return bytes;
}

inline std::vector<float> values_of(const StoredTensor& matrix) {
  std::vector<float> values(static_cast<size_t>(matrix.tensor.values()));
  matrix.tensor.format->decode(matrix.tensor.data, values.data(), matrix.tensor.values());
  for (float& value : values) value *= matrix.scales.values.empty() ? 1.0f : matrix.scales.values.front();
  return values;
}

}  // namespace millrace::testing
