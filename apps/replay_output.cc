#include "replay_output.h"

#include <fmt/format.h>

#include <cstdio>

#include "base/ordered_json.h"
#include "base/result.h"
#include "table_room.h"

namespace millrace {
namespace {

using Json = nlohmann::ordered_json;

Json in_ms(const Summary& s) {
  return {
      {"mean", s.mean * 1e3}, {"p50", s.p50 * 1e3}, {"p90", s.p90 * 1e3}, {"p99", s.p99 * 1e3}, {"max", s.max * 1e3}};
}

void add_figures(Json& out, const LoadMetrics& m, const GoodputLimits& limits) {
  out["requests"] = m.requests;
  out["completed"] = m.completed;
  out["failed"] = m.failed;
  out["seconds"] = m.seconds;
  out["prompt_tokens"] = m.prompt_tokens;
  out["cached_tokens"] = m.cached_tokens;
  out["output_tokens"] = m.output_tokens;
  out["request_throughput"] = m.request_rate;
  out["output_throughput"] = m.output_rate;
  out["total_token_throughput"] = m.total_rate;
  out["ttft_ms"] = in_ms(m.ttft);
  out["tpot_ms"] = in_ms(m.tpot);
  out["itl_ms"] = in_ms(m.itl);
  out["e2el_ms"] = in_ms(m.e2e);
  out["lag_ms"] = in_ms(m.lag);
  out["errors"] = m.errors;
  if (limits.any())
    out["goodput"] = {{"requests_per_second", m.goodput},
                      {"good_requests", m.good},
                      {"ttft_ms", limits.ttft * 1e3},
                      {"tpot_ms", limits.tpot * 1e3},
                      {"e2el_ms", limits.e2e * 1e3}};
}

TextTable::Row times_row(const char* name, const Summary& s) {
  TextTable::Row row = {name};
  for (const double seconds : {s.mean, s.p50, s.p90, s.p99, s.max}) row.push_back(fmt::format("{:.2f}", seconds * 1e3));
  return row;
}

std::vector<TableColumn> times_columns() {
  return {{.name = "", .left = true},      {.name = "mean, ms"}, {.name = "p50, ms", .drops = 2},
          {.name = "p90, ms", .drops = 1}, {.name = "p99, ms"},  {.name = "max, ms", .drops = 3}};
}

std::vector<TableColumn> predicted_columns() {
  return {{.name = "", .left = true},
          {.name = "measured", .drops = 2},
          {.name = "predicted", .drops = 1},
          {.name = "predicted / measured"}};
}

}  // namespace

std::string replay_drop_order() {
  return drop_order(times_columns()) + "; and of a prediction: " + drop_order(predicted_columns());
}

void print_replay_text(const LoadMetrics& m, const GoodputLimits& limits, const LoadMetrics* predicted,
                       const TableRoom& room) {
  const auto say = [&](const std::string& text, size_t indent) { print_wrapped(text, room.columns, indent); };
  say(fmt::format("{} requests completed, {} failed, in {:.2f} s", m.completed, m.failed, m.seconds), 0);
  for (const auto& [text, count] : m.errors) say(fmt::format("{} x {}", count, text), 2);
  say(fmt::format("{:.3f} requests/s, {:.1f} output tokens/s, {:.1f} tokens/s including prompts; {} of {} prompt "
                  "tokens from the prefix cache",
                  m.request_rate, m.output_rate, m.total_rate, m.cached_tokens, m.prompt_tokens),
      0);
  if (limits.any())
    say(fmt::format("goodput {:.3f} requests/s: {} of {} requests within the limits", m.goodput, m.good, m.requests),
        0);
  TextTable times(TableLook::plain, times_columns());
  times.add(times_row("TTFT", m.ttft));
  times.add(times_row("TPOT", m.tpot));
  times.add(times_row("ITL", m.itl));
  times.add(times_row("E2E", m.e2e));
  fmt::print("\n{}", times.text(room));
  if (m.lag.p99 > 0.01) say(fmt::format("requests were sent up to {:.1f} ms late", m.lag.max * 1e3), 2);
  if (!predicted) return;
  TextTable compared(TableLook::plain, predicted_columns());
  for (const ComparedFigure& row : compare_loads(m, *predicted))
    compared.add({row.name, fmt::format("{:.2f}", row.measured), fmt::format("{:.2f}", row.predicted),
                  fmt::format("{:.3f}", row.ratio())});
  fmt::print("\n{}", compared.text(room));
}

Json replay_json(Json facts, const LoadMetrics& metrics, const GoodputLimits& limits, const LoadMetrics* predicted) {
  add_figures(facts, metrics, limits);
  if (!predicted) return facts;
  add_figures(facts["predicted"], *predicted, limits);
  for (const ComparedFigure& row : compare_loads(metrics, *predicted))
    facts["predicted_over_measured"][row.key] = row.ratio();
  return facts;
}

Result<void> write_replay_report(const std::string& path, const ReportFacts& facts,
                                 std::span<const RequestRecord> records, const LoadMetrics& metrics,
                                 const LoadMetrics* predicted) {
  MILLRACE_TRY(const std::string html, replay_report_html(facts, records, metrics, predicted));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  const bool written = file && std::fwrite(html.data(), 1, html.size(), file) == html.size();
  if ((file && std::fclose(file) != 0) || !written) return Error::user(fmt::format("{}: cannot be written", path));
  return {};
}

}  // namespace millrace
