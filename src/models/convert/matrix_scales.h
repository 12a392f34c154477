// Scales of whole matrices (Format::matrix_limit) in a GGUF file: NAME.scale, F32 [1], or [experts] beside a stack, as
// llama.cpp reads them.
#pragma once

#include <functional>
#include <vector>

#include "base/thread_pool.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Sets OutputTensor::scales of the tensors that `takes` accepts by their index, and appends theirs. Blocks that are
// copied keep their scale; others get the one that brings the largest magnitude of the matrix to the format's limit,
// for which the matrix is read once more. Embedding tables have none.
void scale_matrices(std::vector<OutputTensor>& tensors, ThreadPool& pool, const std::function<bool(size_t)>& takes);

}  // namespace millrace
