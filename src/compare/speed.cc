#include "compare/speed.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/answers.h"
#include "compare/suite_text.h"
#include "kernels/bandwidth.h"
#include "kv/pool.h"
#include "kv/token_evictor.h"
#include "kv/window_groups.h"
#include "run/language_model.h"
#include "run/plan/window_blocks.h"

namespace millrace {
namespace {

constexpr int64_t kLargerThanAnyCache = int64_t{64} << 20;
constexpr int64_t kMinBandwidthBytes = 64 << 10;

class SpeedRun final : public SuiteRun {
 public:
  SpeedRun(std::span<const CompareConfig> configs, const SuiteInput& input, std::vector<std::vector<TokenId>> prompts)
      : configs_(configs),
        prompts_(std::move(prompts)),
        prompt_(input.prompt),
        generate_(input.generate),
        engines_(configs.size()),
        compressors_(configs.size()) {
    plan_ = {.name = "speed",
             .identity = identity_of(
                 {input.text.substr(0, 4096), fmt::format("{} {} {}", input.prompt, input.generate, input.threads)}),
             .metrics = {{"prefill_tokens_per_s", true, SuiteAverage::median},
                         {"decode_tokens_per_s", true, SuiteAverage::median},
                         {"ttft_ms", false, SuiteAverage::median}},
             .items = std::vector<std::string>(static_cast<size_t>(input.rounds)),
             .timed = true};
  }

  Result<std::vector<std::vector<double>>> measure(size_t config, std::span<const size_t> items,
                                                   const SuiteWanted& wanted) override {
    std::vector<std::vector<double>> out;
    for (size_t i = 0; i < items.size(); ++i) {
      auto values = configs_[config].external ? external_round(config, wanted) : own_round(config, wanted);
      if (!values.ok()) return values.error();
      out.push_back(std::move(*values));
    }
    return out;
  }

 private:
  Result<std::vector<double>> external_round(size_t config, const SuiteWanted& wanted) {
    MILLRACE_TRY(const auto speed, configs_[config].external->speed(prompt_, generate_, wanted));
    const std::string note =
        fmt::format("speed: {} decodes from an empty context instead of after the prompt: its program cannot",
                    configs_[config].spec.name);
    if (!speed.after_prompt && std::ranges::find(notes_, note) == notes_.end()) notes_.push_back(note);
    return std::vector<double>{speed.prefill_tokens_per_s, speed.decode_tokens_per_s,
                               1000 * static_cast<double>(prompt_) / speed.prefill_tokens_per_s};
  }

  Result<std::vector<double>> own_round(size_t config, const SuiteWanted& wanted) {
    if (!engines_[config]) {
      MILLRACE_TRY(engines_[config], make_compare_engine(configs_[config], 1, prompt_ + generate_));
      MILLRACE_TRY(compressors_[config], AnswerPrompts::create(configs_[config]));
      MILLRACE_TRY(const auto shown, compressors_[config]->prompt(prompts_[config], generate_));
      MILLRACE_TRY(const GeneratedAnswer warm,
                   answer_alone(*engines_[config], request_of(config, shown.shown.tokens), wanted));
      static_cast<void>(warm);
    }
    MILLRACE_TRY(const auto shown, compressors_[config]->prompt(prompts_[config], generate_));
    MILLRACE_TRY(const GeneratedAnswer answer,
                 answer_alone(*engines_[config], request_of(config, shown.shown.tokens), wanted));
    const RequestTimings& t = answer.timings;
    const auto prompt = static_cast<double>(t.prompt_tokens), generated = static_cast<double>(t.generated_tokens);
    return std::vector<double>{t.prefill_seconds > 0 ? prompt / t.prefill_seconds : kNoValue,
                               t.decode_seconds > 0 ? (generated - 1) / t.decode_seconds : kNoValue,
                               1000 * (shown.seconds + t.first_token_seconds)};
  }

  Request request_of(size_t config, std::vector<TokenId> prompt) const {
    Request request;
    request.prompt = std::move(prompt);
    request.sampling = configs_[config].sampling;
    request.max_tokens = generate_;
    request.ignore_eos = true;
    request.cache_prompt = false;
    return request;
  }

