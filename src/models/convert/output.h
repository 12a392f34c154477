// The output of a conversion: checks on names before the work, and a folder that is filled only when all files are
// complete. Not thread-safe.
#pragma once

#include <string>
#include <vector>

#include "models/convert/tensor_source.h"
#include "models/convert/tokenizer_writer.h"

namespace millrace {

// The output must not be part of the input, and must not exist unless `force`. Errors: user.
Result<void> check_output(const std::string& output, bool force, const std::vector<std::string>& inputs);

// Writes `texts`, the files of `copies`, and model.safetensors with `tensors` next to `folder`, then moves them in and
// removes other model files there. Errors: user, resource; the folder is then unchanged.
Result<void> write_folder(const std::string& folder, const std::vector<TextFile>& texts,
                          const std::vector<std::string>& copies, const std::vector<OutputTensor>& tensors,
                          ThreadPool& pool, const std::function<void(int64_t, int64_t)>& progress);

}  // namespace millrace
