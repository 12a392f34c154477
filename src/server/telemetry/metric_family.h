// Builds a prometheus::MetricFamily value by value, for figures that are read on every scrape.
#pragma once

#include <prometheus/metric_family.h>

#include <string>
#include <utility>
#include <vector>

namespace millrace {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

class FamilyBuilder {
 public:
  FamilyBuilder(std::string name, std::string help, prometheus::MetricType type) {
    family_.name = std::move(name);
    family_.help = std::move(help);
    family_.type = type;
  }
  FamilyBuilder& add(double value, const MetricLabels& labels = {}) {
    prometheus::ClientMetric& metric = slot(labels);
    if (family_.type == prometheus::MetricType::Counter) metric.counter.value = value;
    if (family_.type == prometheus::MetricType::Gauge) metric.gauge.value = value;
    return *this;
  }
  // `counts`: per bucket, not cumulative. `edges`: as many, or one less if the last bucket is unbounded.
  template <typename Counts, typename Edge>
  FamilyBuilder& add_histogram(const Counts& counts, size_t edges, Edge edge, double sum, const MetricLabels& labels) {
    prometheus::ClientMetric& metric = slot(labels);
    uint64_t total = 0;
    for (size_t i = 0; i < counts.size(); ++i) {
      total += static_cast<uint64_t>(counts[i]);
      if (i < edges) metric.histogram.bucket.push_back({total, edge(i)});
    }
    metric.histogram.sample_count = total;
    metric.histogram.sample_sum = sum;
    return *this;
  }
  prometheus::MetricFamily take() { return std::move(family_); }

 private:
  prometheus::ClientMetric& slot(const MetricLabels& labels) {
    prometheus::ClientMetric& metric = family_.metric.emplace_back();
    for (const auto& [name, value] : labels) metric.label.push_back({name, value});
    return metric;
  }
  prometheus::MetricFamily family_;
};

}  // namespace millrace
