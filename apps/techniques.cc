// millrace techniques: lists the techniques in this binary.
#include <fmt/format.h>

#include <algorithm>

#include "base/ordered_json.h"
#include "command.h"
#include "compare/suite.h"
#include "compress/pass.h"
#include "declaration.h"
#include "input.h"
#include "run/compatibility/page.h"
#include "table_room.h"
#include "techniques/families.h"
#include "techniques/technique_json.h"
#include "terminal/display_width.h"
#include "workload/trace_format.h"

namespace millrace {

// What an engine can use, the passes of `compress`, the suites of `compare`, and the trace formats that `replay` and
// `simulate` read.
std::vector<TechniqueInfo> listed_techniques() {
  std::vector<TechniqueInfo> out = all_techniques();
  for (TechniqueInfo& info : passes().infos()) out.push_back(std::move(info));
  for (TechniqueInfo& info : compare_suites().infos()) out.push_back(std::move(info));
  for (TechniqueInfo& info : trace_formats().infos()) out.push_back(std::move(info));
  return out;
}

namespace {

constexpr size_t kMemberColumns = 23;  // columns of a member's name before its text

constexpr const char* kTechniquesExamples = R"(Examples:
  millrace techniques                   every family
  millrace techniques --family sampler  one family, with its options
  millrace techniques --json
  millrace techniques --matrix          what goes with what, as Markdown)";

// Returns the name of a member's page in docs/techniques/ and of its result in proofs/results/: NAME, or FAMILY-NAME
// where families share the name (tools/ledger/entries.py).
std::string ledger_name(const TechniqueInfo& info, const std::vector<TechniqueInfo>& all) {
  const auto same = [&](const TechniqueInfo& other) { return other.name == info.name; };
  return std::ranges::count_if(all, same) > 1 ? info.family + "-" + info.name : info.name;
}

nlohmann::ordered_json to_json(const TechniqueInfo& info, const std::string& proof_name) {
  nlohmann::ordered_json out = technique_json(info);
  out["test"] = info.test;
  out["proof"] = fmt::format("proofs/results/{}.json", proof_name);
  return out;
}

// `columns`: width of the terminal; 0: no limit.
void print_table(const std::vector<TechniqueInfo>& all, const std::string& wanted, size_t columns) {
  std::string family;
  const bool details = !wanted.empty();
  for (const auto& info : all) {
    if (details && info.family != wanted) continue;
    if (info.family != family) fmt::print("{}{}\n", family.empty() ? "" : "\n", info.family);
    family = info.family;
    const bool computes = info.loss != Loss::not_applicable;
    const std::string begin = fmt::format("  {:<20} {:<8}  ", info.name, computes ? loss_name(info.loss) : "");
    fmt::print("{}{}\n", begin, hanging_text(info.summary, begin.size(), columns));
    if (!details) continue;
    const std::string blanks(kMemberColumns, ' ');
    if (!info.paper.empty()) fmt::print("{}{}\n", blanks, hanging_text(info.paper.text, blanks.size(), columns));
    fmt::print("  {:<20} test: {}\n", "", info.test);
    fmt::print("  {:<20} proof: docs/techniques/{}.md\n", "", ledger_name(info, all));
    if (!info.proof.empty()) fmt::print("  {:<20} more: {}\n", "", info.proof);
    for (const auto& option : info.options)
      fmt::print("{}  {}\n", blanks,
                 hanging_text(fmt::format("{} [{}]: {}", option.name, option.default_value, option.help),
                              kMemberColumns + 2, columns));
  }
}

Result<int> run(const std::string& family, bool json, bool wide) {
  const std::vector<TechniqueInfo> all = listed_techniques();
  if (!family.empty()) {
    std::string known, last;
    for (const auto& info : all) {
      if (info.family != last) known += (known.empty() ? "" : ", ") + info.family;
      last = info.family;
    }
    if (std::ranges::find(all, family, &TechniqueInfo::family) == all.end())
      return Error::user(fmt::format("family: unknown '{}'; known: {}", family, known));
  }
  if (!json) {
    print_table(all, family, table_room(wide, "--json").columns);
    return 0;
  }
  auto out = nlohmann::ordered_json::array();
  for (const auto& info : all)
    if (family.empty() || info.family == family) out.push_back(to_json(info, ledger_name(info, all)));
  print_json_line(out);
  return 0;
}

}  // namespace

void add_techniques_command(CLI::App& app) {
  auto family = std::make_shared<std::string>();
  auto json = std::make_shared<bool>(false), matrix = std::make_shared<bool>(false);
  auto wide = std::make_shared<bool>(false);
  CLI::App* command = add_command(app, "techniques", "List the techniques in this binary by family",
                                  kTechniquesExamples, [=]() -> Result<int> {
                                    if (!*matrix) return run(*family, *json, *wide);
                                    fmt::print("{}", compatibility_page());
                                    return 0;
                                  });
  command->add_option("--family", *family, "Only list this family, with its options");
  command->add_flag("--json", *json,
                    "Print a JSON array of {family, name, summary, paper, lossless, options, test, proof}");
  command->add_flag("--wide", *wide, "Do not break lines at the width of the terminal");
  command->add_flag("--matrix", *matrix, "Print the rules of what goes with what, and the facts of every member");
}

}  // namespace millrace
