// Which format each tensor of an output gets: --format where a matrix can have it, else what comes next to it.
#pragma once

#include <string>
#include <string_view>

#include "formats/format.h"
#include "models/convert/convert.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Whether the file kind stores matrices of this format (folders: plain floats).
bool can_store(const Format& format, bool gguf);

// Matrices that stay as they are, by either spelling of their names; null for the others.
const char* special_matrix(std::string_view name);

// Chooses formats, and notes in the report what --format did not reach and what fell back.
class FormatChoice {
 public:
  // `target`: of --format, null without.
  FormatChoice(bool gguf, bool same_kind, const Format* target, ConvertReport& report)
      : gguf_(gguf), same_kind_(same_kind), target_(target), report_(report) {}

  // `line`: values along memory in the output; `special`: why a matrix is no part of --format, or null.
  const Format* choose(const SourceTensor& tensor, const std::string& name, int64_t line, const char* special);

 private:
  const Format* fitting(const std::string& name, int64_t line, const Format* plain);
  const Format* keep(const std::string& name, const Format* format, const std::string& why);

  const Format* f32_ = find_format("f32");
  bool gguf_, same_kind_;
  const Format* target_;
  ConvertReport& report_;
};

}  // namespace millrace
