#include "base/memory.h"

#include <fmt/format.h>

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

// The number behind `key` at the beginning of a line of the file.
std::optional<int64_t> read_key(const std::string& path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (line.starts_with(key)) return number_in(std::string_view(line).substr(key.size()));
  return std::nullopt;
}

std::optional<int64_t> read_number(const std::string& path) { return read_key(path, ""); }

// The process's control group, from the line "0::/path"; nothing without version 2.
std::optional<std::string> own_group(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("0::/")) return line.substr(3);
  return std::nullopt;
}

std::string gigabytes(int64_t bytes) {
  return bytes < 100'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) * 1e-6) : fmt::format("{:.2f} GB", static_cast<double>(bytes) * 1e-9);
}

}  // namespace

AvailableMemory available_memory(const std::string& root) {
  AvailableMemory least;
  constexpr int64_t kMostKb = INT64_MAX / 4096;
  if (auto kb = read_key(root + "/proc/meminfo", "MemAvailable:"); kb && *kb < kMostKb) {
    const int64_t swap = read_key(root + "/proc/meminfo", "SwapFree:").value_or(0);
    least = {(*kb + std::min(swap, kMostKb)) * 1024, "this machine"};
  }
  auto group = own_group(root);
  while (group) {
    const std::string folder = root + "/sys/fs/cgroup" + (*group == "/" ? "" : *group);
    const auto limit = read_number(folder + "/memory.max");  // "max" is no number
    const auto used = read_number(folder + "/memory.current");
    if (limit && used) {
      const int64_t files = read_key(folder + "/memory.stat", "inactive_file ").value_or(0) + read_key(folder + "/memory.stat", "active_file ").value_or(0);
      const int64_t left = std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - files));
      if (left < least.bytes) least = {left, "the control group " + *group};
    }
    if (*group == "/") break;
    group->resize(std::max<size_t>(1, group->rfind('/')));
  }
  return least;
}

Result<void> check_memory(int64_t bytes, const std::string& what, const std::string& advice, const AvailableMemory& available) {
  if (bytes <= available.bytes) return {};
  return Error::resource(fmt::format("{}: needs {} of memory, {} has {} left; {}", what, gigabytes(bytes), available.limit, gigabytes(available.bytes), advice));
}

}  // namespace millrace
