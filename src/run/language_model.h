// What a LanguageModel is made of, for the parts of the project that need more than the public API.
#pragma once

#include <memory>

#include "base/memory_accounts.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "millrace/model.h"
#include "models/model.h"
#include "text/tokenizer.h"

namespace millrace {

struct LanguageModel::Parts {
  std::shared_ptr<MemoryAccounts> accounts;  // of the model, and of the engines over it
  KernelTable kernels;                       // the weights are packed for this table
  std::shared_ptr<const ModelFiles> files;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: the files hold none
  ModelInfo info;
};

// What the program holds before it loads anything, and a margin for what is too small to count.
int64_t program_memory();

// Opens `path` as LanguageModel::load does: "" is the model that ships in the binary.
Result<ModelFiles> open_model(const std::string& path);

// Values of all tensors of the files that the spec's weights use; what "parameters" means to people.
int64_t count_parameters(const ModelFiles& files);

}  // namespace millrace
