// Opens a Hugging Face folder as ModelFiles: config.json, safetensors weights, tokenizer and templates.
#pragma once

#include <string>

#include "base/result.h"
#include "loader/model_files.h"

namespace millrace {

// `path` is the folder, one of its .safetensors files, or its model.safetensors.index.json.
Result<ModelFiles> open_huggingface(const std::string& path);

// Opens draft heads, which were trained to draft for another model: config.json, which need not name an architecture,
// and the weights. Errors: those of open_huggingface(), and user (no such path).
Result<ModelFiles> open_huggingface_heads(const std::string& path);

}  // namespace millrace
