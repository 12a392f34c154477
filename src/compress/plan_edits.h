// Changes of the plan of a GGUF file by which it becomes that of a smaller model. Tensors that stay are copied as they
// are.
#pragma once

#include <string>
#include <vector>

#include "models/convert/conversion.h"

namespace millrace {

// The tensor of this name. Errors: unsupported (there is none).
Result<OutputTensor*> find_output(ConversionPlan& plan, const std::string& name);

// Keeps only these layers, ascending, and renumbers them. Errors: unsupported (layers of different kinds, which the
// metadata describe by their numbers).
Result<void> keep_layers(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                         const std::vector<int64_t>& layers);

// Keeps, in each layer with experts, by its number, only these experts, ascending; the same number in every layer.
// Errors: unsupported (a model whose experts have further tensors or groups).
Result<void> keep_experts(ConversionPlan& plan, const ArchSpec& spec, const std::string& architecture,
                          const std::vector<std::vector<int32_t>>& experts);

// Only these rows of a matrix, or values of a vector, ascending. Errors: unsupported (a transposed tensor).
Result<void> keep_rows(OutputTensor& tensor, const std::vector<int64_t>& rows, ThreadPool& pool);

// Other values [rows, cols] in place of a matrix's own.
void replace_values(OutputTensor& tensor, int64_t rows, int64_t cols, std::vector<float> values);

// Rows of a tensor as floats, of all its parts.
std::vector<float> values_of(const OutputTensor& tensor, ThreadPool& pool);

}  // namespace millrace
