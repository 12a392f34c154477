// Scales of whole matrices in GGUF files. For NAME.weight in NVFP4, llama.cpp's converter also writes NAME.scale in
// F32, which multiplies the product: [1] for a matrix, [experts] for a stack of matrices. It writes NAME.input_scale
// for inputs rounded to NVFP4, too; it is ignored here, because inputs are not rounded to NVFP4.
#pragma once

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Moves the scales to StoredTensor::scales of NVFP4 tensors. Tensors in other formats keep theirs as tensors. Errors:
// corrupt (wrong number of scales, NaN or infinity).
Result<void> attach_gguf_scales(ModelFiles& model);

}  // namespace millrace
