#include "workload/report.h"

#include <fmt/format.h>

#include <utility>

#include "picture/picture.h"
#include "picture/picture_text.h"
#include "workload/load_picture.h"

namespace millrace {
namespace {

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><meta name="color-scheme" content="light dark"><title>{}</title><style>
:root {{ --ink: #1f2328; --soft: #596069; --line: #dde1e6; --paper: #fff; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e8ebee; --soft: #a4acb5; --line: #31373e; --paper: #14181d; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1240px; margin: 1.5rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; overflow-wrap: anywhere; }} .wide {{ overflow-x: auto; }} table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .15rem .9rem .15rem 0; text-align: right; font-variant-numeric: tabular-nums; }}
td:first-child, th:first-child {{ text-align: left; }} th {{ color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }}
table.settings td {{ text-align: left; vertical-align: top; overflow-wrap: anywhere; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); gap: 1rem; align-items: start; }} .charts img {{ width: 100%; }}
{}
</style></head><body>
)";

constexpr double kPanelWidth = 460;  // of a picture, which has one panel so that it is legible on a phone

Result<std::string> pictures_of(std::span<const RequestRecord> records, const LoadMetrics& metrics) {
  std::string out;
  for (ChartPanel& panel : load_panels(records, metrics)) {
    Chart chart{.panels = {}, .width = kPanelWidth, .plot_height = 220};
    chart.title = std::exchange(panel.title, "");
    chart.panels.push_back(std::move(panel));
    MILLRACE_TRY(const std::string html, picture_html(chart));
    out += "<div>" + html + "</div>\n";
  }
  return out;
}

std::string metric_row(const char* name, const Summary& s, double unit) {
  return fmt::format(
      "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td></tr>\n", name,
      s.mean * unit, s.p50 * unit, s.p90 * unit, s.p99 * unit, s.max * unit);
}

std::string prediction_table(const LoadMetrics& measured, const LoadMetrics& predicted) {
  std::string out =
      "</table></div>\n<div class=\"wide\"><table><tr><th></th><th>measured</th><th>predicted</th><th>predicted / "
      "measured</th></tr>\n";
  for (const ComparedFigure& row : compare_loads(measured, predicted))
    out += fmt::format("<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.3f}</td></tr>\n", row.name, row.measured,
                       row.predicted, row.ratio());
  return out;
}

}  // namespace

Chart replay_chart(const ReportFacts& facts, std::span<const RequestRecord> records, const LoadMetrics& metrics) {
  Chart chart{.title = facts.title, .panels = load_panels(records, metrics), .columns = 2, .plot_height = 180};
  for (const auto& [name, value] : facts.settings)
    chart.subtitle += fmt::format("{}{}: {}", chart.subtitle.empty() ? "" : "; ", name, value);
  chart.note =
      fmt::format("{} requests completed, {} failed, in {:.1f} s: {:.2f} requests/s, {:.1f} output tokens/s",
                  metrics.completed, metrics.failed, metrics.seconds, metrics.request_rate, metrics.output_rate);
  return chart;
}

Result<std::string> replay_report_html(const ReportFacts& facts, std::span<const RequestRecord> records,
                                       const LoadMetrics& metrics, const LoadMetrics* predicted) {
  std::string out = fmt::format(kHead, escape_html(facts.title), kPictureStyle);
  out += fmt::format("<h1>{}</h1>\n<table class=\"settings\">\n", escape_html(facts.title));
  const auto line = [&](const std::string& name, const std::string& value) {
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", escape_html(name), escape_html(value));
  };
  for (const auto& [name, value] : facts.settings) line(name, value);
  line("requests", fmt::format("{} done, {} failed, in {:.1f} s", metrics.completed, metrics.failed, metrics.seconds));
  line("throughput", fmt::format("{:.2f} requests/s, {:.1f} output tokens/s, {:.1f} with prompts", metrics.request_rate,
                                 metrics.output_rate, metrics.total_rate));
  line("prompt tokens",
       fmt::format("{}, of which {} from the prefix cache", metrics.prompt_tokens, metrics.cached_tokens));
  if (metrics.good > 0) line("goodput", fmt::format("{:.2f} requests/s", metrics.goodput));
  for (const auto& [text, count] : metrics.errors) line("error", fmt::format("{} x {}", count, text));
  out +=
      "</table>\n<div "
      "class=\"wide\"><table><tr><th></th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>max</th></tr>\n";
  out += metric_row("TTFT, s", metrics.ttft, 1) + metric_row("TPOT, ms", metrics.tpot, 1000) +
         metric_row("ITL, ms", metrics.itl, 1000) + metric_row("E2E, s", metrics.e2e, 1);
  if (predicted) out += prediction_table(metrics, *predicted);
  MILLRACE_TRY(const std::string pictures, pictures_of(records, metrics));
  return out + "</table></div>\n<div class=\"charts\">\n" + pictures + "</div></body></html>\n";
}

}  // namespace millrace
