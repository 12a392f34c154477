// The report of `millrace inspect` on a file whose architecture is not known.
#pragma once

#include "base/ordered_json.h"
#include "loader/model_files.h"

namespace millrace {

nlohmann::ordered_json describe_unknown(const ModelFiles& files);
void print_unknown(const nlohmann::ordered_json& described);

}  // namespace millrace
