// CompressionTask: a prompt as most compressors see it, with the parts that may be shortened, the question that remains
// whole, and the number of tokens to keep. Also the options that most compressors share.
#pragma once

#include <string>
#include <vector>

#include "prompt/compressor.h"
#include "prompt/text_parts.h"

namespace millrace {

// Options that most compressors have. `rate`: share of the tokens that may be dropped that remains. `tokens`: maximum
// tokens of the whole prompt; 0: no limit.
struct CompressionOptions {
  double rate = 0;
  int64_t tokens = 0;
  int64_t keep_last = 0;
  PartBreak parts = PartBreak::automatic;
  PromptScope scope = PromptScope::all;
  std::string model;

  // Reads those of the options that the compressor has. Errors: user.
  static Result<CompressionOptions> read(const OptionValues& options, bool has_parts, bool has_model);
};

// The schema of these options.
std::vector<OptionSpec> compression_options(const std::string& rate, bool has_parts, bool has_model,
                                            std::vector<OptionSpec> own = {});

struct CompressionTask {
  std::vector<char> fixed;        // 1: must remain; includes the question
  TokenRange question;            // count 0: none
  std::vector<TokenRange> parts;  // parts of the tokens that may be dropped
  int64_t droppable = 0;          // number of these tokens
  int64_t keep = 0;               // number of these tokens that remain at most

  static CompressionTask create(const PromptView& prompt, const CompressionOptions& options, int64_t budget);
};

// Base of the compressors with these options.
class CompressorWithOptions : public PromptCompressor {
 public:
  explicit CompressorWithOptions(CompressionOptions options) : options_(std::move(options)) {}
  std::string model() const override { return options_.model; }
  PromptScope scope() const override { return options_.scope; }

 protected:
  const CompressionOptions options_;
};

// Returns the indices of the tokens that are fixed or not dropped (1), ascending.
std::vector<int64_t> remaining(std::span<const char> dropped);

}  // namespace millrace
