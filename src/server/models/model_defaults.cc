#include "server/models/model_defaults.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "millrace/options.h"
#include "prompt/rank_recipes.h"
#include "sampling/schema.h"

namespace millrace {
namespace {

// Ollama's names where they differ.
constexpr std::pair<const char*, const char*> kSamplingNames[] = {
    {"repeat_penalty", "repetition_penalty"}, {"repeat_last_n", "penalty_window"}, {"temp", "temperature"}};
constexpr const char* kOfDevices[] = {"num_gpu",  "main_gpu", "num_thread", "num_batch",        "numa",
                                      "use_mmap", "low_vram", "use_mlock",  "penalize_newline", "num_keep",
                                      "tfs_z",    "f16_kv",   "logits_all", "vocab_only"};

bool whole_number(const std::string& text, int64_t* out) {
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return failed == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<ModelDefaults> model_defaults(const std::vector<std::pair<std::string, std::string>>& parameters) {
  ModelDefaults out;
  SamplingOptions unused;
  for (const auto& [name, value] : parameters) {
    if (std::ranges::find(kOfDevices, name) != std::end(kOfDevices)) continue;
    if (name == "stop") {
      out.stop.push_back(value);
    } else if (name == "ranker") {
      if (!find_rank_recipe(value))
        return Error::user(fmt::format("parameter ranker: must be one of {}, got '{}'", rank_recipe_names(), value));
      out.ranker = value;
    } else if (name == "num_ctx" || name == "num_predict") {
      int64_t number = 0;
      if (!whole_number(value, &number) || number > INT32_MAX || (name == "num_ctx" && number < 1))
        return Error::user(fmt::format("parameter {}: must be a number of tokens, got '{}'", name, value));
      (name == "num_ctx" ? out.context : out.max_tokens) = std::max<int64_t>(number, -1);
    } else {
      std::string own = name;
      for (const auto& [theirs, ours] : kSamplingNames)
        if (name == theirs) own = ours;
      if (auto set = set_sampling_option(unused, own, value); !set.ok())
        return Error::user(fmt::format("parameter {}", set.error().message));
      out.sampling.emplace_back(own, value);
    }
  }
  if (out.stop.size() > 64) return Error::user("parameter stop: is given more than 64 times");
  return out;
}

Result<void> apply_defaults(const ModelDefaults& defaults, SamplingOptions& options) {
  for (const auto& [name, value] : defaults.sampling) MILLRACE_TRY_VOID(set_sampling_option(options, name, value));
  return {};
}

std::string capped_context_note(int64_t given, int64_t trained) {
  if (given > 0 || trained <= kDefaultContext) return "";
  return fmt::format("the context is {0} tokens, though the model was trained for {1}; -c {1} allows all of them",
                     kDefaultContext, trained);
}

}  // namespace millrace
