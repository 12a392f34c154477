// Scales of whole matrices (Format::matrix_limit) in a GGUF file: NAME.scale, F32 [1], or [experts] for a stack of
// matrices, as llama.cpp reads them.
#pragma once

#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Sets OutputTensor::scales of the tensors whose index `takes` accepts, and appends tensors with these scales. Copied
// blocks keep their scale. For all others the matrix is read once more, and the scale brings its largest magnitude to
// the format's limit. Embedding tables have no scale.
void scale_matrices(std::vector<OutputTensor>& tensors, ThreadPool& pool, const std::function<bool(size_t)>& takes);

}  // namespace millrace
