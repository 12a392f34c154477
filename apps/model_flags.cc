#include "model_flags.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdio>

#include "base/memory_accounts.h"
#include "hub_model.h"
#include "input.h"
#include "models/weight_source.h"
#include "progress.h"
#include "run/embedded_model.h"
#include "run/language_model.h"
#include "run/model_sampling.h"
#include "sampling/schema.h"

namespace millrace {

void ModelFlags::add_to(CLI::App* command) {
  command->add_option("-m,--model", path,
                      "GGUF file, .safetensors file, Hugging Face folder, hf:OWNER/NAME[:FILE] to download, or a name "
                      "of millrace list, millrace models or millrace pull --list; default: " +
                          std::string(kDefaultModel));
  command->add_option("-t,--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_option("-c,--context", context, "Longest stream in tokens; 0: the model's context, at most 8192")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  add_memory_to(command);
  command->add_flag(
      "--packed-cache", packed_cache,
      "Store the packed weights in a file (=PATH; default: next to the model) and start from it next time");
  command->add_flag("--verify-packed-cache", verify_packed_cache,
                    "Compare the packed file with the model's files in addition to its checksums");
  add_places_to(command);
}

void ModelFlags::add_memory_to(CLI::App* command) {
  command->add_option("--memory", memory,
                      "Memory limit for everything, such as 8G or 512MiB; the KV cache takes what is left. Default: "
                      "limited by the machine");
}

void ModelFlags::add_with_text_to(CLI::App* command, std::string* file) {
  command->add_option("-m,--model", path,
                      "GGUF file, .safetensors file, Hugging Face folder or built-in model; default: the built-in one");
  command->add_option("-t,--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  add_memory_to(command);
  command->add_option("-f,--file", *file, "File with the text; -: standard input")->required();
}

void ModelFlags::add_pack_to(CLI::App* command) {
  pack = "background";
  chooses_weights = true;
  command
      ->add_option(
          "--pack", pack,
          "When weights are packed: background (answers begin at once; damaged weights fail requests), or load "
          "(before anything else, as with --memory and --packed-cache)")
      ->capture_default_str()
      ->check(CLI::IsMember({"load", "background"}));
}

Result<LoadOptions> ModelFlags::load_options(const UseFlag* use, std::vector<AppliedTechnique>* applied) const {
  LoadOptions options;
  options.threads = threads;
  options.context = context;
  options.chat_template = chat_template;
  if (!memory.empty()) {
    auto bytes = parse_bytes(memory);
    if (!bytes.ok()) return Error{bytes.error().kind, "--memory: " + bytes.error().message};
    if (*bytes == 0) return Error::user("--memory: must be more than 0");
    options.memory = *bytes;
  }
  options.packed_cache = !packed_cache.empty() && packed_cache != "false";
  if (options.packed_cache && packed_cache != "true") options.packed_cache_path = packed_cache;
  options.verify_packed_cache = verify_packed_cache;
  options.pack_in_background = pack == "background";
  options.warn = [](const std::string& message) { std::fprintf(stderr, "millrace: warning: %s\n", message.c_str()); };
  std::vector<TechniqueUse> uses;
  if (use) {
    MILLRACE_TRY(uses, use->get());
  }
  MILLRACE_TRY(const auto done, apply_uses(uses, options));
  MILLRACE_TRY(options.weights, placed(options.weights));
  const bool chosen = std::ranges::find(uses, "weights", &TechniqueUse::family) != uses.end();
  if (chooses_weights && options.memory > 0 && !chosen && options.weights == LoadOptions().weights)
    options.weights = "auto";
  if (applied) applied->insert(applied->end(), done.begin(), done.end());
  return options;
}

Result<ModelFlags> ModelFlags::found() const {
  ModelFlags out = *this;
  MILLRACE_TRY(LocalModel local, find_local_model(path));
  out.path = local.path;
  if (!local.stored) return out;
  MILLRACE_TRY(out.defaults, model_defaults(local.stored->parameters));
  if (out.chat_template.empty()) out.chat_template = local.stored->chat_template;
  if (out.context == 0) out.context = out.defaults.context;
  out.system = local.stored->system;
  out.adapters = local.stored->adapters;
  out.draft = local.stored->draft;
  return out;
}

Result<std::shared_ptr<const LanguageModel>> ModelFlags::load(const UseFlag* use,
                                                              std::vector<AppliedTechnique>* applied) const {
  ProgressBar bar("loading");
  MILLRACE_TRY(const ModelFlags local, found());
  MILLRACE_TRY(LoadOptions options, local.load_options(use, applied));
  options.progress = [&](double fraction) { bar.update(fraction); };
  MILLRACE_TRY(auto model, LanguageModel::load(local.path, options));
  if (const std::string& note = model->parts().weights_note; !note.empty())
    std::fprintf(stderr, "millrace: note: %s; millrace offload plan shows the others\n", note.c_str());
  if (const WeightSource* const source = model->parts().model->source(); source && !source->policy().text.empty())
    std::fprintf(stderr, "millrace: note: weights: %s\n", source->policy().text.c_str());
  if (context > model->info().context)
    std::fprintf(stderr,
                 "millrace: warning: a context of %lld tokens: the model was trained for %lld; answers beyond that are "
                 "poor\n",
                 static_cast<long long>(context), static_cast<long long>(model->info().context));
  if (const std::string note = capped_context_note(local.context, model->info().context); !note.empty())
    std::fprintf(stderr, "millrace: note: %s\n", note.c_str());
  return model;
}

Result<ModelFlags::WithText> ModelFlags::load_with_text(const std::string& file, int64_t context_tokens,
                                                        int64_t most) const {
  MILLRACE_TRY(const std::string text, read_text_file(file));
  ModelFlags own = *this;
  own.context = context_tokens;
  WithText out;
  MILLRACE_TRY(out.model, own.load());
  MILLRACE_TRY(out.tokens, out.model->encode(text));
  out.tokens.resize(std::min(out.tokens.size(), static_cast<size_t>(most)));
  return out;
}

void EngineFlags::add_to(CLI::App* command) {
  defaults_ = options;
  use.add_to(command, command->get_name().empty() ? "serve" : command->get_name());  // no name: a table of a model
  const auto add_family = [&](const char* family, std::string EngineOptions::*field, const char* flag,
                              const char* help) {
    CLI::Option* option = command->add_option(flag, options.*field, help)->capture_default_str();
    family_flags_.emplace_back(family, field, option);
  };
  command->option_defaults()->group("KV cache");
  add_family("kv_format", &EngineOptions::kv_format, "--kv-format,--ctk,--cache-type-k",
             "Format of the KV cache: f32, f16, bf16, q8_0 or NAME[:key=value,...]; see millrace techniques --family "
             "kv_format");
  command->add_option("--ctv,--cache-type-v", value_format,
                      "Format of values, where it is not that of keys: short for :values=NAME of --kv-format");
  command->add_flag("--keep-window-keys", options.keep_window_keys,
                    "Layers that see only the newest keys keep all of them, too; answers are the same");
  command->add_option("--kv-tokens", options.kv_tokens,
                      "KV cache size in tokens; 0: what --memory leaves, or derived from the context");
  command
      ->add_option("--document-tokens", options.document_tokens,
                   "Tokens of documents that are kept as rows next to a KV cache that a codec encodes; 0: as many as "
                   "the longest stream has")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  command->add_option("--block-tokens", options.block_tokens, "Tokens per KV block")->capture_default_str();
  command->add_option("--kv-pool", options.kv_pool, "KV pool: paged, or virtual (contiguous addresses for each stream)")
      ->capture_default_str()
      ->check(CLI::IsMember({"paged", "virtual"}));
  command->option_defaults()->group("Steps and scheduling");
  command->add_option("--batch-tokens", options.batch_tokens, "Most tokens in one step; longer prompts run in chunks")
      ->capture_default_str();
  command
      ->add_option("-b,--batch-size", batch_size_,
                   "Limit of llama.cpp's command lines: a step takes at most the smaller of this and --batch-tokens")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command->option_defaults()->group("KV cache");
  add_family("evictor", &EngineOptions::evictor, "--evictor",
             "Drop keys and values of running streams, NAME[:key=value,...]; see millrace techniques --family evictor. "
             "ANSWERS CHANGE");
  command->option_defaults()->group("Steps and scheduling");
  add_family("policy", &EngineOptions::policy, "--policy",
             "Scheduling policy NAME[:key=value,...]; see millrace techniques --family policy");
  command->option_defaults()->group("Speculation");
  add_family(
      "drafter", &EngineOptions::drafter, "--drafter",
      "Drafter NAME[:key=value,...] of tokens that a step verifies in addition to the next one; answers stay the same. "
      "See millrace techniques --family drafter. Repeatable: the best one drafts, for each stream. none: no "
      "drafts");
  command->get_option("--drafter")->join('+');
  command
      ->add_option("--draft-length", options.draft_length,
                   "How much of a draft a step verifies: auto, as much as pays; or fixed, all of it")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "fixed"}));
  command->add_option(
      "--model-draft", model_draft_,
      "Second, smaller model with the same vocabulary that drafts (-md in short), a file, a folder or a "
      "built-in model; short for --drafter draft:model=PATH");
  command->add_option("--draft-max,--draft", draft_max_, "Tokens of its drafts; short for --drafter draft:k=N [4]")
      ->check(CLI::Range(1, 64));
  command->option_defaults()->group("Steps and scheduling");
  command->add_option("--resident-streams", options.resident_streams,
                      "Most streams that hold KV blocks, running or paused; 0: same as the running streams");
  command->option_defaults()->group("KV tiers");
  command
      ->add_option("--swap-tokens", swap_tokens_,
                   "Host memory for swapping out preempted streams, in tokens; 0: they are recomputed")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  add_family("tier", &EngineOptions::kv_tier, "--kv-tier",
             "Place for preempted streams, NAME[:key=value,...]; --swap-tokens N is short for memory:tokens=N. See "
             "millrace techniques --family tier");
  add_family("store", &EngineOptions::kv_store, "--kv-store",
             "Place for blocks evicted from the prefix cache, NAME[:key=value,...]; --kv-ssd FILE is short for "
             "ssd:path=FILE. See millrace techniques --family store");
  CLI::Option* file = command->add_option("--kv-ssd", ssd_.path,
                                          "File on a fast disk that stores blocks evicted from the prefix cache");
  command->add_option("--kv-ssd-size", ssd_.size, "Maximum size of the --kv-ssd file, such as 500M or 8G; default: 8G")
      ->transform(CLI::AsSizeValue(false))
      ->needs(file);
  command
      ->add_option("--kv-ssd-order", ssd_.order,
                   "Order of blocks in the --kv-ssd file: arrival, or importance, which puts blocks that got more "
                   "attention first")
      ->capture_default_str()
      ->needs(file);
  command
      ->add_option("--kv-ssd-fetch", ssd_.fetch,
                   "Fraction of a prompt's stored blocks to fetch, most important first; the rest is left out of "
                   "attention. Below 1, ANSWERS CHANGE")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0))
      ->needs(file);
  command->option_defaults()->group("Steps and scheduling");
  command->add_option("--cost-model", options.cost_model,
                      "Cost model file from bench --calibrate, used by policies and to decide between loading and "
                      "recomputing; default: learned at run time");
  command->add_option("--record-plans", options.record_plans, "Log every step's plan to this file, one per line");
  command->option_defaults()->group("KV cache");
  add_family("prefix_evictor", &EngineOptions::prefix_evict, "--prefix-evict",
             "Eviction order of the prefix cache: lru, lfu, length_aware or importance");
  add_family("state_evictor", &EngineOptions::state_evict, "--state-evict",
             "Models with recurrent layers: which copies of their states the prefix cache takes and keeps, "
             "NAME[:key=value,...]: last, every or marconi");
  command
      ->add_option("--state-cache", options.state_cache_bytes,
                   "Models with recurrent layers: memory for those copies, such as 500M; default: two for each stream, "
                   "at most 1 GiB and an eighth of --memory; none if they do not fit")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--state-stride", options.state_stride,
                   "Models with recurrent layers: copies are at multiples of this number of tokens, and of a KV block")
      ->capture_default_str();
  command->add_flag("--no-prefix-cache", no_prefix_cache, "Compute every prompt completely");
  command->option_defaults()->group("Options");
}

