// GET /techniques and POST /compare: the registry of techniques, and comparisons of configurations on a served model.
#include "server/measure/comparisons.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <map>

#include "base/cpu.h"
#include "base/processor.h"
#include "base/version.h"
#include "run/language_model.h"
#include "server/api/api.h"
#include "server/api/sampling_fields.h"
#include "server/measure/comparison_request.h"
#include "server/service.h"
#include "techniques/families.h"
#include "techniques/technique_json.h"

namespace millrace {
namespace {

using Wrong = std::optional<ApiError>;

// The families that apply in `place`, without `refused`.
Json family_list(std::string_view place, std::string_view refused = "") {
  Json out = Json::array();
  for (const std::string_view name : family_names_in(place))
    if (name != refused) out.push_back(name);
  return out;
}

Json suites_json() {
  Json out = Json::array();
  for (const CompareSuite* suite : compare_suites().members()) {
    const std::string name(suite->name);
    out.push_back({{"name", name},
                   {"argument", suite->argument},
                   {"summary", suite->summary},
                   {"over_http", suite_needs_no_file(name)}});
  }
  return out;
}

Handled list_techniques(Call&) {
  Json members = Json::array();
  for (const TechniqueInfo& info : all_techniques()) members.push_back(technique_json(info));
  return json_reply({{"request_families", family_list(kInRequest)},
                     {"compare_families", family_list(kCompareCommand, kRefusedFamily)},
                     {"suites", suites_json()},
                     {"techniques", std::move(members)}});
}

Error unknown_model(const std::string& name) {
  return Error::user(fmt::format("model={}: is not a model of this server; GET /models lists them", name));
}

// Loads the models of one comparison: the served model, other models of the server, or one of them with another router.
// They share the server's memory budget.
class Models {
 public:
  Models(ModelRegistry& registry, std::shared_ptr<ServedModel> served)
      : registry_(registry), served_(std::move(served)) {}

  Result<std::shared_ptr<const LanguageModel>> load(const CompareSpec& spec, const LoadOptions& choices) {
    const bool as_it_is = choices.router == LoadOptions().router;
    if (spec.model.empty() && as_it_is) return served_->model;
    MILLRACE_TRY(const ModelStatus status, find(spec.model.empty() ? served_->name() : spec.model));
    if (status.served && as_it_is) return status.served->model;
    auto& known = loaded_[choices.router + " " + status.name];
    if (known) return known;
    LoadOptions options;
    options.threads = served_->engine_options.threads;
    options.context = served_->context;
    options.router = choices.router;
    options.shared_memory = registry_.memory();
    options.memory_name = fmt::format("comparison of {}", status.name);
    MILLRACE_TRY(known, LanguageModel::load(status.path, options));
    return known;
  }

 private:
  Result<ModelStatus> find(const std::string& name) {
    for (ModelStatus& one : registry_.list())
      if (one.name == name) return std::move(one);
    return unknown_model(name);  // it has left since
  }

