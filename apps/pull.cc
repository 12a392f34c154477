// millrace pull: downloads a model from a hub into the cache shared with Hugging Face's tools.
#include <fmt/format.h>

#include "base/ordered_json.h"
#include "command.h"
#include "durations.h"
#include "hub_model.h"

namespace millrace {
namespace {

constexpr const char* kPullExamples = R"(Examples:
  millrace pull Qwen/Qwen3-0.6B-GGUF:Q8_0               one quantization; the default is Q4_K_M
  millrace pull Qwen/Qwen3-0.6B                         safetensors, configuration and tokenizer
  millrace pull OWNER/NAME:file.gguf --revision v1.0
  millrace run -m hf:Qwen/Qwen3-0.6B-GGUF:Q8_0 -p Hi    the same name works in every command

Prints the path of the model. Interrupted downloads are resumed. Environment, with the meaning of Hugging Face's tools:
HF_HOME, HF_HUB_CACHE, HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE; and SSL_CERT_FILE for a certificate authority.)";

struct PullFlags {
  std::string name;
  PullOptions options;
  bool json = false;
};

Result<int> pull(PullFlags flags) {
  while (flags.options.endpoint.ends_with('/')) flags.options.endpoint.pop_back();
  MILLRACE_TRY(const PulledModel pulled, pull_with_bar(flags.name, flags.options));
  if (!flags.json) {
    fmt::print("{}\n", pulled.path);
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
  command
      ->add_option("name", flags->name,
                   "OWNER/NAME or OWNER/NAME:FILE, where FILE is a file name or a quantization such as Q4_K_M")
      ->required();
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
  command->add_flag("--json", flags->json, "Print path, commit, files and bytes as JSON");
}

}  // namespace millrace
