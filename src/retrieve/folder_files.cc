#include "retrieve/folder_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace millrace {
namespace {

namespace fs = std::filesystem;

bool is_hidden_file(const fs::path& path) { return path.filename().string().starts_with('.'); }

Result<FoundFiles> find_in_folder(const std::string& path, int64_t most) {
  FoundFiles out;
  std::error_code error;
  fs::recursive_directory_iterator at(path, error);
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    std::error_code ignored;
    if (is_hidden_file(at->path())) {
      at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(ignored)) continue;
    const std::string file = document_name(at->path().string());
    const auto kind = document_kind(file);
    if (!kind) {
      ++out.skipped;
      continue;
    }
    if (std::ssize(out.files) >= most)
      return Error::resource(fmt::format("{}: has more than {} files; index its folders one by one", path, most));
    out.files.push_back({file, *kind});
  }
  if (error) return Error::corrupt(fmt::format("{}: cannot be read: {}", path, error.message()));
  std::ranges::sort(out.files, {}, &FoundFile::path);
  return out;
}

}  // namespace

std::string document_name(const std::string& path) {
  std::error_code error;
  std::string out = fs::absolute(path, error).lexically_normal().string();
  while (out.size() > 1 && out.back() == '/') out.pop_back();
  return out;
}

Result<FoundFiles> find_files(const std::string& path, int64_t most) {
  std::error_code error;
  if (fs::is_directory(path, error)) return find_in_folder(path, most);
  if (!fs::exists(path, error)) return Error::corrupt(fmt::format("{}: no such file or folder", path));
  const auto kind = document_kind(path);
  if (!kind)
    return Error::unsupported(fmt::format(
        "{}: files of this kind cannot be indexed; text, Markdown and HTML can. Convert it first: pdftotext FILE.pdf",
        path));
  return FoundFiles{{{document_name(path), *kind}}, 0};
}

Result<std::string> read_document(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return Error::corrupt(fmt::format("{}: cannot be read", path));
  const int64_t size = file.tellg();
  if (size < 0 || size > kMaxDocumentBytes)
    return Error::resource(
        fmt::format("{}: has {} bytes, more than the limit of {}; divide it", path, size, kMaxDocumentBytes));
  std::string out(static_cast<size_t>(size), '\0');
  file.seekg(0);
  file.read(out.data(), size);
  if (file.gcount() != size) return Error::corrupt(fmt::format("{}: cannot be read", path));
  return out;
}

}  // namespace millrace
