// The parts of a LanguageModel, for modules that need more than the public API.
#pragma once

#include <memory>

#include "base/memory_accounts.h"
#include "base/shared_threads.h"
#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "millrace/model.h"
#include "models/model.h"
#include "run/second_models.h"
#include "text/tokenizer.h"

namespace millrace {

struct LanguageModel::Parts {
  std::shared_ptr<MemoryAccounts> accounts;  // accounts of the model, and of the engines over it
  // ... and their threads.
  std::unique_ptr<SharedThreads> threads = std::make_unique<SharedThreads>();
  std::unique_ptr<SecondModels> seconds = std::make_unique<SecondModels>();
  KernelTable kernels;  // the weights are packed for this table
  std::shared_ptr<const ModelFiles> files;
  std::unique_ptr<const Model> model;
  std::unique_ptr<const Tokenizer> tokenizer;  // null: there is none in the files
  ModelInfo info;
  std::string weights_note;  // which source of weights was chosen and why, for LoadOptions::weights "auto"; else ""
};

// Memory of the program before it loads anything, and a margin for what is too small to count.
int64_t program_memory();

// Opens `path` as LanguageModel::load does: "" is the default model in the binary, and the name of a model in the
// binary that one (run/embedded_model.h); ./stories is a file or folder of that name.
Result<ModelFiles> open_model(const std::string& path);

// Values of all tensors of the files that the model uses: the usual meaning of "parameters".
int64_t count_parameters(const ModelFiles& files);

}  // namespace millrace
