#include "attention/patterns/fitted_text.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <fstream>

namespace millrace {
namespace {

constexpr int64_t kMaxFittedBytes = int64_t{1} << 28;

}  // namespace

Result<std::string> read_fitted_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error::user(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  const auto bytes = static_cast<int64_t>(file.tellg());
  if (bytes < 0 || bytes > kMaxFittedBytes)
    return Error::corrupt(fmt::format("{}: is longer than any file that was fitted to a model", path));
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seekg(0);
  file.read(text.data(), bytes);
  if (file.gcount() != bytes) return Error::user(fmt::format("{}: cannot be read", path));
  return text;
}

}  // namespace millrace
