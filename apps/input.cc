#include "input.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "base/json_text.h"
#include "base/ordered_json.h"
#include "base/pending_file.h"

namespace millrace {

std::string at_home(const std::string& path) {
  const char* home = std::getenv("HOME");
  return home && path.starts_with("~/") ? home + path.substr(1) : path;
}

Result<std::string> read_all(std::FILE* file, const std::string& name) {
  std::string text;
  char chunk[65536];
  while (size_t n = std::fread(chunk, 1, sizeof(chunk), file)) text.append(chunk, n);
  if (std::ferror(file)) return Error::corrupt(fmt::format("{}: cannot be read: {}", name, std::strerror(errno)));
  return text;
}

Result<void> check_writable(const std::string& what, const std::string& path) {
  if (path.empty()) return {};
  std::error_code unknown;
  if (std::filesystem::is_directory(path, unknown))
    return Error::user(fmt::format("{} {}: is a folder; name a file", what, path));
  const bool special = std::filesystem::exists(path, unknown) && !std::filesystem::is_regular_file(path, unknown);
  if (special || PendingFile(path).created()) return {};  // a pipe is written as it is
  return Error::user(fmt::format("{} {}: cannot be written: {}", what, path, std::strerror(errno)));
}

Result<std::string> read_text_file(const std::string& path) {
  if (path == "-") return read_all(stdin, "standard input");
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (!file) return Error::corrupt(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)));
  auto text = read_all(file, path);
  std::fclose(file);
  return text;
}

namespace {

// " at line 1, column 3: unexpected end of input; ..." of nlohmann's "[json.exception.parse_error.101] parse error at
// line 1, column 3: syntax error while parsing value - unexpected end of input; ...".
std::string json_error_in_words(std::string text) {
  if (const size_t end = text.find("] "); text.starts_with('[') && end != std::string::npos) text.erase(0, end + 2);
  constexpr std::string_view kError = "parse error";
  if (text.starts_with(kError)) text.erase(0, kError.size());
  const size_t colon = text.find(": "), dash = text.find(" - ");
  if (colon != std::string::npos && dash != std::string::npos && colon < dash)
    text.erase(colon + 2, dash + 3 - colon - 2);
  return text.starts_with(' ') ? text : ": " + text;
}

}  // namespace

Result<nlohmann::ordered_json> read_json_file(const std::string& path) {
  MILLRACE_TRY(std::string text, read_text_file(path));
  if (nests_deeper(text, kMaxJsonDepth))
    return Error::corrupt(fmt::format("{}: JSON nests deeper than {}", path, kMaxJsonDepth));
  try {
    return nlohmann::ordered_json::parse(text);
  } catch (const nlohmann::json::exception& error) {
    return Error::corrupt(fmt::format("{}: not valid JSON{}", path, json_error_in_words(error.what())));
  }
}

void print_json_line(const nlohmann::ordered_json& value) {
  std::puts(value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace).c_str());
}

}  // namespace millrace
