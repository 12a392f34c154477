// What lies between opening and writing: the input under one roof, and the plan of an output. See convert.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loader/gguf_writer.h"
#include "models/convert/convert.h"
#include "models/convert/tensor_source.h"
#include "models/convert/tokenizer_writer.h"

namespace millrace {

struct ConversionInput {
  ModelFiles files;  // of a llama2.c checkpoint: tokenizer and path only
  std::optional<Llama2cCheckpoint> checkpoint;
  const Arch* arch = nullptr;
  ArchSpec spec;

  bool is_gguf() const { return !checkpoint && files.kind == ModelFiles::Kind::gguf; }
  const char* kind_name() const { return checkpoint ? "llama2.c" : is_gguf() ? "gguf" : "huggingface"; }
  std::vector<std::string> paths() const;  // what the output must not touch
};

// Errors: corrupt, unsupported (an architecture by its name), user (several tokenizers, or none).
Result<ConversionInput> open_conversion_input(const std::string& path, const std::string& tokenizer);

struct ConversionPlan {
  std::vector<OutputTensor> tensors;
  GgufWriter writer;                // metadata of a GGUF file; tensors are still to be added
  std::vector<TextFile> texts;      // files of a folder
  std::vector<std::string> copies;  // paths to copy into it
};

// Fills the report's kept, fallbacks, left_out and notes too. Errors: unsupported (what the output cannot say, a format
// that no matrix can have), corrupt.
Result<ConversionPlan> plan_conversion(const ConversionInput& input, bool to_gguf, const Format* target,
                                       ConvertReport& report);

}  // namespace millrace
