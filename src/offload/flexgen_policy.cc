#include "offload/flexgen_policy.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "offload/linear_program.h"

namespace millrace {
namespace {

enum Kind : size_t { kWeights, kKeys, kActivations, kKinds };

// Columns: the shares of each kind by level, then the two times of a layer.
class FlexgenProgram {
 public:
  FlexgenProgram(const FlexgenProblem& problem, int64_t block)
      : problem_(problem),
        block_(static_cast<double>(block)),
        levels_(problem.levels.size()),
        lp_(static_cast<int>(kKinds * levels_ + 2)) {
    lp_.set_cost(prefill_time(), 1);
    lp_.set_cost(decode_time(), static_cast<double>(problem.generated - 1));
    for (const int time : {prefill_time(), decode_time()}) lp_.set_bounds(time, 0, LinearProgram::kInfinity);
    add_shares();
    add_links();
    add_computation();
    add_rooms();
  }

  Result<FlexgenPolicy> solve() {
    auto solved = lp_.minimize();
    if (!solved.ok() && solved.error().kind == ErrorKind::resource)
      return Error::resource("the levels hold too little");
    MILLRACE_TRY(const std::vector<double> columns, std::move(solved));
    const auto x = [&](int column) { return columns[static_cast<size_t>(column)]; };
    FlexgenPolicy out{.block = static_cast<int64_t>(block_)};
    for (size_t level = 0; level < levels_; ++level) {
      out.weights.push_back(x(share(kWeights, level)));
      out.keys.push_back(x(share(kKeys, level)));
      out.activations.push_back(x(share(kActivations, level)));
    }
    // Seconds, from units.
    out.prefill_seconds = x(prefill_time()) * kTimeUnit;
    out.decode_seconds = x(decode_time()) * kTimeUnit;
    const double steps = static_cast<double>(problem_.generated - 1), layers = static_cast<double>(problem_.layers);
    const double whole = layers * (out.prefill_seconds + steps * out.decode_seconds);
    if (whole > 0) out.tokens_per_second = block_ * static_cast<double>(problem_.generated) / whole;
    if (out.decode_seconds > 0) out.decode_tokens_per_second = block_ / (layers * out.decode_seconds);
    return out;
  }

 private:
  // Units that keep the coefficients near 1.
  static constexpr double kTimeUnit = 1e-3, kByteUnit = 1e6;

  int share(size_t kind, size_t level) const { return static_cast<int>(kind * levels_ + level); }
  int prefill_time() const { return static_cast<int>(kKinds * levels_); }
  int decode_time() const { return prefill_time() + 1; }

  void add_shares() {
    for (size_t kind = 0; kind < kKinds; ++kind) {
      std::vector<std::pair<int, double>> row;
      for (size_t level = 0; level < levels_; ++level) row.emplace_back(share(kind, level), 1);
      lp_.add_row(row, 1, 1);
    }
    for (const auto& [kind, moves] : {std::pair(kKeys, problem_.keys_move), {kActivations, problem_.activations_move}})
      for (size_t level = 1; level < levels_ && !moves; ++level) lp_.set_bounds(share(kind, level), 0, 0);
  }

  // Bytes of each kind that a layer needs, or makes.
  struct Moved {
    double bytes[kKinds];
  };
  Moved decode_read() const {
    const double mean = static_cast<double>(problem_.prompt) + static_cast<double>(problem_.generated) / 2;
    return {{problem_.layer_bytes, block_ * mean * problem_.key_bytes, block_ * problem_.activation_bytes}};
  }
  Moved decode_written() const { return {{0, block_ * problem_.key_bytes, block_ * problem_.activation_bytes}}; }
  Moved prefill_read() const {
    const double tokens = block_ * static_cast<double>(problem_.prompt);
    return {{problem_.layer_bytes * passes(), 0, tokens * problem_.activation_bytes}};
  }
  Moved prefill_written() const {
    const double tokens = block_ * static_cast<double>(problem_.prompt);
    return {{0, (tokens + block_) * problem_.key_bytes, tokens * problem_.activation_bytes}};
  }
  double passes() const {
    return std::ceil(block_ * static_cast<double>(problem_.prompt) / static_cast<double>(problem_.chunk));
  }

