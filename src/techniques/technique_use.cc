#include "techniques/technique_use.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/cpu.h"
#include "base/options_json.h"
#include "formats/format.h"
#include "kv/kv_formats.h"
#include "models/forward_switches.h"
#include "prompt/compressor.h"
#include "sampling/schema.h"
#include "sampling/step.h"
#include "schedule/policy.h"
#include "techniques/families.h"

namespace millrace {
namespace {

using Effect = Result<std::string>;

struct UseFamily {
  std::string_view name;
  std::vector<std::string_view> places;                // commands, kInRequest
  Effect (*set)(const TechniqueUse&, EngineOptions&);  // null: sets options of sampling, loading or the prompt
  Effect (*set_load)(const TechniqueUse&, LoadOptions&) = nullptr;
  bool optional = false;  // kNoTechnique chooses no member
};

std::string name_part(const std::string& text) { return text.substr(0, text.find(':')); }

// Of a format of rows, or of a codec.
Result<double> kv_bits(const std::string& kv_format) {
  MILLRACE_TRY(const KvFormats formats, find_kv_formats(kv_format, make_kernel_table(detect_isa())));
  return formats.keys ? formats.bits_per_value() : 0;
}

Effect set_kv_format(const TechniqueUse& use, EngineOptions& options) {
  MILLRACE_TRY(const double before, kv_bits(options.kv_format));
  const auto now = kv_bits(use.written());
  if (!now.ok()) return Error::user(fmt::format("{}: {}", use.text(), now.error().message));
  const std::string was = std::exchange(options.kv_format, use.written());
  if (before == 0 || was == use.written()) return fmt::format("KV cache in {}", use.written());
  return fmt::format("KV cache in {}, {:.4g} bits a value instead of {:.4g} ({})", use.written(), *now, before, was);
}

Effect set_policy(const TechniqueUse& use, EngineOptions& options) {
  const std::string before = std::exchange(options.policy, use.written());
  return fmt::format("policy {} instead of {}", options.policy, before);
}

Effect set_predictor(const TechniqueUse& use, EngineOptions& options) {
  const std::string policy = name_part(options.policy);
  const auto* entry = policies().find(policy);
  const bool predicts =
      entry && std::ranges::find(entry->info.options, "predictor", &OptionSpec::name) != entry->info.options.end();
  if (!predicts)
    return Error::user(
        fmt::format("{}: policy {} predicts nothing; use policy=shortest_predicted with it", use.text(), policy));
  if (options.policy.find("predictor=") != std::string::npos)
    return Error::user(fmt::format("{}: {} has a predictor already", use.text(), options.policy));
  options.policy += (policy == options.policy ? ":predictor=" : ",predictor=") + use.written();
  return fmt::format("lengths of answers are predicted by {}", use.written());
}

Effect set_prefix_evictor(const TechniqueUse& use, EngineOptions& options) {
  const std::string before = std::exchange(options.prefix_evict, use.name);
  return fmt::format("prefix cache evicts by {} instead of {}", use.name, before);
}

Effect set_state_evictor(const TechniqueUse& use, EngineOptions& options) {
  options.state_evict = use.written();
  return fmt::format("copies of recurrent states are kept by {}", use.written());
}

Effect set_drafter(const TechniqueUse& use, EngineOptions& options) {
  options.drafter = use.name == kNoTechnique ? "" : use.written();
  if (options.drafter.empty()) return std::string("steps verify no drafted tokens");
  return fmt::format("steps verify tokens drafted by {}", use.written());
}

Effect set_evictor(const TechniqueUse& use, EngineOptions& options) {
  options.evictor = use.written();
  if (use.name == kNoTechnique) return std::string("running streams keep all keys and values");
  return fmt::format("running streams drop keys and values by {}", use.written());
}

Effect set_context(const TechniqueUse& use, EngineOptions& options) {
  options.document_context = use.written();
  if (use.name == kNoTechnique) return std::string("documents in prompts are computed as any other tokens");
  return fmt::format("documents in prompts become keys and values by {}", use.written());
}

Effect set_tier(const TechniqueUse& use, EngineOptions& options) {
  options.kv_tier = use.written();
  return fmt::format("preempted streams go to {}", use.written());
}

Effect set_store(const TechniqueUse& use, EngineOptions& options) {
  options.kv_store = use.written();
  return fmt::format("blocks that the prefix cache evicts go to {}", use.written());
}

Effect set_router(const TechniqueUse& use, LoadOptions& options) {
  options.router = use.name;
  return fmt::format("experts are chosen by {}", use.name);
}

Effect set_weights(const TechniqueUse& use, LoadOptions& options) {
  options.weights = use.written();
  return fmt::format("weights are {} during a pass", use.name);
}

Effect set_kernel(const TechniqueUse& use, EngineOptions& options) {
  const std::vector<std::string> one = {use.written()};
  if (auto made = make_forward_switches(one); !made.ok()) return Error::user(made.error().message);
  options.kernels.push_back(use.written());
  return fmt::format("passes compute with kernel {}", use.written());
}

Effect set_attention(const TechniqueUse& use, EngineOptions& options) {
  if (auto made = make_attention_pattern(use.written()); !made.ok()) return Error::user(made.error().message);
  options.kernels.push_back(use.text());
  return fmt::format("layers that see every key attend by the pattern {}", use.written());
}

Effect set_exit(const TechniqueUse& use, EngineOptions& options) {
  std::erase_if(options.kernels, [](const std::string& one) { return one.starts_with(kExitPrefix); });
  options.kernels.push_back(use.text());
  if (use.name == kNoTechnique) return std::string("tokens run every layer");
  return fmt::format("tokens leave the model early by {}", use.written());
}

Effect set_acceptance(const TechniqueUse& use, EngineOptions& options) {
  if (options.drafter.empty())
    return Error::user(fmt::format("{}: no drafter is chosen; use drafter=NAME with it", use.text()));
  options.acceptance = use.written();
  return fmt::format("drafted tokens are kept by the rule {}", use.written());
}

// In the order in which they are applied: a predictor belongs to the policy before it, an acceptance to the drafter.
const std::vector<UseFamily>& use_families() {
  static const std::vector<UseFamily> table = {
      {"router", {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve"}, nullptr, set_router},
      {"weights", {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve"}, nullptr, set_weights},
      {"sampler", {"run", "chat", "batch", "program", "compare", "serve", kInRequest}, nullptr},
      {"kv_format",
       {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve", "replay", "simulate"},
       set_kv_format},
      {"kernel", {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve", "replay"}, set_kernel},
      {"attention",
       {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve", "replay", "simulate"},
       set_attention},
      {"exit",
       {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve", "replay", "simulate", kInRequest},
       set_exit,
       nullptr,
       true},
      {"policy", {"run", "chat", "batch", "program", "serve", "replay", "simulate"}, set_policy},
      {"predictor", {"run", "chat", "batch", "program", "serve", "replay", "simulate"}, set_predictor},
      {"prefix_evictor", {"run", "chat", "batch", "program", "serve", "replay", "simulate"}, set_prefix_evictor},
      {"state_evictor", {"run", "chat", "batch", "program", "serve", "replay", "simulate"}, set_state_evictor},
      {"evictor",
       {"run", "chat", "perplexity", "bench", "batch", "program", "compare", "serve", "replay", "simulate", kInRequest},
       set_evictor,
       nullptr,
       true},
      {"drafter", {"run", "chat", "batch", "program", "compare", "serve", "replay"}, set_drafter, nullptr, true},
      {"acceptance", {"run", "chat", "batch", "program", "compare", "serve", "replay"}, set_acceptance},
      {"tier", {"run", "chat", "batch", "program", "serve", "replay"}, set_tier},
      {"store", {"run", "chat", "batch", "program", "serve", "replay"}, set_store},
      {"prompt", {"run", "batch", "program", "compare", "serve", kInRequest}, nullptr, nullptr, true},
      {"program", {"program", "compare"}, nullptr, nullptr, true},
      {"context", {"run", "compare", "serve", "replay", "simulate", kInRequest}, set_context, nullptr, true},
  };
  return table;
}

// Families that something else chooses.
constexpr std::pair<std::string_view, std::string_view> kNotUsed[] = {
    {"arch", "the model's files determine it"},
    {"format", "the model's files are in it; `millrace convert` writes another"},
    {"mixer", "the model's layers determine it"},
    {"tool_dialect", "the model's chat template determines it"},
    {"pass", "`millrace compress --pass` applies it to a stored model"},
    {"suite", "`millrace compare --on` measures with it"},
    {"trace_format", "it is detected in the trace, or given by --format"},
};

std::string list_of(const std::vector<std::string_view>& names) {
  std::string out;
  for (std::string_view name : names) out += (out.empty() ? "" : ", ") + std::string(name);
  return out;
}

Error wrong_use(std::string_view text, std::string_view what) { return Error::user(fmt::format("{}: {}", text, what)); }

Result<const UseFamily*> find_family(std::string_view text, std::string_view family, std::string_view place) {
  const auto found = std::ranges::find(use_families(), family, &UseFamily::name);
  if (found == use_families().end()) {
    for (const auto& [name, why] : kNotUsed)
      if (name == family) return wrong_use(text, fmt::format("{} is not chosen here: {}", family, why));
    std::string known;
    for (const UseFamily& one : use_families()) known += (known.empty() ? "" : ", ") + std::string(one.name);
    return wrong_use(text, fmt::format("no such family as '{}'; families: {}", family, known));
  }
  if (std::ranges::find(found->places, place) == found->places.end())
    return wrong_use(text,
                     fmt::format("{} does not apply to {}; it applies to {}", family, place, list_of(found->places)));
  return &*found;
}

// An error if a sampler's choice would set nothing.
Result<void> check_sampler(std::string_view text, const TechniqueUse& use) {
  if (use.name == "greedy") return {};
  if (use.options.empty()) return wrong_use(text, "has no options to set; fields of the request turn it on");
  std::string names;
  for (const OptionSpec& option : use.options) {
    if (use.values.given(option.name)) return {};
    names += (names.empty() ? "" : ", ") + option.name;
  }
  return wrong_use(text, fmt::format("needs at least one of its options: {}", names));
}

nlohmann::ordered_json options_json(const TechniqueUse& use) { return options_json(use.options, use.values); }

// Applies the choices that `set` takes, in the order of the families.
template <typename Options>
Result<std::vector<AppliedTechnique>> apply_with(std::span<const TechniqueUse> uses,
                                                 Effect (*UseFamily::*set)(const TechniqueUse&, Options&),
                                                 Options& options) {
  std::vector<AppliedTechnique> out;
  for (const UseFamily& family : use_families()) {
    for (const TechniqueUse& use : uses) {
      if (!(family.*set) || use.family != family.name) continue;
      MILLRACE_TRY(std::string effect, (family.*set)(use, options));
      out.push_back({use.family, use.name, options_json(use), std::move(effect)});
    }
  }
  return out;
}

}  // namespace

std::vector<std::string_view> family_names_in(std::string_view place) {
  std::vector<std::string_view> out;
  for (const UseFamily& family : use_families())
    if (std::ranges::find(family.places, place) != family.places.end()) out.push_back(family.name);
  return out;
}

std::string families_in(std::string_view place) { return list_of(family_names_in(place)); }

Result<TechniqueUse> parse_use(std::string_view text, std::string_view place) {
  const size_t equals = text.find('='), colon = text.find(':');
  if (equals == std::string_view::npos || equals == 0 || colon < equals || equals + 1 == text.size())
    return wrong_use(text, "expected FAMILY=NAME[:key=value,...]");
  TechniqueUse use;
  use.family = text.substr(0, equals);
  use.name = text.substr(equals + 1, colon == std::string_view::npos ? colon : colon - equals - 1);
  if (colon != std::string_view::npos) use.given = text.substr(colon + 1);
  const auto family = find_family(text, use.family, place);
  if (!family.ok()) return family.error();
  if ((*family)->optional && use.name == kNoTechnique) {
    if (!use.given.empty()) return wrong_use(text, "none has no options");
    return use;
  }
  std::string names;
  bool known = false;
  for (TechniqueInfo& info : all_techniques()) {
    if (info.family != use.family) continue;
    names += (names.empty() ? "" : ", ") + info.name;
    if (info.name != use.name) continue;
    known = true;
    use.options = std::move(info.options);
  }
  if (!known) return wrong_use(text, fmt::format("no such {} as '{}'; there are {}", use.family, use.name, names));
  auto values = parse_options(use.given, use.options);
  if (!values.ok()) return wrong_use(text, values.error().message);
  use.values = std::move(*values);
  if (use.family == "prompt")
    if (auto made = make_prompt_compressor(use.written()); !made.ok()) return wrong_use(text, made.error().message);
  if (use.family != "sampler") return use;
  MILLRACE_TRY_VOID(check_sampler(text, use));
  SamplingOptions scratch;
  if (auto set = apply_uses(std::span(&use, 1), scratch); !set.ok()) return set.error();
  return use;
}

Result<std::vector<TechniqueUse>> parse_uses(std::span<const std::string> texts, std::string_view place) {
  std::vector<TechniqueUse> out;
  for (const std::string& text : texts) {
    MILLRACE_TRY(TechniqueUse use, parse_use(text, place));
    for (const TechniqueUse& earlier : out) {
      const bool several = use.family == "sampler" || use.family == "kernel";
      if (earlier.family != use.family || (several && earlier.name != use.name)) continue;
      return wrong_use(text,
                       fmt::format("{} is chosen already, by {}", several ? use.name : use.family, earlier.text()));
    }
    out.push_back(std::move(use));
  }
  return out;
}

bool same_choice(const TechniqueUse& a, const TechniqueUse& b) {
  return a.family == b.family && a.name == b.name && options_json(a) == options_json(b);
}

Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, EngineOptions& options) {
  return apply_with(uses, &UseFamily::set, options);
}

Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, LoadOptions& options) {
  return apply_with(uses, &UseFamily::set_load, options);
}

Result<std::vector<AppliedTechnique>> apply_uses(std::span<const TechniqueUse> uses, SamplingOptions& options) {
  std::vector<AppliedTechnique> out;
  for (const TechniqueUse& use : uses) {
    if (use.family != "sampler") continue;
    const SamplingOptions before = options;
    const std::vector<std::string> names = sampling_options_of(use);
    for (const std::string& name : names) {
      auto set = set_sampling_option(options, name, use.name == "greedy" ? "0" : use.values.text(name));
      if (!set.ok()) return wrong_use(use.text(), set.error().message);
    }
    AppliedTechnique applied{"sampler", use.name, options_json(use), ""};
    for (const AppliedTechnique& one : applied_samplers(before, options, names))
      applied.effect += (applied.effect.empty() ? "" : "; ") + one.effect;
    for (const OptionSpec& spec : use.options) {
      auto now = parse_options(spec.name + "=" + sampling_option_text(options, spec.name), use.options);
      if (now.ok()) applied.options[spec.name] = option_json(spec, *now);
    }
    out.push_back(std::move(applied));
  }
  return out;
}

std::string program_of(std::span<const TechniqueUse> uses) {
  for (const TechniqueUse& use : uses)
    if (use.family == "program" && use.name != kNoTechnique) return use.written();
  return "";
}

std::vector<std::string> prompt_passes_of(std::span<const TechniqueUse> uses) {
  std::vector<std::string> out;
  for (const TechniqueUse& use : uses)
    if (use.family == "prompt" && use.name != kNoTechnique) out.push_back(use.written());
  return out;
}

std::vector<std::string> sampling_options_of(const TechniqueUse& use) {
  if (use.name == "greedy") return {"temperature"};
  std::vector<std::string> out;
  for (const OptionSpec& spec : use.options)
    if (use.values.given(spec.name)) out.push_back(spec.name);
  return out;
}

std::vector<AppliedTechnique> applied_samplers(const SamplingOptions& before, const SamplingOptions& now,
                                               std::span<const std::string> options) {
  std::vector<AppliedTechnique> out;
  for (const TechniqueInfo& info : samplers().infos()) {
    AppliedTechnique one{"sampler", info.name, nlohmann::ordered_json::object(), ""};
    bool named = false;
    for (const OptionSpec& spec : info.options) {
      const std::string was = sampling_option_text(before, spec.name), is = sampling_option_text(now, spec.name);
      auto values = parse_options(spec.name + "=" + is, info.options);
      if (values.ok()) one.options[spec.name] = option_json(spec, *values);
      if (std::ranges::find(options, spec.name) == options.end()) continue;
      named = true;
      one.effect += one.effect.empty() ? "" : ", ";
      one.effect += was == is ? fmt::format("{} stays {}", spec.name, is.empty() ? "empty" : is)
                              : fmt::format("{} {} instead of {}", spec.name, is.empty() ? "empty" : is,
                                            was.empty() ? "empty" : was);
    }
    if (named) out.push_back(std::move(one));
  }
  return out;
}

nlohmann::ordered_json applied_json(std::span<const AppliedTechnique> applied) {
  auto out = nlohmann::ordered_json::array();
  for (const AppliedTechnique& one : applied)
    out.push_back({{"family", one.family}, {"name", one.name}, {"options", one.options}, {"effect", one.effect}});
  return out;
}

}  // namespace millrace