void EngineFlags::add_adapters_to(CLI::App* command, const std::string& which) {
  command->add_option(
      "--lora", options.adapters,
      "LoRA adapter [NAME=]PATH: a GGUF file, or PEFT's safetensors file or folder; repeatable. " + which);
}

std::vector<AdapterUse> EngineFlags::all_adapters(const ModelFlags& model) const {
  std::vector<AdapterUse> uses;
  for (const auto* list : {&options.adapters, &model.adapters})
    for (const std::string& given : *list) uses.push_back({named_adapter(given).first, 1});
  return uses;
}

namespace {

// Several drafters joined by '+' compete; a '+' before a number belongs to an option. "none" is left to the end, so
// that a default can be turned off.
std::string drafter_of(std::string given) {
  const auto joins = [](char a, char b) { return a == '+' && std::isalpha(static_cast<unsigned char>(b)); };
  if (std::ranges::adjacent_find(given, joins) == given.end() || given.starts_with("best:")) return given;
  std::ranges::replace(given, ',', ';');
  return "best:of=" + given;
}

}  // namespace

// The path comes last, as it may contain commas. `flag`: the one that was given.
Result<std::string> EngineFlags::drafter_of_flags(const char* flag) const {
  if (options.drafter != defaults_.drafter)
    return Error::user(fmt::format("{}: --drafter is {}; give only one of them", flag, options.drafter));
  std::string out = "draft";
  if (draft_max_ > 0) out += fmt::format(":k={}", draft_max_);
  if (!model_draft_.empty()) out += fmt::format("{}model={}", draft_max_ > 0 ? "," : ":", model_draft_);
  return out;
}

