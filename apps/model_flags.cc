#include "model_flags.h"

#include <algorithm>
#include <cstdio>

#include "base/memory_accounts.h"
#include "hub_model.h"
#include "progress.h"
#include "run/language_model.h"
#include "sampling/schema.h"

namespace millrace {

void ModelFlags::add_to(CLI::App* command) {
  command->add_option(
      "-m,--model", path,
      "GGUF file, .safetensors file, Hugging Face folder, or hf:OWNER/NAME[:FILE] to download; default: "
      "the built-in model");
  command->add_option("-t,--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_option("-c,--context", context, "Longest stream in tokens; 0: the model's context, at most 8192")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  add_memory_to(command);
  command->add_flag(
      "--packed-cache", packed_cache,
      "Store the packed weights in a file (=PATH; default: next to the model) and start from it next time");
  command->add_flag("--verify-packed-cache", verify_packed_cache,
                    "Compare the packed file with the model's files in addition to its checksums");
}

void ModelFlags::add_memory_to(CLI::App* command) {
  command->add_option("--memory", memory,
                      "Memory limit for everything, such as 8G or 512MiB; the KV cache gets what is left. Default: "
                      "limited by the machine");
}

Result<LoadOptions> ModelFlags::load_options() const {
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
  options.warn = [](const std::string& message) { std::fprintf(stderr, "millrace: warning: %s\n", message.c_str()); };
  return options;
}

Result<std::shared_ptr<const LanguageModel>> ModelFlags::load() const {
  ProgressBar bar("loading");
  MILLRACE_TRY(LoadOptions options, load_options());
  options.progress = [&](double fraction) { bar.update(fraction); };
  MILLRACE_TRY(const std::string local, local_model(path));
  return LanguageModel::load(local, options);
}

void EngineFlags::add_to(CLI::App* command) {
  command->add_option("--kv-format", options.kv_format, "Number format of the KV cache: f32, f16, bf16 or q8_0")
      ->capture_default_str();
  command->add_option("--kv-tokens", options.kv_tokens,
                      "KV cache size in tokens; 0: what --memory leaves, or derived from the context");
  command->add_option("--block-tokens", options.block_tokens, "Tokens per KV block")->capture_default_str();
  command->add_option("--kv-pool", options.kv_pool, "KV pool: paged, or virtual (contiguous addresses for each stream)")
      ->capture_default_str()
      ->check(CLI::IsMember({"paged", "virtual"}));
  command->add_option("--batch-tokens", options.batch_tokens, "Most tokens in one step; longer prompts run in chunks")
      ->capture_default_str();
  command->add_option("--evictor", options.evictor,
                      "Drop keys and values of running streams, NAME[:key=value,...]; see millrace techniques --family "
                      "evictor. ANSWERS CHANGE");
  command
      ->add_option("--policy", options.policy,
                   "Scheduling policy NAME[:key=value,...]; see millrace techniques --family policy")
      ->capture_default_str();
  command->add_option("--drafter", options.drafter,
                      "Drafter NAME[:key=value,...] of tokens that a step verifies beside the next one; answers stay "
                      "the same. See millrace techniques --family drafter");
  command->add_option("--resident-streams", options.resident_streams,
                      "Most streams that hold KV blocks, running or paused; 0: same as the running streams");
  command->add_option("--swap-tokens", options.swap_tokens,
                      "Host memory for swapping out preempted streams, in tokens; 0: they are recomputed");
  command->add_option("--kv-ssd", options.kv_ssd,
                      "File on a fast disk that stores blocks evicted from the prefix cache");
  command
      ->add_option("--kv-ssd-size", options.kv_ssd_size,
                   "Maximum size of the --kv-ssd file, such as 500M or 8G; default: 8G")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--kv-ssd-order", options.kv_ssd_order,
                   "Order of blocks in the --kv-ssd file and of reading them: arrival, or importance (the attention "
                   "that prompts paid to them)")
      ->capture_default_str();
  command
      ->add_option("--kv-ssd-fetch", options.kv_ssd_fetch,
                   "Fraction of a prompt's stored blocks to fetch, most important first; the rest is left out of "
                   "attention. Below 1, ANSWERS CHANGE")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  command->add_option("--cost-model", options.cost_model,
                      "Cost model file from bench --calibrate, used by policies and to decide between loading and "
                      "recomputing; default: learned at run time");
  command->add_option("--record-plans", options.record_plans, "Log every step's plan to this file, one per line");
  command
      ->add_option("--prefix-evict", options.prefix_evict,
                   "Eviction order of the prefix cache: lru, lfu, length_aware or importance")
      ->capture_default_str();
  command->add_flag("--no-prefix-cache", no_prefix_cache, "Compute every prompt completely");
}

void EngineFlags::add_adapters_to(CLI::App* command, const std::string& use) {
  command->add_option(
      "--lora", options.adapters,
      "LoRA adapter [NAME=]PATH: a GGUF file, or PEFT's safetensors file or folder; repeatable. " + use);
}

std::vector<AdapterUse> EngineFlags::all_adapters() const {
  std::vector<AdapterUse> uses;
  for (const std::string& given : options.adapters) uses.push_back({named_adapter(given).first, 1});
  return uses;
}

EngineOptions EngineFlags::get(const ModelFlags& model) const {
  EngineOptions out = options;
  out.threads = model.threads;
  out.context = model.context;
  out.prefix_cache = !no_prefix_cache;
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
        ->group("Sampling");
  }
}

Result<SamplingOptions> SamplingFlags::get(const LanguageModel& model) const {
  SamplingOptions options;
  const GenerationDefaults& defaults = model.parts().files->generation;
  if (defaults.temperature) options.temperature = *defaults.temperature;
  if (defaults.top_p) options.top_p = *defaults.top_p;
  if (defaults.min_p) options.min_p = *defaults.min_p;
  if (defaults.top_k) options.top_k = *defaults.top_k;
  if (defaults.repetition_penalty) options.repetition_penalty = *defaults.repetition_penalty;
  for (const auto& [name, value] : set) MILLRACE_TRY_VOID(set_sampling_option(options, name, value));
  MILLRACE_TRY_VOID(validate(options, model.info().vocab));
  return options;
}

}  // namespace millrace
