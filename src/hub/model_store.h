// ModelStore: the models on this machine, by name. Models of the store have their own template, system prompt,
// parameters and adapters. Further models are in the cache shared with Hugging Face's tools (hub_cache.h).
//
//     $MILLRACE_MODELS, or $XDG_DATA_HOME/millrace/models, or ~/.local/share/millrace/models
//       names/NAME/TAG/millrace.json   the description; a name may have folders, as in team/model
//       names/NAME/TAG/model.gguf      hard links to the model's source files, or copies on another disk
//       blobs/sha256-HEX               uploads, from which models can be created
//       used/NAME                      its modification time is the time of the model's last use
//       lock                           held while names change
//
// The name of a model in the cache is OWNER/NAME:QUANT for a GGUF file, and OWNER/NAME for a folder. Thread-safe, also
// across processes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "hub/hub_cache.h"
#include "hub/modelfile.h"

namespace millrace {

struct StoredModel {
  std::string name;  // without ":latest"
  std::string path;  // to load: a file, a folder, or the name of a built-in model
  Modelfile about;   // adapters and the draft with absolute paths; the draft may be the name of a built-in model
  std::vector<std::string> files;             // all files of the model
  std::vector<std::string> draft_files = {};  // files of the draft model; empty: it is built in, or there is none
  int64_t bytes = 0;
  int64_t created = 0;  // Unix seconds
  int64_t used = 0;     // Unix seconds of the last use; 0: never
  bool cached = false;  // the model is in the hub's cache and has no description
};

// The sources from which a model is created.
struct ModelRecipe {
  std::vector<std::string> files;  // a GGUF file, all parts of a GGUF file, or the files of a folder
  std::string built_in;            // name of a built-in model, instead of files
  Modelfile about;                 // `from` is only shown; without draft_files, `draft` is the name of a built-in model
  std::vector<std::string> draft_files = {};
};

class ModelStore {
 public:
  // "": determined by the environment.
  explicit ModelStore(std::filesystem::path folder = {}, std::string cache = {});

  std::vector<StoredModel> list() const;  // sorted by name
  std::optional<StoredModel> find(std::string_view name) const;

  // Creates the model, or replaces a model of that name. Errors: user (an invalid name), corrupt (a file is missing),
  // resource (the disk).
  Result<void> create(std::string_view name, const ModelRecipe& recipe) const;
  // Errors: user (no such model, an invalid new name), resource.
  Result<void> copy(std::string_view from, std::string_view to) const;
  // Deletes the name, and files that no other name uses. Errors: user (no such model), resource.
  Result<void> remove(std::string_view name) const;
  void note_use(std::string_view name) const;

  // Returns the file of an upload; nullopt: there is no such upload. `digest`: "sha256:" or "sha256-" and 64
  // hexadecimal digits.
  std::optional<std::filesystem::path> blob(std::string_view digest) const;
  // Stores an upload. Errors: user (the digest is malformed, or differs from the digest of `bytes`), resource.
  Result<void> add_blob(std::string_view digest, std::string_view bytes) const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  struct Place;
  std::filesystem::path model_folder(const Place& place) const;
  std::optional<StoredModel> read(const Place& place) const;
  std::optional<StoredModel> find_cached(std::string_view name) const;
  std::vector<StoredModel> list_cached() const;
  Result<void> remove_cached(const StoredModel& model) const;
  void drop_unused_blobs() const;
  int64_t last_use(const std::string& name) const;
  std::filesystem::path use_file(std::string_view name) const;

  std::filesystem::path folder_;
  HubCache cache_;
};

// Returns the bytes that models take on the disk: a file that several models share is counted once.
int64_t disk_bytes(const std::vector<StoredModel>& models);

// Returns true if `name` can be the name of a model: up to three parts of letters, digits and "._-", and a tag.
bool is_model_name(std::string_view name);

// Returns the store's spelling of a name such as "hf.co/OWNER/NAME:Q", "hf:OWNER/NAME:Q" or "NAME:latest".
std::string canonical_model_name(std::string_view name);

// Returns the files of the model at `path`: a file, all parts of a split GGUF file, or the files of a folder. Empty:
// there is no model.
std::vector<std::string> files_of_model(const std::string& path);

}  // namespace millrace
