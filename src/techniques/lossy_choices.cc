#include "techniques/lossy_choices.h"

#include <algorithm>
#include <iterator>

#include "models/forward_switches.h"
#include "techniques/families.h"

namespace millrace {
namespace {

using Texts = std::vector<std::string>;

struct Family {
  std::string_view name;
  Texts (*chosen)(const LoadOptions&, const EngineOptions&);
  bool lossless_too = false;  // members that are lossless are reported as well, unless they are the default
};

std::string_view member_of(std::string_view text) { return text.substr(0, text.find(':')); }

Texts kernels_of(const EngineOptions& engine) {
  Texts out;
  std::ranges::copy_if(engine.kernels, std::back_inserter(out), [](const std::string& one) {
    return !one.starts_with(kPatternPrefix) && !one.starts_with(kExitPrefix);
  });
  return out;
}

Texts patterns_of(const EngineOptions& engine) {
  Texts out;
  for (const std::string& one : engine.kernels)
    if (one.starts_with(kPatternPrefix)) out.push_back(one.substr(kPatternPrefix.size()));
  return out;
}

// Sources that compute the neurons which a predictor chooses, or experts in a cold format; without these options every
// source is lossless.
Texts lossy_weights(const LoadOptions& load) {
  const size_t colon = load.weights.find(':');
  if (colon == load.weights.npos) return {};
  const std::string options = "," + load.weights.substr(colon + 1);
  for (const char* lossy : {",predictor=file", ",cold="})
    if (options.find(lossy) != options.npos) return {load.weights};
  return {};
}

// Every family with a lossy member that a server can be started with; lossy_choices_test.cc compares it with the
// registries.
const Family kFamilies[] = {
    {"router", [](const LoadOptions& load, const EngineOptions&) { return Texts{load.router}; }},
    {"weights", [](const LoadOptions& load, const EngineOptions&) { return lossy_weights(load); }, true},
    {"kv_format", [](const LoadOptions&, const EngineOptions& engine) { return Texts{engine.kv_format}; }, true},
    {"kernel", [](const LoadOptions&, const EngineOptions& engine) { return kernels_of(engine); }},
    {"attention", [](const LoadOptions&, const EngineOptions& engine) { return patterns_of(engine); }, true},
    {"exit", [](const LoadOptions&, const EngineOptions& engine) { return Texts{chosen_exit(engine.kernels)}; }},
    {"evictor", [](const LoadOptions&, const EngineOptions& engine) { return Texts{engine.evictor}; }},
    {"context", [](const LoadOptions&, const EngineOptions& engine) { return Texts{engine.document_context}; }},
    {"acceptance",
     [](const LoadOptions&, const EngineOptions& engine) {
       const bool drafts = !engine.drafter.empty() && engine.drafter != "none";
       return drafts && engine.acceptance != EngineOptions().acceptance ? Texts{engine.acceptance} : Texts{};
     },
     true},
};

bool is_lossy(const std::vector<TechniqueInfo>& infos, std::string_view family, std::string_view name) {
  return std::ranges::any_of(infos, [&](const TechniqueInfo& info) {
    return info.family == family && info.name == name && info.loss == Loss::lossy;
  });
}

}  // namespace

std::vector<LossyChoice> lossy_choices(const LoadOptions& load, const EngineOptions& engine) {
  static const std::vector<TechniqueInfo> infos = all_techniques();
  std::vector<LossyChoice> out;
  for (const Family& family : kFamilies) {
    const Texts plain = family.chosen(LoadOptions(), EngineOptions());
    for (const std::string& text : family.chosen(load, engine)) {
      if (text.empty() || text == "none" || std::ranges::find(plain, text) != plain.end()) continue;
      if (family.lossless_too || is_lossy(infos, family.name, member_of(text))) out.push_back({family.name, text});
    }
  }
  return out;
}

}  // namespace millrace
