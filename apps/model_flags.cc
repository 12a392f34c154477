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
  command->add_option("-m,--model", path,
                      "GGUF file, .safetensors file, Hugging Face folder, or hf:OWNER/NAME[:FILE] to download; the "
                      "built-in model when absent");
  command->add_option("-t,--threads", threads, "Threads; 0: every core")->check(CLI::Range(0, 1024));
  command->add_option("-c,--context", context, "Longest stream in tokens; 0: the model's, at most 8192")
      ->check(CLI::Range(int64_t{0}, int64_t{INT32_MAX}));
  add_memory_to(command);
  command->add_flag(
      "--packed-cache", packed_cache,
      "Keep the packed weights in a file (=PATH; beside the model when not given) and start from it next time");
  command->add_flag("--verify-packed-cache", verify_packed_cache,
                    "Besides its checksums, compare all of it with what the model's files give");
}

void ModelFlags::add_memory_to(CLI::App* command) {
  command->add_option("--memory", memory,
                      "Most memory for everything, as 8G or 512MiB; the KV cache gets what is left. No more than the "
                      "machine has when absent");
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
  command->add_option("--kv-format", options.kv_format, "KV cache numbers: f32, f16, bf16, q8_0")
      ->capture_default_str();
  command->add_option("--kv-tokens", options.kv_tokens,
                      "KV cache size in tokens; 0: what --memory leaves, or as the context asks");
  command->add_option("--block-tokens", options.block_tokens, "Tokens per KV block")->capture_default_str();
  command->add_option("--kv-pool", options.kv_pool, "paged, or virtual: contiguous addresses for each stream")
      ->capture_default_str()
      ->check(CLI::IsMember({"paged", "virtual"}));
  command->add_option("--batch-tokens", options.batch_tokens, "Most tokens in one step; longer prompts run in chunks")
      ->capture_default_str();
  command
      ->add_option("--policy", options.policy,
                   "Who runs when: NAME[:key=value,...]; see millrace techniques --family policy")
      ->capture_default_str();
  command->add_option("--resident-streams", options.resident_streams,
                      "Streams that may hold KV blocks, running or paused; 0: as many as run");
  command->add_option("--swap-tokens", options.swap_tokens,
                      "Host memory for streams that had to give way, in tokens; 0: they are computed again");
  command->add_option("--kv-ssd", options.kv_ssd,
                      "File on a fast disk that blocks go to when they leave the prefix cache, and come back from");
  command->add_option("--kv-ssd-size", options.kv_ssd_size, "Bytes of that file at most: 500M, 8G; 8G when not given")
      ->transform(CLI::AsSizeValue(false));
  command
      ->add_option("--kv-ssd-order", options.kv_ssd_order,
                   "How blocks lie in that file and are read: arrival, or importance (packed and read by the attention "
                   "that prompts pay them)")
      ->capture_default_str();
  command
      ->add_option("--kv-ssd-fetch", options.kv_ssd_fetch,
                   "Fetch this much of a prompt's stored blocks, the most important, and leave the rest out of its "
                   "attention. Below 1 ANSWERS CHANGE")
      ->capture_default_str()
      ->check(CLI::Range(0.01, 1.0));
  command->add_option("--cost-model", options.cost_model,
                      "File of bench --calibrate: what decides between loading and computing, and policies; learned "
                      "while running when absent");
  command->add_option("--record-plans", options.record_plans, "File that every step's plan is written to, one a line");
  command
      ->add_option("--prefix-evict", options.prefix_evict,
                   "Which block of the prefix cache goes first: lru, lfu, length_aware, importance")
      ->capture_default_str();
  command->add_flag("--no-prefix-cache", no_prefix_cache, "Compute every prompt whole");
}

void EngineFlags::add_adapters_to(CLI::App* command, const std::string& use) {
  command->add_option(
      "--lora", options.adapters,
      "LoRA adapter, [NAME=]PATH: GGUF, or PEFT's safetensors with its folder; several may be given. " + use);
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
