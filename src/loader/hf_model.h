// ModelFiles from a Hugging Face folder: config.json, safetensors weights, tokenizer and templates.
#pragma once

#include <string>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// `path` is the folder, one of its .safetensors files, or its model.safetensors.index.json.
Result<ModelFiles> open_huggingface(const std::string& path);

// Opens heads that were trained to draft for another model: config.json, which need not name an architecture, and the
// weights. Errors: also user (no such path).
Result<ModelFiles> open_huggingface_heads(const std::string& path);

}  // namespace millrace
