#include "compress/rounding/format_knapsack.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace millrace {
namespace {

constexpr size_t kMaxStates = size_t{1} << 20;

// A choice for the tensors so far: of all with at most these bytes, none costs less.
struct State {
  int64_t bytes;
  double cost;
  uint32_t before;  // of the states of one tensor less
  uint32_t candidate;
};

// Ascending bytes, descending cost.
void keep_undominated(std::vector<State>& states) {
  std::ranges::stable_sort(
      states, [](const State& a, const State& b) { return a.bytes != b.bytes ? a.bytes < b.bytes : a.cost < b.cost; });
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(states, [&](const State& state) {
    if (!(state.cost < least)) return true;
    least = state.cost;
    return false;
  });
}

}  // namespace

Result<std::vector<size_t>> least_cost_formats(const std::vector<FormatCosts>& tensors, int64_t bytes) {
  std::vector<int64_t> rest(tensors.size() + 1);  // the least bytes of the tensors from here on
  for (size_t i = tensors.size(); i-- > 0;)
    rest[i] = rest[i + 1] + std::ranges::min(tensors[i].candidates, {}, &FormatCosts::Candidate::bytes).bytes;
  if (rest[0] > bytes)
    return Error::user(
        fmt::format("the smallest formats take {} bytes; more than the {} that are allowed", rest[0], bytes));
  std::vector<std::vector<State>> stages = {{{0, 0, 0, 0}}};
  for (size_t i = 0; i < tensors.size(); ++i) {
    std::vector<State> next;
    for (uint32_t s = 0; s < stages[i].size(); ++s)
      for (uint32_t c = 0; c < tensors[i].candidates.size(); ++c) {
        const FormatCosts::Candidate& candidate = tensors[i].candidates[c];
        const int64_t sum = stages[i][s].bytes + candidate.bytes;
        if (sum + rest[i + 1] <= bytes) next.push_back({sum, stages[i][s].cost + candidate.cost, s, c});
      }
    keep_undominated(next);
    if (next.size() > kMaxStates)
      return Error::resource(fmt::format("{} sums of bytes to choose from; give fewer formats", next.size()));
    stages.push_back(std::move(next));
  }
  std::vector<size_t> chosen(tensors.size());
  uint32_t at = static_cast<uint32_t>(stages.back().size() - 1);
  for (size_t i = tensors.size(); i-- > 0;) {
    const State& state = stages[i + 1][at];
    chosen[i] = state.candidate;
    at = state.before;
  }
  return chosen;
}

}  // namespace millrace
