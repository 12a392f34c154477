#include "compare/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "terminal/display_width.h"
#include "terminal/text_table.h"

namespace millrace {
namespace {

using ResultJson = nlohmann::ordered_json;
using Merits = std::array<double, 3>;  // more is better in each

constexpr size_t kNameColumns = 2;       // of the table: the mark of the front, and the configuration
constexpr int kDropsFigure = 1'000'000;  // the last figure is dropped before the one on its left

ResultJson median_json(const std::vector<double>& rounds) {
  if (rounds.empty()) return nullptr;
  const Interval interval = bootstrap_median(rounds);
  return {{"median", interval.value}, {"low", interval.low}, {"high", interval.high}, {"rounds", rounds}};
}

ResultJson quality_json(const ConfigResult& config) {
  ResultJson out = ResultJson::array();
  for (const SuiteFigure& figure : config.quality) {
    if (figure.items == 0) continue;
    ResultJson one = {
        {"suite", figure.suite},
        {"metric", figure.metric},
        {"value", figure.interval.value},
        {"low", figure.interval.low},
        {"high", figure.interval.high},
        {"n", figure.items},
        {"more_is_better", figure.more_is_better},
        {"difference",
         {{"value", figure.difference.value}, {"low", figure.difference.low}, {"high", figure.difference.high}}}};
    if (!figure.unseen.empty()) one["unseen"] = figure.unseen;
    out.push_back(std::move(one));
  }
  return out;
}

ResultJson bytes_json(int64_t bytes) { return bytes > 0 ? ResultJson(bytes) : ResultJson(nullptr); }

std::optional<Merits> merits_of(const ConfigResult& config, bool has_quality, bool has_speed, bool has_memory) {
  Merits out{};
  const SuiteFigure* const figure = main_figure(config);
  if ((has_quality && (!figure || !figure->unseen.empty())) || (has_speed && config.decode.empty()) ||
      (has_memory && stored_bytes_of(config) == 0))
    return std::nullopt;
  if (has_quality) out[0] = figure->more_is_better ? figure->interval.value : -figure->interval.value;
  if (has_speed) out[1] = bootstrap_median(config.decode).value;
  out[2] = -static_cast<double>(stored_bytes_of(config));
  return out;
}

bool dominates(const Merits& a, const Merits& b) { return a != b && std::ranges::equal(a, b, std::greater_equal<>()); }

std::string figure_text(const SuiteFigure& figure) {
  if (figure.items == 0) return "";
  const int sign = against_base(figure);
  return interval_text(figure.interval) +
         (sign > 0   ? " ▲"
          : sign < 0 ? " ▼"
                     : "") +
         (figure.unseen.empty() ? "" : " unseen");
}

std::string bytes_text(int64_t bytes) {
  return bytes > 0 ? fmt::format("{:.4g}", static_cast<double>(bytes) / 1e6) : "";
}

// A table's columns, with the name and the cells of each.
struct FigureColumn {
  TableColumn column;
  std::vector<std::string> cells;

  bool empty() const { return std::ranges::all_of(cells, &std::string::empty); }
};

std::string decode_text(const ConfigResult& config) {
  std::string text = median_text(config.decode);
  if (!text.empty() && config.roof_tokens_per_s > 0)
    text += fmt::format(" {:.0f} %", 100 * bootstrap_median(config.decode).value / config.roof_tokens_per_s);
  return text;
}

}  // namespace

bool any_unseen(const CompareResult& result) {
  return std::ranges::any_of(result.configs, [](const ConfigResult& config) {
    return std::ranges::any_of(config.quality, [](const SuiteFigure& figure) { return !figure.unseen.empty(); });
  });
}

std::string figure_name(const SuiteFigure& figure) {
  return figure.suite == figure.metric ? figure.metric : figure.suite + " " + figure.metric;
}

const SuiteFigure* main_figure(const ConfigResult& config) {
  if (config.quality.empty() || config.quality.front().items == 0) return nullptr;
  return &config.quality.front();
}

int64_t stored_bytes_of(const ConfigResult& config) { return config.memory.weights_bytes + config.memory.kv_bytes; }

int against_base(const SuiteFigure& figure) {
  if (!figure.has_intervals) return 0;
  const int sign = figure.difference.low > 0 ? 1 : figure.difference.high < 0 ? -1 : 0;
  return figure.more_is_better ? sign : -sign;
}

std::vector<bool> pareto_front(const CompareResult& result) {
  const auto any = [&](auto has) { return std::ranges::any_of(result.configs, has); };
  const bool quality = any([](const ConfigResult& c) { return main_figure(c) != nullptr; });
  const bool speed = any([](const ConfigResult& c) { return !c.decode.empty(); });
  const bool memory = any([](const ConfigResult& c) { return stored_bytes_of(c) > 0; });
  std::vector<std::optional<Merits>> all;
  for (const ConfigResult& config : result.configs) all.push_back(merits_of(config, quality, speed, memory));
  std::vector<bool> front;
  for (const auto& own : all)
    front.push_back(own &&
                    std::ranges::none_of(all, [&](const auto& other) { return other && dominates(*other, *own); }));
  return front;
}

std::string interval_text(const Interval& interval) {
  const double spread = interval.high - interval.low, size = std::abs(interval.value);
  if (spread <= 0 && size == 0) return "0";
  // At least two digits of the interval's width and three of the value.
  const double of_width = spread > 0 ? 1 - std::floor(std::log10(spread)) : 0;
  const double of_value = size > 0 ? 2 - std::floor(std::log10(size)) : 0;
  const int digits = static_cast<int>(std::clamp(std::max(of_width, of_value), 0.0, 6.0));
  if (spread <= 0) return fmt::format("{:.{}f}", interval.value, digits);
  return fmt::format("{:.{}f} [{:.{}f}, {:.{}f}]", interval.value, digits, interval.low, digits, interval.high, digits);
}

std::string brackets_text(const CompareResult& result) {
  const bool few = std::ranges::any_of(result.configs, [](const ConfigResult& config) {
    return (!config.decode.empty() && config.decode.size() < kMinForMedian) ||
           !std::ranges::all_of(config.quality, &SuiteFigure::has_intervals);
  });
  return few ? fmt::format("In brackets: 95 %; of medians of fewer than {} rounds: lowest to highest.", kMinForMedian)
             : "In brackets: 95 %.";
}

std::string median_text(const std::vector<double>& rounds) {
  return rounds.empty() ? "" : interval_text(bootstrap_median(rounds));
}

ResultJson compare_json(const CompareResult& result) {
  const std::vector<bool> front = pareto_front(result);
  ResultJson configs = ResultJson::array();
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const ConfigResult& config = result.configs[i];
    configs.push_back({{"name", config.name},
                       {"spec", config.spec},
                       {"quality", quality_json(config)},
                       {"speed",
                        {{"prefill_tokens_per_s", median_json(config.prefill)},
                         {"decode_tokens_per_s", median_json(config.decode)},
                         {"ttft_ms", median_json(config.ttft)},
                         {"decode_roof_tokens_per_s",
                          config.roof_tokens_per_s > 0 ? ResultJson(config.roof_tokens_per_s) : ResultJson(nullptr)}}},
                       {"memory",
                        {{"weights_bytes", bytes_json(config.memory.weights_bytes)},
                         {"kv_bytes_per_token", bytes_json(config.memory.kv_bytes_per_token)},
                         {"kv_bytes", bytes_json(config.memory.kv_bytes)},
                         {"peak_bytes", bytes_json(config.memory.peak_bytes)}}},
                       {"pareto_front", static_cast<bool>(front[i])},
                       {"applied", config.applied}});
  }
  return {{"model", result.model},
          {"machine", result.machine},
          {"version", result.version},
          {"rounds", result.rounds},
          {"read_gb_per_s", result.read_gb_per_s > 0 ? ResultJson(result.read_gb_per_s) : ResultJson(nullptr)},
          {"notes", result.notes},
          {"configs", std::move(configs)}};
}

