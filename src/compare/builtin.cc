// The built-in suites, one line each.
#include <fmt/format.h>

#include "compare/suites/records.h"
#include "compare/unseen.h"

namespace millrace {

const Registry<const CompareSuite*>& compare_suites() {
  static const Registry<const CompareSuite*> registry(
      "suite", {.test = "src/compare/compare_suites_test.cc", .proof = "docs/compare.md"},
      {
          &kPerplexitySuite,
          &kDocumentsSuite,
          &kLabSuite,
          &kNeedleSuite,
          &kChoiceSuite,
          &kExactSuite,
          &kSpecSuite,
          &kServeSuite,
          &kScalingSuite,
          &kMemorySuite,
      });
  return registry;
}

void SuiteRun::set_unseen(std::vector<std::string> reasons, std::span<const CompareConfig> configs) {
  unseen_ = std::move(reasons);
  for (size_t i = 0; i < unseen_.size(); ++i)
    if (!unseen_[i].empty())
      notes_.push_back(fmt::format("{}: {}: unseen: {}", plan_.name, configs[i].spec.name, unseen_[i]));
}

Result<std::unique_ptr<SuiteRun>> begin_suite(std::string_view text, std::span<const CompareConfig> configs,
                                              SuiteInput input) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto* entry = compare_suites().find(name);
  if (!entry) return Error::user(fmt::format("suite '{}': there are {}", name, compare_suites().names()));
  const CompareSuite& suite = *entry->member;
  if (colon != std::string_view::npos) input.argument = text.substr(colon + 1);
  if (suite.argument.empty() && colon != std::string_view::npos)
    return Error::user(fmt::format("suite {}: takes nothing behind a colon, got '{}'", name, input.argument));
  if (suite.argument.find('[') == std::string_view::npos && !suite.argument.empty() && input.argument.empty())
    return Error::user(fmt::format("suite {}: write {}:{}", name, name, suite.argument));
  auto run = suite.begin(configs, input);
  if (!run.ok()) return Error{run.error().kind, fmt::format("suite {}: {}", text, run.error().message)};
  std::vector<std::string> unseen;
  for (const CompareConfig& config : configs) unseen.push_back(unseen_of((*run)->plan().sight, config));
  (*run)->set_unseen(std::move(unseen), configs);
  return run;
}

}  // namespace millrace
