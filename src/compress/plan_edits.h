// Edits the plan of a GGUF file so that it describes a smaller model. Tensors that are not edited are copied unchanged.
#pragma once

#include <string>
#include <vector>

#include "models/convert/conversion.h"

namespace millrace {

// Returns the tensor with this name. Errors: unsupported (there is none).
Result<OutputTensor*> find_output(ConversionPlan& plan, const std::string& name);

// Keeps only these layers, ascending, and renumbers them. Errors: unsupported (the model has layers of different kinds,
// which its metadata list by number).
Result<void> keep_layers(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                         const std::vector<int64_t>& layers);

// Keeps only these experts. `experts`: by layer, ascending; empty for layers without experts. Every other layer keeps
// the same number. Errors: unsupported (the model's experts have groups or additional tensors).
Result<void> keep_experts(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                          const std::vector<std::vector<int32_t>>& experts);

// Keeps only these rows of a matrix, or values of a vector, ascending. Errors: unsupported (a transposed tensor).
Result<void> keep_rows(OutputTensor& tensor, const std::vector<int64_t>& rows, ThreadPool& pool);

// Replaces the values of a matrix by `values` [rows, cols].
void replace_values(OutputTensor& tensor, int64_t rows, int64_t cols, std::vector<float> values);

// Returns all rows of a tensor as floats.
std::vector<float> values_of(const OutputTensor& tensor, ThreadPool& pool);

}  // namespace millrace
