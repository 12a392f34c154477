// Published schemas with valid and invalid instances: how many compile, how many accept exactly the valid instances,
// and why others are rejected. Needs the shared test data; prints a table.
#include <fmt/format.h>

#include <iostream>
#include <map>
#include <sstream>

#include "shared_data.h"
#include "text/grammar/grammar_test.h"

namespace millrace {
namespace {

using testing::TextMatcher;

// Lower bounds, against regressions.
struct Floors {
  int compile = 0;
  int kept = 0;   // of those, not weakened: accepted by `strict`
  int exact = 0;  // exactly the valid instances accepted
};

struct Tally {
  int schemas = 0, compiled = 0, exact = 0, invalid_accepted = 0, valid_rejected = 0, instances = 0;
  int invalid_accepted_unnoted = 0, weakened = 0;
  std::vector<std::string> weak;
  std::map<std::string, int> reasons;
  std::vector<std::string> wrong;

  void add(const SchemaJson& one, const std::string& name) {
    ++schemas;
    TextMatcher matcher(testing::schema_of(one["schema"].dump()));
    if (!matcher.ok()) {
      ++reasons[reason(matcher.error.message)];
      if (std::getenv("MILLRACE_VERBOSE")) std::cout << "  refused " << name << ": " << matcher.error.message << "\n";
      return;
    }
    ++compiled;
    bool all = true;
    const bool noted = !matcher.notes.weakened.empty();
    weakened += noted;
    if (noted) weak.push_back(fmt::format("{}: {}", name, matcher.notes.weakened[0]));
    for (const SchemaJson& test : one["tests"]) {
      ++instances;
      const bool valid = test["valid"].get<bool>(), accepted = matcher.accepts_value(test["data"]);
      if (valid == accepted) continue;
      all = false;
      (valid ? valid_rejected : invalid_accepted)++;
      if (!valid && !noted) ++invalid_accepted_unnoted;
      wrong.push_back(fmt::format("{} {}: {}", valid ? "rejected" : "ACCEPTED", name, test.value("description", "")));
    }
    exact += all;
  }
  void expect_at_least(const Floors& floors) const {
    EXPECT_GE(compiled, floors.compile);
    EXPECT_GE(compiled - weakened, floors.kept);
    EXPECT_GE(exact, floors.exact);
  }
  // The message without the parts specific to one schema.
  static std::string reason(const std::string& message) {
    const size_t key = message.rfind('/');
    std::string out = key == std::string::npos ? message : message.substr(key + 1);
    for (char& c : out)
      if (c >= '0' && c <= '9') c = 'N';
    return out.substr(0, 90);
  }
  void print(const char* title) const {
    std::cout << fmt::format(
        "{}: {} schemas, {} compile ({:.1f} %), {} accept exactly the valid instances ({:.1f} % of those); of {} "
        "instances {} valid ones "
        "are rejected, {} invalid ones accepted ({} without a note); {} are weakened\n",
        title, schemas, compiled, 100.0 * compiled / schemas, exact, 100.0 * exact / std::max(1, compiled), instances,
        valid_rejected, invalid_accepted, invalid_accepted_unnoted, weakened);
    std::vector<std::pair<int, std::string>> order;
    for (const auto& [why, count] : reasons) order.emplace_back(count, why);
    std::sort(order.rbegin(), order.rend());
    for (size_t i = 0; i < order.size() && i < 25; ++i)
      std::cout << fmt::format("  refused {:4}: {}\n", order[i].first, order[i].second);
    if (std::getenv("MILLRACE_VERBOSE"))
      for (const auto* list : {&wrong, &weak})
        for (const std::string& one : *list) std::cout << "  " << one << "\n";
  }
};

// label(once): compiles hundreds of published schemas, which the random ones resemble
TEST(SchemaSuites, RealWorldSchemas) {
  MILLRACE_NEEDS_SHARED("benchmarks/jsonschemabench_maskbench_sample.jsonl.xz");
  std::istringstream lines(
      testing::read_maybe_xz(testing::shared_data() / "benchmarks/jsonschemabench_maskbench_sample.jsonl.xz"));
  Tally tally;
  for (std::string line; std::getline(lines, line);) {
    const SchemaJson one = SchemaJson::parse(line, nullptr, false);
    if (one.is_object()) tally.add(one, one["file"].get<std::string>());
  }
  tally.print("JSONSchemaBench");
  tally.expect_at_least({471, 464, 466});
  EXPECT_GE(tally.compiled * 100, tally.schemas * 97);
  EXPECT_EQ(tally.invalid_accepted_unnoted, 0);
}

class OfficialSuite : public ::testing::TestWithParam<const char*> {};

TEST_P(OfficialSuite, Drafts) {
  const std::string file = fmt::format("benchmarks/json_schema_test_suite_{}.json.xz", GetParam());
  MILLRACE_NEEDS_SHARED(file);
  const SchemaJson suite = SchemaJson::parse(testing::read_maybe_xz(testing::shared_data() / file), nullptr, false);
  ASSERT_TRUE(suite.is_object());
  Tally tally;
  for (const auto& [name, groups] : suite.items()) {
    if (name.starts_with("optional/")) continue;
    for (SchemaJson group : groups) {
      // Schemas without $schema are of the draft of their suite.
      if (std::string(GetParam()) == "draft7" && group["schema"].is_object() && !group["schema"].contains("$schema"))
        group["schema"]["$schema"] = "http://json-schema.org/draft-07/schema#";
      tally.add(group, name + " " + group.value("description", ""));
    }
  }
  tally.print(GetParam());
  tally.expect_at_least(std::string(GetParam()) == "draft7" ? Floors{232, 223, 228} : Floors{342, 333, 324});
  EXPECT_EQ(tally.invalid_accepted_unnoted, 0);
}

INSTANTIATE_TEST_SUITE_P(Files, OfficialSuite, ::testing::Values("draft7", "draft2020-12"),
                         [](const auto& one) { return std::string(one.param) == "draft7" ? "Draft7" : "Draft2020"; });

}  // namespace
}  // namespace millrace
