#include "input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "base/json_text.h"
#include "base/ordered_json.h"

namespace millrace {

Result<std::string> read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char chunk[65536];
  while (size_t n = std::fread(chunk, 1, sizeof(chunk), file)) text.append(chunk, n);
  if (std::ferror(file)) return Error::corrupt(fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  return text;
}

Result<std::string> read_text_file(const std::string& path) {
  if (path == "-") return read_all(stdin, "standard input");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return Error::corrupt(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  auto text = read_all(file, path);
  std::fclose(file);
  return text;
}

Result<nlohmann::ordered_json> read_json_file(const std::string& path) {
  MILLRACE_TRY(std::string text, read_text_file(path));
  if (nests_deeper(text, kMaxJsonDepth))
    return Error::corrupt(fmt::format("{}: JSON nests deeper than {}", path, kMaxJsonDepth));
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return Error::corrupt(fmt::format("{}: not valid JSON: {}", path, error.what()));
  }
}

void print_json_line(const nlohmann::ordered_json& value) {
  std::puts(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace millrace
