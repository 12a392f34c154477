// Scenarios: text files of arrivals and the expected plans, run by the engine's own loop and planner over
// a fake model on a virtual clock. A step takes 10 ms and 1 ms more for every token, a swap 0.1 ms a token.
//
//   # what the scenario shows
//   engine policy=priority streams=2 kv=64 block=8 batch=16     engine options; those not named are as below
//   at 0 request 1 prompt=20 answer=3 priority=2                 seconds, id, and fields of the request
//   at 0.05 cancel 1
//   plans
//   0.000 admit 1; 1:[0+16]                                      when a step began, and its plan (StepPlan::to_string)
//
// `prompt=20` is 20 tokens that no other prompt begins with; `prompt=16+4:7` shares its first 16 with others of
// number 7. MILLRACE_WRITE_SCENARIOS=1 writes the actual plans into the files: review the diff before committing
// it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "engine/engine_core.h"
#include "run/executors/simulated_executor.h"
#include "run/plan/kv_places.h"
#include "schedule/policy.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

struct FixedCost final : CostModel {
  double step_seconds(const StepShape& shape) const override {
    return 0.01 + 0.001 * static_cast<double>(shape.tokens);
  }
  double swap_seconds(int64_t tokens) const override { return 0.0001 * static_cast<double>(tokens); }
};

struct Arrival {
  double seconds = 0;
  RequestId id = 0;
  bool cancel = false;
  Request request;
};

struct Scenario {
  EngineOptions options;
  std::vector<Arrival> arrivals;
  std::vector<std::string> head, plans;  // lines of the file
};

struct BadLine {
  std::string what;
};

double number(const std::string& text) {
  double value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec != std::errc() || read.ptr != text.data() + text.size())
    throw BadLine{fmt::format("'{}' is no number", text)};
  return value;
}
int64_t integer(const std::string& text) { return static_cast<int64_t>(number(text)); }

std::map<std::string, std::string> fields(std::istringstream& line) {
  std::map<std::string, std::string> out;
  for (std::string word; line >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) throw BadLine{fmt::format("'{}' is not KEY=VALUE", word)};
    out[word.substr(0, equals)] = word.substr(equals + 1);
  }
  return out;
}

void read_engine(std::istringstream& line, EngineOptions& o) {
  for (const auto& [key, value] : fields(line)) {
    if (key == "policy")
      o.policy = value;
    else if (key == "streams")
      o.max_streams = integer(value);
    else if (key == "resident")
      o.resident_streams = integer(value);
    else if (key == "kv")
      o.kv_tokens = integer(value);
    else if (key == "block")
      o.block_tokens = integer(value);
    else if (key == "batch")
      o.batch_tokens = integer(value);
    else if (key == "swap")
      o.kv_tier = memory_tier(integer(value));
    else if (key == "context")
      o.context = integer(value);
    else if (key == "cache")
      o.prefix_cache = value == "yes";
    else
      throw BadLine{fmt::format("no engine option '{}'", key)};
  }
}

// 20, or 16+4:7.
std::vector<TokenId> read_prompt(const std::string& text, RequestId id) {
  const size_t plus = text.find('+'), colon = text.find(':');
  std::vector<TokenId> out;
  if (plus == std::string::npos) {
    out.assign(static_cast<size_t>(integer(text)), static_cast<TokenId>(id));
    return out;
  }
  out.assign(static_cast<size_t>(integer(text.substr(0, plus))),
             static_cast<TokenId>(1000 + integer(text.substr(colon + 1))));
  out.insert(out.end(), static_cast<size_t>(integer(text.substr(plus + 1, colon - plus - 1))),
             static_cast<TokenId>(id));
  return out;
}

Arrival read_arrival(std::istringstream& line) {
  Arrival out;
  std::string seconds, kind, id;
  line >> seconds >> kind >> id;
  out.seconds = number(seconds);
  out.id = static_cast<RequestId>(integer(id));
  out.cancel = kind == "cancel";
  if (out.cancel) return out;
  if (kind != "request") throw BadLine{fmt::format("'{}' is neither request nor cancel", kind)};
  Request& r = out.request;
  for (const auto& [key, value] : fields(line)) {
    if (key == "prompt")
      r.prompt = read_prompt(value, out.id);
    else if (key == "answer")
      r.known_tokens = integer(value);
    else if (key == "max")
      r.max_tokens = integer(value);
    else if (key == "predicted")
      r.predicted_tokens = integer(value);
    else if (key == "n")
      r.n = integer(value);
    else if (key == "priority")
      r.priority = integer(value);
    else if (key == "tenant")
      r.tenant = value;
    else if (key == "deadline")
      r.deadline_seconds = number(value);
    else if (key == "limit")
      r.time_limit_seconds = number(value);
    else
      throw BadLine{fmt::format("no request field '{}'", key)};
  }
  if (r.known_tokens >= 0 && r.max_tokens == Request{}.max_tokens) r.max_tokens = r.known_tokens;
  return out;
}

