// Which blocks of a model a self-drafting pass leaves out: from the drafter's options, from a file of
// `millrace draft-search`, or the default.
//
//   {"file": "millrace skip set", "model": "4.3 MB 1f0c...", "layers": 6, "attention": [2, 4], "mlp": [3]}
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "models/skipped_blocks.h"
#include "run/language_model.h"

namespace millrace {

// Blocks that a drafter leaves out of the engine's own model, as its options name them. All empty: a default.
struct SkipChoice {
  std::string attention, mlp;  // layers: "3+7-9"
  std::string file;            // file of `millrace draft-search`
};

// Layers "3+7-9" of a model that has `layers`; 1: listed. "": none. Errors: user.
Result<std::vector<uint8_t>> parse_layers(std::string_view text, int64_t layers);
// The inverse.
std::string layers_text(const std::vector<uint8_t>& listed);

// Both blocks of every other layer of the middle half: the first and the last layers matter most (Zhang et al., 2024).
SkippedBlocks default_skips(const ArchSpec& spec);

// Distinguishes model files: their sizes and a hash of the beginning of each.
std::string model_identity(const LanguageModel& model);

// Errors: user (a layer that the model lacks; a file of another model), corrupt (the file), unsupported (recurrent
// layers).
Result<SkippedBlocks> choose_skips(const SkipChoice& choice, const LanguageModel& model);
// A file that choose_skips() reads. Errors: resource.
Result<void> write_skips(const std::string& path, const SkippedBlocks& skipped, const LanguageModel& model);

}  // namespace millrace
