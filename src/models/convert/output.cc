#include "models/convert/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/publish.h"
#include "models/convert/safetensors_writer.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

// A temporary folder next to the output, removed by the destructor.
class PendingFolder {
 public:
  explicit PendingFolder(const fs::path& output) {
    std::string name = output.string();
    while (name.size() > 1 && name.ends_with('/')) name.pop_back();
    path_ = fmt::format("{}.{}.partial", name, ::getpid());
  }
  ~PendingFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Error failed(const fs::path& path, const char* what, const std::error_code& error) {
  return Error::user(fmt::format("{}: cannot {}: {}", path.string(), what, error.message()));
}

// Files that would make a reader mix an older model with the new one.
bool is_model_file(const std::string& name) {
  constexpr std::string_view kNames[] = {"config.json",
                                         "generation_config.json",
                                         "tokenizer.json",
                                         "tokenizer.model",
                                         "spiece.model",
                                         "tokenizer_config.json",
                                         "vocab.json",
                                         "merges.txt",
                                         "added_tokens.json",
                                         "chat_template.jinja",
                                         "chat_template.json",
                                         "special_tokens_map.json",
                                         "model.safetensors.index.json"};
  return std::ranges::find(kNames, name) != std::end(kNames) || name.ends_with(".safetensors");
}

// Adds what else the folder holds, so that the new one can take its place. False: some of it cannot be added.
bool carry_over(const fs::path& folder, const fs::path& to) {
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const fs::path own = to / entry->path().filename();
    std::error_code ignored;
    if (fs::exists(fs::symlink_status(own, ignored))) continue;
    if (is_model_file(entry->path().filename()) && entry->is_regular_file(ignored)) continue;
    fs::copy(entry->path(), own, fs::copy_options::recursive | fs::copy_options::copy_symlinks, error);
  }
  return !error;
}

// In one step, so that nobody finds the files of two models; file by file where a folder cannot take the other's name:
// a link, a mount point, the current folder.
Result<void> move_into(const fs::path& from, const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) {
    error = publish(from, folder);
    return error ? Result<void>(failed(folder, "be named", error)) : Result<void>();
  }
  if (carry_over(folder, from) && !publish(from, folder)) return {};
  std::vector<fs::path> old;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error))
    if (is_model_file(entry->path().filename()) && entry->is_regular_file(error)) old.push_back(entry->path());
  for (const fs::path& path : old) fs::remove(path, error);
  for (auto entry = fs::directory_iterator(from, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    const fs::path own = folder / entry->path().filename();
    std::error_code ignored;
    if (entry->is_directory(ignored) && fs::exists(own, ignored)) continue;
    error = publish(entry->path(), own);
    if (error) return failed(own, "be written", error);
  }
  return {};
}

}  // namespace

Result<void> check_output(const std::string& output, bool force, const std::vector<std::string>& inputs) {
  const fs::path path(output);
  std::error_code error;
  fs::path parent = fs::path(output.ends_with('/') ? output.substr(0, output.size() - 1) : output).parent_path();
  if (!parent.empty() && !fs::is_directory(parent, error))
    return Error::user(fmt::format("{}: its folder does not exist; create it first", output));
  if (!fs::exists(path, error)) return {};
  for (const std::string& input : inputs) {
    const bool same =
        fs::equivalent(path, input, error) ||
        (fs::is_directory(path, error) && fs::equivalent(path, fs::absolute(input, error).parent_path(), error));
    if (same) return Error::user(fmt::format("{}: is or contains the input; choose another output", output));
  }
  const bool gguf = output.ends_with(".gguf");
  if (fs::is_directory(path, error) == gguf)
    return Error::user(
        fmt::format("{}: exists and is {}; choose another name", output, gguf ? "a folder" : "not a folder"));
  const bool empty = !gguf && fs::is_empty(path, error);
  if (!force && !empty) return Error::user(fmt::format("{}: already exists; give --force to replace it", output));
  return {};
}

Result<void> write_folder(const std::string& folder, const std::vector<TextFile>& texts,
                          const std::vector<std::string>& copies, const std::vector<OutputTensor>& tensors,
                          ThreadPool& pool, const std::function<void(int64_t, int64_t)>& progress) {
  PendingFolder pending(folder);
  std::error_code error;
  fs::create_directory(pending.path(), error);
  if (error) return failed(pending.path(), "be made", error);
  MILLRACE_TRY_VOID(write_safetensors(pending.path() / "model.safetensors", tensors, pool, progress));
  for (const std::string& copy : copies) {
    fs::path to = pending.path() / fs::path(copy).filename();
    fs::copy(copy, to, fs::copy_options::recursive, error);
    if (error) return failed(to, "be copied", error);
  }
  for (const TextFile& text : texts) {
    std::ofstream file(pending.path() / text.name, std::ios::binary);
    file << text.content;
    if (!file.flush())
      return Error::resource(
          fmt::format("{}: cannot be written; is the disk full?", (pending.path() / text.name).string()));
  }
  return move_into(pending.path(), folder);
}

}  // namespace millrace