Scenario read(const fs::path& path) {
  Scenario out;
  out.options.context = 128;
  out.options.max_streams = 4;
  out.options.kv_tokens = 256;
  out.options.block_tokens = 8;
  out.options.batch_tokens = 16;
  out.options.prefix_cache = false;
  std::ifstream file(path);
  bool plans = false;
  int at = 0;
  for (std::string text; std::getline(file, text);) {
    ++at;
    if (plans) {
      if (!text.empty()) out.plans.push_back(text);
      continue;
    }
    out.head.push_back(text);
    std::istringstream line(text);
    std::string word;
    line >> word;
    try {
      if (word == "engine")
        read_engine(line, out.options);
      else if (word == "at")
        out.arrivals.push_back(read_arrival(line));
      else if (word == "plans")
        plans = true;
      else if (!word.empty() && word[0] != '#')
        throw BadLine{fmt::format("'{}' begins no line", word)};
    } catch (const BadLine& bad) {
      ADD_FAILURE() << path.filename() << ":" << at << ": " << bad.what;
    }
  }
  return out;
}

// The plans of every step that did something, and what was refused.
std::vector<std::string> run(const Scenario& scenario) {
  std::vector<std::string> out;
  ManualClock clock;
  auto executor = SimulatedExecutor::create(std::make_unique<FixedCost>(), clock, scenario.options);
  EXPECT_TRUE(executor.ok());
  const SimulatedExecutor& machine = **executor;
  auto made = EngineCore::create(std::move(*executor), scenario.options, &clock);
  if (!made.ok()) return {fmt::format("error {}", made.error().message)};
  EngineCore& core = **made;
  auto now = [&] { return static_cast<double>(clock.now_ns() - 1) * 1e-9; };
  size_t next = 0;
  std::vector<TokenEvent> events;
  for (int steps = 0; steps < 1000; ++steps) {
    for (; next < scenario.arrivals.size() && scenario.arrivals[next].seconds <= now(); ++next) {
      const Arrival& arrival = scenario.arrivals[next];
      if (arrival.cancel) {
        core.cancel(arrival.id);
      } else if (auto added = core.add(arrival.id, arrival.request); !added.ok()) {
        out.push_back(fmt::format("{:.3f} refused {}: {}", now(), arrival.id, added.error().message));
      }
    }
    const double began = now();
    const StepPlan plan = core.idle() ? StepPlan() : core.step(events);
    const auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
    if (!plan.empty()) {
      out.push_back(fmt::format("{:.3f} {}", began, plan.to_string()));
      continue;
    }
    int64_t wake =
        next < scenario.arrivals.size() ? static_cast<int64_t>(scenario.arrivals[next].seconds * 1e9) + 2 : 0;
    if (const int64_t move = machine.next_move_ns(); move > 0 && (wake == 0 || move < wake)) wake = move;
    if (wake == 0 && core.idle()) return out;
    if (wake > 0) clock.advance_ns(std::max<int64_t>(1, wake - clock.now_ns()));
  }
  out.push_back("... without end");
  return out;
}

// Equal lines once; different ones as - expected and + actual.
std::string difference(const std::vector<std::string>& expected, const std::vector<std::string>& come) {
  size_t front = 0, back = 0;
  while (front < std::min(expected.size(), come.size()) && expected[front] == come[front]) ++front;
  while (back < std::min(expected.size(), come.size()) - front &&
         expected[expected.size() - 1 - back] == come[come.size() - 1 - back])
    ++back;
  std::string out;
  for (size_t i = 0; i < front; ++i) out += fmt::format("    {}\n", expected[i]);
  for (size_t i = front; i < expected.size() - back; ++i) out += fmt::format("  - {}\n", expected[i]);
  for (size_t i = front; i < come.size() - back; ++i) out += fmt::format("  + {}\n", come[i]);
  for (size_t i = expected.size() - back; i < expected.size(); ++i) out += fmt::format("    {}\n", expected[i]);
  return out;
}

std::vector<fs::path> files() {
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(fs::path(MILLRACE_SOURCE_DIR) / "tests/scenarios/plans"))
    out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

class PlanScenario : public ::testing::TestWithParam<fs::path> {};

TEST_P(PlanScenario, GivesThesePlans) {
  const Scenario scenario = read(GetParam());
  const auto plans = run(scenario);
  if (std::getenv("MILLRACE_WRITE_SCENARIOS")) {
    std::ofstream file(GetParam());
    for (const auto& line : scenario.head) file << line << "\n";
    for (const auto& line : plans) file << line << "\n";
    return;
  }
  EXPECT_EQ(plans, scenario.plans) << GetParam().filename().string() << ":\n" << difference(scenario.plans, plans);
}

INSTANTIATE_TEST_SUITE_P(Files, PlanScenario, ::testing::ValuesIn(files()),
                         [](const auto& test) { return test.param.stem().string(); });

TEST(PlanScenarios, EveryPolicyHasOne) {
  std::map<std::string, int> count;
  for (const auto& path : files()) {
    const std::string policy = read(path).options.policy;
    ++count[policy.substr(0, policy.find(':'))];
  }
  for (const auto& entry : policies().entries()) EXPECT_GT(count[entry.info.name], 0) << entry.info.name;
}

TEST(PlanScenarios, ADiffStartsAtTheFirstDifference) {
  EXPECT_EQ(difference({"a", "b", "c"}, {"a", "x", "y", "c"}), "    a\n  - b\n  + x\n  + y\n    c\n");
}

}  // namespace
}  // namespace millrace