std::string compare_table(const CompareResult& result, size_t columns) {
  const std::vector<bool> front = pareto_front(result);
  std::vector<FigureColumn> all;
  const auto add = [&](TableColumn column, const auto& cell_of) {
    FigureColumn one{.column = std::move(column), .cells = {}};
    for (const ConfigResult& config : result.configs) one.cells.push_back(cell_of(config));
    if (all.size() < kNameColumns || !one.empty()) all.push_back(std::move(one));
  };
  add({.name = "", .left = true}, [&](const ConfigResult& config) {
    return std::string(front[static_cast<size_t>(&config - result.configs.data())] ? "*" : "");
  });
  add({.name = "configuration", .left = true, .wraps = true}, [](const ConfigResult& config) { return config.name; });
  int more_figures = 0;  // after the first, which is never dropped
  for (size_t f = 0; f < result.configs.front().quality.size(); ++f) {
    const SuiteFigure& figure = result.configs.front().quality[f];
    if (figure.of_group) continue;
    const std::string name = figure_name(figure);
    add({.name = name, .drops = more_figures > 0 ? kDropsFigure - more_figures : 0},
        [&](const ConfigResult& config) { return figure_text(config.quality[f]); });
    ++more_figures;
  }
  add({.name = "prefill tokens/s", .drops = 2}, [](const ConfigResult& c) { return median_text(c.prefill); });
  add({.name = "decode tokens/s, % of roof", .drops = kDropsFigure + 2}, decode_text);
  add({.name = "first token, ms", .drops = 3}, [](const ConfigResult& c) { return median_text(c.ttft); });
  add({.name = "weights, MB", .drops = kDropsFigure},
      [](const ConfigResult& c) { return bytes_text(c.memory.weights_bytes); });
  add({.name = "KV of a stream, MB", .drops = kDropsFigure + 1},
      [](const ConfigResult& c) { return bytes_text(c.memory.kv_bytes); });
  add({.name = "peak, MB", .drops = 1}, [](const ConfigResult& c) { return bytes_text(c.memory.peak_bytes); });
  std::vector<TableColumn> shown;
  for (const FigureColumn& one : all) shown.push_back(one.column);
  TextTable table(TableLook::markdown, std::move(shown));
  for (size_t i = 0; i < result.configs.size(); ++i) {
    TextTable::Row row;
    for (const FigureColumn& one : all) row.push_back(one.cells[i]);
    table.add(std::move(row));
  }
  std::string out = table.text({columns, "--wide or --json FILE"});
  std::vector<std::string> legend = {
      "* on the Pareto front of the first figure, decode speed, and the bytes of weights and KV.",
      brackets_text(result), "▲ better, ▼ worse than the base on the same items in at least 95 % of the draws."};
  if (any_unseen(result)) legend.emplace_back(kUnseenLegend);
  legend.insert(legend.end(), result.notes.begin(), result.notes.end());
  out += "\n";
  for (const std::string& line : legend) out += hanging_text(line, 0, columns) + "\n";
  return out;
}

}  // namespace millrace
