// Mixes of formats by their usual names (Q4_K_M, Q5_K_S ...): the matrices that suffer most from rounding get more
// bits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace millrace {

struct FormatMix {
  // The layers a rule applies to, in a model of n layers.
  enum class Layers { all, first_2, first_4, first_eighth, first_sixteenth, outer_and_each_third };
  struct Rule {
    std::string_view matrix;  // "attn_v": the part of a tensor's name after its layer
    Layers layers;
    std::string_view format;
  };

  std::string_view name, base;
  uint32_t file_type;       // GGUF's general.file_type (frozen)
  std::vector<Rule> rules;  // the first that applies
};

// `name`: in upper or lower case. Null: not a mix.
const FormatMix* find_format_mix(std::string_view name);
std::string format_mix_names();

// The format of a GGUF tensor. `tied`: the model has no separate head, so the embedding is read as one.
std::string_view format_in_mix(const FormatMix& mix, std::string_view tensor, int64_t layers, bool tied);

}  // namespace millrace
