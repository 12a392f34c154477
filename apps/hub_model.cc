#include "hub_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <memory>

#include "arguments.h"
#include "base/memory_accounts.h"
#include "hub/short_names.h"
#include "interrupt.h"
#include "progress.h"
#include "run/embedded_model.h"
#include "run/language_model.h"

namespace millrace {

std::string names_like(const std::string& name, const std::vector<ShortName>& all) {
  std::vector<std::string> words;
  for (const ShortName& one : all) {
    words.push_back(one.name);
    if (one.latest) words.push_back(one.name.substr(0, one.name.find(':')));
  }
  std::vector<std::string> near;
  for (const std::string& word : words)
    if (name.size() >= 3 && word.starts_with(name) && word.find(':') == std::string::npos) near.push_back(word);
  if (near.empty()) return suggestion(name, words);
  std::ranges::sort(near);
  near.resize(std::min<size_t>(near.size(), 3));
  return fmt::format("; did you mean {}?", fmt::join(near, " or "));
}

bool names_hub(const std::string& name) {
  return name.starts_with("hf:") || name.starts_with("hf.co/") || name.starts_with("huggingface.co/");
}

bool looks_like_path(const std::string& name) {
  return name.starts_with('/') || name.starts_with('.') || name.starts_with('~') || name.ends_with(".gguf") ||
         name.ends_with(".safetensors");
}

std::string no_such_model(const std::string& name) {
  std::string near;
  if (const auto all = short_names(); all.ok()) near = names_like(name, *all);
  if (near.empty()) {
    std::vector<std::string> words;
    for (const EmbeddedModel& model : embedded_models()) words.emplace_back(model.short_name);
    for (const StoredModel& model : ModelStore().list()) words.push_back(model.name);
    near = suggestion(name, words);
  }
  if (!near.empty()) return fmt::format("{}: no such file, and no model has that name{}", name, near);
  return fmt::format(
      "{}: no such file, and no model has that name; `millrace list`, `millrace models` and `millrace pull --list` "
      "list names",
      name);
}

Result<HubName> hub_name_of(const std::string& name) {
  MILLRACE_TRY(const std::vector<ShortName> all, short_names());
  if (const auto model = find_short_name(name, all)) return parse_hub_name(*model);
  const bool hub = name.find('/') != std::string::npos;
  const std::string bare = canonical_model_name(name);
  if (hub) return parse_hub_name(bare);
  return Error::user(fmt::format(
      "{}: no short name of a model{}; `millrace pull --list` lists them, and other models are OWNER/NAME:QUANT",
      bare.substr(0, 200), names_like(bare, all)));
}

namespace {

// Downloads with a bar that shows bytes and their rate. `last`: out, what was there at the end.
Result<PulledModel> pull_with_progress(const HubName& hub, PullOptions options, PullProgress* last) {
  const auto begin = std::chrono::steady_clock::now();
  ProgressBar bar("downloading");
  options.progress = [&](const PullProgress& now) {
    *last = now;
    const auto part = [&](int64_t bytes) {
      return now.total > 0 ? static_cast<double>(bytes) / static_cast<double>(now.total) : 1;
    };
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double rate = seconds > 0 ? static_cast<double>(now.bytes - now.before) / seconds : 0;
    bar.begin_at(part(now.before));
    bar.update(part(now.bytes),
               fmt::format("{} of {}, {:.1f} MB/s", format_bytes(now.bytes), format_bytes(now.total), rate * 1e-6));
  };
  return pull_model(hub, options);
}

}  // namespace

Result<PulledModel> pull_with_bar(const std::string& name, PullOptions options) {
  MILLRACE_TRY(const HubName hub, hub_name_of(name));
  const InterruptsCaught caught;
  options.shown_name = name;
  options.cancelled = interrupted;
  PullProgress last;
  auto pulled = pull_with_progress(hub, std::move(options), &last);
  if (pulled.ok() || pulled.error().kind != ErrorKind::cancelled) return pulled;
  fmt::print(stderr, "millrace: {}: stopped{}; `millrace pull {}` continues\n", name,
             last.total > 0 ? fmt::format(" with {} of {}", format_bytes(last.bytes), format_bytes(last.total)) : "",
             name);
  end_interrupted();
}

Result<LocalModel> find_local_model(const std::string& name) {
  if (names_hub(name)) {
    const std::string canonical = canonical_model_name(name);
    MILLRACE_TRY(const PulledModel pulled, pull_with_bar(canonical, {}));
    ModelStore().note_use(canonical);
    return LocalModel{.path = pulled.path, .stored = {}};
  }
  std::error_code ignored;
  if (name.empty() || find_embedded_model(name) || std::filesystem::exists(name, ignored))
    return LocalModel{.path = name, .stored = {}};
  const ModelStore store;
  const auto found = store.find(name);
  if (!found) {
    MILLRACE_TRY(const auto known, find_short_name(name));
    if (known)
      return Error::corrupt(
          fmt::format("{0}: {1} is not on this machine; `millrace pull {0}` downloads it", name, *known));
    if (name.find('/') == std::string::npos && !looks_like_path(name)) return Error::user(no_such_model(name));
    return LocalModel{.path = name, .stored = {}};
  }
  store.note_use(found->name);
  return LocalModel{.path = found->path, .stored = found->about};
}

Result<std::string> local_model(const std::string& name) {
  MILLRACE_TRY(LocalModel model, find_local_model(name));
  return std::move(model.path);
}

Result<ModelFiles> open_local_model(const std::string& name) {
  MILLRACE_TRY(const std::string path, local_model(name));
  return open_model(path);
}

}  // namespace millrace
