#include "server/measure/comparison_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "run/embedded_model.h"

namespace millrace {
namespace {

constexpr const char* kUseCommand = "run `millrace compare` on the server's machine instead";

std::vector<std::string> texts_in(const Json& body, const char* field) {
  return body.contains(field) ? body[field].get<std::vector<std::string>>() : std::vector<std::string>();
}

// Options of techniques that name files or folders. A drafter's `model` may also be the name of a model in the binary.
constexpr std::string_view kFileOptions[] = {"centroids", "file", "levels", "link_embeddings", "model",
                                             "parse",     "path", "policy", "scorer",          "skip"};

bool names_file(const OptionSpec& option, const std::string& value) {
  if (option.type != OptionSpec::Type::text || value.empty()) return false;
  if (std::ranges::find(kFileOptions, option.name) == std::end(kFileOptions)) return false;
  return option.name != "model" || !find_embedded_model(value);
}

// Checks a choice, and the drafters that the drafter `best` chooses from: NAME[:key=value;...] with + between.
Result<void> check_use(const TechniqueUse& use) {
  if (use.family == kRefusedFamily)
    return Error::unsupported(fmt::format("{}: this family writes a file; {}", use.text(), kUseCommand));
  for (const OptionSpec& option : use.options)
    if (option.type == OptionSpec::Type::text && names_file(option, use.values.text(option.name)))
      return Error::unsupported(fmt::format("{}: {} names a file; {}", use.text(), option.name, kUseCommand));
  if (use.family != "drafter" || use.name != "best") return {};
  std::istringstream parts(use.values.text("of"));
  for (std::string part; std::getline(parts, part, '+');) {
    std::ranges::replace(part, ';', ',');
    MILLRACE_TRY(const TechniqueUse one, parse_use("drafter=" + part, kCompareCommand));
    MILLRACE_TRY_VOID(check_use(one));
  }
  return {};
}

Result<void> check_configuration(const CompareSpec& spec) {
  if (!spec.engine.empty())
    return Error::unsupported(fmt::format("{}: engine= runs a program; {}", spec.text, kUseCommand));
  for (const TechniqueUse& use : spec.uses) MILLRACE_TRY_VOID(check_use(use));
  return {};
}

}  // namespace

bool suite_needs_no_file(const std::string& text) {
  const size_t colon = text.find(':');
  const auto* suite = compare_suites().find(text.substr(0, colon));
  if (!suite) return true;  // begin_suite() refuses it with the list of names
  const std::string_view argument = suite->member->argument;
  if (argument.find("FILE") != std::string_view::npos) return false;
  return argument.find("TRACE") == std::string_view::npos || colon == std::string::npos;
}

Result<ComparisonRequest> read_comparison(const Json& body) {
  std::vector<std::string> texts = {body.value("base", std::string("plain"))};
  for (std::string& text : texts_in(body, "with")) texts.push_back(std::move(text));
  if (texts.size() < 2) return Error::user("with: is empty; name a configuration to compare with the base");
  if (texts.size() > kMaxConfigurations)
    return Error::user(fmt::format("with: {} configurations; at most {}", texts.size(), kMaxConfigurations));
  ComparisonRequest out;
  MILLRACE_TRY(out.specs, parse_configurations(texts));
  for (const CompareSpec& spec : out.specs) MILLRACE_TRY_VOID(check_configuration(spec));
  out.plan.suites = texts_in(body, "suites");
  for (const std::string& suite : out.plan.suites) {
    if (!compare_suites().find(suite.substr(0, suite.find(':'))))
      return Error::user(
          fmt::format("suites: unknown '{}'; available: {}", suite.substr(0, 100), compare_suites().names()));
    if (!suite_needs_no_file(suite))
      return Error::unsupported(fmt::format("suites: {} reads a file; {}", suite.substr(0, 100), kUseCommand));
  }
  SuiteInput& input = out.plan.input;
  input.text = body.value("text", std::string());
  input.items = body.value("items", input.items);
  input.rounds = body.value("repeat", input.rounds);
  input.prompt = body.value("prompt", input.prompt);
  input.generate = body.value("generate", input.generate);
  return out;
}

}  // namespace millrace
