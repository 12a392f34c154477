// Scales of whole matrices in GGUF files. Beside NAME.weight in NVFP4, llama.cpp's converter writes NAME.scale, F32
// [1], by which it multiplies the product, or [experts] beside a stack; and NAME.input_scale for inputs that are
// rounded to NVFP4 too, which inputs here are not.
#pragma once

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// Moves them to StoredTensor::scales; tensors beside other formats stay. Errors: corrupt (another number of scales, NaN
// or infinity).
Result<void> attach_gguf_scales(ModelFiles& model);

}  // namespace millrace
