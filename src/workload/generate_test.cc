#include "workload/generate.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "workload/trace_stats.h"

namespace millrace {
namespace {

std::vector<WorkloadRequest> generate(const std::string& text) {
  auto requests = generate_workload(text);
  EXPECT_TRUE(requests.ok()) << requests.error().message;
  return requests.ok() ? std::move(requests).value() : std::vector<WorkloadRequest>();
}

std::string refused(const std::string& text) {
  auto requests = generate_workload(text);
  return requests.ok() ? "no error" : requests.error().message;
}

TEST(Generate, ArrivalsHaveTheRequestedRateAndBurstiness) {
  const TraceStats poisson = trace_stats(generate("requests=20000,rate=5"));
  EXPECT_NEAR(poisson.arrivals.rate, 5, 0.15);
  EXPECT_NEAR(poisson.arrivals.gap_cv, 1, 0.03);
  EXPECT_NEAR(poisson.arrivals.dispersion, 1, 0.2);
  const TraceStats bursty = trace_stats(generate("requests=20000,rate=5,arrivals=gamma,burstiness=0.25"));
  EXPECT_NEAR(bursty.arrivals.rate, 5, 0.3);
  EXPECT_NEAR(bursty.arrivals.gap_cv, 2, 0.1);  // shape^-0.5
  EXPECT_GT(bursty.arrivals.dispersion, 3);
  const TraceStats calm = trace_stats(generate("requests=20000,rate=5,arrivals=gamma,burstiness=4"));
  EXPECT_NEAR(calm.arrivals.gap_cv, 0.5, 0.03);
  EXPECT_NEAR(trace_stats(generate("requests=100,rate=5,arrivals=uniform")).arrivals.gap_cv, 0, 1e-9);
}

TEST(Generate, LengthsFollowTheirDistribution) {
  const auto lognormal = trace_stats(generate("requests=20000,prompt=sharegpt_prompt,output=fixed:7"));
  EXPECT_NEAR(lognormal.prompt_tokens.p50, 241, 8);    // e^5.487
  EXPECT_NEAR(lognormal.prompt_tokens.mean, 302, 12);  // e^(5.487 + 0.671^2 / 2)
  EXPECT_EQ(lognormal.output_tokens.min, 7);
  EXPECT_EQ(lognormal.output_tokens.max, 7);
  const auto others = trace_stats(generate("requests=20000,prompt=uniform:3:5,output=pareto:1:10:1000"));
  EXPECT_EQ(others.prompt_tokens.min, 3);
  EXPECT_EQ(others.prompt_tokens.max, 5);
  EXPECT_NEAR(others.prompt_tokens.mean, 4, 0.05);
  EXPECT_GE(others.output_tokens.min, 10);
  EXPECT_LE(others.output_tokens.max, 1000);
  EXPECT_NEAR(others.output_tokens.p50, 19.8, 1);  // half of the mass between 1/10 and 1/1000
}

TEST(Generate, DrawsDependOnlyOnSeedAndPosition) {
  const auto a = generate("requests=50,rate=1,seed=3,prompt=uniform:1:1000"),
             b = generate("requests=90,rate=7,seed=3,prompt=uniform:1:1000,output=fixed:1");
  const auto c = generate("requests=50,rate=1,seed=4,prompt=uniform:1:1000");
  int64_t same = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].prompt_tokens, b[i].prompt_tokens);
    EXPECT_NEAR(a[i].arrival_seconds, 7 * b[i].arrival_seconds, 1e-9);
    same += a[i].prompt_tokens == c[i].prompt_tokens;
  }
  EXPECT_LT(same, 5);
}

