// Where a conversion writes: checks on names before the work, and a folder that fills when everything is there.
// Not for use from several threads at once.
#pragma once

#include <string>
#include <vector>

#include "models/convert/tensor_source.h"
#include "models/convert/tokenizer_writer.h"

namespace millrace {

// The output is no part of the input, and does not exist unless `force`. Errors: user.
Result<void> check_output(const std::string& output, bool force, const std::vector<std::string>& inputs);

// Writes `texts`, the files of `copies`, and model.safetensors with `tensors` beside `folder`, then moves them in;
// other model files there go. Errors: user, resource; nothing has changed then.
Result<void> write_folder(const std::string& folder, const std::vector<TextFile>& texts,
                          const std::vector<std::string>& copies, const std::vector<OutputTensor>& tensors,
                          ThreadPool& pool, const std::function<void(int64_t, int64_t)>& progress);

}  // namespace millrace
