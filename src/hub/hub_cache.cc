#include "hub/hub_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/publish.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr auto kLockPoll = std::chrono::milliseconds(100);

fs::path home() {
  if (const std::string set = environment_text("HF_HOME"); !set.empty()) return set;
  const std::string cache = environment_text("XDG_CACHE_HOME");
  return (cache.empty() ? fs::path(environment_text("HOME")) / ".cache" : fs::path(cache)) / "huggingface";
}

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  line.erase(line.find_last_not_of(" \t\r\n") + 1);
  return line.substr(0, 4096);
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 96 && text.front() != '.' && text.front() != '-' &&
         text.find("..") == std::string_view::npos && text.find("--") == std::string_view::npos &&
         std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '.' || c == '-' ||
                  c == '_';
         });
}

Error failed_at(const fs::path& path, const std::string& why) {
  return Error::resource(fmt::format("{}: {}", path.string(), why));
}

}  // namespace

std::string environment_text(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

Result<HubName> parse_hub_name(std::string_view text) {
  const Error bad =
      Error::user(fmt::format("model: expected OWNER/NAME or OWNER/NAME:FILE, got '{}'", text.substr(0, 200)));
  if (text.starts_with("hf:")) text.remove_prefix(3);
  HubName out;
  if (const size_t colon = text.find(':'); colon != std::string_view::npos) {
    out.wanted = text.substr(colon + 1);
    text = text.substr(0, colon);
    if (!is_safe_path(out.wanted)) return bad;
  }
  const size_t slash = text.find('/');
  if (slash == std::string_view::npos || !is_name(text.substr(0, slash)) || !is_name(text.substr(slash + 1)))
    return bad;
  out.repository = text;
  return out;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > 1024) return false;
  if (std::ranges::any_of(path, [](char c) { return static_cast<unsigned char>(c) < ' ' || c == '\\' || c == 0x7F; }))
    return false;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    at = end + 1;
  }
  return true;
}

bool is_hash(std::string_view text) {
  return (text.size() == 40 || text.size() == 64) &&
         std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

HubCache::HubCache(std::string folder) : folder_(std::move(folder)) {
  if (folder_.empty()) folder_ = environment_text("HF_HUB_CACHE");
  if (folder_.empty()) folder_ = environment_text("HUGGINGFACE_HUB_CACHE");
  if (folder_.empty()) folder_ = home() / "hub";
}

fs::path HubCache::repository(const std::string& name) const {
  const size_t slash = name.find('/');
  return folder_ / ("models--" + name.substr(0, slash) + "--" + name.substr(slash + 1));
}

fs::path HubCache::lock_file(const std::string& name, const std::string& hash) const {
  return folder_ / ".locks" / repository(name).filename() / (hash + ".lock");
}

std::optional<std::string> HubCache::commit_of(const std::string& name, const std::string& revision) const {
  if (revision.size() == 40 && is_hash(revision)) return revision;
  const std::string commit = first_line(repository(name) / "refs" / revision);
  return commit.size() == 40 && is_hash(commit) ? std::optional(commit) : std::nullopt;
}

Result<void> HubCache::set_commit(const std::string& name, const std::string& revision,
                                  const std::string& commit) const {
  if (revision == commit) return {};
  const fs::path path = repository(name) / "refs" / revision, fresh = path.string() + "." + std::to_string(::getpid());
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  {
    std::ofstream file(fresh, std::ios::trunc);
    file << commit;
    if (!file.flush()) return failed_at(fresh, "cannot be written");
  }
  failed = publish(fresh, path);
  if (failed) return failed_at(path, failed.message());
  return {};
}

std::vector<std::string> HubCache::files(const std::string& name, const std::string& commit) const {
  std::vector<std::string> out;
  const fs::path folder = snapshot(name, commit);
  std::error_code failed;
  for (fs::recursive_directory_iterator at(folder, failed), end; !failed && at != end; at.increment(failed)) {
    std::error_code ignored;
    if (fs::is_regular_file(at->path(), ignored))
      out.push_back(at->path().lexically_relative(folder).string());  // skips dangling links
  }
  std::ranges::sort(out);
  return out;
}

Result<void> HubCache::link(const std::string& name, const std::string& commit, const std::string& file,
                            const std::string& hash) const {
  const fs::path path = snapshot(name, commit) / file, fresh = path.string() + ".link" + std::to_string(::getpid());
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  if (failed) return failed_at(path.parent_path(), failed.message());
  fs::remove(fresh, failed);
  fs::create_symlink(blob(name, hash).lexically_relative(path.parent_path()), fresh, failed);
  if (failed) return failed_at(path, failed.message());
  failed = publish(fresh, path);
  if (failed) return failed_at(path, failed.message());
  return {};
}

std::string hub_token() {
  if (const std::string token = environment_text("HF_TOKEN"); !token.empty()) return token;
  const std::string path = environment_text("HF_TOKEN_PATH");
  const std::string token = first_line(path.empty() ? home() / "token" : fs::path(path));
  return std::ranges::all_of(token, [](char c) { return c > ' ' && c < 0x7F; }) ? token : "";
}

bool hub_offline() {
  const std::string set = environment_text("HF_HUB_OFFLINE");
  return set == "1" || set == "true" || set == "TRUE" || set == "yes" || set == "YES" || set == "on" || set == "ON";
}

std::string hub_endpoint() {
  std::string set = environment_text("HF_ENDPOINT");
  while (set.ends_with('/')) set.pop_back();
  return set.empty() ? "https://huggingface.co" : set;
}

FileLock::~FileLock() {
  if (file_ >= 0) ::close(file_);
}

Result<FileLock> FileLock::take(const fs::path& path, const std::function<bool()>& stopped) {
  std::error_code failed;
  fs::create_directories(path.parent_path(), failed);
  FileLock lock;
  lock.file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (lock.file_ < 0) return failed_at(path, std::strerror(errno));
  while (::flock(lock.file_, stopped ? LOCK_EX | LOCK_NB : LOCK_EX) != 0) {
    if (errno != EINTR && errno != EWOULDBLOCK) return failed_at(path, std::strerror(errno));
    if (stopped && stopped()) return Error::cancelled(fmt::format("{}: the wait was stopped", path.string()));
    if (stopped) std::this_thread::sleep_for(kLockPoll);
  }
  return lock;
}

}  // namespace millrace
