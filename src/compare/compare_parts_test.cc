// The parts of a comparison that need no model: specifications, confidence intervals, kept values.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/philox.h"
#include "compare/answers.h"
#include "compare/bootstrap.h"
#include "compare/journal.h"
#include "compare/spec.h"
#include "run/draft_models/loader.h"

namespace millrace {
namespace {

std::string spec_error(std::string_view text) {
  const auto spec = parse_compare_spec(text);
  return spec.ok() ? "" : spec.error().message;
}

TEST(CompareSpecs, ChoicesCompose) {
  const auto spec =
      parse_compare_spec("kv_format=kivi:bits=2 +  evictor=streamingllm:sinks=4,window=512 + model=a b.gguf");
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->text, "kv_format=kivi:bits=2 + evictor=streamingllm:sinks=4,window=512 + model=a b.gguf");
  EXPECT_EQ(spec->name, spec->text);
  EXPECT_EQ(spec->model, "a b.gguf");
  ASSERT_EQ(spec->uses.size(), 2u);
  EXPECT_EQ(spec->uses[0].text(), "kv_format=kivi:bits=2");
  EXPECT_EQ(spec->uses[1].text(), "evictor=streamingllm:sinks=4,window=512");
  EXPECT_TRUE(parse_compare_spec("plain")->uses.empty());
  EXPECT_EQ(parse_compare_spec("name=4 bits + model=a")->name, "4 bits");
  EXPECT_EQ(parse_compare_spec("engine=llama_cpp:bin=/x,args=-ctk q8_0")->engine, "llama_cpp:bin=/x,args=-ctk q8_0");
}

TEST(CompareSpecs, ErrorsNameThePart) {
  EXPECT_EQ(spec_error(""), "an empty configuration; write plain for the model as it is");
  EXPECT_EQ(spec_error("  "), "an empty configuration; write plain for the model as it is");
  EXPECT_EQ(spec_error("plain +  + plain"), "'plain +  + plain': a part before or behind a + is empty");
  EXPECT_EQ(spec_error("plain + "), "'plain + ': a part before or behind a + is empty");
  EXPECT_EQ(spec_error("model=a + model=b"), "'model=a + model=b': has two model=");
  EXPECT_EQ(spec_error("model="), "'model=': model= is empty");
  EXPECT_EQ(spec_error("kv_format=q8_0 + kv_format=f16"),
            "kv_format=f16: kv_format is chosen already, by kv_format=q8_0");
  EXPECT_EQ(
      spec_error("engine=llama_cpp:bin=/x + kv_format=f16"),
      "'engine=llama_cpp:bin=/x + kv_format=f16': kv_format=f16 is a technique of millrace; another engine takes its "
      "own arguments, as args=");
  EXPECT_NE(spec_error("tier=ssd").find("tier does not apply to compare"), std::string::npos);
}

// Against the interval of the normal distribution, whose width is known.
// label(once): statistics over thousands of draws
TEST(Bootstrap, CoversTheMean) {
  int64_t covered = 0;
  constexpr int64_t kTrials = 200, kValues = 60;
  for (uint64_t trial = 0; trial < kTrials; ++trial) {
    std::vector<double> values;
    for (uint64_t i = 0; i < kValues; ++i) values.push_back(philox_uniform(1, trial, i) < 0.7);
    const Interval interval = bootstrap_mean(values);
    covered += interval.low <= 0.7 && 0.7 <= interval.high;
    const double width = 2 * 1.96 * std::sqrt(0.21 / kValues);
    EXPECT_NEAR(interval.high - interval.low, width, width * 0.5);
    EXPECT_EQ(bootstrap_mean(values).low, interval.low);
  }
  EXPECT_GT(covered, kTrials * 0.88);
  EXPECT_LT(covered, kTrials);
}

TEST(Bootstrap, SmallCases) {
  EXPECT_EQ(bootstrap_mean(std::vector{2.0}).low, 2);
  EXPECT_EQ(bootstrap_median(std::vector{3.0, 1.0, 2.0}).value, 2);
  EXPECT_EQ(bootstrap_median(std::vector{4.0, 1.0, 2.0, 3.0}).value, 2.5);
  const Interval same = bootstrap_difference(std::vector{1.0, 5.0, 9.0}, std::vector{0.0, 4.0, 8.0});
  EXPECT_EQ(same.value, 1);
  EXPECT_EQ(same.low, 1);  // paired: what differs between items does not matter
  EXPECT_EQ(same.high, 1);
}

// Three rounds cannot have a 95 % interval.
TEST(Bootstrap, MediansOfFewRoundsHaveTheLowestAndHighest) {
  const Interval few = bootstrap_median(std::vector{5.0, 1.0, 2.0, 9.0, 3.0});
  EXPECT_EQ(few.value, 3);
  EXPECT_EQ(few.low, 1);
  EXPECT_EQ(few.high, 9);
  const Interval enough = bootstrap_median(std::vector{1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 1000.0});
  EXPECT_LT(enough.high, 1000);
  EXPECT_GT(enough.low, 1);
  const Interval median = bootstrap_median_difference(std::vector{2.0, 3.0, 100.0}, std::vector{1.0, 1.0, 1.0});
  EXPECT_EQ(median.value, 2);
}

class JournalFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = (std::filesystem::temp_directory_path() / ("compare_journal." + std::to_string(getpid()))).string();
    std::filesystem::remove(path_);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string error_of(const std::string& facts) const {
    const auto opened = CompareJournal::open(path_, facts);
    return opened.ok() ? "" : opened.error().message;
  }
  std::string contents() const {
    std::ifstream file(path_, std::ios::binary);
    return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  }
  std::string path_;
};

