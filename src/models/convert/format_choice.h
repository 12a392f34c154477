// Chooses the format of each output tensor: --format if the matrix can use it, else the nearest alternative.
#pragma once

#include <string>
#include <string_view>

#include "formats/format.h"
#include "models/convert/convert.h"
#include "models/convert/format_mix.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Returns true if the file kind stores matrices of this format (folders: only plain floats).
bool can_store(const Format& format, bool gguf);

// The format, or its nearest replacement whose blocks divide rows of `line` values; null: there is none.
const Format* fitting_format(const Format& format, int64_t line);

// Matrices whose format is not changed, by either spelling of their names; null for the others.
const char* special_matrix(std::string_view name);

// The --format: one, a mix, or none.
struct ConversionTarget {
  const Format* format = nullptr;  // the base format, if it is a mix
  const FormatMix* mix = nullptr;
  int64_t layers = 0;  // layers of the model
  bool tied = false;   // it has no separate head
};

// Chooses formats, and records in the report where --format was not applied, and which matrices have a fallback.
class FormatChoice {
 public:
  FormatChoice(bool gguf, bool same_kind, const ConversionTarget& target, ConvertReport& report)
      : gguf_(gguf), same_kind_(same_kind), target_(target.format), choice_(target), report_(report) {}

  // `line`: contiguous values per row in the output; `special`: why --format does not apply to the matrix, or null.
  const Format* choose(const SourceTensor& tensor, const std::string& name, int64_t line, const char* special);

 private:
  const Format* fitting(const std::string& name, int64_t line, const Format* plain);
  const Format* keep(const std::string& name, const Format* format, const std::string& why);

  const Format* f32_ = find_format("f32");
  bool gguf_, same_kind_;
  const Format* target_;  // for the tensor at hand
  ConversionTarget choice_;
  ConvertReport& report_;
};

}  // namespace millrace