Result<EngineOptions> EngineFlags::get(const ModelFlags& model, std::vector<AppliedTechnique>* applied) const {
  EngineOptions out = options;
  out.threads = model.threads;
  out.context = model.context;
  out.adapters.insert(out.adapters.end(), model.adapters.begin(), model.adapters.end());
  out.prefix_cache = !no_prefix_cache;
  if (batch_size_ > 0) out.batch_tokens = std::min(out.batch_tokens, batch_size_);
  MILLRACE_TRY(std::vector<TechniqueUse> uses, use.get());
  if (!value_format.empty()) {
    if (std::ranges::find(uses, "kv_format", &TechniqueUse::family) != uses.end())
      return Error::user(fmt::format("--ctv {0}: --use names the formats already; add values={0} there", value_format));
    out.kv_format += (out.kv_format.find(':') == std::string::npos ? ":values=" : ",values=") + value_format;
  }
  const auto use_flag = [&](const std::string& family, std::string EngineOptions::*field,
                            const std::string& flag) -> Result<void> {
    MILLRACE_TRY_VOID(check_flag_against(uses, family, flag, out.*field, use.command));
    if (std::ranges::find(uses, family, &TechniqueUse::family) != uses.end()) return {};
    for (TechniqueUse& flagged : use_of_flag(family, out.*field, use.command)) {
      out.*field = defaults_.*field;  // applied below
      uses.push_back(std::move(flagged));
    }
    return {};
  };
  out.drafter = drafter_of(out.drafter);
  for (const auto& [family, field, option] : family_flags_)
    if (option->count() > 0) MILLRACE_TRY_VOID(use_flag(family, field, option->get_name()));
  if (!value_format.empty() && std::ranges::find(uses, "kv_format", &TechniqueUse::family) == uses.end())
    MILLRACE_TRY_VOID(use_flag("kv_format", &EngineOptions::kv_format, "--ctv"));
  if (!model_draft_.empty() || draft_max_ > 0) {
    const char* flag = model_draft_.empty() ? "--draft-max" : "--model-draft";
    MILLRACE_TRY(out.drafter, drafter_of_flags(flag));
    MILLRACE_TRY_VOID(use_flag("drafter", &EngineOptions::drafter, flag));
  }
  const bool names_drafter = std::ranges::find(uses, "drafter", &TechniqueUse::family) != uses.end() ||
                             out.drafter != drafter_of(defaults_.drafter);
  if (!model.draft.empty() && !names_drafter) {
    out.drafter = "draft:model=" + model.draft;
    MILLRACE_TRY_VOID(use_flag("drafter", &EngineOptions::drafter, "DRAFT of the model's Modelfile"));
  }
  const std::tuple<const char*, const char*, std::string EngineOptions::*, std::string, const char*> places[] = {
      {"tier", "--kv-tier", &EngineOptions::kv_tier, memory_tier(swap_tokens_), "--swap-tokens"},
      {"store", "--kv-store", &EngineOptions::kv_store, ssd_.text(), "--kv-ssd"}};
  for (const auto& [family, long_flag, field, text, flag] : places) {
    if (text.empty()) continue;
    if (!(options.*field).empty())
      return Error::user(fmt::format("{} is short for {} {}; give only one of them", flag, long_flag, text));
    out.*field = text;
    MILLRACE_TRY_VOID(use_flag(family, field, flag));
  }
  auto done = apply_uses(uses, out);
  if (!done.ok()) return Error{done.error().kind, "--use " + done.error().message};
  if (applied) applied->insert(applied->end(), done->begin(), done->end());
  if (out.drafter == "none") out.drafter.clear();
  out.drafter_if_possible = !out.drafter.empty() && out.drafter == defaults_.drafter;
  if (out.policy == "vtc") out.policy += vtc_weights;
  return out;
}

