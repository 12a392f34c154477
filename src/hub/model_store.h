// The models on this machine by name: those of the store, with their own template, system prompt, parameters and
// adapters, and those in the cache shared with Hugging Face's tools (hub_cache.h).
//
//     $MILLRACE_MODELS, or $XDG_DATA_HOME/millrace/models, or ~/.local/share/millrace/models
//       names/NAME/TAG/millrace.json   the description; a name may have folders, as in team/model
//       names/NAME/TAG/model.gguf      hard links to the files it was made from, or copies on another disk
//       blobs/sha256-HEX               uploads, for models to be made from
//       used/NAME                      its time is the model's last use
//       lock                           held while names change
//
// A name in the cache is OWNER/NAME:QUANT of a GGUF file, OWNER/NAME of a folder. Thread-safe, also across processes.
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
  std::string path;  // for loading: a file, a folder, or a name that is built in
  Modelfile about;   // adapters and the draft with absolute paths; the draft may be the name of a built-in model
  std::vector<std::string> files;             // all of them, for their sizes
  std::vector<std::string> draft_files = {};  // files of the draft model; empty if it is built in, or if there is none
  int64_t bytes = 0;
  int64_t created = 0;  // Unix seconds
  int64_t used = 0;     // 0: never
  bool cached = false;  // in the hub's cache, without a description
};

// Sources of a model. `files`: paths of a GGUF file, of all its parts, or of a folder's files.
struct ModelRecipe {
  std::vector<std::string> files;
  std::string built_in;  // instead of files
  Modelfile about;       // `from` is only shown; `draft` is the name of a built-in model if there are no draft_files
  std::vector<std::string> draft_files = {};
};

class ModelStore {
 public:
  // "": from the environment.
  explicit ModelStore(std::filesystem::path folder = {}, std::string cache = {});

  std::vector<StoredModel> list() const;  // sorted by name
  std::optional<StoredModel> find(std::string_view name) const;

  // Replaces a model of that name. Errors: user (the name), corrupt (a file that is missing), resource (the disk).
  Result<void> create(std::string_view name, const ModelRecipe& recipe) const;
  // Errors: user (no such model, the new name), resource.
  Result<void> copy(std::string_view from, std::string_view to) const;
  // Deletes the name, and files that no other name uses. Errors: user (no such model), resource.
  Result<void> remove(std::string_view name) const;
  void note_use(std::string_view name) const;

  // `digest`: "sha256:" or "sha256-" and 64 hexadecimal digits. nullopt: there is no such upload.
  std::optional<std::filesystem::path> blob(std::string_view digest) const;
  // Errors: user (the digest is malformed, or not that of `bytes`), resource.
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

// Returns true if `name` can be the name of a model: up to three parts of letters, digits and "._-", and a tag.
bool is_model_name(std::string_view name);

// "hf.co/OWNER/NAME:Q", "hf:OWNER/NAME:Q", "NAME:latest" -> the name as the store writes it.
std::string canonical_model_name(std::string_view name);

// The files that a path stands for: a file, all parts of a split GGUF file, or a model folder's files; empty: none.
std::vector<std::string> files_of_model(const std::string& path);

}  // namespace millrace