  std::span<const CompareConfig> configs_;
  std::vector<std::vector<TokenId>> prompts_;  // [configs]
  int64_t prompt_, generate_;
  std::vector<std::unique_ptr<Engine>> engines_;
  std::vector<std::unique_ptr<AnswerPrompts>> compressors_;
};

// Plan and KV layout of an engine for one stream.
struct StreamPlan {
  EnginePlan plan;
  KvLayout layout;
};

// `longest`: tokens of the stream.
Result<StreamPlan> stream_plan(const CompareConfig& config, int64_t longest) {
  StreamPlan out;
  MILLRACE_TRY(out.plan, EnginePlan::create(compare_engine_options(config, 1, longest), *config.model));
  const EngineOptions& options = out.plan.options;
  if (!out.plan.formats.keys) return Error::unsupported(fmt::format("KV format '{}'", options.kv_format));
  MILLRACE_TRY(out.layout, engine_layout(out.plan, config.model->parts().model->kv_layers(), options.context));
  out.layout.layers.insert(out.layout.layers.end(), config.draft_layers.begin(), config.draft_layers.end());
  MILLRACE_TRY_VOID(out.layout.check());
  return out;
}

// Bytes that a step after `tokens` tokens reads, `stored` of which are left: those of the keys that its token sees.
int64_t read_bytes(const KvLayout& layout, int64_t stored, int64_t tokens) {
  int64_t bytes = 0;
  const auto add = [&](const KvLayout& group, int64_t count) {
    for (const KvLayer& layer : group.layers)
      bytes +=
          group.block_bytes(layer) * (layer.window > 0 ? std::min(count, layer.window) : count) / group.block_tokens;
  };
  add(layout, stored);
  for (const KvLayout& group : layout.windows) add(group, tokens);
  return bytes;
}

}  // namespace

Result<std::vector<TokenId>> timed_prompt(const LanguageModel& model, const std::string& text, int64_t tokens) {
  std::string part = text.empty() ? filler_text(tokens * 4) : text.substr(0, static_cast<size_t>(tokens) * 16);
  for (;;) {
    MILLRACE_TRY(auto out, model.encode(part, true, false));
    if (std::ssize(out) >= tokens) {
      out.resize(static_cast<size_t>(tokens));
      return out;
    }
    part += " " + part;
  }
}

Result<std::unique_ptr<SuiteRun>> begin_speed(std::span<const CompareConfig> configs, const SuiteInput& input) {
  std::vector<std::vector<TokenId>> prompts(configs.size());
  for (size_t i = 0; i < configs.size(); ++i) {
    if (!configs[i].model) continue;
    if (const int64_t context = compare_context(configs[i]); input.prompt + input.generate > context)
      return Error::user(fmt::format("--prompt {} and --generate {} do not fit the context of {} tokens of '{}'",
                                     input.prompt, input.generate, context, configs[i].spec.text));
    MILLRACE_TRY(prompts[i], timed_prompt(*configs[i].model, input.text, input.prompt));
  }
  return std::unique_ptr<SuiteRun>(std::make_unique<SpeedRun>(configs, input, std::move(prompts)));
}

double measure_read_rate(const CompareConfig& config) {
  const int64_t step = config.model->info().step_bytes;
  ThreadPool pool(config.engine.threads > 0 ? config.engine.threads : available_cores());
  const int64_t each = std::max(kMinBandwidthBytes, step / pool.threads() / 4096 * 4096);
  return step < kLargerThanAnyCache ? measure_cache_bandwidth(pool, each, 0.1)
                                    : measure_read_bandwidth(pool, int64_t{256} << 20, 0.1);
}

double decode_roof_tokens_per_s(const CompareConfig& config, int64_t context, double gb_per_s) {
  const auto made = stream_plan(config, context);
  if (!made.ok()) return 0;
  const KvLayout& layout = made->layout;
  const int64_t stored = stored_tokens(made->plan.evictor.get(), context, context, layout.tables());
  return gb_per_s * 1e9 / static_cast<double>(config.model->info().step_bytes + read_bytes(layout, stored, context));
}

Result<int64_t> stream_kv_bytes(const CompareConfig& config, int64_t prompt, int64_t longest) {
  MILLRACE_TRY(const StreamPlan made, stream_plan(config, longest));
  const KvLayout& layout = made.layout;
  return held_bytes(layout, kv_demand(made.plan.evictor.get(), prompt, longest, layout.tables()), longest) +
         (layout.encodes() ? layout.state_bytes() : 0);
}

Result<ConfigMemory> measure_memory(const CompareConfig& config, int64_t prompt, int64_t longest) {
  MILLRACE_TRY(const StreamPlan made, stream_plan(config, longest));
  const KvLayout& layout = made.layout;
  ConfigMemory out;
  const int64_t own_weights = config.model->info().weight_bytes;
  out.weights_bytes = own_weights + config.draft_weight_bytes;
  out.kv_bytes_per_token = layout.bytes_per_token();
  const int64_t stored = kv_demand(made.plan.evictor.get(), prompt, longest, layout.tables());
  MILLRACE_TRY(out.kv_bytes, stream_kv_bytes(config, prompt, longest));
  const auto& accounts = config.model->parts().accounts;
  const int64_t before = accounts->total();
  MILLRACE_TRY(const auto engine, make_compare_engine(config, 1, longest, stored));
  out.peak_bytes = own_weights + accounts->total() - before;  // a draft model is in the accounts of its engine
  return out;
}

}  // namespace millrace
