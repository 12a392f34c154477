// Adapters of tasks that a folder holds next to its matrices, as jina-embeddings-v3 does (Sturua et al., 2024). A
// conversion adds those of one task to the matrices, so that the output needs no adapters:
//
//   X.parametrizations.weight.original [rows, cols] += lora_alpha / lora_rank * B A
//   X.parametrizations.weight.0.lora_A [tasks, rank, cols], ...lora_B [tasks, rows, rank]; tables of embeddings have
//   A [tasks, rows, rank] and B [tasks, rank, cols], and the product is A B
#pragma once

#include <string>

#include "loader/model_files.h"

namespace millrace {

// Replaces the matrices of `files` by F32 matrices with the adapters of `task`. Returns the text that the task's texts
// begin with, "" if there is none. Errors: user (a configuration without such adapters, or an unknown task), corrupt (a
// shape, or no matrix with adapters), unsupported (a stored type), resource.
Result<std::string> merge_task_adapters(ModelFiles& files, const std::string& task);

}  // namespace millrace