TEST_F(JournalFile, ContinuesWhereItStopped) {
  const JournalKey first{"lab:copy", "1f", "plain", 0}, second{"lab:copy", "1f", "plain", 1};
  {
    auto journal = CompareJournal::open(path_, "facts");
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ(journal->find(first), nullptr);
    ASSERT_TRUE(journal->add(first, {0.1, std::nan("")}).ok());
    ASSERT_TRUE(journal->add(second, {1.0 / 3}).ok());
  }
  std::ofstream(path_, std::ios::app) << "{\"suite\": \"lab:co";  // killed while it wrote
  for (int i = 0; i < 2; ++i) {
    auto journal = CompareJournal::open(path_, "facts");
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    EXPECT_EQ(journal->read(), 2 + i);
    ASSERT_NE(journal->find(first), nullptr);
    EXPECT_EQ((*journal->find(first))[0], 0.1);
    EXPECT_TRUE(std::isnan((*journal->find(first))[1]));
    EXPECT_EQ((*journal->find(second))[0], 1.0 / 3);  // every bit
    EXPECT_EQ(journal->find({"lab:copy", "20", "plain", 0}), nullptr);
    ASSERT_TRUE(journal->add({"lab:copy", "1f", "plain", 2}, {0}).ok());
  }
}

TEST_F(JournalFile, RefusesOtherFiles) {
  { ASSERT_TRUE(CompareJournal::open(path_, "one model").ok()); }
  EXPECT_EQ(error_of("another"),
            path_ + ": belongs to another comparison (one model; this one is another); use another file");
  std::ofstream(path_, std::ios::app) << "{\"suite\": 7}\n";
  EXPECT_EQ(error_of("one model"), path_ + ": line 2: is not a measured value");
  for (const std::string other : {"some notes\n", "some notes", "{\"a\":1}", "{", "{\"millrace_compare\":2,"}) {
    std::ofstream(path_) << other;
    EXPECT_EQ(error_of("one model"), path_ + ": is not a file of `millrace compare --resume`");
    EXPECT_EQ(contents(), other);
  }
}

TEST_F(JournalFile, BeginsAgainAfterAHeadThatWasCutOff) {
  for (const std::string cut : {"", "{\"millrace_compare\":1,\"fac"}) {
    std::ofstream(path_) << cut;
    EXPECT_EQ(error_of("facts"), "");
    EXPECT_EQ(contents(), "{\"millrace_compare\":1,\"facts\":\"facts\"}\n");
  }
}

TEST_F(JournalFile, FactsMayBeAnyBytes) {
  for (int i = 0; i < 2; ++i) EXPECT_EQ(error_of("a\xff model"), "");
}

TEST(ModelPasses, DraftsOfTheWholeModelCount) {
  RequestTimings timings;
  timings.target_passes = 20;
  const auto passes = [&](const char* text) {
    const auto drafter = make_drafter(text).value();
    const DraftModelLoader* loader = draft_model_loader(drafter.get());
    return model_passes(timings, loader && loader->whole_passes);
  };
  EXPECT_EQ(draft_model_loader(nullptr), nullptr);
  for (const char* drafter : {"ngram", "lookahead", "pass:k=2,model=m"}) EXPECT_EQ(passes(drafter), 20);
  timings.drafted_at = {15, 9, 4};
  for (const char* drafter : {"ngram", "lookahead", "medusa:model=m"}) EXPECT_EQ(passes(drafter), 20);
  EXPECT_EQ(passes("pass:k=2,model=m"), 35);
}

}  // namespace
}  // namespace millrace
