// Factors that a folder states in config.json and a GGUF file has in its matrices (Arch::take_factors).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "models/arch.h"
#include "models/convert/tensor_source.h"

namespace millrace {

// Sets the factors of the tensors that `factors` names. A tied head whose factor is not that of the embedding becomes a
// tensor of its own. `notes`: receives what changed apart from names.
void apply_factors(std::span<const RowFactor> factors, std::vector<SourceTensor>& tensors,
                   std::vector<std::string>& notes);

}  // namespace millrace
