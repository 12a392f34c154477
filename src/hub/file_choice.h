// Selects the files of the requested model in a repository.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct FileChoice {
  std::vector<std::string> files;  // all files needed
  std::string main;                // the file to open, or "" for the folder
};

// Selects from the repository's files `all`. `wanted`: a file name, a quantization such as Q4_K_M (upper or lower
// case), or "". For "", selects the first of these that exists: the Q4_K_M GGUF, the Q8_0 GGUF, any GGUF, the
// safetensors with their configuration and tokenizer. A split GGUF includes all its parts. Errors: user; the message
// lists the available files.
Result<FileChoice> choose_files(const std::vector<std::string>& all, const std::string& wanted);

std::string upper_case(std::string_view text);  // a to z only

}  // namespace millrace
