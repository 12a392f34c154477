#include "run/plan/packed_cache_path.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <cstdlib>
#include <filesystem>

namespace millrace {

namespace fs = std::filesystem;

std::string default_packed_cache_path(const std::string& model_path) {
  constexpr const char* kEnding = ".millrace-packed";
  std::error_code failed;
  fs::path model = fs::absolute(model_path, failed).lexically_normal();
  if (failed) return "";
  if (!model.has_filename()) model = model.parent_path();  // "folder/"
  const bool folder = fs::is_directory(model, failed);
  const std::string name = model.filename().string();
  const fs::path beside = (folder ? model : model.parent_path()) / (name + kEnding);
  if (fs::exists(beside, failed) || ::access(beside.parent_path().c_str(), W_OK) == 0) return beside.string();
  fs::path cache;
  if (const char* home = std::getenv("XDG_CACHE_HOME"); home && *home)
    cache = home;
  else if (const char* own = std::getenv("HOME"); own && *own)
    cache = fs::path(own) / ".cache";
  if (cache.empty()) return "";
  cache /= "millrace";
  fs::create_directories(cache, failed);
  if (failed) return "";
  const std::string text = model.string();
  return (cache / fmt::format("{}-{:016x}{}", name, XXH3_64bits(text.data(), text.size()), kEnding)).string();
}

}  // namespace millrace
