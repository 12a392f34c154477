#include "model_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <optional>
#include <utility>

#include "hub_model.h"
#include "run/embedded_model.h"

namespace millrace {
namespace {

bool is_here(const std::string& name) {
  std::error_code ignored;
  return find_embedded_model(name) || std::filesystem::exists(name, ignored) || ModelStore().find(name);
}

// Reads an answer from the terminal; an empty line is yes.
bool agrees(const std::string& question) {
  fmt::print(stderr, "{} [Y/n] ", question);
  std::fflush(stderr);
  char line[64];
  if (!std::fgets(line, sizeof(line), stdin)) return false;
  const char first = line[std::strspn(line, " \t")];
  return first == '\n' || first == 'y' || first == 'Y';
}

// A model that is not on this machine and that a hub may have.
struct MissingModel {
  std::string text;  // "qwen3:0.6b (unsloth/Qwen3-0.6B-GGUF:Q4_K_M)", "OWNER/NAME"
};

// Returns nullopt if the model is on this machine, or is downloaded without a question. Errors: as check_model_name.
Result<std::optional<MissingModel>> missing_model(const std::string& name) {
  if (names_hub(name) || is_here(name)) return std::optional<MissingModel>();
  MILLRACE_TRY(const std::vector<ShortName> all, short_names());
  const auto known = find_short_name(name, all);
  const std::string model = known.value_or(name);
  if (looks_like_path(model) || !parse_hub_name(model).ok())
    return Error::corrupt(no_such_model(name) + "; a text to continue is -p TEXT");
  return std::optional(MissingModel{known ? fmt::format("{} ({})", name, model) : name});
}

}  // namespace

void add_yes_to(CLI::App* command, bool* yes) {
  command->add_flag("-y,--yes", *yes, "Download a MODEL that is not on this machine without asking");
}

void ModelWords::add_to(CLI::App* command, bool with_text) {
  command->add_option("MODEL", model,
                      "Model by any name that -m takes, or of millrace pull --list. If it is not on this machine, its "
                      "download is offered");
  if (with_text)
    command->add_option("PROMPT", text,
                        "Message, which the model answers through its chat template. Piped standard input comes before "
                        "it. In a terminal without a message: a chat");
  add_yes_to(command, &yes);
}

bool ModelWords::place(std::string* path, bool flag_given) {
  if (model.empty()) return false;
  if (flag_given) {
    text.insert(text.begin(), std::exchange(model, ""));
    return false;
  }
  *path = model;
  return true;
}

std::string ModelWords::message() const { return fmt::format("{}", fmt::join(text, " ")); }

Result<void> check_model_name(const std::string& name) {
  const auto missing = missing_model(name);
  if (!missing.ok()) return missing.error();
  return {};
}

Result<void> offer_model(const std::string& name, bool yes) {
  MILLRACE_TRY(const auto missing, missing_model(name));
  if (!missing) return {};
  const std::string& what = missing->text;
  if (!yes && (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1))
    return Error::corrupt(
        fmt::format("{}: is not on this machine; `millrace pull {}` downloads it, and so does --yes", what, name));
  if (!yes && !agrees(fmt::format("{} is not on this machine. Download it?", what)))
    return Error::user(fmt::format("{}: is not on this machine, and was not downloaded", name));
  MILLRACE_TRY(const PulledModel pulled, pull_with_bar(name, {}));
  fmt::print(stderr, "millrace: {} is now on this machine\n", what);
  return {};
}

void introduce_built_in(const std::string& path, int64_t parameters) {
  const EmbeddedModel* model = find_embedded_model(path);
  if (!model || isatty(STDERR_FILENO) != 1) return;
  const bool lab = model->short_name.starts_with("lab");
  fmt::print(stderr, "{} is a demonstration with {:.0f} M parameters: it {}. A real model: millrace run qwen3:0.6b\n",
             model->short_name, static_cast<double>(parameters) * 1e-6,
             lab ? "answers the exercises of `millrace lab` and writes simple stories" : "writes simple stories");
}

}  // namespace millrace
