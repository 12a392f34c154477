// The forms of a result: the front, the table, JSON, pictures and the report.
#include <gtest/gtest.h>

#include "compare/compare_picture.h"
#include "compare/compare_report.h"
#include "compare/result.h"
#include "picture/picture.h"

namespace millrace {
namespace {

SuiteFigure figure(double value, double difference, bool more_is_better = false) {
  return {.suite = "perplexity",
          .metric = "perplexity",
          .more_is_better = more_is_better,
          .items = 20,
          .interval = {value, value - 0.5, value + 0.5},
          .difference = {difference, difference - 0.01, difference + 0.01}};
}

CompareResult three_configs() {
  CompareResult result{.model = "toy", .machine = "a machine", .version = "1", .rounds = 3};
  ConfigResult base{.name = "plain", .spec = "plain", .quality = {figure(10, 0)}};
  base.quality[0].difference = {};
  base.prefill = {100, 101, 99};
  base.decode = {10, 11, 12};
  base.ttft = {5, 6, 7};
  base.memory = {1000, 10, 500, 2000};
  base.roof_tokens_per_s = 22;
  ConfigResult smaller = base, worse = base;
  smaller.name = smaller.spec = "kv_format=q8_0";
  smaller.quality = {figure(10.1, 0.1)};
  smaller.memory.kv_bytes = 250;
  worse.name = "name <&> of it";
  worse.quality = {figure(12, 0.2)};
  worse.decode = {9, 9, 9};
  result.configs = {base, smaller, worse};
  return result;
}

TEST(CompareResults, TheFrontIsWhatNothingBeats) {
  CompareResult result = three_configs();
  EXPECT_EQ(pareto_front(result), (std::vector<bool>{true, true, false}));
  result.configs[2].decode = {13, 13, 13};
  EXPECT_EQ(pareto_front(result), (std::vector<bool>{true, true, true}));
  result.configs[2].quality[0].items = 0;  // not measured: it cannot be compared
  EXPECT_EQ(pareto_front(result), (std::vector<bool>{true, true, false}));
  for (ConfigResult& config : result.configs) config.quality.clear();
  EXPECT_EQ(pareto_front(result), (std::vector<bool>{false, true, true}));
}

TEST(CompareResults, Numbers) {
  EXPECT_EQ(interval_text({12.3456, 11.9, 12.84}), "12.35 [11.90, 12.84]");
  EXPECT_EQ(interval_text({0.000123, 0.0001, 0.00014}), "0.000123 [0.000100, 0.000140]");
  EXPECT_EQ(interval_text({1234.5, 1100, 1400}), "1234 [1100, 1400]");
  EXPECT_EQ(interval_text({8.214, 7.5, 8.9}), "8.21 [7.50, 8.90]");
  EXPECT_EQ(interval_text({1, 1, 1}), "1.00");
  EXPECT_EQ(interval_text({0, 0, 0}), "0");
  EXPECT_EQ(interval_text({123456, 123456, 123456}), "123456");
}

TEST(CompareResults, UnseenLossesAreMarkedAndNotOnTheFront) {
  CompareResult result = three_configs();
  const std::string plain = compare_table(result) + *compare_html(result, "");
  EXPECT_EQ(plain.find(" unseen"), std::string::npos);
  result.configs[1].quality[0] = figure(10, 0);
  result.configs[1].quality[0].unseen = "acceptance=typical: nothing is drafted";
  EXPECT_EQ(pareto_front(result), (std::vector<bool>{true, false, false}));
  EXPECT_NE(compare_table(result).find("|   | kv_format=q8_0 | 10.0 [9.5, 10.5] unseen |"), std::string::npos)
      << compare_table(result);
  EXPECT_NE(compare_table(result).find("\nunseen: "), std::string::npos);
  EXPECT_NE(compare_html(result, "")->find("<td class=\"unseen\">10.0 [9.5, 10.5] unseen</td>"), std::string::npos);
  const auto json = compare_json(result);
  EXPECT_EQ(json["configs"][1]["quality"][0]["unseen"], "acceptance=typical: nothing is drafted");
  EXPECT_FALSE(json["configs"][0]["quality"][0].contains("unseen"));
}

TEST(CompareResults, TableAndJson) {
  const CompareResult result = three_configs();
  const std::string table = compare_table(result);
  EXPECT_NE(table.find("| * | plain          |    10.0 [9.5, 10.5] |"), std::string::npos) << table;
  EXPECT_NE(table.find("| * | kv_format=q8_0 |  10.1 [9.6, 10.6] ▼ |"), std::string::npos) << table;
  EXPECT_NE(table.find("11.0 [10.0, 12.0] 50 %"), std::string::npos) << table;
  EXPECT_NE(table.find("\nIn brackets: 95 %; of medians of fewer than 6 rounds: lowest to highest.\n"),
            std::string::npos);
  const std::string narrow = compare_table(result, 60);
  EXPECT_EQ(narrow.find("tokens/s |"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("\nNot shown in 60 columns: peak, MB; prefill tokens/s;"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("| plain          |"), std::string::npos) << narrow;
  CompareResult long_run = result;
  for (ConfigResult& config : long_run.configs) config.decode = config.prefill = config.ttft = {9, 10, 10, 11, 12, 13};
  EXPECT_NE(compare_table(long_run).find("\nIn brackets: 95 %.\n"), std::string::npos);
  SuiteFigure few = figure(10.1, 0.1);
  EXPECT_EQ(against_base(few), -1);
  few.has_intervals = false;
  EXPECT_EQ(against_base(few), 0);
  const auto json = compare_json(result);
  for (const char* key : {"model", "machine", "rounds", "configs"}) EXPECT_TRUE(json.contains(key));
  const auto& config = json["configs"][1];
  EXPECT_EQ(config["name"], "kv_format=q8_0");
  EXPECT_EQ(config["quality"][0]["suite"], "perplexity");
  EXPECT_EQ(config["quality"][0]["value"], 10.1);
  EXPECT_EQ(config["quality"][0]["n"], 20);
  EXPECT_EQ(config["speed"]["decode_tokens_per_s"]["median"], 11);
  EXPECT_EQ(config["memory"]["weights_bytes"], 1000);
  EXPECT_EQ(config["memory"]["kv_bytes_per_token"], 10);
  EXPECT_EQ(config["memory"]["peak_bytes"], 2000);
}

// The names of the points of a panel, by series.
std::vector<std::vector<std::string>> names_of(const ChartPanel& panel) {
  std::vector<std::vector<std::string>> out;
  for (const ChartSeries& series : panel.series) {
    out.emplace_back();
    if (series.mark == ChartMark::points)
      for (const ChartPoint& point : series.points) out.back().push_back(point.name);
  }
  return out;
}

TEST(CompareResults, TheChartHasTheFrontTheRestAndWhatIsUnseen) {
  using Names = std::vector<std::vector<std::string>>;
  CompareResult result = three_configs();
  for (ConfigResult& config : result.configs) config.quality[0].paired = config.quality[0].interval;
  Chart chart = front_chart(result, 0);
  ASSERT_EQ(chart.panels.size(), 2u);
  EXPECT_EQ(names_of(chart.panels[0]), (Names{{}, {"plain (base)", "kv_format=q8_0"}, {"name <&> of it"}, {}}));
  EXPECT_EQ(names_of(chart.panels[1]), names_of(chart.panels[0]));
  EXPECT_EQ(chart.title, "perplexity of toy");
  EXPECT_EQ(chart.panels[0].y.better, BetterEnd::low);
  const ChartPoint& small = chart.panels[0].series[1].points[1];
  EXPECT_DOUBLE_EQ(small.x.value, 11);
  EXPECT_DOUBLE_EQ(small.y.value, 10.1);
  EXPECT_DOUBLE_EQ(chart.panels[1].series[1].points[1].x.value, 1250 / 1e6);
  // No other one is faster, and none is better: the line has the base alone.
  EXPECT_EQ(chart.panels[0].series[0].points.size(), 1u);
  result.configs[1].quality[0].unseen = "acceptance=typical: nothing is drafted";
  EXPECT_EQ(names_of(front_chart(result, 0).panels[0]),
            (Names{{}, {"plain (base)"}, {"name <&> of it"}, {"kv_format=q8_0"}}));
  result.configs[1].name = std::string(60, 'a');
  EXPECT_EQ(front_chart(result, 0).columns, 1);  // long names need the whole width
  for (ConfigResult& config : result.configs) config.decode.clear(), config.quality.clear();
  chart = front_chart(result, 0);
  EXPECT_EQ(names_of(chart.panels[0]), (Names{{}, {}, {}, {}}));
  EXPECT_TRUE(draw_chart(chart, PictureFormat::svg, PictureTheme::light).ok());
}

TEST(CompareResults, HeatMapsAndReport) {
  CompareResult result = three_configs();
  for (int row = 0; row < 2; ++row)
    for (int column = 0; column < 3; ++column) {
      SuiteFigure cell = figure(0.5 + 0.1 * row, 0, true);
      cell.suite = "perplexity";
      cell.metric = "perplexity@" + std::to_string(128 << column) + "/" + std::to_string(row * 50) + "%";
      cell.of_group = true;
      for (ConfigResult& config : result.configs) config.quality.push_back(cell);
    }
  const auto map = heat_panel(result.configs[0], "perplexity", "perplexity");
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(map->heat->rows, (std::vector<std::string>{"0%", "50%"}));
  EXPECT_EQ(map->heat->columns, (std::vector<std::string>{"128", "256", "512"}));
  EXPECT_EQ(map->heat->values[1], (std::vector<double>{0.6, 0.6, 0.6}));
  EXPECT_FALSE(heat_panel(result.configs[0], "perplexity", "speed").has_value());
  EXPECT_EQ(front_chart(result, 0).panels.size(), 5u);
  const auto html = compare_html(result, "millrace compare");
  ASSERT_TRUE(html.ok()) << html.error().message;
  EXPECT_EQ(html->find("<script"), std::string::npos);
  EXPECT_EQ(html->find("<link"), std::string::npos);
  size_t pictures = 0;
  for (size_t at = 0; (at = html->find("src=\"", at)) != std::string::npos; ++at, ++pictures)
    EXPECT_EQ(html->substr(at + 5, 20), "data:image/svg+xml,%");
  EXPECT_EQ(pictures, 10u);  // five panels in light and in dark
  EXPECT_NE(html->find("perplexity@512/50%"), std::string::npos);
  EXPECT_NE(html->find("name &lt;&amp;&gt; of it"), std::string::npos);
  EXPECT_NE(html->find("prefers-color-scheme:dark"), std::string::npos);
}

}  // namespace
}  // namespace millrace
