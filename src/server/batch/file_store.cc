#include "server/batch/file_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>

#include "base/publish.h"
#include "base/storage_error.h"
#include "server/json.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxNote = 1 << 16;
constexpr size_t kMaxFileName = 255;

int64_t unix_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Clients see this message: it has no path.
Error failed(const char* what) { return storage_error(fmt::format("files: {}: {}", what, std::strerror(errno))); }

Result<void> published(const fs::path& fresh, const fs::path& path, const char* what) {
  const auto reason = publish(fresh, path);
  if (!reason) return {};
  errno = reason.value();
  return failed(what);
}

Result<void> write_all(int file, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(file, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("the disk cannot be written");
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  if (::fsync(file) != 0) return failed("the disk cannot be written");
  return {};
}

std::optional<StoredFile> read_note(const fs::path& path) {
  const auto text = read_whole_file(path, kMaxNote);
  if (!text.ok()) return std::nullopt;
  const Json json = parse_json(*text, kMaxOwnJsonDepth);
  if (!json.is_object()) return std::nullopt;
  StoredFile file;
  const auto text_of = [&](const char* name) {
    return json.contains(name) && json[name].is_string() ? json[name].get<std::string>() : std::string();
  };
  file.id = path.stem();
  file.filename = text_of("filename");
  file.purpose = text_of("purpose");
  file.owner = text_of("owner");
  if (json.contains("created_at") && json["created_at"].is_number_integer())
    file.created = json["created_at"].get<int64_t>();
  std::error_code error;
  const auto size = fs::file_size(fs::path(path).replace_extension(), error);
  if (error) return std::nullopt;
  file.bytes = static_cast<int64_t>(size);
  return file;
}

}  // namespace

Result<void> replace_file(const fs::path& path, std::string_view content) {
  fs::path draft = path;
  draft += ".tmp";
  const int file = ::open(draft.c_str(), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0) return failed("the disk cannot be written");
  auto written = write_all(file, content);
  ::close(file);
  if (written.ok()) written = published(draft, path, "the disk cannot be written");
  if (!written.ok()) ::unlink(draft.c_str());
  return written;
}

Result<std::string> read_whole_file(const fs::path& path, int64_t most) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error::resource(fmt::format("{}: cannot be read", path.string()));
  const int64_t size = file.tellg();
  if (size < 0 || size > most)
    return Error::resource(fmt::format("{}: has {} bytes, more than the limit of {}", path.string(), size, most));
  std::string out(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(out.data(), size);
  if (file.gcount() != size) return Error::resource(fmt::format("{}: cannot be read", path.string()));
  return out;
}

