#include "workload/report.h"

#include <fmt/format.h>

#include "workload/svg_chart.h"

namespace millrace {
namespace {

constexpr int kWindows = 60;  // of the run, for charts over time

constexpr const char* kHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{}</title><style>
:root {{ --ink: #1b1f24; --soft: #68707a; --line: #e3e6ea; --paper: #fff; --a: #2563b0; --b: #c2570c; --c: #3a7d44; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #e6e8eb; --soft: #9aa3ad; --line: #31363d; --paper: #15181c; --a: #7fb2f0; --b: #f0a367; --c: #86c78f; }} }}
body {{ font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1320px; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.3rem; }} table {{ border-collapse: collapse; margin: 1rem 0; }}
td, th {{ padding: .15rem .9rem .15rem 0; text-align: right; font-variant-numeric: tabular-nums; }}
td:first-child, th:first-child {{ text-align: left; }} th {{ color: var(--soft); font-weight: 500; border-bottom: 1px solid var(--line); }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(460px, 1fr)); gap: 1rem; }}
svg {{ width: 100%; }} path {{ fill: none; stroke-width: 1.6; }} .dots {{ stroke-width: 3; stroke-linecap: round; opacity: .45; }}
.grid {{ stroke: var(--line); stroke-width: 1; }} text {{ font-size: 11px; fill: var(--soft); }} .title {{ font-size: 13px; fill: var(--ink); }}
.s0 {{ stroke: var(--a); }} .s1 {{ stroke: var(--b); }} .s2 {{ stroke: var(--c); }} .s0t {{ fill: var(--a); }} .s1t {{ fill: var(--b); }} .s2t {{ fill: var(--c); }}
</style></head><body>
)";

struct Timeline {
  double start = 0, width = 1;
  size_t of(double time) const { return static_cast<size_t>(std::clamp((time - start) / width, 0.0, kWindows - 1.0)); }
  double middle(size_t window) const { return (static_cast<double>(window) + 0.5) * width; }
};

using Windows = std::vector<std::vector<double>>;

SvgSeries over_time(const std::string& name, const Timeline& timeline, const Windows& windows, double Summary::*what) {
  SvgSeries out{name, {}, false};
  for (size_t w = 0; w < windows.size(); ++w)
    if (!windows[w].empty()) out.points.emplace_back(timeline.middle(w), summarize(windows[w]).*what);
  return out;
}

// The cumulative distribution of the values.
SvgSeries distribution(const std::string& name, std::vector<double> values) {
  std::sort(values.begin(), values.end());
  SvgSeries out{name, {}, false};
  constexpr size_t kSteps = 200;
  for (size_t i = 0; !values.empty() && i <= kSteps; ++i) {
    const double q = static_cast<double>(i) / kSteps;
    out.points.emplace_back(quantile(values, q), q);
  }
  return out;
}

std::string charts(std::span<const RequestRecord> records, const LoadMetrics& metrics) {
  Timeline timeline{0, std::max(metrics.seconds, 1e-9) / kWindows};
  if (!records.empty())
    timeline.start = std::min_element(records.begin(), records.end(), [](const auto& a, const auto& b) {
                       return a.arrival < b.arrival;
                     })->arrival;
  Windows ttft(kWindows), itl(kWindows);
  std::vector<double> tokens(kWindows), in_flight(kWindows), arrivals(kWindows), all_ttft, all_tpot, all_e2e;
  SvgSeries dots{"each", {}, true};
  for (const RequestRecord& record : records) {
    ++arrivals[timeline.of(record.arrival)];
    const double end = record.ok() ? record.tokens.back() : record.finished;
    for (size_t w = timeline.of(record.arrival); w <= timeline.of(end); ++w) {
      const double begin_w = timeline.start + static_cast<double>(w) * timeline.width;
      in_flight[w] +=
          std::max(0.0, std::min(end, begin_w + timeline.width) - std::max(record.arrival, begin_w)) / timeline.width;
    }
    if (!record.ok()) continue;
    ttft[timeline.of(record.arrival)].push_back(record.ttft());
    dots.points.emplace_back(record.arrival - timeline.start, record.ttft());
    all_ttft.push_back(record.ttft());
    all_e2e.push_back(record.e2e());
    if (record.tokens.size() > 1) all_tpot.push_back(record.tpot() * 1000);
    for (size_t i = 0; i < record.tokens.size(); ++i) {
      ++tokens[timeline.of(record.tokens[i])];
      if (i > 0) itl[timeline.of(record.tokens[i])].push_back((record.tokens[i] - record.tokens[i - 1]) * 1000);
    }
  }
  SvgSeries rate{"tokens", {}, false}, flight{"in flight", {}, false}, coming{"arriving", {}, false};
  for (size_t w = 0; w < kWindows; ++w) {
    rate.points.emplace_back(timeline.middle(w), tokens[w] / timeline.width);
    flight.points.emplace_back(timeline.middle(w), in_flight[w]);
    coming.points.emplace_back(timeline.middle(w), arrivals[w] / timeline.width);
  }
  const SvgChart all[] = {
      {"Time to first token, by arrival",
       "seconds of the run",
       "s",
       {dots, over_time("p50", timeline, ttft, &Summary::p50), over_time("p99", timeline, ttft, &Summary::p99)}},
      {"Time between tokens",
       "seconds of the run",
       "ms",
       {over_time("p50", timeline, itl, &Summary::p50), over_time("p99", timeline, itl, &Summary::p99)}},
      {"Output", "seconds of the run", "tokens/s", {rate}},
      {"Requests in flight", "seconds of the run", "requests", {flight}},
      {"Arrivals", "seconds of the run", "requests/s", {coming}},
      {"Distribution of the time to first token", "seconds", "fraction", {distribution("TTFT", all_ttft)}},
      {"Distribution of the time per output token", "milliseconds", "fraction", {distribution("TPOT", all_tpot)}},
      {"Distribution of the whole request", "seconds", "fraction", {distribution("E2E", all_e2e)}},
  };
  std::string out;
  for (const SvgChart& chart : all) out += chart.svg();
  return out;
}

std::string metric_row(const char* name, const Summary& s, double unit) {
  return fmt::format(
      "<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.2f}</td></tr>\n", name,
      s.mean * unit, s.p50 * unit, s.p90 * unit, s.p99 * unit, s.max * unit);
}

std::string prediction_table(const LoadMetrics& measured, const LoadMetrics& predicted) {
  std::string out =
      "</table>\n<table><tr><th></th><th>measured</th><th>predicted</th><th>predicted / measured</th></tr>\n";
  for (const ComparedFigure& row : compare_loads(measured, predicted))
    out += fmt::format("<tr><td>{}</td><td>{:.2f}</td><td>{:.2f}</td><td>{:.3f}</td></tr>\n", row.name, row.measured,
                       row.predicted, row.ratio());
  return out;
}

}  // namespace

