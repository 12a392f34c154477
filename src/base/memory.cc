#include "base/memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <optional>

namespace millrace {
namespace {

std::optional<int64_t> number_in(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(" \t"), text.size()));
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || value < 0) return std::nullopt;
  return value;
}

// The number after `key` in the line of the file that begins with it.
std::optional<int64_t> read_key(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

std::optional<int64_t> read_number(const std::string& path) { return read_key(path, ""); }

constexpr int64_t kMaxKb = INT64_MAX / 4096;

// File names of one version of control groups.
struct GroupFiles {
  const char* folder;
  const char* limit;
  const char* used;
  const char* inactive;
  const char* active;
};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "/memory.max", "/memory.current", "inactive_file ", "active_file "};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "/memory.limit_in_bytes", "/memory.usage_in_bytes",
                                  "total_inactive_file ", "total_active_file "};

// The process's control group, from the line "0::/path" of version 2, or "5:memory:/path" of version 1.
std::optional<std::string> own_group(const std::string& root, const GroupFiles& version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (&version == &kVersion2 && line.starts_with("0::/")) return line.substr(3);
    const size_t at = line.find(":memory:/");
    if (&version == &kVersion1 && at != std::string::npos) return line.substr(at + 8);
  }
  return std::nullopt;
}

// Calls use(folder, group) for the process's groups up to the root.
template <typename Use>
void each_group(const std::string& root, const GroupFiles& version, const Use& use) {
  auto group = own_group(root, version);
  while (group) {
    use(root + version.folder + (*group == "/" ? "" : *group), *group);
    if (*group == "/") break;
    group->resize(std::max<size_t>(1, group->rfind('/')));
  }
}

int64_t own_status(std::string_view key) {
  const int64_t kb = read_key("/proc/self/status", key).value_or(0);
  return kb < kMaxKb ? kb * 1024 : 0;
}

std::string gigabytes(int64_t bytes) {
  return bytes < 100'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6)
                             : fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least;
  if (auto kb = read_key(root + "/proc/meminfo", "MemAvailable:"); kb && *kb < kMaxKb) {
    const int64_t swap = read_key(root + "/proc/meminfo", "SwapFree:").value_or(0);
    least = {(*kb + std::min(swap, kMaxKb)) * 1024, "this machine"};
  }
  for (const GroupFiles* version : {&kVersion2, &kVersion1}) {
    each_group(root, *version, [&](const std::string& folder, const std::string& group) {
      const auto limit = read_number(folder + version->limit);  // "max" is not a number
      const auto used = read_number(folder + version->used);
      if (!limit || !used) return;
      const int64_t files = read_key(folder + "/memory.stat", version->inactive).value_or(0) +
                            read_key(folder + "/memory.stat", version->active).value_or(0);
      const int64_t left = std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - files));
      if (left < least.bytes) least = {left, "the control group " + group};
    });
  }
  return least;
}

AvailableMemory total_memory(const std::string& root) {
  AvailableMemory least;
  if (auto kb = read_key(root + "/proc/meminfo", "MemTotal:"); kb && *kb < kMaxKb) {
    const int64_t swap = read_key(root + "/proc/meminfo", "SwapTotal:").value_or(0);
    least = {(*kb + std::min(swap, kMaxKb)) * 1024, "this machine"};
  }
  for (const GroupFiles* version : {&kVersion2, &kVersion1}) {
    each_group(root, *version, [&](const std::string& folder, const std::string& group) {
      const auto limit = read_number(folder + version->limit);
      if (limit && *limit < least.bytes) least = {*limit, "the control group " + group};
    });
  }
  return least;
}

int64_t resident_bytes() { return own_status("VmRSS:"); }
int64_t peak_resident_bytes() { return own_status("VmHWM:"); }

Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice,
                          const AvailableMemory& available) {
  if (bytes <= available.bytes) return {};
  return Error::resource(fmt::format("{}: needs {} of memory, but {} has only {} left; {}", what, gigabytes(bytes),
                                     available.limit, gigabytes(available.bytes), advice));
}

}  // namespace millrace
