#include "exactness/exactness.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "exactness/smallest_set.h"

namespace millrace {
namespace {

using Calls = std::vector<CompletionCall>;

constexpr int64_t kMinWords = 4;
constexpr int64_t kMaxFailures = 8;
constexpr int kTries = 3;         // sendings of one set of companions, because a difference may not show every time
constexpr size_t kMaxTests = 24;  // sets of companions
constexpr std::chrono::milliseconds kMinSpread{64}, kMaxSpread{1000};
// Fillers are numbered, so that none is sent twice before a comparison. 1,000 rounds of batches of 64 need fewer than
// 2^20 numbers.
constexpr uint64_t kSizeFillers = 0, kBatchFillers = uint64_t{1} << 20, kLoadFillers = uint64_t{1} << 24;

class ExactnessRun {
 public:
  ExactnessRun(CompletionServer& server, const ExactnessOptions& options)
      : server_(server), options_(options), sizes_(options.sizes) {}

  Result<ExactnessResult> run() {
    MILLRACE_TRY_VOID(fit_words());
    result_.probes = make_probes(sizes_);
    count_steps();
    MILLRACE_TRY_VOID(send_reference());
    const auto sent = send_all_ways();
    result_.complete = sent.ok();
    if (!sent.ok() && sent.error().kind != ErrorKind::cancelled) result_.error = sent.error();
    add_notes();
    return std::move(result_);
  }

 private:
  // Halves the long prompts until the server accepts slightly longer ones: the same number of words may have more
  // tokens.
  Result<void> fit_words() {
    for (uint64_t i = 0;; ++i) {
      const Calls one = {make_filler(sizes_, kSizeFillers + i, sizes_.long_words + sizes_.long_words / 8 + 2)};
      const auto answers = server_.answer(one);
      if (answers[0].ok()) return {};
      if (answers[0].error().kind != ErrorKind::unsupported || sizes_.long_words / 2 < kMinWords)
        return answers[0].error();
      sizes_.long_words /= 2;
      shortened_ = true;
    }
  }

  void count_steps() {
    const int64_t alone = std::ssize(result_.probes);
    const int64_t ways = 4 + (server_.can_skip_cache() ? 1 : 0) + (options_.restart ? 1 : 0);
    steps_ = ways * alone + 2 * options_.rounds * std::ssize(groups(0)) + 2;
  }

  // Errors: cancelled.
  Result<void> step(const std::string& way) {
    fraction_ = steps_ > 0 ? std::min(1.0, static_cast<double>(done_++) / static_cast<double>(steps_)) : 0;
    return wanted(way) ? Result<void>() : Error::cancelled("interrupted");
  }

  bool wanted(const std::string& way) const { return !options_.progress || options_.progress(fraction_, way); }

  Result<void> send_reference() {
    const auto start = std::chrono::steady_clock::now();
    for (const Probe& probe : result_.probes) {
      MILLRACE_TRY_VOID(step("reference"));
      auto answers = server_.answer({&probe.call, 1});
      if (!answers[0].ok()) return answers[0].error();
      result_.reference.push_back(std::move(*answers[0]));
    }
    const auto whole = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start);
    spread_ = std::clamp(whole / std::ssize(result_.probes), kMinSpread, kMaxSpread);
    return {};
  }

  Result<void> send_all_ways() {
    if (server_.can_skip_cache()) {
      MILLRACE_TRY_VOID(
          send_alone({"uncached", "alone, without cached prefixes", {}, {}, "", -1}, &CompletionCall::uncached));
    }
    MILLRACE_TRY_VOID(send_alone({"again", "alone, with the whole prompt in the prefix cache", {}, {}, "", -1}));
    MILLRACE_TRY_VOID(
        send_alone({"streamed", "alone, as a stream of events", {}, {}, "", -1}, &CompletionCall::stream));
    MILLRACE_TRY_VOID(
        send_batches({"batch", "with other requests that start at the same time", {}, {}, "", -1}, false));
    MILLRACE_TRY_VOID(
        send_batches({"staggered", "with other requests that start one after the other", {}, {}, "", -1}, true));
    MILLRACE_TRY_VOID(send_load());
    MILLRACE_TRY_VOID(send_alone({"after load", "alone, after other requests", {}, {}, "", -1}));
    if (!options_.restart) return {};
    MILLRACE_TRY_VOID(step("restart"));
    MILLRACE_TRY_VOID(options_.restart());
    return send_alone({"restarted", "alone, after a restart, in reverse order", {}, {}, "", -1}, nullptr, true);
  }

