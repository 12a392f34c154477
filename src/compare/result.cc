#include "compare/result.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace millrace {
namespace {

using ResultJson = nlohmann::ordered_json;
using Merits = std::array<double, 3>;  // more is better in each

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

size_t width_of(const std::string& text) {
  return static_cast<size_t>(
      std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

// Columns behind the first `keep` that have nothing below their head.
void drop_empty_columns(std::vector<std::vector<std::string>>& rows, size_t keep) {
  for (size_t column = rows.front().size(); column-- > keep;) {
    if (!std::all_of(rows.begin() + 1, rows.end(), [&](const auto& row) { return row[column].empty(); })) continue;
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
}

// A Markdown table with columns as wide as their widest cell; the first row is the head.
std::string aligned(const std::vector<std::vector<std::string>>& rows, size_t left) {
  std::vector<size_t> widths(rows.front().size(), 1);
  for (const auto& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width_of(row[i]));
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    for (size_t i = 0; i < widths.size(); ++i) {
      const std::string space(widths[i] - width_of(rows[r][i]), ' ');
      out += "| " + (i < left ? rows[r][i] + space : space + rows[r][i]) + " ";
    }
    out += "|\n";
    if (r > 0) continue;
    for (size_t i = 0; i < widths.size(); ++i) out += "|" + std::string(widths[i] + 1, '-') + (i < left ? "-" : ":");
    out += "|\n";
  }
  return out;
}

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

std::string compare_table(const CompareResult& result) {
  const std::vector<bool> front = pareto_front(result);
  std::vector<std::vector<std::string>> rows = {{"", "configuration"}};
  const auto shown = [&](size_t figure) { return !result.configs.front().quality[figure].of_group; };
  const size_t figures = result.configs.front().quality.size();
  for (size_t f = 0; f < figures; ++f) {
    const SuiteFigure& figure = result.configs.front().quality[f];
    if (shown(f)) rows[0].push_back(figure.suite == figure.metric ? figure.metric : figure.suite + " " + figure.metric);
  }
  for (const char* name : {"prefill tokens/s", "decode tokens/s, % of roof", "first token, ms", "weights, MB",
                           "KV of a stream, MB", "peak, MB"})
    rows[0].emplace_back(name);
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const ConfigResult& config = result.configs[i];
    std::vector<std::string> row = {front[i] ? "*" : "", config.name};
    for (size_t f = 0; f < figures; ++f)
      if (shown(f)) row.push_back(figure_text(config.quality[f]));
    for (std::string text : {median_text(config.prefill), decode_text(config), median_text(config.ttft),
                             bytes_text(config.memory.weights_bytes), bytes_text(config.memory.kv_bytes),
                             bytes_text(config.memory.peak_bytes)})
      row.push_back(std::move(text));
    rows.push_back(std::move(row));
  }
  drop_empty_columns(rows, 2);
  std::string out = aligned(rows, 2);
  out += "\n* on the Pareto front of the first figure, decode speed, and the bytes of weights and KV.\n" +
         brackets_text(result) + "\n▲ better, ▼ worse than the base on the same items in at least 95 % of the draws.\n";
  if (any_unseen(result)) out += std::string(kUnseenLegend) + "\n";
  for (const std::string& note : result.notes) out += note + "\n";
  return out;
}

}  // namespace millrace
