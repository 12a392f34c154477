// Flags shared by several subcommands: the model, the engine and sampling.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "millrace/engine.h"
#include "run/plan/kv_places.h"
#include "server/models/model_defaults.h"
#include "use_flag.h"

namespace millrace {

struct ModelFlags {
  std::string path;
  int threads = 0;
  int64_t context = 0;
  std::string packed_cache;  // "": none, "true": default path, otherwise the path
  bool verify_packed_cache = false;
  std::string pack = "load";        // or "background"
  std::string chat_template;        // its text; "": the model's own
  std::string memory;               // "8G"; "": no budget
  int64_t resident_layers = -1;     // -1: not given
  std::vector<std::string> places;  // PATTERN=memory or PATTERN=disk
  bool mlock = false;
  bool chooses_weights = false;  // with --memory alone, the source of weights is the one that a plan chooses

  void add_to(CLI::App* command);  // -m, -t, -c, --memory, --packed-cache, --verify-packed-cache
  void add_memory_to(CLI::App* command);
  void add_with_text_to(CLI::App* command, std::string* file);  // -m, -t, --memory and -f, the text to read
  // For commands that answer: --pack, which is then "background" unless given, and chooses_weights.
  void add_pack_to(CLI::App* command);
  // --resident-layers, --place and --mlock: short for options of the family weights.
  void add_places_to(CLI::App* command);
  // Returns the flags with the path of the model on this machine. Settings that a model of the store has are added
  // where no flag says otherwise.
  Result<ModelFlags> found() const;
  ModelDefaults defaults;             // settings of a model of the store
  std::string system;                 // system prompt of a model of the store
  std::vector<std::string> adapters;  // adapters of a model of the store
  std::string draft;                  // draft model of a model of the store

  // Warnings of the load are printed on stderr. `use`, if not null, adds the choices that apply to loading; `applied`,
  // if not null, receives their effects.
  Result<LoadOptions> load_options(const UseFlag* use = nullptr,
                                   std::vector<AppliedTechnique>* applied = nullptr) const;
  // Loads the model, with a progress bar if stderr is a terminal.
  Result<std::shared_ptr<const LanguageModel>> load(const UseFlag* use = nullptr,
                                                    std::vector<AppliedTechnique>* applied = nullptr) const;
  // `weights`, NAME[:key=value,...], with the options that --resident-layers, --place and --mlock stand for.
  Result<std::string> placed(const std::string& weights) const;
  // The model with this context, and the first tokens of the text in a file, at most `most`.
  struct WithText {
    std::shared_ptr<const LanguageModel> model;
    std::vector<TokenId> tokens;
  };
  Result<WithText> load_with_text(const std::string& file, int64_t context_tokens, int64_t most) const;
};

// --kv-format, --kv-tokens, --kv-pool, --block-tokens, --batch-tokens, --prefix-evict, --policy, --swap-tokens,
// --kv-ssd ...; threads and context are in ModelFlags. --use chooses members of every family that applies to the
// command; flags of families are short names for it.
struct EngineFlags {
  EngineFlags() { options.draft_length = "auto"; }

  EngineOptions options;
  bool no_prefix_cache = false;
  // format of values in the KV cache: short for :values=NAME of --kv-format; "": as that says
  std::string value_format;
  UseFlag use;
  std::string vtc_weights;  // options of the policy vtc that no flag gives: ":weights=a:2"; "": none

  void add_to(CLI::App* command);
  void add_adapters_to(CLI::App* command, const std::string& use);  // --lora
  std::vector<AdapterUse> all_adapters(const ModelFlags& model) const;
  // Errors (user): --use, or a flag that contradicts it. `applied`, if not null, receives the effects of --use and of
  // the flags of families.
  Result<EngineOptions> get(const ModelFlags& model, std::vector<AppliedTechnique>* applied = nullptr) const;

 private:
  Result<std::string> drafter_of_flags(const char* flag) const;

  EngineOptions defaults_;  // before the flags
  int64_t swap_tokens_ = 0;
  SsdStoreFlags ssd_;
  std::string model_draft_;
  int64_t draft_max_ = 0;   // 0: not given
  int64_t batch_size_ = 0;  // as set by flags
  std::vector<std::tuple<std::string, std::string EngineOptions::*, CLI::Option*>> family_flags_;
};

// One flag per field of the sampling schema (sampling/schema.h): --temp, --top-k, --seed ...
struct SamplingFlags {
  std::vector<std::pair<std::string, std::string>> set;  // field, text; in the order given

  void add_to(CLI::App* command);
  // Defaults, then the model's own generation_config values, `defaults`, then the flags and the samplers of --use.
  // Errors (user): a value out of bounds, or a flag that contradicts --use. `applied`: as EngineFlags::get().
  Result<SamplingOptions> get(const LanguageModel& model, const UseFlag& use,
                              std::vector<AppliedTechnique>* applied = nullptr,
                              const ModelDefaults& defaults = {}) const;
};

}  // namespace millrace