std::string replay_report_html(const ReportFacts& facts, std::span<const RequestRecord> records,
                               const LoadMetrics& metrics, const LoadMetrics* predicted) {
  std::string out = fmt::format(kHead, html_escape(facts.title));
  out += fmt::format("<h1>{}</h1>\n<table>\n", html_escape(facts.title));
  const auto line = [&](const std::string& name, const std::string& value) {
    out += fmt::format("<tr><td>{}</td><td>{}</td></tr>\n", html_escape(name), html_escape(value));
  };
  for (const auto& [name, value] : facts.settings) line(name, value);
  line("requests", fmt::format("{} done, {} failed, in {:.1f} s", metrics.completed, metrics.failed, metrics.seconds));
  line("throughput", fmt::format("{:.2f} requests/s, {:.1f} output tokens/s, {:.1f} with prompts", metrics.request_rate,
                                 metrics.output_rate, metrics.total_rate));
  line("prompt tokens",
       fmt::format("{}, of which {} from the prefix cache", metrics.prompt_tokens, metrics.cached_tokens));
  if (metrics.good > 0) line("goodput", fmt::format("{:.2f} requests/s", metrics.goodput));
  for (const auto& [text, count] : metrics.errors) line("error", fmt::format("{} x {}", count, text));
  out += "</table>\n<table><tr><th></th><th>mean</th><th>p50</th><th>p90</th><th>p99</th><th>max</th></tr>\n";
  out += metric_row("TTFT, s", metrics.ttft, 1) + metric_row("TPOT, ms", metrics.tpot, 1000) +
         metric_row("ITL, ms", metrics.itl, 1000) + metric_row("E2E, s", metrics.e2e, 1);
  if (predicted) out += prediction_table(metrics, *predicted);
  return out + "</table>\n<div class=\"charts\">\n" + charts(records, metrics) + "</div></body></html>\n";
}

}  // namespace millrace
