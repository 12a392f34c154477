// FileStore: files that clients upload for batches, and that batches leave, in one folder, which is the server's alone.
//
//   FOLDER/file-ID         the bytes
//   FOLDER/file-ID.json    {"id", "filename", "purpose", "bytes", "created_at", "owner"}: a file is there once this is
//   FOLDER/*.tmp           being written; removed at the next start
//
// Every file appears whole or not at all, whenever the process ends. Thread-safe.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace millrace {

struct StoredFile {
  std::string id;        // "file-" and 24 hexadecimal digits
  std::string filename;  // as it was called; for people
  std::string purpose;   // "batch", "batch_output"
  std::string owner;     // name of the key whose it is; "": administrators'
  int64_t bytes = 0;
  int64_t created = 0;  // Unix seconds
};

struct FileLimits {
  int64_t files = 1000;
  int64_t bytes = int64_t{4} << 30;  // of all together
  // Of one key that is no administrator's, where it does not say itself.
  int64_t key_files = 100;
  int64_t key_bytes = int64_t{1} << 30;
};

// Who asks for files: a key, which sees its own; an administrator, or whoever comes where there are no keys, who sees
// all.
struct FileUser {
  std::string name;
  bool admin = true;
  int64_t files = 0, bytes = 0;  // that this one may have; 0: as the store's limits have it

  bool sees(const std::string& owner) const { return admin || (!name.empty() && owner == name); }
};

class FileStore {
 public:
  // Makes the folder if it is not there, and takes up what it holds. Errors: user (the folder).
  static Result<std::unique_ptr<FileStore>> open(const std::string& folder, const FileLimits& limits);

  // It is `user`'s from then on. Errors: resource (the limits, the disk).
  Result<StoredFile> add(const std::string& filename, const std::string& purpose, std::string_view content,
                         const FileUser& user = {});
  // A file that lies at `path` in the same folder becomes the one called `id`; where `path` is gone and `id` is there,
  // that has happened before.
  Result<StoredFile> adopt(const std::filesystem::path& path, const std::string& id, const std::string& filename,
                           const std::string& purpose, const std::string& owner = "");

  // Those that `user` sees; the oldest first.
  std::vector<StoredFile> list(const FileUser& user = {}) const;
  std::optional<StoredFile> find(const std::string& id, const FileUser& user = {}) const;
  std::filesystem::path path(const std::string& id) const { return folder_ / id; }  // of one that find() knows
  // Errors: resource.
  Result<std::string> read(const std::string& id) const;
  // False: there is none.
  bool remove(const std::string& id);

  const std::filesystem::path& folder() const { return folder_; }
  static std::string new_id();

 private:
  FileStore(std::filesystem::path folder, const FileLimits& limits) : folder_(std::move(folder)), limits_(limits) {}
  Result<void> room_for(int64_t bytes, const FileUser& user) const;
  Result<void> note(const StoredFile& file);
  void load();

  const std::filesystem::path folder_;
  const FileLimits limits_;
  mutable std::mutex mutex_;
  std::map<std::string, StoredFile> files_;
  int64_t bytes_ = 0;
};

// The file has the old content or the new one, never part of one. Errors: resource.
Result<void> replace_file(const std::filesystem::path& path, std::string_view content);
// The whole file, if it has at most `most` bytes. Errors: resource.
Result<std::string> read_whole_file(const std::filesystem::path& path, int64_t most);
// "PREFIX" and 24 hexadecimal digits.
bool is_stored_id(std::string_view id, std::string_view prefix);

}  // namespace millrace
