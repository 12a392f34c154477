// Conversion between file kinds and number formats, by plain rounding: GGUF files, Hugging Face folders, and llama2.c
// checkpoints as input. What the output would say of the architecture is read back and compared before a byte is
// written, so nothing that one kind cannot express is lost in silence.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"

namespace millrace {

struct ConvertOptions {
  std::string input;   // GGUF file, .safetensors file, Hugging Face folder, llama2.c checkpoint (.bin)
  std::string output;  // a name that ends in .gguf, or a folder
  std::string format;  // of the matrices ("q8_0"); empty: as the input has them where the output can hold it, else f32
  std::string
      tokenizer;       // for llama2.c: tokenizer.bin or tokenizer.model; empty: the one beside the checkpoint; "none"
  bool force = false;  // replace an output that exists
  std::function<void(double)> progress;  // fraction written; may be null
};

struct ConvertReport {
  struct Kept {
    std::string name, format, why;
  };
  std::string input_kind, output_kind;  // "gguf", "huggingface", "llama2.c"
  std::string architecture;             // as the output calls it
  int64_t tensors = 0;
  int64_t parameters = 0;
  int64_t bytes = 0;                                           // of tensors, written
  std::map<std::string, std::pair<int64_t, int64_t>> formats;  // name -> tensors, bytes
  std::vector<Kept> kept;                                      // matrices that --format did not reach
  std::vector<Kept> fallbacks;        // matrices whose rows are no whole blocks of it, and what they have instead
  std::vector<std::string> left_out;  // tensors of the input that the output does not have
  std::vector<std::string> notes;
};

// Errors: user (names, an output that exists), corrupt (the input), unsupported (an architecture, a format, one that no
// matrix can have, something the output kind cannot say), resource (disk or memory). Then nothing is left behind.
Result<ConvertReport> convert_model(const ConvertOptions& options, ThreadPool& pool);

}  // namespace millrace
