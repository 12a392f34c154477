// Scales of whole matrices in GGUF files. Next to NAME.weight in NVFP4, llama.cpp's converter writes NAME.scale, F32
// [1], by which it multiplies the product; next to a stack of matrices, NAME.scale is [experts]. It also writes
// NAME.input_scale for inputs that are rounded to NVFP4, too; here inputs are not.
#pragma once

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Moves the scales to StoredTensor::scales. Scales of tensors in other formats stay. Errors: corrupt (wrong number of
// scales, NaN or infinity).
Result<void> attach_gguf_scales(ModelFiles& model);

}  // namespace millrace
