// Virtual token counter (Sheng et al., 2024, Fairness in Serving Large Language Models): every tenant's counter grows
// with the service received, prompt tokens at admission and answer tokens as they are generated, divided by the
// tenant's weight; the tenant with the smallest counter goes first. A tenant that returns from idleness is lifted to
// the smallest counter of the active ones, so that no tenant saves up service.
#include <fmt/format.h>

#include <charconv>
#include <map>

#include "schedule/orders.h"
#include "schedule/policies/factories.h"

namespace millrace {
namespace {

constexpr size_t kMaxTenants = 4096;  // retained while idle

using Weights = std::map<std::string, double, std::less<>>;

class Vtc final : public SchedulerPolicy {
 public:
  Vtc(double prompt_cost, double answer_cost, Weights weights, Reserve reserve)
      : prompt_cost_(prompt_cost), answer_cost_(answer_cost), weights_(std::move(weights)), reserve_(reserve) {}

  void rank(std::vector<const Sequence*>& queue, const ScheduleView&) override {
    // Queued streams by tenant, in order of arrival; repeatedly takes the head of the tenant with the smallest counter
    // and charges it.
    std::map<std::string_view, Line> lines;
    for (const Sequence* stream : queue) {
      Line& line = lines[stream->request.tenant];
      if (line.streams.empty()) line.counter = counters_[stream->request.tenant].served;
      line.streams.push_back(stream);
    }
    queue.clear();
    while (!lines.empty()) {
      auto least = std::ranges::min_element(lines, {}, [](const auto& entry) { return entry.second.counter; });
      Line& line = least->second;
      const Sequence* stream = line.streams[line.next++];
      line.counter += admission_charge(*stream);
      queue.push_back(stream);
      if (line.next == line.streams.size()) lines.erase(least);
    }
  }
  void share(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out) override {
    share_decodes_first(view, token_budget, out);
  }
  const Sequence* victim(const ScheduleView& view, const Sequence& wanting) override {
    return last_arrived(view, wanting);
  }
  int64_t promise(const Sequence& stream, const PlannerLimits&) const override {
    return promised_tokens(reserve_, stream);
  }

  void observe(const ScheduleEvent& event) override {
    const Sequence& stream = *event.stream;
    Counter& counter = counters_[stream.request.tenant];
    switch (event.kind) {
      case ScheduleEvent::Kind::queued:
        if (counter.open++ == 0) lift(counter);
        break;
      case ScheduleEvent::Kind::admitted: counter.served += admission_charge(stream); break;
      case ScheduleEvent::Kind::ran:
        if (event.sampled) counter.served += answer_cost_ / weight(stream);
        break;
      case ScheduleEvent::Kind::preempted: break;
      case ScheduleEvent::Kind::left:
        if (--counter.open == 0) last_idle_ = counter.served;
        if (counters_.size() > kMaxTenants)
          std::erase_if(counters_, [](const auto& entry) { return entry.second.open == 0; });
        break;
    }
  }

 private:
  struct Counter {
    double served = 0;
    int64_t open = 0;  // waiting or running streams
  };
  struct Line {
    std::vector<const Sequence*> streams;
    size_t next = 0;
    double counter = 0;
  };

  void lift(Counter& counter) {
    double least = -1;
    for (const auto& [tenant, other] : counters_)
      if (&other != &counter && other.open > 0 && (least < 0 || other.served < least)) least = other.served;
    counter.served = std::max(counter.served, least >= 0 ? least : last_idle_);
  }
  double weight(const Sequence& stream) const {
    auto found = weights_.find(stream.request.tenant);
    return found == weights_.end() ? 1.0 : found->second;
  }
  // Charged once: a stream that returns after a preemption has paid.
  double admission_charge(const Sequence& stream) const {
    return stream.progress.preemptions > 0 ? 0.0
                                           : prompt_cost_ * static_cast<double>(stream.prompt_tokens) / weight(stream);
  }

  double prompt_cost_, answer_cost_;
  Weights weights_;
  Reserve reserve_;
  std::map<std::string, Counter, std::less<>> counters_;
  double last_idle_ = 0;
};

// "alice:2;bob:0.5"
Result<Weights> read_weights(const std::string& text) {
  Weights out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(';', begin), text.size());
    const std::string item = text.substr(begin, end - begin);
    const size_t colon = item.rfind(':');
    double value = 0;
    const bool good =
        colon != std::string::npos &&
        std::from_chars(item.data() + colon + 1, item.data() + item.size(), value).ptr == item.data() + item.size();
    if (!good || !(value > 0 && value < 1e9))
      return Error::user(
          fmt::format("weights: must be TENANT:WEIGHT;TENANT:WEIGHT with weights above 0, got '{}'", item));
    out[item.substr(0, colon)] = value;
    begin = end + 1;
  }
  return out;
}

}  // namespace

Result<std::unique_ptr<SchedulerPolicy>> make_vtc(const OptionValues& options) {
  MILLRACE_TRY(Reserve reserve, read_reserve(options));
  MILLRACE_TRY(Weights weights, read_weights(options.text("weights")));
  return std::unique_ptr<SchedulerPolicy>(
      std::make_unique<Vtc>(options.number("prompt_cost"), options.number("answer_cost"), std::move(weights), reserve));
}

}  // namespace millrace
