// The cache of downloaded models. Uses the layout of Hugging Face's own tools, so that both find each other's files.
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
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace millrace {

// "OWNER/NAME", "OWNER/NAME:FILE", optionally prefixed with "hf:".
struct HubName {
  std::string repository;  // "OWNER/NAME"
  std::string wanted;      // a file, or a quantization such as Q4_K_M; "": the best available
};
// Errors: user.
Result<HubName> parse_hub_name(std::string_view text);

// Relative, without "..", empty parts, backslashes and control characters: safe to append to a folder.
bool is_safe_path(std::string_view path);
bool is_hash(std::string_view text);  // 40 or 64 hexadecimal digits

class HubCache {
 public:
  // `folder` "": from the environment.
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

  // The commit of a branch, tag or commit as of its last pull.
  std::optional<std::string> commit_of(const std::string& name, const std::string& revision) const;
  Result<void> set_commit(const std::string& name, const std::string& revision, const std::string& commit) const;
  // The complete files of a snapshot, by their names in the repository.
  std::vector<std::string> files(const std::string& name, const std::string& commit) const;
  // Links `file` of the snapshot to its blob.
  Result<void> link(const std::string& name, const std::string& commit, const std::string& file,
                    const std::string& hash) const;

 private:
  std::filesystem::path folder_;
};

// $HF_TOKEN, or the contents of $HF_TOKEN_PATH or the cache's token file; "": none.
std::string hub_token();
bool hub_offline();          // $HF_HUB_OFFLINE
std::string hub_endpoint();  // $HF_ENDPOINT, or https://huggingface.co

// An exclusive file lock (flock) that excludes other processes and other threads; take() waits for it.
class FileLock {
 public:
  FileLock() = default;
  ~FileLock();
  FileLock(FileLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(file_, other.file_);
    return *this;
  }
  static Result<FileLock> take(const std::filesystem::path& path);

 private:
  int file_ = -1;
};

}  // namespace millrace