TEST(Generate, SharedPrefixesAreShared) {
  const auto requests = generate(
      "requests=2000,prompt=fixed:10,prefix_tokens=100,block=16,prefix_groups=4,prefix_share=0.5,prefix_skew=1,tenants="
      "3");
  std::set<uint64_t> first;
  int64_t with = 0;
  for (const auto& request : requests) {
    if (request.prefix_hashes.empty()) {
      EXPECT_EQ(request.prompt_tokens, 10);
      continue;
    }
    ++with;
    EXPECT_EQ(request.prefix_hashes.size(), 6u);
    EXPECT_EQ(request.prompt_tokens, 106);
    first.insert(request.prefix_hashes[0]);
  }
  EXPECT_EQ(first.size(), 4u);
  EXPECT_NEAR(static_cast<double>(with), 1000, 80);
  const TraceStats stats = trace_stats(requests);
  EXPECT_EQ(stats.tenants, 3);
  EXPECT_EQ(stats.reuse.distinct_blocks, 24);
  EXPECT_EQ(stats.reuse.hit_blocks, 6 * (with - 4));
}

TEST(Generate, RejectsInvalidOptions) {
  EXPECT_EQ(refused("prompt=fixed:0"), "prompt: 'fixed:0' is not fixed:N with lengths from 1 to 16777216");
  EXPECT_EQ(refused("output=uniform:5:3"),
            "output: 'uniform:5:3' is not uniform:MIN:MAX with lengths from 1 to 16777216");
  EXPECT_EQ(refused("output=pareto:1:2"),
            "output: 'pareto:1:2' is not pareto:ALPHA:MIN:MAX with lengths from 1 to 16777216");
  EXPECT_NE(refused("output=zipf:1").find("output: unknown 'zipf:1'; available: fixed:N"), std::string::npos);
  EXPECT_EQ(refused("arrivals=often"), "arrivals: unknown 'often'; available: poisson, gamma, uniform");
  EXPECT_NE(refused("request=5").find("request"), std::string::npos);
}

TEST(Generate, CanReplaceATrace) {
  TraceOptions options;
  options.limit = 10;
  options.rate = 2;
  auto requests = load_workload("gen:requests=50,arrivals=uniform,rate=1", options);
  ASSERT_TRUE(requests.ok());
  EXPECT_EQ(requests->size(), 10u);
  EXPECT_NEAR(requests->back().arrival_seconds, 4.5, 1e-9);
  EXPECT_EQ(load_workload("/nowhere/at/all", {}).error().kind, ErrorKind::corrupt);
}

// Documents are the same tokens wherever they stand, and no prompt has one twice.
TEST(Generate, DocumentsComeFromAPool) {
  const auto load = generate_workload("requests=40,documents=3,document_tokens=50,document_pool=5,prompt=fixed:9");
  ASSERT_TRUE(load.ok());
  std::map<uint64_t, std::vector<TokenId>> known;
  std::set<size_t> places;  // of one of them
  for (const WorkloadRequest& request : *load) {
    ASSERT_EQ(request.prompt_tokens, 159);
    const auto prompt = make_prompt(request, 1000);
    const auto documents = prompt_documents(request);
    ASSERT_EQ(std::ssize(prompt), 159);
    ASSERT_EQ(documents.size(), 3u);
    EXPECT_EQ(std::set(request.documents.begin(), request.documents.end()).size(), 3u);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(documents[i].begin, static_cast<int64_t>(50 * i));
      EXPECT_EQ(documents[i].end, static_cast<int64_t>(50 * (i + 1)));
      const std::vector<TokenId> tokens(prompt.begin() + documents[i].begin, prompt.begin() + documents[i].end);
      EXPECT_EQ(known.try_emplace(request.documents[i], tokens).first->second, tokens);
      if (request.documents[i] == load->front().documents[0]) places.insert(i);
    }
  }
  EXPECT_EQ(known.size(), 5u);
  EXPECT_GT(places.size(), 1u);
  EXPECT_EQ(generate_workload("documents=6,document_pool=5").error().message,
            "documents: 6 different ones cannot be drawn from a document_pool of 5");
}

}  // namespace
}  // namespace millrace
