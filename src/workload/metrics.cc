#include "workload/metrics.h"

namespace millrace {

bool GoodputLimits::kept_by(const RequestRecord& record) const {
  if (!record.ok()) return false;
  if (ttft > 0 && record.ttft() > ttft) return false;
  if (tpot > 0 && record.tpot() > tpot) return false;
  return !(e2e > 0 && record.e2e() > e2e);
}

std::vector<ComparedFigure> compare_loads(const LoadMetrics& measured, const LoadMetrics& predicted) {
  std::vector<ComparedFigure> out;
  auto add = [&](const char* name, const char* key, Summary LoadMetrics::*what, double Summary::*part) {
    out.push_back({name, key, (measured.*what).*part * 1e3, (predicted.*what).*part * 1e3});
  };
  add("TTFT mean, ms", "ttft_mean", &LoadMetrics::ttft, &Summary::mean);
  add("TTFT p99, ms", "ttft_p99", &LoadMetrics::ttft, &Summary::p99);
  add("TPOT mean, ms", "tpot_mean", &LoadMetrics::tpot, &Summary::mean);
  add("TPOT p99, ms", "tpot_p99", &LoadMetrics::tpot, &Summary::p99);
  add("ITL mean, ms", "itl_mean", &LoadMetrics::itl, &Summary::mean);
  add("ITL p99, ms", "itl_p99", &LoadMetrics::itl, &Summary::p99);
  add("E2E mean, ms", "e2e_mean", &LoadMetrics::e2e, &Summary::mean);
  add("E2E p99, ms", "e2e_p99", &LoadMetrics::e2e, &Summary::p99);
  out.push_back({"output tokens/s", "output_throughput", measured.output_rate, predicted.output_rate});
  out.push_back({"seconds", "seconds", measured.seconds, predicted.seconds});
  return out;
}

LoadMetrics measure_load(std::span<const RequestRecord> records, const GoodputLimits& limits) {
  LoadMetrics out;
  std::vector<double> ttft, tpot, itl, e2e, lag;
  double first = 0, last = 0;
  for (const RequestRecord& record : records) {
    if (out.requests++ == 0) first = last = record.arrival;
    first = std::min(first, record.arrival);
    lag.push_back(record.sent - record.arrival);
    if (!record.ok()) {
      ++out.failed;
      ++out.errors[record.error.empty() ? "no token received" : record.error];
      last = std::max(last, record.finished);
      continue;
    }
    ++out.completed;
    last = std::max(last, record.tokens.back());
    out.prompt_tokens += record.prompt_tokens;
    out.cached_tokens += record.cached_tokens;
    out.output_tokens += record.count();
    ttft.push_back(record.ttft());
    e2e.push_back(record.e2e());
    if (record.count() > 1) tpot.push_back(record.tpot());
    for (size_t i = 1; i < record.tokens.size(); ++i) itl.push_back(record.tokens[i] - record.tokens[i - 1]);
    out.good += limits.any() && limits.kept_by(record);
  }
  out.seconds = last - first;
  if (out.seconds > 0) {
    out.request_rate = static_cast<double>(out.completed) / out.seconds;
    out.output_rate = static_cast<double>(out.output_tokens) / out.seconds;
    out.total_rate = static_cast<double>(out.output_tokens + out.prompt_tokens) / out.seconds;
    out.goodput = static_cast<double>(out.good) / out.seconds;
  }
  out.ttft = summarize(std::move(ttft));
  out.tpot = summarize(std::move(tpot));
  out.itl = summarize(std::move(itl));
  out.e2e = summarize(std::move(e2e));
  out.lag = summarize(std::move(lag));
  return out;
}

}  // namespace millrace
