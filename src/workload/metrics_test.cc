#include "workload/metrics.h"

#include <gtest/gtest.h>

#include "workload/load_picture.h"
#include "workload/report.h"

namespace millrace {
namespace {

RequestRecord record(double arrival, std::vector<double> tokens, int64_t prompt = 10) {
  RequestRecord out;
  out.arrival = arrival;
  out.sent = arrival + 0.25;
  out.tokens = std::move(tokens);
  out.finished = out.tokens.empty() ? arrival + 1 : out.tokens.back();
  out.prompt_tokens = prompt;
  return out;
}

TEST(Summary, QuantilesInterpolate) {
  const Summary s = summarize({4, 1, 3, 2});
  EXPECT_DOUBLE_EQ(s.mean, 2.5);
  EXPECT_DOUBLE_EQ(s.p50, 2.5);
  EXPECT_DOUBLE_EQ(s.p90, 3.7);
  EXPECT_DOUBLE_EQ(s.max, 4);
  EXPECT_EQ(summarize({}).count, 0);
  EXPECT_DOUBLE_EQ(summarize({7}).p99, 7);
}

TEST(Metrics, MatchTheirDefinitions) {
  std::vector<RequestRecord> records = {record(1, {2, 2.5, 4}), record(2, {5})};
  const LoadMetrics m = measure_load(records);
  EXPECT_EQ(m.completed, 2);
  EXPECT_DOUBLE_EQ(m.seconds, 4);
  EXPECT_DOUBLE_EQ(m.ttft.mean, 2);  // 1 and 3
  EXPECT_DOUBLE_EQ(m.tpot.mean, 1);  // (4 - 2) / 2; one token has none
  EXPECT_EQ(m.tpot.count, 1);
  EXPECT_DOUBLE_EQ(m.itl.min, 0.5);
  EXPECT_DOUBLE_EQ(m.itl.max, 1.5);
  EXPECT_DOUBLE_EQ(m.e2e.mean, 3);
  EXPECT_DOUBLE_EQ(m.lag.mean, 0.25);
  EXPECT_DOUBLE_EQ(m.request_rate, 0.5);
  EXPECT_DOUBLE_EQ(m.output_rate, 1);
  EXPECT_DOUBLE_EQ(m.total_rate, 6);
}

TEST(Metrics, GoodputCountsRequestsWithinEveryLimit) {
  std::vector<RequestRecord> records = {record(0, {1, 2, 3}), record(0, {1, 5}), record(0, {3, 4}), record(0, {})};
  GoodputLimits limits;
  EXPECT_EQ(measure_load(records, limits).good, 0);
  limits.ttft = 1.5;
  EXPECT_EQ(measure_load(records, limits).good, 2);
  limits.tpot = 1;
  EXPECT_EQ(measure_load(records, limits).good, 1);
  limits.e2e = 2.5;
  EXPECT_EQ(measure_load(records, limits).good, 0);
  EXPECT_DOUBLE_EQ(measure_load(records, {1.5, 0, 0}).goodput, 2.0 / 5);
}

TEST(Metrics, ErrorsAreCountedByTheirText) {
  RequestRecord refused = record(0, {});
  refused.error = "queue full";
  RequestRecord half = record(0, {1});
  half.error = "queue full";
  const LoadMetrics m = measure_load(std::vector{refused, half, record(0, {}), record(0, {2})});
  EXPECT_EQ(m.failed, 3);
  EXPECT_EQ(m.completed, 1);
  EXPECT_EQ(m.errors.at("queue full"), 2);
  EXPECT_EQ(m.errors.at("no token received"), 1);
}

// The page without its pictures, and the addresses of the pictures, which contain them.
std::pair<std::string, std::vector<std::string>> without_pictures(std::string html) {
  std::vector<std::string> pictures;
  constexpr std::string_view kBefore = "src=\"data:";
  for (size_t start; (start = html.find(kBefore)) != std::string::npos;) {
    const size_t end = html.find('"', start + kBefore.size());
    pictures.push_back(html.substr(start + kBefore.size(), end - start - kBefore.size()));
    html.erase(start, end + 1 - start);
  }
  return {html, pictures};
}

TEST(Report, IsOneFileWithoutScripts) {
  RequestRecord failed = record(0, {});
  failed.error = "queue <full> & \"closed\"";
  const std::vector<RequestRecord> records = {record(0, {1, 2, 3}), record(5, {6}), failed};
  const auto report = replay_report_html({"a<b>", {{"model", "x&y"}}}, records, measure_load(records));
  ASSERT_TRUE(report.ok()) << report.error().message;
  const auto [html, pictures] = without_pictures(*report);
  EXPECT_NE(html.find("<h1>a&lt;b&gt;</h1>"), std::string::npos);
  EXPECT_NE(html.find("x&amp;y"), std::string::npos);
  EXPECT_NE(html.find("queue &lt;full&gt; &amp; &quot;closed&quot;"), std::string::npos);
  for (const char* foreign : {"<script", "http:", "https:", "url(", "<link", "nan", "inf\"", "src=", "<svg"})
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
  EXPECT_EQ(pictures.size(), 16u);  // eight charts in light and in dark
  for (const std::string& svg : pictures) {
    EXPECT_NE(svg.find("%3C/svg%3E"), std::string::npos);
    for (const char* foreign : {"script", "https:", "url(", "nan", "inf", "image", "style%3E"})
      EXPECT_EQ(svg.find(foreign, sizeof("image/svg+xml")), std::string::npos) << foreign;
  }
  EXPECT_NE(replay_report_html({}, {}, {})->find("</html>"), std::string::npos);  // an empty run has a report, too
}

TEST(LoadPicture, PanelsHaveTheValuesOfTheRun) {
  const std::vector<RequestRecord> records = {record(0, {1, 2, 3}), record(5, {6}), record(6, {})};
  const auto panels = load_panels(records, measure_load(records));
  ASSERT_EQ(panels.size(), 8u);
  const auto& each = panels[0].series[0].points;
  ASSERT_EQ(each.size(), 2u);
  EXPECT_DOUBLE_EQ(each[1].x.value, 5);
  EXPECT_DOUBLE_EQ(each[1].y.value, 1);
  double tokens = 0;
  for (const ChartPoint& p : panels[2].series[0].points) tokens += p.y.value * measure_load(records).seconds / 60;
  EXPECT_NEAR(tokens, 4, 1e-9);
  const auto& shares = distribution_of("x", {3, 1, 2}, 0).points;
  EXPECT_DOUBLE_EQ(shares.front().x.value, 1);
  EXPECT_DOUBLE_EQ(shares.back().x.value, 3);
  EXPECT_DOUBLE_EQ(shares[100].x.value, 2);
  EXPECT_DOUBLE_EQ(shares[100].y.value, 50);
  EXPECT_TRUE(distribution_of("x", {}, 0).points.empty());
}

}  // namespace
}  // namespace millrace
