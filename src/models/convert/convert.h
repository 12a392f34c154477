// Conversion between file kinds and number formats, by plain rounding: GGUF files, Hugging Face folders, and llama2.c
// checkpoints as input. The output's description of the architecture is read back and compared before anything is
// written, so nothing that a file kind cannot express is lost silently.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "loader/model_files.h"

namespace millrace {

using ModelOpener = std::function<Result<ModelFiles>(const std::string&)>;

struct ConvertOptions {
  std::string input;   // GGUF file, .safetensors file, Hugging Face folder, llama2.c checkpoint (.bin)
  std::string output;  // a name that ends in .gguf, or a folder
  // format of the matrices ("q8_0"); empty: the input's format if the output can store it, else f32
  std::string format;
  std::string
      tokenizer;       // for llama2.c: tokenizer.bin or tokenizer.model; empty: the one next to the checkpoint; "none"
  bool force = false;  // replace an existing output
  std::function<void(double)> progress;  // fraction written; may be null
  ModelOpener open = open_model_files;   // opens `input`, unless that is a checkpoint
  // Returns GGUF's number of an encoder's pooling, from the folder's files. Null: the output states no pooling.
  std::function<Result<int64_t>(const ModelFiles&)> pooling_type;
  std::string task;        // adds the folder's adapters of this task to its matrices (task_adapters.h); empty: none
  std::string importance;  // importance matrix whose weights the rounding minimizes errors with; empty: none
};

struct ConvertReport {
  struct Kept {
    std::string name, format, why;
  };
  std::string input_kind, output_kind;  // "gguf", "huggingface", "llama2.c"
  std::string architecture;             // the output's name for it
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;                                           // bytes of tensors, written
  std::map<std::string, std::pair<int64_t, int64_t>> formats;  // name -> tensors, bytes
  std::vector<Kept> kept;                                      // matrices that --format did not apply to
  std::vector<Kept> fallbacks;        // matrices whose rows are not whole blocks of it, and their format instead
  std::vector<std::string> left_out;  // tensors of the input that are not in the output
  std::vector<std::string> notes;
};

// Errors: user (names, an existing output), corrupt (the input), unsupported (an architecture, a format that is unknown
// or fits no matrix, something that the output kind cannot express, a format that no weights apply to), resource (disk
// or memory). On failure nothing is left behind.
Result<ConvertReport> convert_model(const ConvertOptions& options, ThreadPool& pool);

}  // namespace millrace
