// Which files of a repository make up the model that was asked for.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace millrace {

struct FileChoice {
  std::vector<std::string> files;  // all that is needed
  std::string main;                // what is opened: a file, or "" for the folder
};

// `wanted` is a file's name, a quantization as Q4_K_M (in any case), or "": then the Q4_K_M GGUF, or Q8_0, or the first
// one, and without any the safetensors with their configuration and tokenizer. A GGUF in several parts comes whole.
// Errors: user, naming what there is.
Result<FileChoice> choose_files(const std::vector<std::string>& all, const std::string& wanted);

}  // namespace millrace
