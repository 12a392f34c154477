// The report of `millrace inspect` on a file whose architecture is not known.
#pragma once

#include "base/ordered_json.h"
#include "loader/model_files.h"
#include "models/unknown/nearest_arch.h"

namespace millrace {

// `known`: what compare_with_known() returned for the file.
nlohmann::ordered_json describe_unknown(const ModelFiles& files, const std::vector<ArchComparison>& known);
void print_unknown(const nlohmann::ordered_json& described);

}  // namespace millrace
