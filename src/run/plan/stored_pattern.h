// Attention patterns that were searched for one model, and whose options its GGUF file carries (compress --pass semsa):
//
//   millrace.attention.semsa    "block=64,sinks=1,windows=4.2+50.8"
//
// `attention=semsa` without options then means these. Frozen: files have such keys.
#pragma once

#include <string>
#include <vector>

#include "loader/model_files.h"

namespace millrace {

inline std::string stored_pattern_key(const std::string& member) { return "millrace.attention." + member; }

// `kernels`, as of EngineOptions, with the options that the model's file has for those without any.
std::vector<std::string> with_stored_patterns(const ModelFiles& files, std::vector<std::string> kernels);

}  // namespace millrace
