// A strict reader of Prometheus's text format, version 0.0.4: anything it cannot parse is reported as a problem.
//
//   # HELP name text / # TYPE name kind, once each and before the family's samples, which stand together
//   counters end in _total and do not fall below 0; a histogram's buckets rise with `le`, end in +Inf, and that is
//   _count
#pragma once

#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace millrace {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};

class Exposition {
 public:
  explicit Exposition(const std::string& text) {
    if (text.empty() || text.back() != '\n') wrong("does not end in a line feed");
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      line_ = text.substr(at, end - at);
      at = end + 1;
      if (line_.empty())
        wrong("an empty line");
      else if (line_[0] == '#')
        take_comment();
      else
        take_sample();
    }
    for (const auto& [name, type] : types_) check_family(name, type);
  }

  const std::vector<std::string>& problems() const { return problems_; }
  const std::map<std::string, std::string>& types() const { return types_; }

  // The sum of the samples of that name that have these labels; NaN: there is none.
  double value(const std::string& name, const std::map<std::string, std::string>& labels = {}) const {
    double sum = NAN;
    for (const Sample& sample : samples_) {
      if (sample.name != name) continue;
      bool has = true;
      for (const auto& [key, wanted] : labels) has = has && sample.labels.count(key) && sample.labels.at(key) == wanted;
      if (has) sum = (std::isnan(sum) ? 0 : sum) + sample.value;
    }
    return sum;
  }

 private:
  void wrong(const std::string& what) { problems_.push_back(what + ": " + line_); }

  void take_comment() {
    const bool help = line_.starts_with("# HELP "), type = line_.starts_with("# TYPE ");
    if (!help && !type) return wrong("a comment of no known kind");
    const size_t space = line_.find(' ', 7);
    const std::string name = line_.substr(7, space - 7),
                      rest = space == std::string::npos ? "" : line_.substr(space + 1);
    if (!is_name(name)) wrong("a bad name");
    if (help) {
      if (rest.empty() || !helps_.insert(name).second) wrong("help that is missing or twice");
      return;
    }
    if (rest != "counter" && rest != "gauge" && rest != "histogram") wrong("a bad type");
    if (!types_.emplace(name, rest).second) wrong("a family twice");
    if (!helps_.count(name)) wrong("a type without help");
    family_ = name;
  }

  static bool is_name(const std::string& name) {
    if (name.empty() || std::isdigit(static_cast<unsigned char>(name[0]))) return false;
    for (const char c : name)
      if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != ':') return false;
    return true;
  }

  void take_sample() {
    Sample sample;
    size_t at = line_.find_first_of("{ ");
    if (at == std::string::npos) return wrong("no value");
    sample.name = line_.substr(0, at);
    if (!is_name(sample.name)) wrong("a bad name");
    if (line_[at] == '{') at = take_labels(sample, at + 1);
    if (at == std::string::npos || at >= line_.size() || line_[at] != ' ') return wrong("no value");
    const std::string value = line_.substr(at + 1);
    char* end = nullptr;
    sample.value = std::strtod(value.c_str(), &end);
    if (value.empty() || *end != 0) wrong("a bad value");
    const std::string type = types_.count(family_) ? types_.at(family_) : "";
    const bool part = type == "histogram" && (sample.name == family_ + "_bucket" || sample.name == family_ + "_sum" ||
                                              sample.name == family_ + "_count");
    if (sample.name != family_ && !part) wrong("a sample that is not of the family before it");
    if (type == "histogram" && !part) wrong("a histogram's bare name");
    std::string key = sample.name;
    for (const auto& [name, text] : sample.labels) key += "\x01" + name + "\x02" + text;
    if (!seen_.insert(key).second) wrong("a sample twice");
    samples_.push_back(std::move(sample));
  }

  // The place behind the closing brace.
  size_t take_labels(Sample& sample, size_t at) {
    while (at < line_.size() && line_[at] != '}') {
      const size_t equals = line_.find("=\"", at);
      if (equals == std::string::npos) return equals;
      const std::string name = line_.substr(at, equals - at);
      std::string text;
      for (at = equals + 2; at < line_.size() && line_[at] != '"'; ++at) {
        if (line_[at] == '\\') {
          ++at;
          if (at >= line_.size() || (line_[at] != 'n' && line_[at] != '\\' && line_[at] != '"')) wrong("a bad escape");
        }
        text += line_[at];
      }
      if (!is_name(name) || name.find(':') != std::string::npos || !sample.labels.emplace(name, text).second)
        wrong("a bad label, or twice");
      ++at;
      if (at < line_.size() && line_[at] == ',') ++at;
    }
    return at + 1;
  }

  void check_family(const std::string& name, const std::string& type) {
    line_ = name;
    const bool named_total = name.ends_with("_total");
    if (type == "counter" && !named_total) wrong("a counter whose name does not end in _total");
    if (type == "gauge" && named_total) wrong("a gauge named _total");
    bool any = false;
    std::map<std::string, std::vector<std::pair<double, double>>> buckets;
    std::map<std::string, double> counts, sums;
    for (const Sample& sample : samples_) {
      if (type != "histogram") {
        any = any || sample.name == name;
        if (sample.name == name && type == "counter" && !(sample.value >= 0)) wrong("a counter below 0");
        continue;
      }
      auto labels = sample.labels;
      labels.erase("le");
      std::string key;
      for (const auto& [label, text] : labels) key += label + "=" + text + ";";
      if (sample.name == name + "_bucket") {
        const std::string edge = sample.labels.count("le") ? sample.labels.at("le") : "";
        buckets[key].emplace_back(edge == "+Inf" ? INFINITY : std::strtod(edge.c_str(), nullptr), sample.value);
      }
      if (sample.name == name + "_count") counts[key] = sample.value;
      if (sample.name == name + "_sum") sums[key] = sample.value;
    }
    if (type != "histogram") {
      if (!any) wrong("a family without samples");
      return;
    }
    if (buckets.empty() || buckets.size() != counts.size() || sums.size() != counts.size())
      wrong("a histogram that lacks parts");
    for (const auto& [key, list] : buckets) {
      for (size_t i = 1; i < list.size(); ++i)
        if (!(list[i].first > list[i - 1].first) || list[i].second < list[i - 1].second)
          wrong("buckets that do not rise");
      if (!std::isinf(list.back().first) || !counts.count(key) || list.back().second != counts[key])
        wrong("buckets whose last is not the count");
    }
  }

  std::string line_, family_;
  std::vector<std::string> problems_;
  std::map<std::string, std::string> types_;
  std::set<std::string> helps_, seen_;
  std::vector<Sample> samples_;
};

}  // namespace millrace
