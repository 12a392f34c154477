#include "capi/options.h"

#include <algorithm>

#include "capi/option_table.h"
#include "sampling/schema.h"

namespace millrace {
namespace {

using Type = OptionSpec::Type;

constexpr std::string_view kPlace = "run";  // families apply as they do to the command
constexpr double kMaxTokens = 2147483647;
constexpr double kMaxCount = 1e9;
constexpr double kMaxAnswers = 128;
constexpr double kMaxUnread = 1 << 24;
constexpr int64_t kDefaultAnswerTokens = 256;  // as `millrace run`

// Without defaults: those are the fields' own.
OptionSpec number(const char* name, double min, double max) { return {name, Type::number, "", min, max, ""}; }
OptionSpec integer(const char* name, double min, double max) { return {name, Type::integer, "", min, max, ""}; }
OptionSpec boolean(const char* name) { return {name, Type::boolean, "", 0, 1, ""}; }
OptionSpec text(const char* name) { return {name, Type::text, "", 0, 0, ""}; }

struct LoadTexts : LoadOptions {
  std::string pack = "background";
  std::vector<std::string> use;
};

const OptionTable<LoadTexts>& load_table() {
  static const OptionTable<LoadTexts> table({
      {integer("threads", 0, kMaxThreads), &LoadOptions::threads},
      {integer("context", 0, kMaxTokens), &LoadOptions::context},
      {text("memory"), OptionTable<LoadTexts>::Bytes{&LoadOptions::memory}},
      {boolean("packed_cache"), &LoadOptions::packed_cache},
      {text("packed_cache_path"), &LoadOptions::packed_cache_path},
      {text("pack"), &LoadTexts::pack},
      {text("chat_template"), &LoadOptions::chat_template},
      {text("use"), &LoadTexts::use},
  });
  return table;
}

struct EngineTexts : EngineOptions {
  bool no_prefix_cache = false;
  int64_t open_streams = CEngineOptions().open_streams, unread_events = CEngineOptions().unread_events;
  std::vector<std::string> use;
};

const OptionTable<EngineTexts>& engine_table() {
  using Bytes = OptionTable<EngineTexts>::Bytes;
  static const OptionTable<EngineTexts> table({
      {integer("threads", 0, kMaxThreads), &EngineOptions::threads},
      {integer("context", 0, kMaxTokens), &EngineOptions::context},
      {integer("max_streams", 1, kMaxCount), &EngineOptions::max_streams},
      {integer("queue", 0, kMaxCount), &EngineOptions::queue},
      {integer("kv_tokens", 0, kMaxTokens), &EngineOptions::kv_tokens},
      {integer("block_tokens", 1, kMaxTokens), &EngineOptions::block_tokens},
      {integer("batch_tokens", 1, kMaxTokens), &EngineOptions::batch_tokens},
      {integer("document_tokens", 0, kMaxTokens), &EngineOptions::document_tokens},
      {text("kv_pool"), &EngineOptions::kv_pool},
      {boolean("keep_window_keys"), &EngineOptions::keep_window_keys},
      {boolean("no_prefix_cache"), &EngineTexts::no_prefix_cache},
      {text("state_cache"), Bytes{&EngineOptions::state_cache_bytes}},
      {integer("state_stride", 1, kMaxTokens), &EngineOptions::state_stride},
      {text("draft_length"), &EngineOptions::draft_length},
      {integer("resident_streams", 0, kMaxCount), &EngineOptions::resident_streams},
      {text("cost_model"), &EngineOptions::cost_model},
      {text("lora"), &EngineOptions::adapters},
      {text("record_plans"), &EngineOptions::record_plans},
      {text("use"), &EngineTexts::use},
      {integer("open_streams", 1, kMaxCount), &EngineTexts::open_streams},
      {integer("unread_events", 1, kMaxUnread), &EngineTexts::unread_events},
  });
  return table;
}

struct RequestTexts : Request {
  bool no_special = false, json_object = false;
  std::string json_schema, regex, grammar, trigger, early = "no";
  std::vector<std::string> choices, adapter, document_texts, use;
};

const OptionTable<RequestTexts>& request_table() {
  static const OptionTable<RequestTexts> table({
      {integer("max_tokens", -1, kMaxTokens), &Request::max_tokens},
      {integer("min_tokens", 0, kMaxTokens), &Request::min_tokens},
      {boolean("ignore_eos"), &Request::ignore_eos},
      {boolean("no_special"), &RequestTexts::no_special},
      {text("stop"), &Request::stop},
      {integer("answers", 1, kMaxAnswers), &Request::n},
      {integer("best_of", 0, kMaxAnswers), &Request::best_of},
      {integer("beams", 1, kMaxAnswers), &Request::beams},
      {number("length_penalty", -1e9, 1e9), &Request::length_penalty},
      {text("early_stopping"), &RequestTexts::early},
      {text("json_schema"), &RequestTexts::json_schema},
      {boolean("json_object"), &RequestTexts::json_object},
      {text("regex"), &RequestTexts::regex},
      {text("grammar"), &RequestTexts::grammar},
      {text("choice"), &RequestTexts::choices},
      {text("constraint_trigger"), &RequestTexts::trigger},
      {text("adapter"), &RequestTexts::adapter},
      {text("document"), &RequestTexts::document_texts},
      {text("tenant"), &Request::tenant},
      {integer("priority", -kMaxCount, kMaxCount), &Request::priority},
      {number("deadline_seconds", 0, kMaxCount), &Request::deadline_seconds},
      {number("time_limit_seconds", 0, kMaxCount), &Request::time_limit_seconds},
      {text("prefix_group"), &Request::prefix_group},
      {text("use"), &RequestTexts::use},
  });
  return table;
}

// An error if a choice has not been applied: its family belongs to something other than `what`.
Result<void> check_families(const std::vector<TechniqueUse>& uses, const std::vector<AppliedTechnique>& applied,
                            const char* what) {
  for (const TechniqueUse& use : uses)
    if (std::ranges::find(applied, use.family, &AppliedTechnique::family) == applied.end())
      return Error::user(fmt::format("use {}: {} is not an option of {}", use.text(), use.family, what));
  return {};
}

Result<EarlyStopping> early_stopping(const std::string& text) {
  if (text == "no") return EarlyStopping::no;
  if (text == "yes") return EarlyStopping::yes;
  if (text == "never") return EarlyStopping::never;
  return Error::user(fmt::format("early_stopping: must be no, yes or never, not {}", text));
}

Result<Constraint> constraint_of(const RequestTexts& texts) {
  using Kind = Constraint::Kind;
  Constraint out;
  out.trigger = texts.trigger;
  out.choices = texts.choices;
  int kinds = 0;
  const auto choose = [&](Kind kind, const std::string& text, bool given) {
    if (!given) return;
    out.kind = kind;
    out.text = text;
    ++kinds;
  };
  choose(Kind::json_schema, texts.json_schema, !texts.json_schema.empty());
  choose(Kind::grammar, texts.grammar, !texts.grammar.empty());
  choose(Kind::regex, texts.regex, !texts.regex.empty());
  choose(Kind::choice, "", !texts.choices.empty());
  choose(Kind::json_object, "", texts.json_object);
  if (kinds > 1) return Error::user("json_schema, json_object, regex, grammar, choice: give only one of them");
  if (kinds == 0 && !texts.trigger.empty())
    return Error::user("constraint_trigger: requires json_schema, json_object, regex, grammar or choice");
  return out;
}

// "NAME" or "NAME=SCALE"; "none": no adapter.
Result<std::vector<AdapterUse>> adapters_of(const std::vector<std::string>& texts) {
  std::vector<AdapterUse> out;
  for (const std::string& given : texts) {
    if (given == "none") continue;
    const size_t equals = given.rfind('=');
    AdapterUse use{given.substr(0, equals), 1};
    if (equals != std::string::npos) {
      OptionSpec spec = number("scale", -kMaxCount, kMaxCount);
      spec.default_value = given.substr(equals + 1);
      auto values = parse_options("", {spec});
      if (!values.ok()) return Error::user(fmt::format("adapter {}: {}", given, values.error().message));
      use.scale = values->number("scale");
    }
    out.push_back(std::move(use));
  }
  return out;
}

// Choices of a request that fields hold.
Result<void> apply_to_request(const std::vector<TechniqueUse>& uses, Request& request) {
  for (const TechniqueUse& use : uses) {
    if (use.family == "sampler") continue;
    if (use.family == "evictor")
      request.evictor = use.written();
    else if (use.family == "exit")
      request.exit = use.written();
    else if (use.family == "prompt" && use.name != kNoTechnique)
      return Error::unsupported(fmt::format("use {}: the C interface does not compress prompts", use.text()));
    else if (use.family == "context")
      request.document_context = use.written();
  }
  return {};
}

}  // namespace

Error unknown_option(const std::string& name, const char* what, const std::string& names) {
  return Error::user(fmt::format("option {}: no such option of {}; there are {}", name, what, names));
}

Result<GivenOptions> given_options(const millrace_option* options, size_t count) {
  GivenOptions out;
  if (count > 0 && !options) return Error::user("options: is NULL, but option_count is not 0");
  for (size_t i = 0; i < count; ++i) {
    if (!options[i].name || !options[i].value)
      return Error::user(fmt::format("option {}: its name or value is NULL", i));
    std::string name = options[i].name;
    std::ranges::replace(name, '-', '_');
    out.emplace_back(std::move(name), options[i].value);
  }
  return out;
}

Result<LoadOptions> load_options(const GivenOptions& given) {
  LoadTexts texts;
  for (const auto& [name, value] : given) {
    MILLRACE_TRY(const bool known, load_table().set(texts, name, value));
    if (!known) return unknown_option(name, "a model", load_table().names());
  }
  LoadOptions out = texts;
  out.packed_cache = out.packed_cache || !out.packed_cache_path.empty();
  if (texts.pack != "background" && texts.pack != "load")
    return Error::user(fmt::format("pack: must be background or load, not {}", texts.pack));
  out.pack_in_background = texts.pack == "background";
  MILLRACE_TRY(const auto uses, parse_uses(texts.use, kPlace));
  MILLRACE_TRY(const auto applied, apply_uses(uses, out));
  MILLRACE_TRY_VOID(check_families(uses, applied, "a model"));
  return out;
}

Result<CEngineOptions> engine_options(const GivenOptions& given) {
  EngineTexts texts;
  texts.draft_length = "auto";
  for (const auto& [name, value] : given) {
    MILLRACE_TRY(const bool known, engine_table().set(texts, name, value));
    if (!known) return unknown_option(name, "an engine", engine_table().names());
  }
  CEngineOptions out;
  out.engine = texts;
  out.engine.prefix_cache = !texts.no_prefix_cache;
  out.open_streams = texts.open_streams;
  out.unread_events = texts.unread_events;
  MILLRACE_TRY(const auto uses, parse_uses(texts.use, kPlace));
  MILLRACE_TRY(out.applied, apply_uses(uses, out.engine));
  MILLRACE_TRY_VOID(check_families(uses, out.applied, "an engine"));
  return out;
}

Result<CRequestOptions> request_options(const GivenOptions& given, const SamplingOptions& sampling) {
  RequestTexts texts;
  texts.max_tokens = kDefaultAnswerTokens;
  texts.sampling = sampling;
  for (const auto& [name, value] : given) {
    MILLRACE_TRY(const bool known, request_table().set(texts, name, value));
    if (known) continue;
    if (std::ranges::find(sampling_schema(), name, &OptionSpec::name) == sampling_schema().end()) {
      std::string names = request_table().names();
      for (const OptionSpec& spec : sampling_schema()) names += ", " + spec.name;
      return unknown_option(name, "a request", names);
    }
    MILLRACE_TRY_VOID(set_sampling_option(texts.sampling, name, value));
  }
  MILLRACE_TRY(const auto uses, parse_uses(texts.use, kInRequest));
  MILLRACE_TRY(const auto applied, apply_uses(uses, texts.sampling));
  MILLRACE_TRY_VOID(apply_to_request(uses, texts));
  MILLRACE_TRY(texts.constraint, constraint_of(texts));
  MILLRACE_TRY(texts.early_stopping, early_stopping(texts.early));
  MILLRACE_TRY(texts.adapters, adapters_of(texts.adapter));
  return CRequestOptions{texts, texts.no_special, !texts.adapter.empty(), texts.document_texts};
}

}  // namespace millrace
