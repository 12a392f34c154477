// LLM-MQ: the integer program against brute force, and whole compressions with each of the weight-only quantizers: the
// output is a file that loads and runs.
#include <map>

#include "compress/compress.h"
#include "compress/compress_test.h"
#include "compress/rounding/format_knapsack.h"
#include "contains.h"
#include "loader/model_files.h"
#include "model_runner.h"
#include "short_compression.h"

namespace millrace {
namespace {

using namespace testing;

TEST(FormatKnapsack, IsWhatBruteForceFinds) {
  std::mt19937 engine(7);
  for (int round = 0; round < 60; ++round) {
    std::vector<FormatCosts> tensors(1 + engine() % 6);
    int64_t least = 0, most = 0;
    for (FormatCosts& one : tensors) {
      const size_t count = 1 + engine() % 4;
      for (size_t c = 0; c < count; ++c)
        one.candidates.push_back(
            {nullptr, static_cast<int64_t>(1 + engine() % 50), static_cast<double>(engine() % 100)});
      least += std::ranges::min(one.candidates, {}, &FormatCosts::Candidate::bytes).bytes;
      most += std::ranges::max(one.candidates, {}, &FormatCosts::Candidate::bytes).bytes;
    }
    const int64_t budget = least + static_cast<int64_t>(engine() % static_cast<uint32_t>(most - least + 1));
    double best = INFINITY;
    std::vector<size_t> at(tensors.size());
    for (bool more = true; more;) {
      int64_t bytes = 0;
      double cost = 0;
      for (size_t i = 0; i < at.size(); ++i) {
        bytes += tensors[i].candidates[at[i]].bytes;
        cost += tensors[i].candidates[at[i]].cost;
      }
      if (bytes <= budget) best = std::min(best, cost);
      more = false;
      for (size_t i = 0; i < at.size() && !more; ++i) {
        at[i] = (at[i] + 1) % tensors[i].candidates.size();
        more = at[i] != 0;
      }
    }
    const auto chosen = least_cost_formats(tensors, budget);
    ASSERT_TRUE(chosen.ok());
    int64_t bytes = 0;
    double cost = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
      bytes += tensors[i].candidates[(*chosen)[i]].bytes;
      cost += tensors[i].candidates[(*chosen)[i]].cost;
    }
    EXPECT_LE(bytes, budget);
    EXPECT_EQ(cost, best);
    EXPECT_CONTAINS(least_cost_formats(tensors, least - 1).error().message, "the smallest formats take ");
  }
}

constexpr char kFormats[] = ",formats=q4_0+q5_0+q5_1+q8_0";

struct Outcome {
  double bits = 0, error = 0;  // a weight; the sum over all matrices
  std::map<std::string, int> formats;
};

Outcome outcome_of(const std::string& pass) {
  const ScratchModel scratch;
  auto done = compress_model(short_compression(golden_gguf("llama"), scratch.path(), pass));
  EXPECT_TRUE(done.ok()) << done.error().message;
  Outcome out;
  double weights = 0;
  for (const CompressedMatrix& one : done->matrices) {
    const double count = static_cast<double>(one.rows * one.cols);
    ++out.formats[one.format];
    out.bits += count * find_format(one.format)->bits_per_value();
    out.error += one.weighted_error;
    weights += count;
  }
  out.bits /= weights;
  return out;
}

TEST(LlmMq, StaysWithinItsBitsAndMixesFormats) {
  double before = INFINITY;
  for (const char* bits : {"4.7", "5.3", "7"}) {
    const Outcome found = outcome_of(std::string("llm_mq:bits=") + bits + kFormats);
    EXPECT_LE(found.bits, std::stod(bits));
    EXPECT_GT(found.bits, 0.9 * std::stod(bits));
    EXPECT_GE(found.formats.size(), 2u) << bits;
    EXPECT_LT(found.error, before) << bits;
    before = found.error;
  }
}

// One format for all is a choice, too.
TEST(LlmMq, IsNoWorseThanOneFormatOfTheSameBits) {
  const Outcome uniform = outcome_of("rtn:format=q5_0,count=inputs");
  const Outcome mixed = outcome_of(std::string("llm_mq:bits=5.5") + kFormats);
  EXPECT_EQ(uniform.bits, 5.5);
  EXPECT_LE(mixed.bits, 5.5);
  EXPECT_LE(mixed.error, uniform.error * (1 + 1e-9));
}

TEST(LlmMq, SaysWhatIsWrong) {
  EXPECT_CONTAINS(make_pass("llm_mq:formats=q4_k+f16").error().message, "format 'f16': is not a format of levels");
  const ScratchModel scratch;
  auto done = compress_model(short_compression(golden_gguf("llama"), scratch.path(), "llm_mq:bits=1"));
  ASSERT_FALSE(done.ok());
  EXPECT_CONTAINS(done.error().message, "pass llm_mq: bits 1: the smallest of the formats take ");
}

class QuantizerOf : public ::testing::TestWithParam<std::string> {};

// A model with fused matrices, one with experts in a stack, and the shipped one.
TEST_P(QuantizerOf, GivesAModelThatRuns) {
  for (const std::string model : {"phi3", "mixtral", "qwen2_tied"}) {
    const ScratchModel scratch;
    auto done = compress_model(short_compression(golden_gguf(model), scratch.path(), GetParam()));
    ASSERT_TRUE(done.ok()) << model << ": " << done.error().message;
    double error = 0, rounded = 0;
    for (const CompressedMatrix& one : done->matrices) {
      if (one.rounded_output_error < 0) continue;
      error += one.output_error;
      rounded += one.rounded_output_error;
    }
    EXPECT_LE(error, rounded) << model;
    const auto logits = [](const std::string& path) {
      auto runner = TestRunner::load(path, {});
      EXPECT_TRUE(runner.ok()) << path << ": " << (runner.ok() ? "" : runner.error().message);
      return runner.ok() ? (*runner)->logits({5, 17, 40, 3, 99, 21, 64}) : std::vector<float>();
    };
    const auto got = logits(scratch.path()), want = logits(golden_gguf(model));
    ASSERT_EQ(want.size(), got.size());
    double change = 0, all = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_TRUE(std::isfinite(got[i]));
      change += std::pow(double{got[i]} - want[i], 2);
      all += double{want[i]} * want[i];
    }
    EXPECT_GT(change, 0) << model;
    EXPECT_LT(change, 0.2 * all) << model;
  }
}

INSTANTIATE_TEST_SUITE_P(Passes, QuantizerOf,
                         ::testing::Values("rtn:format=q5_1", "awq:format=q5_0", "obq:format=q5_0", "owq:format=q5_0",
                                           "spqr:format=q5_0", "quantease:format=q5_0", "quip:format=q5_0", "lut_gemm",
                                           "llm_mq:bits=5.5,formats=q4_0+q5_1+q8_0"),
                         [](const auto& one) { return one.param.substr(0, one.param.find(':')); });

}  // namespace
}  // namespace millrace