  ModelRegistry& registry_;
  std::shared_ptr<ServedModel> served_;
  std::map<std::string, std::shared_ptr<const LanguageModel>> loaded_;  // by router and name
};

Result<std::vector<CompareConfig>> make_configs(const ComparisonRequest& request, ModelRegistry& registry,
                                                const std::shared_ptr<ServedModel>& served) {
  EngineOptions engine;
  engine.threads = served->engine_options.threads;
  engine.context = served->context;
  Models models(registry, served);
  std::vector<CompareConfig> configs;
  for (const CompareSpec& spec : request.specs) {
    auto config = make_compare_config(
        spec, engine, [&](const CompareSpec& of, const LoadOptions& choices) { return models.load(of, choices); });
    if (!config.ok()) return Error{config.error().kind, fmt::format("{}: {}", spec.text, config.error().message)};
    configs.push_back(std::move(*config));
  }
  return configs;
}

// Runs the comparison; `progress` receives the events for the client.
Result<Json> compare_models(ComparisonRequest request, ModelRegistry& registry,
                            const std::shared_ptr<ServedModel>& served, const Comparisons::Wanted& wanted,
                            const std::function<void(const Json&)>& progress) {
  const int threads = served->engine_options.threads > 0 ? served->engine_options.threads : available_cores();
  request.plan.input.threads = threads;
  request.plan.machine = fmt::format("{}, {} thread{}, {}", processor_name(), threads, threads == 1 ? "" : "s",
                                     isa_name(served->model->parts().kernels.isa));
  MILLRACE_TRY(const auto configs, make_configs(request, registry, served));
  CompareJournal journal;
  int64_t shown = -1;  // last percentage
  std::string part;
  MILLRACE_TRY(Comparison done,
               run_comparison(request.plan, configs, journal, [&](const std::string& now, double fraction) {
                 const auto percent = static_cast<int64_t>(fraction * 100);
                 if (now != part || percent != shown) progress({{"part", now}, {"fraction", fraction}});
                 part = now;
                 shown = percent;
                 return wanted();
               }));
  if (!done.complete) return Error::cancelled("compare: stopped");
  done.result.version = kVersionText;
  done.result.model = served->name();  // as clients name it
  return compare_json(done.result);
}

Wrong compare(Call& call, const Exchange& exchange) {
  if (!call.service.trusts_callers())
    return ApiError{ApiErrorKind::forbidden,
                    "compare: requests without a key may not occupy the machine; configure API keys", ""};
  auto request = read_comparison(call.body);
  if (!request.ok()) return ApiError::from(request.error());
  const std::vector<ModelStatus> known = call.service.models().list();
  for (const CompareSpec& spec : request->specs)
    if (!spec.model.empty() && std::ranges::find(known, spec.model, &ModelStatus::name) == known.end())
      return ApiError::from(unknown_model(spec.model));
  HttpReply head{.content_type = "text/event-stream", .headers = call.service.headers(call.request)};
  head.headers.emplace_back("Cache-Control", "no-store");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  head.body = sse_event("progress", {{"part", "loading"}, {"fraction", 0}});
  const auto gone = std::make_shared<std::atomic<bool>>(false);
  exchange.on_disconnect([gone] { *gone = true; });
  const auto work = [exchange, head, request = std::move(*request), registry = &call.service.models(),
                     served = call.params.served](const Comparisons::Wanted& wanted) mutable {
    exchange.begin_stream(std::move(head));
    auto result = compare_models(std::move(request), *registry, served, wanted,
                                 [&](const Json& now) { exchange.write(sse_event("progress", now)); });
    served.reset();
    if (result.ok()) return exchange.finish(sse_event("result", *result));
    exchange.finish(sse_event("error", {{"message", result.error().message}}));
  };
  const auto started = call.service.comparisons().start(gone, work);
  if (!started.ok()) return ApiError{ApiErrorKind::overloaded, started.error().message, ""};
  return std::nullopt;
}

Field number_field(const char* name, const char* preset, const char* help, double min, double max) {
  Field field{name, kJsonInteger, preset, help};
  field.min = min;
  field.max = max;
  return field;
}

std::vector<Field> compare_fields() {
  Field with{"with", kJsonTexts, "", "configurations to compare with the base, as in docs/compare.md"};
  with.required = true;
  with.most = kMaxConfigurations;
  Field suites{"suites", kJsonTexts, "[]", "what to measure, NAME or NAME:argument; GET /techniques lists the suites"};
  suites.most = 16;
  return {model_field(),
          Field{"base", kJsonText, "plain", "the configuration that the others are compared with"},
          with,
          suites,
          Field{"text", kJsonText, "", "text for suites and prompts that need one"},
          number_field("items", "0", "most items of each suite; 0: the suite's own number", 0, 1 << 16),
          number_field("repeat", "3", "rounds of what is timed; 0: no speed", 0, 100),
          number_field("prompt", "256", "tokens of the prompt of what is timed", 1, 1 << 20),
          number_field("generate", "64", "tokens of its answer", 2, 1 << 20)};
}

}  // namespace

std::vector<Endpoint> comparison_endpoints() {
  std::vector<Endpoint> all;
  all.push_back({.method = "GET",
                 .path = "/techniques",
                 .dialect = &kLlamaServer,
                 .summary = "Lists the techniques of every family with their options, the families that a request and "
                            "a comparison can choose from, and the suites of comparisons.",
                 .handle = list_techniques,
                 .without_model = true});
  all.push_back({.method = "POST",
                 .path = "/compare",
                 .dialect = &kLlamaServer,
                 .summary = "Compares configurations on a model, as `millrace compare` does. The answer is a stream of "
                            "server-sent events: `progress` with `part` and `fraction`, then `result` with the JSON "
                            "of docs/compare.md, or `error`. Closing the connection cancels the comparison. One runs "
                            "at a time; it reads and writes no files.",
                 .fields = compare_fields(),
                 .begin = compare,
                 .admin = true});
  return all;
}

}  // namespace millrace
