// The check of exactness against a model server whose faults are known, and the search for the smallest example.
#include "exactness/exactness.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "base/json_text.h"
#include "exactness/exactness_report.h"
#include "exactness/smallest_set.h"

namespace millrace {
namespace {

// Answers depend on the request alone, except where `fault` is true for a call of a batch.
class FaultyServer : public CompletionServer {
 public:
  struct Seen {
    const CompletionCall& call;
    std::span<const CompletionCall> batch;
    int64_t times_before;  // the prompt was sent this many times
    int64_t calls_before;
    int restarts;
  };
  std::function<bool(const Seen&)> fault = [](const Seen&) { return false; };
  std::function<bool(const CompletionCall&)> refuses = [](const CompletionCall&) { return false; };
  double logprob_change = 0;  // of a fault; 0: it changes a token
  bool with_logprobs = true, skips_cache = true;
  int restarts = 0;
  int64_t calls = 0;

  std::vector<Result<CompletionAnswer>> answer(std::span<const CompletionCall> batch) override {
    std::vector<Result<CompletionAnswer>> out;
    for (const CompletionCall& call : batch) {
      if (refuses(call)) {
        out.emplace_back(Error::unsupported("refused"));
        continue;
      }
      const bool wrong = fault({call, batch, times_[call.prompt], calls, restarts});
      out.emplace_back(make_answer(call, wrong));
      out.back()->cached_tokens = times_[call.prompt] > 0 && !call.uncached ? 5 : 0;
    }
    for (const CompletionCall& call : batch) ++times_[call.prompt];
    calls += std::ssize(batch);
    return out;
  }
  bool can_skip_cache() const override { return skips_cache; }

 private:
  CompletionAnswer make_answer(const CompletionCall& call, bool wrong) const {
    CompletionAnswer out;
    for (int64_t i = 0; i < call.max_tokens; ++i) {
      const size_t hash = std::hash<std::string>{}(call.prompt + std::to_string(i) + std::to_string(call.seed)) % 1000;
      AnsweredToken token{" " + std::to_string(hash), -0.001 * static_cast<double>(hash), {}};
      if (wrong && i >= 3 && logprob_change != 0) *token.logprob += logprob_change;
      if (wrong && i >= 3 && logprob_change == 0) token.text += "x";
      out.text += token.text;
      if (with_logprobs) out.tokens.push_back(token);
    }
    out.finish = "length";
    return out;
  }

