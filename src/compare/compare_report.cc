#include "compare/compare_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "compare/compare_picture.h"
#include "picture/picture.h"
#include "picture/picture_text.h"

namespace millrace {
namespace {

constexpr const char* kReportStyle =
    R"(:root{--ink:#1f2328;--soft:#596069;--line:#dde1e6;--paper:#fff;--front:#eaf3fa;--up:#17703a;--down:#b3261e;--box:#f3f4f6}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebee;--soft:#a4acb5;--line:#31373e;--paper:#14181d;--front:#1b2a36;--up:#6fce93;--down:#f28b82;--box:#1e242b}}
body{font:15px/1.5 sans-serif;color:var(--ink);background:var(--paper);max-width:1500px;margin:1.5em auto;padding:0 1em}
table{border-collapse:collapse;font-size:13px;margin:1em 0}.wide{overflow-x:auto}
td,th{border-bottom:1px solid var(--line);padding:.3em .7em;text-align:right;white-space:nowrap}
td:nth-child(1),th:nth-child(1),td:nth-child(2),th:nth-child(2){text-align:left}
tr.front td{background:var(--front)}.up{color:var(--up)}.down{color:var(--down)}.unseen,small{color:var(--soft)}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,440px),1fr));gap:1em;align-items:start;max-width:1240px}.charts img{width:100%}
h1,h2,p{overflow-wrap:anywhere}pre{background:var(--box);padding:.6em .8em;white-space:pre-wrap;overflow-wrap:anywhere})";

constexpr double kPanelWidth = 480;  // of a picture, which has one panel so that it is legible on a phone

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

std::string main_table(const CompareResult& result) {
  const std::vector<bool> front = pareto_front(result);
  std::string out = "<div class=\"wide\"><table><tr><th></th><th>configuration</th>";
  for (const SuiteFigure& figure : result.configs.front().quality)
    if (!figure.of_group) out += "<th>" + escape_html(figure_name(figure)) + "</th>";
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

// One picture for each panel of the chart.
Result<std::string> pictures_of(const Chart& chart) {
  std::string out = "<div class=\"charts\">\n";
  for (const ChartPanel& panel : chart.panels) {
    Chart one{.title = panel.heat ? "" : chart.title, .panels = {panel}, .width = kPanelWidth, .plot_height = 340};
    if (panel.heat) one.width = kPanelWidth * 0.75;
    MILLRACE_TRY(const std::string html, picture_html(one));
    out += "<div>" + html + "</div>\n";
  }
  return out + "</div>\n<p><small>" + escape_html(chart.note) + "</small></p>\n";
}

// Each suite once, by its first figure.
Result<std::string> front_pictures(const CompareResult& result) {
  std::string out, drawn;
  for (size_t f = 0; f < result.configs.front().quality.size(); ++f) {
    const SuiteFigure& figure = result.configs.front().quality[f];
    if (figure.of_group || figure.suite == drawn) continue;
    drawn = figure.suite;
    MILLRACE_TRY(const std::string pictures, pictures_of(front_chart(result, f)));
    out += fmt::format("<h2>{}</h2>\n{}", escape_html(figure_name(figure)), pictures);
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
    out += "<tr>" + cell(figure_name(figures[f])) + cell(std::to_string(figures[f].items));
    for (const ConfigResult& config : result.configs) out += figure_cell(config.quality[f]);
    out += "</tr>\n";
  }
  return out + "</table></div>\n";
}

}  // namespace

Result<std::string> compare_html(const CompareResult& result, const std::string& command) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width\"><meta name=\"color-scheme\" content=\"light dark\"><title>{0}</title>"
      "<style>{1}\n{5}</style></head><body>\n<h1>Configurations of {0}</h1>\n<p>{2}<br><small>{3}</small></p>\n"
      "<pre>{4}</pre>\n",
      escape_html(result.model), kReportStyle, escape_html(result.machine), escape_html(result.version),
      escape_html(command), kPictureStyle);
  for (const std::string& note : result.notes) out += "<p>" + escape_html(note) + "</p>\n";
  MILLRACE_TRY(const std::string pictures, front_pictures(result));
  return out + main_table(result) + pictures + group_table(result) + "</body></html>\n";
}

}  // namespace millrace
