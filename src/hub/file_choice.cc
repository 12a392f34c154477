#include "hub/file_choice.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {
namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

// Length of "-00001-of-00003.gguf" at the end of a part's name; 0: not a part.
size_t part_tail(std::string_view name) {
  constexpr std::string_view kForm = "-00000-of-00000.gguf";
  if (name.size() <= kForm.size()) return 0;
  const std::string_view tail = name.substr(name.size() - kForm.size());
  for (size_t i = 0; i < kForm.size(); ++i)
    if (kForm[i] == '0' ? tail[i] < '0' || tail[i] > '9' : tail[i] != kForm[i]) return 0;
  return kForm.size();
}

bool is_gguf(const std::string& file) {
  return file.ends_with(".gguf") && !base_name(file).starts_with("mmproj") && !base_name(file).starts_with("imatrix");
}

// "model-Q4_K_M.gguf", "Q4_K_M/model-00001-of-00002.gguf" have the tag Q4_K_M; "model-IQ4_K_M.gguf" does not.
bool has_tag(const std::string& file, const std::string& tag) {
  const std::string text = upper_case(file);
  for (size_t at = text.find(tag); at != std::string::npos; at = text.find(tag, at + 1)) {
    const auto separates = [&](size_t i) { return std::string_view("-._/").find(text[i]) != std::string_view::npos; };
    if ((at == 0 || separates(at - 1)) && at + tag.size() < text.size() && separates(at + tag.size())) return true;
  }
  return false;
}

FileChoice gguf_choice(const std::vector<std::string>& all, const std::string& chosen) {
  const size_t tail = part_tail(chosen);
  if (tail == 0) return {{chosen}, chosen};
  FileChoice out;
  const std::string first = chosen.substr(0, chosen.size() - tail),
                    last = chosen.substr(chosen.size() - 14);  // "-of-00003.gguf"
  for (const std::string& file : all)
    if (file.size() == chosen.size() && file.starts_with(first) && file.ends_with(last) && part_tail(file) > 0)
      out.files.push_back(file);
  std::ranges::sort(out.files);
  out.main = out.files.front();
  return out;
}

FileChoice folder_choice(const std::vector<std::string>& all) {
  FileChoice out;
  const bool indexed = std::ranges::find(all, "model.safetensors.index.json") != all.end();
  for (const std::string& file : all) {
    if (file.find('/') != std::string::npos) continue;
    const bool weights = file.ends_with(".safetensors") && !file.starts_with("consolidated") &&
                         !file.starts_with("adapter_") && (!indexed || file != "model.safetensors");
    if (weights || file.ends_with(".json") || file.ends_with(".jinja") || file == "tokenizer.model" ||
        file == "merges.txt" || file == "vocab.txt")
      out.files.push_back(file);
  }
  return out;
}

}  // namespace

std::string upper_case(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

Result<FileChoice> choose_files(const std::vector<std::string>& all, const std::string& wanted) {
  std::vector<std::string> ggufs;
  std::ranges::copy_if(all, std::back_inserter(ggufs), is_gguf);
  std::ranges::sort(ggufs);
  if (!wanted.empty()) {
    if (std::ranges::find(all, wanted) != all.end()) return gguf_choice(all, wanted);
    for (const std::string& file : ggufs)
      if (has_tag(file, upper_case(wanted))) return gguf_choice(all, file);
    std::string available;
    for (size_t i = 0; i < std::min<size_t>(ggufs.size(), 20); ++i) available += (i == 0 ? "" : ", ") + ggufs[i];
    return Error::user(fmt::format("file: '{}' does not exist; available: {}", wanted,
                                   available.empty() ? "no GGUF files" : available));
  }
  for (const char* tag : {"Q4_K_M", "Q8_0"})
    for (const std::string& file : ggufs)
      if (has_tag(file, tag)) return gguf_choice(all, file);
  if (!ggufs.empty()) return gguf_choice(all, ggufs.front());
  FileChoice folder = folder_choice(all);
  const bool weights =
      std::ranges::any_of(folder.files, [](const std::string& file) { return file.ends_with(".safetensors"); });
  if (!weights || std::ranges::find(folder.files, "config.json") == folder.files.end())
    return Error::user("files: found neither a GGUF file nor safetensors with a config.json");
  return folder;
}

}  // namespace millrace