  std::map<std::string, int64_t> times_;
};

ExactnessResult check(FaultyServer& server, ExactnessOptions options = {}) {
  options.sizes.salt = 11;
  options.sizes.max_tokens = 6;
  auto result = check_exactness(server, options);
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? std::move(*result) : ExactnessResult();
}

// The ways with a difference.
std::set<std::string> differing(const ExactnessResult& result) {
  std::set<std::string> out;
  for (const WayResult& way : result.ways)
    if (way.example) out.insert(way.name);
  return out;
}

const WayResult& way_of(const ExactnessResult& result, const std::string& name) {
  return *std::ranges::find(result.ways, name, &WayResult::name);
}

const CheckedServer kServer{"http://host:1", {CompletionApi::completions, "m", 3, true}, false};

TEST(Exactness, ExactServerHasNoDifference) {
  FaultyServer server;
  ExactnessOptions options;
  options.rounds = 2;
  options.restart = [&]() -> Result<void> {
    ++server.restarts;
    return {};
  };
  const ExactnessResult result = check(server, options);
  EXPECT_EQ(server.restarts, 1);
  EXPECT_EQ(result.different(), 0);
  EXPECT_EQ(result.failed(), 0);
  EXPECT_EQ(result.same(), 6 * (5 + 2 * 2));  // five ways alone, two kinds of batches in two rounds
  EXPECT_EQ(result.ways.size(), 7u);
  const std::string table = exactness_table(result, kServer);
  EXPECT_NE(table.find("54 answers, all with the same tokens, text and log-probabilities"), std::string::npos) << table;
  EXPECT_EQ(table.find("DIFFERS"), std::string::npos);
  EXPECT_EQ(exactness_json(result, kServer)["different"], 0);
}

TEST(Exactness, FaultsAreFoundInTheWayThatShowsThem) {
  using Seen = FaultyServer::Seen;
  const std::vector<std::pair<std::set<std::string>, std::function<bool(const Seen&)>>> faults = {
      {{"batch", "staggered"}, [](const Seen& s) { return s.batch.size() > 1; }},
      {{"staggered"}, [](const Seen& s) { return s.batch.back().delay.count() > 0; }},
      {{"streamed"}, [](const Seen& s) { return s.call.stream; }},
      {{"uncached"}, [](const Seen& s) { return s.call.uncached; }},
      {{"restarted"}, [](const Seen& s) { return s.restarts > 0; }},
      {{"after load", "restarted"}, [](const Seen& s) { return s.calls_before > 50; }}};
  for (const auto& [ways, fault] : faults) {
    FaultyServer server;
    server.fault = fault;
    ExactnessOptions options;
    options.restart = [&]() -> Result<void> {
      ++server.restarts;
      return {};
    };
    const ExactnessResult result = check(server, options);
    EXPECT_EQ(differing(result), ways);
    EXPECT_GT(result.different(), 0);
    const DifferenceExample& example = *way_of(result, *ways.begin()).example;
    EXPECT_EQ(example.difference.part, AnswerDifference::Part::tokens);
    EXPECT_EQ(example.difference.place, 3u);
    EXPECT_NE(exactness_table(result, kServer).find("DIFFERS"), std::string::npos);
  }
}

TEST(Exactness, CachedPrefixesThatChangeTheAnswer) {
  FaultyServer server;
  // The second short probe has the prompt of the first one, so its own first answer is the cached one.
  server.fault = [](const FaultyServer::Seen& s) { return s.times_before > 0 && !s.call.uncached && !s.call.stream; };
  const ExactnessResult result = check(server);
  EXPECT_TRUE(differing(result).contains("again"));
  EXPECT_EQ(way_of(result, "again").cells[0].differences.size(), 1u);
  EXPECT_EQ(way_of(result, "again").cells[1].same, 1);
  EXPECT_EQ(way_of(result, "uncached").cells[1].differences.size(), 1u);
  const DifferenceExample& example = *way_of(result, "batch").example;
  EXPECT_TRUE(example.companions.empty());  // it also differs alone
}

TEST(Exactness, LogProbabilitiesAreComparedBitForBit) {
  FaultyServer server;
  server.logprob_change = 1e-12;
  server.fault = [](const FaultyServer::Seen& s) { return s.call.stream; };
  const ExactnessResult result = check(server);
  EXPECT_EQ(differing(result), std::set<std::string>{"streamed"});
  EXPECT_EQ(way_of(result, "streamed").example->difference.part, AnswerDifference::Part::logprobs);
  const std::string table = exactness_table(result, kServer);
  EXPECT_NE(table.find("logprobs"), std::string::npos);
  EXPECT_NE(table.find("log-probabilities from 3, by 1e-12"), std::string::npos) << table;
}

TEST(Exactness, TextAloneIsComparedWithoutLogProbabilities) {
  FaultyServer server;
  server.with_logprobs = false;
  server.fault = [](const FaultyServer::Seen& s) { return s.call.stream; };
  const ExactnessResult result = check(server);
  EXPECT_EQ(way_of(result, "streamed").example->difference.part, AnswerDifference::Part::text);
  EXPECT_EQ(differing(result), std::set<std::string>{"streamed"});
}

TEST(Exactness, TheSmallestBatchIsThePair) {
  FaultyServer server;
  std::string guilty;
  server.fault = [&](const FaultyServer::Seen& s) {
    if (guilty.empty() && s.batch.size() == 8) guilty = s.batch[6].prompt;  // a companion that is no probe
    return s.call.temperature == 0 && s.batch.size() > 1 &&
           std::ranges::find(s.batch, guilty, &CompletionCall::prompt) != s.batch.end() && s.call.prompt != guilty;
  };
  const ExactnessResult result = check(server);
  const DifferenceExample& example = *way_of(result, "batch").example;
  ASSERT_EQ(example.companions.size(), 1u);
  EXPECT_EQ(example.companions[0].prompt, guilty);
  EXPECT_TRUE(example.repeats);
  const std::string table = exactness_table(result, kServer);
  EXPECT_NE(table.find("at the same time as one request"), std::string::npos) << table;
  EXPECT_NE(table.find("curl -s http://host:1/v1/completions -H 'Content-Type: application/json' -d '{\"model\":\"m\""),
            std::string::npos);
  const auto json = exactness_json(result, kServer);
  const auto batch = std::ranges::find_if(json["ways"], [](const auto& way) { return way["name"] == "batch"; });
  EXPECT_EQ((*batch)["example"]["companions"][0]["body"]["prompt"], guilty);
}

TEST(Exactness, DifferencesThatDoNotRepeatKeepTheWholeBatch) {
  FaultyServer server;
  int times = 0;
  server.fault = [&](const FaultyServer::Seen& s) { return s.batch.size() > 1 && times++ == 0; };
  const ExactnessResult result = check(server);
  const DifferenceExample& example = *way_of(result, "batch").example;
  EXPECT_FALSE(example.repeats);
  EXPECT_EQ(example.companions.size(), 7u);
  EXPECT_EQ(result.different(), 1);
}

TEST(Exactness, ANarrowTerminalKeepsTheWaysThatDiffer) {
  FaultyServer server;
  server.fault = [&](const FaultyServer::Seen& s) { return s.batch.size() > 1; };
  const ExactnessResult result = check(server);
  const std::string whole = exactness_table(result, kServer), narrow = exactness_table(result, kServer, {50, "--wide"});
  const auto head = [](const std::string& text) { return text.substr(0, text.find('\n')); };
  EXPECT_EQ(whole.find("Not shown"), std::string::npos);
  EXPECT_NE(narrow.find("Not shown in 50 columns: "), std::string::npos) << narrow;
  EXPECT_LE(head(narrow).size(), 50u);
  EXPECT_NE(head(narrow).find("batch"), std::string::npos) << narrow;
  EXPECT_EQ(head(narrow).find("after load"), std::string::npos);
}

TEST(Exactness, BatchesSmallerThanTheProbes) {
  FaultyServer server;
  ExactnessOptions options;
  options.batch = 4;
  options.rounds = 3;
  size_t largest = 0;
  server.fault = [&](const FaultyServer::Seen& s) {
    largest = std::max(largest, s.batch.size());
    return false;
  };
  const ExactnessResult result = check(server, options);
  EXPECT_EQ(largest, 4u);
  for (const WayCell& cell : way_of(result, "batch").cells) EXPECT_EQ(cell.same, 3);
}

TEST(Exactness, LongPromptsAreHalvedUntilTheServerAcceptsThem) {
  FaultyServer server;
  server.skips_cache = false;
  server.refuses = [](const CompletionCall& call) { return call.prompt.size() > 400; };
  const ExactnessResult result = check(server);
  EXPECT_EQ(result.failed(), 0);
  EXPECT_EQ(std::ranges::count(result.ways, "uncached", &WayResult::name), 0);
  const auto longest = std::ranges::max(result.probes, {}, [](const Probe& probe) { return probe.call.prompt.size(); });
  EXPECT_GT(longest.call.prompt.size(), 100u);
  EXPECT_NE(result.notes.front().find("refuses longer prompts"), std::string::npos);
  FaultyServer nothing;
  nothing.refuses = [](const CompletionCall&) { return true; };
  EXPECT_EQ(check_exactness(nothing, {}).error().message, "refused");
}

TEST(Exactness, FailuresAreCountedAndBounded) {
  FaultyServer server;
  server.refuses = [](const CompletionCall& call) { return call.stream && call.temperature > 0; };
  const ExactnessResult result = check(server);
  EXPECT_EQ(result.failed(), 3);
  EXPECT_EQ(result.different(), 0);
  EXPECT_EQ(way_of(result, "streamed").failure, "refused");
  EXPECT_NE(exactness_table(result, kServer).find("3 requests failed"), std::string::npos);
  FaultyServer broken;
  broken.refuses = [&](const CompletionCall&) { return broken.calls > 10; };
  const ExactnessResult stopped = check(broken);
  EXPECT_FALSE(stopped.complete);
  EXPECT_EQ(stopped.failed(), 8);
  ASSERT_TRUE(stopped.error);
  EXPECT_EQ(stopped.error->kind, ErrorKind::unsupported);
  EXPECT_EQ(stopped.error->message, "8 requests in a row failed; the last one: refused");
  EXPECT_EQ(stopped.notes.front(), "stopped before the end: 8 requests in a row failed; the last one: refused");
  EXPECT_NE(exactness_table(stopped, kServer).find("8 requests failed; stopped by an error"), std::string::npos);
}

TEST(Exactness, OnlyFailuresInARowStopTheCheck) {
  FaultyServer server;
  int64_t asked = 0;
  server.refuses = [&](const CompletionCall&) { return ++asked > 10 && asked % 2 == 0; };
  const ExactnessResult result = check(server);
  EXPECT_TRUE(result.complete);
  EXPECT_FALSE(result.error);
  EXPECT_GT(result.failed(), 8);
}

TEST(Exactness, DifferencesAreKeptWhenTheServerOrItsRestartFails) {
  FaultyServer server;
  server.fault = [](const FaultyServer::Seen& s) { return s.call.stream; };
  ExactnessOptions options;
  options.restart = []() -> Result<void> { return Error::user("no luck"); };
  const ExactnessResult result = check(server, options);
  EXPECT_EQ(differing(result), std::set<std::string>{"streamed"});
  EXPECT_FALSE(result.complete);
  ASSERT_TRUE(result.error);
  EXPECT_EQ(result.error->kind, ErrorKind::user);
  EXPECT_EQ(result.ways.size(), 6u);
  EXPECT_NE(exactness_table(result, kServer).find("note: stopped before the end: no luck"), std::string::npos);
  EXPECT_EQ(exactness_json(result, kServer)["complete"], false);
}

TEST(Exactness, StopsOnRequest) {
  FaultyServer server;
  ExactnessOptions options;
  options.progress = [](double, const std::string& way) { return way != "streamed"; };
  const ExactnessResult result = check(server, options);
  EXPECT_FALSE(result.complete);
  EXPECT_EQ(result.ways.size(), 3u);
  EXPECT_EQ(way_of(result, "again").cells.back().same, 1);
}

TEST(Exactness, AStoppedSearchKeepsTheWholeBatch) {
  for (const int allowed : {0, 1, 4, 8}) {  // sendings of the search before the stop
    FaultyServer server;
    server.fault = [](const FaultyServer::Seen& s) { return s.batch.size() > 2; };
    ExactnessOptions options;
    int searched = 0;
    double last = 0;
    options.progress = [&](double fraction, const std::string& way) {
      EXPECT_GE(fraction, last);
      EXPECT_LT(fraction, 1);
      last = fraction;
      return way != "smallest example" || searched++ < allowed;
    };
    const ExactnessResult result = check(server, options);
    EXPECT_FALSE(result.complete);
    EXPECT_FALSE(result.error);
    EXPECT_EQ(searched, allowed + 1);
    EXPECT_EQ(result.ways.back().name, "batch");
    const DifferenceExample& example = *result.ways.back().example;
    EXPECT_TRUE(example.repeats);
    EXPECT_EQ(example.companions.size(), 7u);
    EXPECT_EQ(exactness_table(result, kServer).find("did not differ again"), std::string::npos);
  }
}

TEST(Exactness, JsonHasReasoningAndTheLikeliestTokens) {
  ExactnessResult result;
  result.probes = make_probes({});
  result.reference.resize(result.probes.size());
  result.reference[0].reasoning = "hm";
  result.reference[0].tokens = {{"a", -0.5, {{"a", -0.5}, {"b", -1.25}}}};
  const auto answer = exactness_json(result, kServer)["requests"][0]["answer"];
  EXPECT_EQ(answer["reasoning"], "hm");
  EXPECT_EQ(answer["tokens"][0]["top"].dump(), R"([{"token":"a","logprob":-0.5},{"token":"b","logprob":-1.25}])");
}

TEST(SmallestSet, FindsPairsWithinItsTests) {
  for (const std::vector<size_t>& wanted : {std::vector<size_t>{5}, {0, 7}, {2, 3, 11}}) {
    size_t tests = 0;
    const auto found = smallest_set(12, 100, [&](const std::vector<size_t>& set) {
      ++tests;
      return std::ranges::includes(set, wanted);
    });
    EXPECT_EQ(found, wanted);
    EXPECT_LE(tests, 100u);
  }
  size_t tests = 0;
  EXPECT_EQ(smallest_set(8, 3, [&](const auto&) { return ++tests > 100; }).size(), 8u);
  EXPECT_EQ(tests, 3u);
  EXPECT_EQ(smallest_set(1, 3, [](const auto&) { return true; }), std::vector<size_t>{0});
}

}  // namespace
}  // namespace millrace