void SamplingFlags::add_to(CLI::App* command) {
  for (const OptionSpec& spec : sampling_schema()) {
    std::string flag = "--" + spec.name;
    std::ranges::replace(flag, '_', '-');
    if (spec.name == "temperature") flag = "--temp," + flag;
    if (spec.name == "seed") flag = "-s," + flag;
    if (spec.name == "repetition_penalty") flag += ",--repeat-penalty";
    std::string help = spec.help + (spec.default_value.empty() ? "" : " [" + spec.default_value + "]");
    command
        ->add_option_function<std::string>(
            flag, [this, name = spec.name](const std::string& value) { set.emplace_back(name, value); }, help)
        ->type_name(spec.type == OptionSpec::Type::integer  ? "INT"
                    : spec.type == OptionSpec::Type::number ? "FLOAT"
                                                            : "TEXT")
        ->check([name = spec.name](const std::string& value) {  // before a model is loaded
          SamplingOptions unused;
          const auto done = set_sampling_option(unused, name, value);
          const std::string message = done.ok() ? "" : done.error().message;
          return message.starts_with(name + ": ") ? message.substr(name.size() + 2) : message;  // after the flag
        })
        ->group("Sampling");
  }
}

namespace {

// Sets the samplers' options. `given`: the options that flags have set. Errors (user): a flag contradicts --use.
Result<std::vector<AppliedTechnique>> apply_samplers(const std::vector<TechniqueUse>& uses,
                                                     const std::vector<std::string>& given, SamplingOptions& options) {
  const SamplingOptions flagged = options;
  auto done = apply_uses(uses, options);
  for (const TechniqueUse& use : uses) {
    if (use.family != "sampler") continue;
    for (const std::string& name : sampling_options_of(use)) {
      const std::string was = sampling_option_text(flagged, name);
      if (std::ranges::find(given, name) != given.end() && was != sampling_option_text(options, name))
        return Error::user(fmt::format("--use {}: the flag of {} is {}; give only one of them", use.text(), name, was));
    }
  }
  return done;
}

}  // namespace

Result<SamplingOptions> SamplingFlags::get(const LanguageModel& model, const UseFlag& use,
                                           std::vector<AppliedTechnique>* applied,
                                           const ModelDefaults& defaults) const {
  SamplingOptions options = model_sampling(*model.parts().files);
  MILLRACE_TRY_VOID(apply_defaults(defaults, options));
  const SamplingOptions before = options;
  std::vector<std::string> given;
  for (const auto& [name, value] : set) {
    MILLRACE_TRY_VOID(set_sampling_option(options, name, value));
    given.push_back(name);
  }
  MILLRACE_TRY(const auto uses, use.get());
  if (applied) {
    const auto flagged = applied_samplers(before, options, given);
    applied->insert(applied->end(), flagged.begin(), flagged.end());
  }
  MILLRACE_TRY(const auto done, apply_samplers(uses, given, options));
  if (applied) applied->insert(applied->end(), done.begin(), done.end());
  MILLRACE_TRY_VOID(validate(options, model.info().vocab));
  return options;
}

}  // namespace millrace
