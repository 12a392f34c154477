// Checkpoints of bitsandbytes in 8 bits (Dettmers et al., 2022, LLM.int8(): 8-bit Matrix Multiplication for
// Transformers at Scale): weight [rows, cols] I8 and SCB [rows], the largest magnitude of each row. value = weight *
// SCB / 127. The method's outlier columns in 16 bits are chosen from the inputs at run time; inputs are rounded in
// groups of 32 here, in which an outlier costs its own group only.
#include "loader/quantized/methods.h"

namespace millrace {

Result<Levels> read_bitsandbytes_int8(const QuantizedTensors& tensors) {
  MILLRACE_TRY(const StoredTensor* stored, tensors.matrix("weight", "I8", -1, -1));
  Levels out{.rows = stored->tensor.rows(), .cols = stored->tensor.cols(), .low = -128, .high = 127};
  out.group = out.cols;
  MILLRACE_TRY(out.scales, tensors.numbers("SCB", out.rows, 1));
  for (float& scale : out.scales) scale /= 127.0f;
  out.read = [data = stored->tensor.data, cols = out.cols](int64_t row, int64_t first, int64_t count, int16_t* levels) {
    for (int64_t i = 0; i < count; ++i) levels[i] = static_cast<int8_t>(data[row * cols + first + i]);
  };
  return out;
}

}  // namespace millrace
