// Flags shared by several subcommands: the model, the engine and sampling.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <vector>

#include "millrace/engine.h"

namespace millrace {

struct ModelFlags {
  std::string path;
  int threads = 0;
  int64_t context = 0;
  std::string packed_cache;  // "": none, "true": default path, otherwise the path
  bool verify_packed_cache = false;
  std::string chat_template;  // its text; "": the model's own
  std::string memory;         // "8G"; "": no budget

  void add_to(CLI::App* command);  // -m, -t, -c, --memory, --packed-cache, --verify-packed-cache
  void add_memory_to(CLI::App* command);
  Result<LoadOptions> load_options() const;  // its warnings are printed on stderr
  // Loads the model, with a progress bar if stderr is a terminal.
  Result<std::shared_ptr<const LanguageModel>> load() const;
};

// --kv-format, --kv-tokens, --kv-pool, --block-tokens, --batch-tokens, --prefix-evict, --policy, --swap-tokens,
// --kv-ssd ...; threads and context come from ModelFlags.
struct EngineFlags {
  EngineOptions options;
  bool no_prefix_cache = false;

  void add_to(CLI::App* command);
  void add_adapters_to(CLI::App* command, const std::string& use);  // --lora
  std::vector<AdapterUse> all_adapters() const;
  EngineOptions get(const ModelFlags& model) const;
};

// One flag per field of the sampling schema (sampling/schema.h): --temp, --top-k, --seed ...
struct SamplingFlags {
  std::vector<std::pair<std::string, std::string>> set;  // field, text; in the order given

  void add_to(CLI::App* command);
  // Defaults, then the model's own generation_config values, then the flags.
  Result<SamplingOptions> get(const LanguageModel& model) const;
};

}  // namespace millrace
