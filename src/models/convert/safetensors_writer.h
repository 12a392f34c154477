// Writes one safetensors file (https://github.com/huggingface/safetensors#format); the layout is drawn in
// loader/safetensors.h. Tensors are produced one at a time. Not for use from several threads at once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Tensors go in the order given. Progress is called with bytes written and in all; may be null. A file that is not
// complete is removed. Errors: user (cannot create), unsupported (a format without dtype), resource (disk full).
Result<void> write_safetensors(const std::string& path, const std::vector<OutputTensor>& tensors, ThreadPool& pool,
                               const std::function<void(int64_t, int64_t)>& progress);

}  // namespace millrace
