// DraftModelLoader: how an executor loads the model of a drafter, by the name that the drafter gives
// (DraftModelSpec::loader). A new one is a file in this folder and a line in builtin.cc.
#pragma once

#include <memory>

#include "base/options.h"
#include "run/language_model.h"
#include "run/loaded_draft_model.h"
#include "speculate/drafter.h"

namespace millrace {

struct DraftModelHost {
  const LanguageModel& target;  // the engine's model; outlives what is loaded, whose weights its memory accounts have
  std::shared_ptr<ThreadPool> threads;  // of the engine's passes
  int64_t context = 0;                  // tokens of the longest stream
};

struct DraftModelLoader {
  const char* name;
  // Errors: user, corrupt, unsupported, resource.
  Result<std::unique_ptr<LoadedDraftModel>> (*load)(const OptionValues& options, const DraftModelHost& host);
  // Facts about it, which decide what it goes with (compatibility/collect.h).
  bool second = true;          // has weights in addition to the engine's model
  bool layers = true;          // stores keys or states of its own in the engine's blocks
  bool hidden_states = false;  // drafts from the hidden states of the engine's model
  bool hidden_rows = false;    // ... and stores them as rows of the engine's blocks
  bool whole_passes = false;   // its passes are passes of the whole engine's model
};

// The loader of the drafter's model; null: it has no model, or `drafter` is null.
const DraftModelLoader* draft_model_loader(const Drafter* drafter);
// Errors: those of the loader; internal (there is none of that name).
Result<std::unique_ptr<LoadedDraftModel>> load_draft_model(const DraftModelSpec& spec, const DraftModelHost& host);

// Returns `error` as an error of the drafter `name`.
Error draft_model_error(const char* name, const Error& error);

}  // namespace millrace
