#include "workload/metrics.h"

#include <gtest/gtest.h>

#include "workload/report.h"
#include "workload/svg_chart.h"

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

TEST(Report, IsOneFileWithoutScripts) {
  RequestRecord failed = record(0, {});
  failed.error = "queue <full> & \"closed\"";
  const std::vector<RequestRecord> records = {record(0, {1, 2, 3}), record(5, {6}), failed};
  const std::string html = replay_report_html({"a<b>", {{"model", "x&y"}}}, records, measure_load(records));
  EXPECT_NE(html.find("<h1>a&lt;b&gt;</h1>"), std::string::npos);
  EXPECT_NE(html.find("x&amp;y"), std::string::npos);
  EXPECT_NE(html.find("queue &lt;full&gt; &amp; &quot;closed&quot;"), std::string::npos);
  for (const char* foreign : {"<script", "http:", "https:", "url(", "<link", "nan", "inf\""})
    EXPECT_EQ(html.find(foreign), std::string::npos) << foreign;
  size_t opened = 0, closed = 0;
  for (size_t at = 0; (at = html.find("<svg", at)) != std::string::npos; ++at) ++opened;
  for (size_t at = 0; (at = html.find("</svg>", at)) != std::string::npos; ++at) ++closed;
  EXPECT_EQ(opened, 8u);
  EXPECT_EQ(closed, 8u);
  EXPECT_NE(replay_report_html({}, {}, {}).find("</html>"), std::string::npos);  // an empty run has a report, too
}

TEST(SvgChart, PointsMatchTheAxes) {
  const std::string svg = SvgChart{"t", "x", "y", {{"line", {{0, 0}, {10, 100}}, false}}}.svg();
  EXPECT_NE(svg.find("d=\"M64.0 200.0L606.0 41.9\""), std::string::npos) << svg;
}

}  // namespace
}  // namespace millrace