bool is_stored_id(std::string_view id, std::string_view prefix) {
  if (!id.starts_with(prefix) || id.size() != prefix.size() + 24) return false;
  return id.substr(prefix.size()).find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string FileStore::new_id() {
  thread_local std::mt19937_64 source{std::random_device{}() ^ (static_cast<uint64_t>(std::random_device{}()) << 32)};
  return fmt::format("file-{:016x}{:08x}", source(), static_cast<uint32_t>(source()));
}

Result<std::unique_ptr<FileStore>> FileStore::open(const std::string& folder, const FileLimits& limits) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    return Error::user(fmt::format("{}: cannot be used as the folder for files: {}", folder,
                                   error ? error.message() : "not a folder"));
  const int lock = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (lock < 0)
    return Error::user(fmt::format("{}: cannot be used as the folder for files: {}", folder, std::strerror(errno)));
  auto store = std::unique_ptr<FileStore>(new FileStore(folder, limits, lock));  // closes `lock`
  if (::flock(lock, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)  // other errors: a file system without locks
    return Error::user(fmt::format(
        "{}: is the folder for files of another running server; give each server its own --files-dir", folder));
  store->load();
  return store;
}

FileStore::~FileStore() { ::close(lock_); }

void FileStore::load() {
  std::error_code error;
  std::vector<fs::path> leftovers;
  for (const auto& entry : fs::directory_iterator(folder_, error)) {
    const fs::path path = entry.path();
    const std::string name = path.filename();
    if (path.extension() == ".tmp") leftovers.push_back(path);
    // Half of a file: it was not published yet, or was being removed.
    if (is_stored_id(name, "file-") && !fs::exists(path.string() + ".json")) leftovers.push_back(path);
    if (path.extension() != ".json" || !is_stored_id(path.stem().string(), "file-")) continue;
    if (const auto file = read_note(path))
      take(*file);
    else if (!fs::exists(fs::path(path).replace_extension(), error))
      leftovers.push_back(path);
  }
  for (const fs::path& path : leftovers) fs::remove(path, error);
}

Result<void> FileStore::room_for(int64_t bytes, const FileUser& user) const {
  if (!user.admin) {
    const int64_t most_files = user.files > 0 ? user.files : limits_.key_files,
                  most_bytes = user.bytes > 0 ? user.bytes : limits_.key_bytes;
    int64_t count = 0, held = 0;
    for (const auto& [id, file] : files_) {
      if (file.owner != user.name) continue;
      ++count;
      held += file.bytes;
    }
    if (count >= most_files)
      return Error::resource(
          fmt::format("files: key '{}' has {} of at most {} files; delete some", user.name, count, most_files));
    if (bytes > most_bytes - held)
      return Error::resource(fmt::format("files: {} more bytes do not fit: key '{}' has {} of at most {}; delete some",
                                         bytes, user.name, held, most_bytes));
  }
  if (static_cast<int64_t>(files_.size()) >= limits_.files)
    return Error::resource(fmt::format("files: the limit of {} is reached; delete some", files_.size()));
  if (bytes > limits_.bytes - bytes_)
    return Error::resource(
        fmt::format("files: {} more bytes do not fit: {} of {} are used; delete some", bytes, bytes_, limits_.bytes));
  return {};
}

// Writes the description, the step before publishing.
Result<void> FileStore::note(const StoredFile& file) const {
  const Json json = {{"id", file.id},       {"filename", file.filename},  {"purpose", file.purpose},
                     {"bytes", file.bytes}, {"created_at", file.created}, {"owner", file.owner}};
  return replace_file(folder_ / (file.id + ".json"), to_text(json));
}

void FileStore::take(const StoredFile& file) {
  files_[file.id] = file;
  bytes_ += file.bytes;
}

Result<StoredFile> FileStore::add(const std::string& filename, const std::string& purpose, std::string_view content,
                                  const FileUser& user) {
  std::lock_guard lock(mutex_);
  MILLRACE_TRY_VOID(room_for(static_cast<int64_t>(content.size()), user));
  const StoredFile file{new_id(),  filename.substr(0, kMaxFileName),     purpose,
                        user.name, static_cast<int64_t>(content.size()), unix_now()};
  MILLRACE_TRY_VOID(note(file));
  if (auto published = replace_file(path(file.id), content); !published.ok()) {
    std::error_code ignored;
    fs::remove(folder_ / (file.id + ".json"), ignored);
    return published.error();
  }
  take(file);
  return file;
}

Result<StoredFile> FileStore::adopt(const fs::path& from, const std::string& id, const std::string& filename,
                                    const std::string& purpose, const std::string& owner) {
  std::lock_guard lock(mutex_);
  std::error_code error;
  if (!fs::exists(from, error)) {
    if (auto known = files_.find(id); known != files_.end()) return known->second;
    return Error::resource(fmt::format("files: {} no longer exists", from.filename().string()));
  }
  const auto bytes = static_cast<int64_t>(fs::file_size(from, error));
  const StoredFile file{id, filename, purpose, owner, bytes, unix_now()};
  MILLRACE_TRY_VOID(note(file));
  MILLRACE_TRY_VOID(published(from, path(id), "a result cannot be published"));
  take(file);
  return file;
}

std::vector<StoredFile> FileStore::list(const FileUser& user) const {
  std::lock_guard lock(mutex_);
  std::vector<StoredFile> out;
  for (const auto& [id, file] : files_)
    if (user.sees(file.owner)) out.push_back(file);
  std::ranges::stable_sort(out, {}, &StoredFile::created);
  return out;
}

std::optional<StoredFile> FileStore::find(const std::string& id, const FileUser& user) const {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  return found == files_.end() || !user.sees(found->second.owner) ? std::nullopt : std::optional(found->second);
}

Result<std::string> FileStore::read(const std::string& id) const { return read_whole_file(path(id), limits_.bytes); }

bool FileStore::remove(const std::string& id) {
  std::lock_guard lock(mutex_);
  const auto found = files_.find(id);
  if (found == files_.end()) return false;
  std::error_code ignored;
  fs::remove(folder_ / (id + ".json"), ignored);  // first: without it the file does not exist
  fs::remove(path(id), ignored);
  bytes_ -= found->second.bytes;
  files_.erase(found);
  return true;
}

}  // namespace millrace
