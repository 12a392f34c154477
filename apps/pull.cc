// millrace pull: downloads a model from a hub into the cache shared with Hugging Face's tools.
#include <fmt/format.h>
#include <unistd.h>

#include "base/memory_accounts.h"
#include "base/ordered_json.h"
#include "command.h"
#include "durations.h"
#include "hub_model.h"
#include "terminal/display_width.h"

namespace millrace {
namespace {

constexpr const char* kPullExamples = R"(Examples:
  millrace pull qwen3:0.6b                              by a short name; --list lists them
  millrace pull Qwen/Qwen3-0.6B-GGUF:Q8_0               one quantization; the default is Q4_K_M
  millrace pull Qwen/Qwen3-0.6B                         safetensors, configuration and tokenizer
  millrace pull OWNER/NAME:file.gguf --revision v1.0
  millrace run -m hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 -p Hi    the same name works in every command

Prints how the model is run, and into a pipe its path. A download that ends early, by Ctrl-C or otherwise, is continued by
the next pull. Environment, with the meaning of Hugging Face's tools:
HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE; and SSL_CERT_FILE for a certificate authority.)";

constexpr size_t kShortNameColumns = 20;  // columns of a name before its text

struct PullFlags {
  std::string name;
  PullOptions options;
  bool json = false, list = false;
};

Result<int> list_short_names(bool json) {
  MILLRACE_TRY(const std::vector<ShortName> all, short_names());
  const ModelStore store;
  auto list = nlohmann::ordered_json::array();
  for (const ShortName& one : all) {
    const bool here = store.find(one.model).has_value();
    if (json) {
      list.push_back({{"name", one.name},
                      {"model", one.model},
                      {"latest", one.latest},
                      {"own", one.from_user},
                      {"on_this_machine", here}});
      continue;
    }
    const std::string family = one.latest ? ", also " + one.name.substr(0, one.name.find(':')) : "";
    const std::string text = fmt::format("{}{}{}{}", one.model, family, one.from_user ? ", from your file" : "",
                                         here ? ", on this machine" : "");
    fmt::print("{:<{}} {}\n", one.name, kShortNameColumns,
               hanging_text(text, kShortNameColumns + 1, terminal_columns()));
  }
  if (json)
    fmt::print("{}\n", nlohmann::ordered_json{{"file", short_names_file().string()}, {"models", list}}.dump());
  else
    fmt::print("Names of your own, and other files for these: {}\n", short_names_file().string());
  return 0;
}

// Prints how the model is run on a terminal, and its path into a pipe.
void print_pulled(const PullFlags& flags, const PulledModel& pulled) {
  if (isatty(STDOUT_FILENO) != 1) {
    fmt::print("{}\n", pulled.path);
    return;
  }
  const bool by_name = flags.options.cache.empty() && (names_hub(flags.name) || ModelStore().find(flags.name));
  fmt::print("{} is {}on this machine ({}){}{}\n", flags.name, pulled.downloaded > 0 ? "" : "already ",
             format_bytes(pulled.bytes), by_name ? "; millrace run " : ": ", by_name ? flags.name : pulled.path);
}

Result<int> pull(PullFlags flags) {
  if (flags.list && !flags.name.empty())
    return Error::user(fmt::format("pull: '{}' is not expected here: --list lists every name", flags.name));
  if (flags.list) return list_short_names(flags.json);
  if (flags.name.empty())
    return Error::user("pull: needs the name of a model; `millrace pull --list` lists short ones");
  while (flags.options.endpoint.ends_with('/')) flags.options.endpoint.pop_back();
  MILLRACE_TRY(const PulledModel pulled, pull_with_bar(flags.name, flags.options));
  if (!flags.json) {
    print_pulled(flags, pulled);
    return 0;
  }
  const nlohmann::ordered_json out = {{"path", pulled.path},
                                      {"commit", pulled.commit},
                                      {"files", pulled.files},
                                      {"bytes", pulled.bytes},
                                      {"downloaded_bytes", pulled.downloaded}};
  fmt::print("{}\n", out.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  return 0;
}

}  // namespace

void add_pull_command(CLI::App& app) {
  auto flags = std::make_shared<PullFlags>();
  CLI::App* command = add_command(app, "pull", "Download a model", kPullExamples, [=] { return pull(*flags); });
  command->add_option(
      "name", flags->name,
      "A short name such as qwen3:0.6b, OWNER/NAME or OWNER/NAME:FILE, where FILE is a file name or a quantization "
      "such as Q4_K_M");
  command->add_flag("--list", flags->list, "List the short names with their models");
  command->add_option("--revision", flags->options.revision, "Branch, tag or commit")->capture_default_str();
  command->add_flag("--offline", flags->options.offline, "Only use the cache");
  command->add_option("--endpoint", flags->options.endpoint, "The hub's address")->capture_default_str();
  command->add_option("--cache-dir", flags->options.cache, "Cache folder; default: from the environment");
  command->add_option("--connections", flags->options.connections, "Concurrent connections")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command->add_option("--timeout", flags->options.timeout_seconds, "Give up a connection after this time without data")
      ->capture_default_str()
      ->transform(as_seconds())
      ->check(CLI::Range(0.1, 1e5));
  command->add_flag("--json", flags->json, "Print path, commit, files and bytes, or the list, as JSON");
}

}  // namespace millrace
