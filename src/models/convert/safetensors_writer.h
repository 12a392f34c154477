// Writes one safetensors file (https://github.com/huggingface/safetensors#format); loader/safetensors.h describes the
// layout. Tensors are produced one at a time. Not thread-safe.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Writes tensors in the given order. Progress is called with the bytes written and the total; may be null. An
// incomplete file is removed. Errors: user (cannot create), unsupported (a format without dtype), resource (disk full).
Result<void> write_safetensors(const std::string& path, const std::vector<OutputTensor>& tensors, ThreadPool& pool,
                               const std::function<void(int64_t, int64_t)>& progress);

}  // namespace millrace
