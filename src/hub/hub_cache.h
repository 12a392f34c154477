// The cache of downloaded models. It has the layout of Hugging Face's tools, so that millrace and these tools find each
// other's files.
//
//     $HF_HUB_CACHE, or $HF_HOME/hub, or ~/.cache/huggingface/hub
//       models--OWNER--NAME/
//         refs/main                     the commit that the branch points to
//         blobs/HASH                    contents by SHA-256, or by git's hash for small files
//         blobs/HASH.incomplete         partial download; HASH.parts records the complete pieces
//         snapshots/COMMIT/model.gguf   symlink to ../../blobs/HASH
//       .locks/models--OWNER--NAME/HASH.lock
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

// The name of a model on the hub: "OWNER/NAME" or "OWNER/NAME:FILE", optionally prefixed with "hf:".
struct HubName {
  std::string repository;  // "OWNER/NAME"
  std::string wanted;      // a file, or a quantization such as Q4_K_M; "": see choose_files()
};
// Errors: user.
Result<HubName> parse_hub_name(std::string_view text);

// Returns true if the path can safely be appended to a folder: it is relative and has no "..", empty parts, backslashes
// or control characters.
bool is_safe_path(std::string_view path);
bool is_hash(std::string_view text);  // true: 40 or 64 hexadecimal digits

class HubCache {
 public:
  // `folder`: root of the cache; "": determined by the environment.
  explicit HubCache(std::string folder = {});

  std::filesystem::path repository(const std::string& name) const;
  std::filesystem::path blob(const std::string& name, const std::string& hash) const {
    return repository(name) / "blobs" / hash;
  }
  std::filesystem::path snapshot(const std::string& name, const std::string& commit) const {
    return repository(name) / "snapshots" / commit;
  }
  std::filesystem::path lock_file(const std::string& name, const std::string& hash) const;

  const std::filesystem::path& folder() const { return folder_; }

  // Returns the commit to which a branch, tag or commit referred when it was last pulled.
  std::optional<std::string> commit_of(const std::string& name, const std::string& revision) const;
  Result<void> set_commit(const std::string& name, const std::string& revision, const std::string& commit) const;
  // Returns the complete files of a snapshot, by their names in the repository.
  std::vector<std::string> files(const std::string& name, const std::string& commit) const;
  // Creates the link from `file` of the snapshot to its blob.
  Result<void> link(const std::string& name, const std::string& commit, const std::string& file,
                    const std::string& hash) const;

 private:
  std::filesystem::path folder_;
};

std::string environment_text(const char* name);  // value of an environment variable; "": it is not set

// Returns $HF_TOKEN, or the contents of the file $HF_TOKEN_PATH, or of the cache's token file; "": no token.
std::string hub_token();
bool hub_offline();          // $HF_HUB_OFFLINE
std::string hub_endpoint();  // $HF_ENDPOINT, or https://huggingface.co

// An exclusive file lock (flock), which excludes other processes and other threads. take() waits for the lock.
// `stopped`: returns true to give up, as error `cancelled`; called several times a second while it waits; may be null.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  static Result<FileLock> take(const std::filesystem::path& path, const std::function<bool()>& stopped = {});

 private:
  int file_ = -1;
};

}  // namespace millrace
