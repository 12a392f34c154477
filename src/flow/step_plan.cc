#include "flow/step_plan.h"

#include <fmt/format.h>

#include <charconv>
#include <system_error>

namespace millrace {
namespace {

void print_preemptions(std::string& out, const char* word, const std::vector<PlannedPreemption>& list) {
  if (list.empty()) return;
  out += out.empty() ? word : fmt::format(" {}", word);
  for (const auto& p : list) out += fmt::format(" {}{}", p.request, p.swap ? "~" : "");
  out += ";";
}

// Reads what to_string writes, one word at a time.
class PlanReader {
 public:
  explicit PlanReader(std::string_view text) : rest_(text) {}

  bool skip(std::string_view expected) {
    if (!rest_.starts_with(expected)) return false;
    rest_.remove_prefix(expected.size());
    return true;
  }
  template <typename Number>
  bool number(Number& out) {
    auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), out);
    if (error != std::errc() || out < Number{}) return false;
    rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
    return true;
  }
  bool done() const { return rest_.empty(); }

  bool preemptions(std::vector<PlannedPreemption>& out) {
    while (skip(" ")) {
      PlannedPreemption p;
      if (!number(p.request)) return false;
      p.swap = skip("~");
      out.push_back(p);
    }
    return skip(";") && !out.empty();
  }
  bool ids(std::vector<RequestId>& out) {
    while (skip(" ")) {
      RequestId id = 0;
      if (!number(id)) return false;
      out.push_back(id);
    }
    return skip(";") && !out.empty();
  }
  bool chunk(std::vector<PlannedChunk>& out) {
    PlannedChunk c;
    if (!(number(c.request) && skip(":[") && number(c.first) && skip("+") && number(c.count) && skip("]")))
      return false;
    c.sample = skip("*");
    const bool drafts = c.sample && !rest_.empty() && rest_.front() != ' ';
    if (drafts && (!number(c.drafted) || c.drafted < 1)) return false;
    out.push_back(c);
    return c.own() > 0;
  }

 private:
  std::string_view rest_;
};

}  // namespace

int64_t StepPlan::tokens() const {
  int64_t total = 0;
  for (const auto& chunk : chunks) total += chunk.count;
  return total;
}

void StepPlan::clear() {
  preempted.clear();
  admitted.clear();
  preempted_for_blocks.clear();
  chunks.clear();
}

std::string StepPlan::to_string() const {
  std::string out;
  print_preemptions(out, "preempt", preempted);
  if (!admitted.empty()) {
    out += out.empty() ? "admit" : " admit";
    for (auto id : admitted) out += fmt::format(" {}", id);
    out += ";";
  }
  print_preemptions(out, "squeeze", preempted_for_blocks);
  for (const auto& chunk : chunks) {
    out += fmt::format("{}{}:[{}+{}]{}", out.empty() ? "" : " ", chunk.request, chunk.first, chunk.count,
                       chunk.sample ? "*" : "");
    if (chunk.drafted > 0) out += fmt::format("{}", chunk.drafted);
  }
  return out;
}

Result<StepPlan> StepPlan::parse(std::string_view text) {
  StepPlan plan;
  PlanReader in(text);
  bool good = true;
  while (good && !in.done()) {
    in.skip(" ");
    if (in.skip("preempt"))
      good = in.preemptions(plan.preempted);
    else if (in.skip("admit"))
      good = in.ids(plan.admitted);
    else if (in.skip("squeeze"))
      good = in.preemptions(plan.preempted_for_blocks);
    else
      good = in.chunk(plan.chunks);
  }
  if (!good) return Error::user(fmt::format("step plan: cannot be read: {}", text));
  return plan;
}

}  // namespace millrace
