// The costs of passes and reads that are known of a model on this machine: those that `millrace offload plan` measured,
// or, without them, a short measurement of the disk and an estimate of passes.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/kernel_table.h"
#include "offload/costs.h"

namespace millrace {

// Names the things that measured costs depend on.
std::string costs_key(int64_t packed_bytes, Isa isa, int threads);
// The file of measured costs of the model with this packed cache.
std::string costs_path(const std::string& packed_cache);
// `model_file`: a file on the model's disk, for the measurement of the disk, which takes a tenth of a second.
OffloadCosts known_costs(const std::string& packed_cache, const std::string& key, const std::string& model_file,
                         int threads);

}  // namespace millrace
