#include "compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/compare_picture.h"

namespace millrace {
namespace {

constexpr const char* kReportStyle =
    R"(body{font:15px/1.5 sans-serif;color:#282828;max-width:1500px;margin:2em auto;padding:0 1em}
table{border-collapse:collapse;font-size:13px;margin:1em 0}.wide{overflow-x:auto}
td,th{border-bottom:1px solid #ddd;padding:.3em .7em;text-align:right;white-space:nowrap}
td:nth-child(1),th:nth-child(1),td:nth-child(2),th:nth-child(2){text-align:left}
tr.front td{background:#eef4fb}.up{color:#17803d}.down{color:#b3261e}.unseen{color:#888}svg{max-width:100%;height:auto;margin:.5em 0}
pre{background:#f3f3f3;padding:.6em .8em;white-space:pre-wrap}small{color:#666})";

std::string cell(const std::string& text, const char* style = "") {
  return fmt::format("<td{}>{}</td>", *style ? fmt::format(" class=\"{}\"", style) : "", escape_html(text));
}

std::string bytes_cell(int64_t bytes) {
  return cell(bytes > 0 ? fmt::format("{:.4g}", static_cast<double>(bytes) / 1e6) : "");
}

std::string figure_cell(const SuiteFigure& figure) {
  if (figure.items == 0) return cell("");
  const int sign = against_base(figure);
  if (!figure.unseen.empty()) return cell(interval_text(figure.interval) + " unseen", "unseen");
  return cell(interval_text(figure.interval), sign > 0 ? "up" : sign < 0 ? "down" : "");
}

std::string name_of(const SuiteFigure& figure) {
  return figure.suite == figure.metric ? figure.metric : figure.suite + " " + figure.metric;
}

std::string main_table(const CompareResult& result) {
  const std::vector<bool> front = pareto_front(result);
  std::string out = "<div class=\"wide\"><table><tr><th></th><th>configuration</th>";
  for (const SuiteFigure& figure : result.configs.front().quality)
    if (!figure.of_group) out += "<th>" + escape_html(name_of(figure)) + "</th>";
  out +=
      "<th>prefill, tokens/s</th><th>decode, tokens/s</th><th>% of roof</th><th>first token, ms</th>"
      "<th>weights, MB</th><th>KV of a stream, MB</th><th>peak, MB</th></tr>\n";
  for (size_t i = 0; i < result.configs.size(); ++i) {
    const ConfigResult& config = result.configs[i];
    out +=
        fmt::format("<tr{}>{}{}", front[i] ? " class=\"front\"" : "", cell(std::to_string(i + 1)), cell(config.name));
    for (const SuiteFigure& figure : config.quality)
      if (!figure.of_group) out += figure_cell(figure);
    const bool roof = config.roof_tokens_per_s > 0 && !config.decode.empty();
    out += cell(median_text(config.prefill)) + cell(median_text(config.decode)) +
           cell(roof ? fmt::format("{:.0f}", 100 * bootstrap_median(config.decode).value / config.roof_tokens_per_s)
                     : "") +
           cell(median_text(config.ttft)) + bytes_cell(config.memory.weights_bytes) +
           bytes_cell(config.memory.kv_bytes) + bytes_cell(config.memory.peak_bytes) + "</tr>\n";
  }
  return out +
         "</table></div>\n<p><small>Shaded: on the Pareto front of the first figure, decode speed, and the bytes of "
         "weights and KV. " +
         brackets_text(result) +
         " Green and red: better or worse than the first "
         "configuration on the same items in at least 95 % of the draws." +
         (any_unseen(result) ? std::string(" ") + kUnseenLegend : "") + "</small></p>\n";
}

std::string heat_maps(const CompareResult& result) {
  std::string out;
  for (const SuiteFigure& figure : result.configs.front().quality) {
    if (figure.of_group) continue;
    std::string maps;
    for (const ConfigResult& config : result.configs)
      if (const auto map = heat_map(config, figure.suite, figure.metric)) maps += map->svg();
    if (!maps.empty()) out += fmt::format("<h2>{} by length and depth</h2>\n{}", escape_html(name_of(figure)), maps);
  }
  return out;
}

std::string group_table(const CompareResult& result) {
  const auto& figures = result.configs.front().quality;
  if (std::ranges::none_of(figures, &SuiteFigure::of_group)) return "";
  std::string out = "<h2>Groups of items</h2>\n<div class=\"wide\"><table><tr><th>figure</th><th>items</th>";
  for (size_t i = 0; i < result.configs.size(); ++i) out += fmt::format("<th>{}</th>", i + 1);
  out += "</tr>\n";
  for (size_t f = 0; f < figures.size(); ++f) {
    if (!figures[f].of_group) continue;
    out += "<tr>" + cell(name_of(figures[f])) + cell(std::to_string(figures[f].items));
    for (const ConfigResult& config : result.configs) out += figure_cell(config.quality[f]);
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

}  // namespace

std::string compare_html(const CompareResult& result, const std::string& command) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title><style>{1}</style></head>"
      "<body>\n<h1>Configurations of {0}</h1>\n<p>{2}<br><small>{3}</small></p>\n<pre>{4}</pre>\n",
      escape_html(result.model), kReportStyle, escape_html(result.machine), escape_html(result.version),
      escape_html(command));
  for (const std::string& note : result.notes) out += "<p>" + escape_html(note) + "</p>\n";
  out += main_table(result);
  std::string drawn;  // each suite once, by its first figure
  for (size_t f = 0; f < result.configs.front().quality.size(); ++f) {
    const SuiteFigure& figure = result.configs.front().quality[f];
    if (figure.of_group || figure.suite == drawn) continue;
    drawn = figure.suite;
    out += front_picture(result, f).svg();
  }
  return out + heat_maps(result) + group_table(result) + "</body></html>\n";
}

}  // namespace millrace