  // time >= start + bytes beyond the link * seconds a byte
  void add_transfer(int time, const Moved& moved, size_t link, double seconds_per_byte, double start) {
    std::vector<std::pair<int, double>> row = {{time, 1}};
    for (size_t kind = 0; kind < kKinds; ++kind)
      for (size_t level = link; level < levels_; ++level)
        row.emplace_back(share(kind, level), -moved.bytes[kind] * seconds_per_byte / kTimeUnit);
    lp_.add_row(row, start / kTimeUnit, LinearProgram::kInfinity);
  }

  void add_links() {
    for (size_t link = 1; link < levels_; ++link) {
      const OffloadLevel& level = problem_.levels[link];
      add_transfer(prefill_time(), prefill_read(), link, 1 / level.read_bytes, 0);
      add_transfer(decode_time(), decode_read(), link, 1 / level.read_bytes, 0);
      add_transfer(prefill_time(), prefill_written(), link, 1 / level.write_bytes, 0);
      add_transfer(decode_time(), decode_written(), link, 1 / level.write_bytes, 0);
    }
  }

  void add_computation() {
    const auto block = static_cast<int64_t>(block_);
    add_transfer(decode_time(), decode_read(), 1, problem_.read_work, problem_.decode_seconds(block));
    add_transfer(prefill_time(), prefill_read(), 1, problem_.read_work,
                 problem_.prefill_seconds(block * problem_.prompt));
  }

  // Level 0 also holds what is on the way: some layers, and the keys of two layers.
  void add_rooms() {
    const auto layers = static_cast<double>(problem_.layers);
    const double tokens = block_ * static_cast<double>(problem_.prompt + problem_.generated);
    const double keys = tokens * problem_.key_bytes;
    const double rows = std::min(block_ * static_cast<double>(problem_.prompt), static_cast<double>(problem_.chunk));
    const double held[kKinds] = {layers * problem_.layer_bytes, layers * keys, rows * problem_.activation_bytes};
    const double flight[kKinds] = {std::min(layers, problem_.layers_in_flight) * problem_.layer_bytes,
                                   std::min(layers, 2.0) * keys, 0};
    for (size_t level = 0; level < levels_; ++level) {
      std::vector<std::pair<int, double>> row;
      for (size_t kind = 0; kind < kKinds; ++kind) {
        row.emplace_back(share(kind, level), held[kind] / kByteUnit);
        for (size_t other = 1; other < levels_ && level == 0; ++other)
          row.emplace_back(share(kind, other), flight[kind] / kByteUnit);
      }
      lp_.add_row(row, -LinearProgram::kInfinity, problem_.levels[level].bytes / kByteUnit);
    }
  }

  const FlexgenProblem& problem_;
  const double block_;
  const size_t levels_;
  LinearProgram lp_;
};

}  // namespace

std::string FlexgenPolicy::text(const FlexgenProblem& problem) const {
  std::string out = fmt::format("block of {} stream{}", block, block == 1 ? "" : "s");
  for (const auto& [kind, shares] : {std::pair("weights", &weights), {"keys", &keys}, {"activations", &activations}}) {
    out += fmt::format("; {}", kind);
    const char* separator = " ";
    for (size_t level = 0; level < shares->size(); ++level) {
      if ((*shares)[level] < 0.0005) continue;
      out += fmt::format("{}{:.0f} % {}", separator, 100 * (*shares)[level], problem.levels[level].name);
      separator = ", ";
    }
  }
  return out;
}

Result<FlexgenPolicy> solve_flexgen(const FlexgenProblem& problem, int64_t block) {
  return FlexgenProgram(problem, block).solve();
}

// A block that does not fit has no larger one that does.
Result<FlexgenPolicy> best_flexgen_policy(const FlexgenProblem& problem) {
  std::optional<FlexgenPolicy> best;
  for (int64_t block = 1;; block = std::min(2 * block, problem.streams)) {
    auto found = solve_flexgen(problem, block);
    if (!found.ok() && (!best || found.error().kind != ErrorKind::resource)) return found.error();
    if (!found.ok()) break;
    // The smaller of two equal blocks is taken: its first tokens are earlier.
    if (!best || found->tokens_per_second > best->tokens_per_second * (1 + 1e-6)) best = std::move(*found);
    if (block >= problem.streams) break;
  }
  return *std::move(best);
}

}  // namespace millrace
