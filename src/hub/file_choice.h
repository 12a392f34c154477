// Selects the files of a repository that make up the requested model.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct FileChoice {
  std::vector<std::string> files;  // all files needed
  std::string main;                // the file to open, or "" for the folder
};

// `wanted` is a file name, a quantization such as Q4_K_M (in any case), or "": the Q4_K_M GGUF, else Q8_0, else the
// first GGUF, else the safetensors with their configuration and tokenizer. A split GGUF includes all its parts. Errors:
// user, listing the available files.
Result<FileChoice> choose_files(const std::vector<std::string>& all, const std::string& wanted);

}  // namespace millrace
