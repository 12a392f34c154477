// FileStore: files uploaded for batches and produced by batches, in a folder used only by this server.
//
//   FOLDER/file-ID.json    {"id", "filename", "purpose", "bytes", "created_at", "owner"}; written first
//   FOLDER/file-ID         the bytes; the rename to this name publishes the file
//   FOLDER/*.tmp           being written; removed at the next start
//
// A file exists completely or not at all, even after a crash: it does once both names exist, and the last step to that
// is one rename. Repeating the earlier steps loses nothing. The folder is locked (flock): a second server on it does
// not start. Messages to clients do not have the folder's path. Thread-safe.
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
  std::string filename;  // original name, for display
  std::string purpose;   // "batch", "batch_output"
  std::string owner;     // name of the owning key; "": no key or an admin key
  int64_t bytes = 0;
  int64_t created = 0;  // Unix seconds
};

struct FileLimits {
  int64_t files = 1000;
  int64_t bytes = int64_t{4} << 30;  // bytes of all files
  // Per key without the role admin; a key's own limits take precedence.
  int64_t key_files = 100;
  int64_t key_bytes = int64_t{1} << 30;
};

// The client of a files request: a key sees its own files; an admin, or any client of a server without keys, sees all.
struct FileUser {
  std::string name;
  bool admin = true;
  int64_t files = 0, bytes = 0;  // this user's limits; 0: the store's default

  bool sees(const std::string& owner) const { return admin || (!name.empty() && owner == name); }
};

class FileStore {
 public:
  ~FileStore();
  FileStore(const FileStore&) = delete;
  // Creates the folder if necessary, locks it and loads its files. Errors: user (the folder, or another server uses
  // it).
  static Result<std::unique_ptr<FileStore>> open(const std::string& folder, const FileLimits& limits);

  // `user` becomes the owner. Errors: resource (limits), kStorageError (the disk).
  Result<StoredFile> add(const std::string& filename, const std::string& purpose, std::string_view content,
                         const FileUser& user = {});
  // Turns the file at `path`, in the same folder, into the stored file `id`. Does nothing if `path` is gone and `id`
  // exists: then it was adopted before. Errors: resource (`path` is gone), kStorageError.
  Result<StoredFile> adopt(const std::filesystem::path& path, const std::string& id, const std::string& filename,
                           const std::string& purpose, const std::string& owner = "");

  // The files visible to `user`, oldest first.
  std::vector<StoredFile> list(const FileUser& user = {}) const;
  std::optional<StoredFile> find(const std::string& id, const FileUser& user = {}) const;
  std::filesystem::path path(const std::string& id) const { return folder_ / id; }  // path of an existing file
  // Errors: resource.
  Result<std::string> read(const std::string& id) const;
  // False: no such file.
  bool remove(const std::string& id);

  const std::filesystem::path& folder() const { return folder_; }
  static std::string new_id();

 private:
  FileStore(std::filesystem::path folder, const FileLimits& limits, int lock)
      : folder_(std::move(folder)), limits_(limits), lock_(lock) {}
  Result<void> room_for(int64_t bytes, const FileUser& user) const;
  Result<void> note(const StoredFile& file) const;
  void take(const StoredFile& file);
  void load();

  const std::filesystem::path folder_;
  const FileLimits limits_;
  const int lock_;  // descriptor of the folder, which holds its lock
  mutable std::mutex mutex_;
  std::map<std::string, StoredFile> files_;
  int64_t bytes_ = 0;
};

// Replaces a file atomically: it has the old or the new content, never a part. Errors: kStorageError.
Result<void> replace_file(const std::filesystem::path& path, std::string_view content);
// Reads a file of at most `most` bytes. Errors: resource.
Result<std::string> read_whole_file(const std::filesystem::path& path, int64_t most);
// "PREFIX" and 24 hexadecimal digits.
bool is_stored_id(std::string_view id, std::string_view prefix);

}  // namespace millrace