  Result<void> send_alone(WayResult way, bool CompletionCall::*flag = nullptr, bool reverse = false) {
    WayResult& stored = begin_way(std::move(way));
    for (size_t i = 0; i < result_.probes.size(); ++i) {
      MILLRACE_TRY_VOID(step(stored.name));
      const size_t probe = reverse ? result_.probes.size() - 1 - i : i;
      CompletionCall call = result_.probes[probe].call;
      if (flag) call.*flag = true;
      MILLRACE_TRY_VOID(add(stored, probe, call, server_.answer({&call, 1})[0]));
    }
    return {};
  }

  // The probes of each batch of one round, rotated so that each round has other neighbours.
  std::vector<std::vector<size_t>> groups(int64_t round) const {
    std::vector<size_t> order(result_.probes.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::rotate(order, order.begin() + round % std::ssize(order));
    std::vector<std::vector<size_t>> out;
    for (size_t probe : order) {
      if (out.empty() || std::ssize(out.back()) >= options_.batch) out.emplace_back();
      out.back().push_back(probe);
    }
    return out;
  }

  Result<void> send_batches(WayResult way, bool staggered) {
    WayResult& stored = begin_way(std::move(way));
    for (int64_t round = 0; round < options_.rounds; ++round)
      for (const std::vector<size_t>& group : groups(round)) {
        MILLRACE_TRY_VOID(step(stored.name));
        MILLRACE_TRY_VOID(send_batch(stored, group, staggered));
      }
    return {};
  }

  Result<void> send_batch(WayResult& way, const std::vector<size_t>& group, bool staggered) {
    Calls calls;
    for (size_t probe : group) calls.push_back(result_.probes[probe].call);
    while (std::ssize(calls) < options_.batch)
      calls.push_back(make_filler(sizes_, kBatchFillers + fillers_++, sizes_.long_words / 2));
    if (staggered)
      for (size_t i = 0; i < calls.size(); ++i) calls[i].delay = spread_ * static_cast<int64_t>(i) / std::ssize(calls);
    const auto answers = server_.answer(calls);
    const bool had_example = way.example.has_value();
    size_t victim = 0;
    for (size_t i = 0; i < group.size(); ++i) {
      const bool before = way.example.has_value();
      MILLRACE_TRY_VOID(add(way, group[i], calls[i], answers[i]));
      if (!before && way.example) victim = i;
    }
    return !had_example && way.example ? find_companions(*way.example, calls, victim) : Result<void>();
  }

  // Finds the smallest set of calls next to which the call's answer differs. Errors: cancelled (the companions are all
  // calls of the batch).
  Result<void> find_companions(DifferenceExample& example, Calls calls, size_t victim) {
    calls.erase(calls.begin() + static_cast<std::ptrdiff_t>(victim));
    example.companions = calls;
    bool stopped = false;
    const auto differs = [&](const std::vector<size_t>& set) {
      const auto found = stopped ? std::nullopt : differs_with(example, calls, set);
      stopped = !found;
      return found.value_or(false);
    };
    std::vector<size_t> all(calls.size());
    std::iota(all.begin(), all.end(), size_t{0});
    if (differs({})) {
      example.companions.clear();
      return {};
    }
    const bool repeats = differs(all);
    const auto smallest = repeats ? smallest_set(calls.size(), kMaxTests, differs) : all;
    if (stopped) return Error::cancelled("interrupted");
    example.repeats = repeats;
    if (!repeats) return {};
    example.companions.clear();
    for (size_t index : smallest) example.companions.push_back(calls[index]);
    differs_again(example);
    return {};
  }

  // Returns nothing if progress() stopped the check before the tries were used up.
  std::optional<bool> differs_with(const DifferenceExample& example, const Calls& calls,
                                   const std::vector<size_t>& set) {
    Calls sent = {example.call};
    for (size_t index : set) sent.push_back(calls[index]);
    for (int i = 0; i < kTries; ++i) {
      if (!wanted("smallest example")) return std::nullopt;
      const auto answers = server_.answer(sent);
      if (answers[0].ok() && compare_answers(example.expected, *answers[0])) return true;
    }
    return false;
  }

  // Takes the answer of the smallest set.
  void differs_again(DifferenceExample& example) {
    Calls sent = {example.call};
    sent.insert(sent.end(), example.companions.begin(), example.companions.end());
    for (int i = 0; i < kTries; ++i) {
      auto answers = server_.answer(sent);
      const auto found = answers[0].ok() ? compare_answers(example.expected, *answers[0]) : std::nullopt;
      if (!found) continue;
      example.got = std::move(*answers[0]);
      example.difference = *found;
      return;
    }
  }

  Result<void> send_load() {
    for (int wave = 0; wave < 2; ++wave) {
      MILLRACE_TRY_VOID(step("load"));
      Calls calls;
      for (int64_t i = 0; i < options_.batch; ++i)
        calls.push_back(make_filler(sizes_, kLoadFillers + static_cast<uint64_t>(wave * options_.batch + i),
                                    std::max<int64_t>(1, sizes_.long_words * (i + 1) / options_.batch)));
      for (const auto& answer : server_.answer(calls)) MILLRACE_TRY_VOID(count_failure(answer));
    }
    return {};
  }

  WayResult& begin_way(WayResult way) {
    way.cells.resize(result_.probes.size());
    result_.ways.push_back(std::move(way));
    return result_.ways.back();
  }

  // Stops the check after kMaxFailures failed requests in a row, so that a dead server does not receive the remaining
  // ones. Errors: that of `answer`.
  Result<void> count_failure(const Result<CompletionAnswer>& answer) {
    failures_ = answer.ok() ? 0 : failures_ + 1;
    if (failures_ < kMaxFailures) return {};
    return Error{answer.error().kind,
                 fmt::format("{} requests in a row failed; the last one: {}", failures_, answer.error().message)};
  }

  Result<void> add(WayResult& way, size_t probe, const CompletionCall& call, const Result<CompletionAnswer>& answer) {
    WayCell& cell = way.cells[probe];
    const auto counted = count_failure(answer);
    if (!answer.ok()) {
      ++cell.failed;
      if (way.failure.empty()) way.failure = answer.error().message;
      return counted;
    }
    way.cached_tokens = std::max(way.cached_tokens, answer->cached_tokens);
    const CompletionAnswer& expected = result_.reference[probe];
    if (answer->tokens.empty() != expected.tokens.empty()) way_without_logprobs_ = way.name;
    const auto difference = compare_answers(expected, *answer);
    if (!difference) {
      ++cell.same;
      return {};
    }
    cell.differences.push_back(*difference);
    if (!way.example) way.example = {probe, *difference, result_.probes[probe].call, call, expected, *answer, {}, true};
    return {};
  }

  void add_notes() {
    auto& notes = result_.notes;
    if (result_.error) notes.push_back("stopped before the end: " + result_.error->message);
    if (shortened_)
      notes.push_back(fmt::format("the server refuses longer prompts: long prompts have {} words", sizes_.long_words));
    if (!way_without_logprobs_.empty())
      notes.push_back(
          fmt::format("{}: some answers have log-probabilities and some have none; of these, text and "
                      "finish reason are compared",
                      way_without_logprobs_));
    int64_t again = -1;
    for (const WayResult& way : result_.ways) {
      if (way.name == "again") again = way.cached_tokens;
      if (way.name == "uncached" && way.cached_tokens > 0)
        notes.push_back("uncached: the server read cached prefixes all the same");
    }
    if (again == 0)
      notes.push_back("again: the server read no cached prefix, so this column says nothing about caches");
    if (again < 0) notes.push_back("again: the server does not say whether it read cached prefixes");
    if (!options_.restart)
      notes.push_back("no restart: --restart-command or --restart-pause also compares with a restarted server");
  }

  CompletionServer& server_;
  const ExactnessOptions& options_;
  ProbeSizes sizes_;
  ExactnessResult result_;
  std::chrono::milliseconds spread_{0};  // time over which staggered requests start
  uint64_t fillers_ = 0;
  int64_t steps_ = 0, done_ = 0, failures_ = 0;  // failures in a row
  double fraction_ = 0;                          // done, at the last step
  bool shortened_ = false;
  std::string way_without_logprobs_;
};

}  // namespace

int64_t ExactnessResult::same() const {
  int64_t count = 0;
  for (const WayResult& way : ways)
    for (const WayCell& cell : way.cells) count += cell.same;
  return count;
}

int64_t ExactnessResult::different() const {
  int64_t count = 0;
  for (const WayResult& way : ways)
    for (const WayCell& cell : way.cells) count += std::ssize(cell.differences);
  return count;
}

int64_t ExactnessResult::failed() const {
  int64_t count = 0;
  for (const WayResult& way : ways)
    for (const WayCell& cell : way.cells) count += cell.failed;
  return count;
}

Result<ExactnessResult> check_exactness(CompletionServer& server, const ExactnessOptions& options) {
  return ExactnessRun(server, options).run();
}

}  // namespace millrace
