// Shared between opening and writing: the unified input and the plan of an output. See convert.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "loader/gguf_writer.h"
#include "models/convert/convert.h"
#include "models/convert/format_choice.h"
#include "models/convert/tensor_source.h"
#include "models/convert/tokenizer_writer.h"

namespace millrace {

struct ConversionInput {
  ModelFiles files;  // for a llama2.c checkpoint: tokenizer and path only
  std::optional<Llama2cCheckpoint> checkpoint;
  const Arch* arch = nullptr;
  ArchSpec spec;
  std::optional<int64_t> pooling_type;  // an encoder's pooling as GGUF states it

  bool is_gguf() const { return !checkpoint && files.kind == ModelFiles::Kind::gguf; }
  const char* kind_name() const { return checkpoint ? "llama2.c" : is_gguf() ? "gguf" : "huggingface"; }
  std::vector<std::string> paths() const;  // paths that the output must not overwrite
};

// `open`: opens files that are no checkpoint. Errors: its own; corrupt, unsupported (an architecture, named), user
// (several tokenizers, or none).
Result<ConversionInput> open_conversion_input(const std::string& path, const std::string& tokenizer,
                                              const ModelOpener& open = open_model_files);

struct ConversionPlan {
  std::vector<OutputTensor> tensors;
  GgufWriter writer;                // metadata of a GGUF file; tensors are added later
  std::vector<TextFile> texts;      // files of a folder
  std::vector<std::string> copies;  // paths to copy into it
};

// Also fills the report's kept, fallbacks, left_out and notes. Errors: unsupported (not expressible in the output, or a
// format that fits no matrix), corrupt.
Result<ConversionPlan> plan_conversion(const ConversionInput& input, bool to_gguf, const ConversionTarget& target,
                                       ConvertReport& report);

}  // namespace millrace
