// Functions that several policies use: they hand out token shares in an order of streams, select victims from the end
// of an order, and determine how many blocks a stream is promised.
//
// An order is a function that maps a stream to a value comparable with <. The stream with the smallest value comes
// first.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "schedule/policy.h"

namespace millrace {

// Stable: equal elements stay in order of arrival.
template <typename Order>
void sort_by(std::vector<const Sequence*>& queue, Order&& order) {
  auto before = [&](const Sequence* a, const Sequence* b) { return order(*a) < order(*b); };
  if (!std::ranges::is_sorted(queue, before)) std::ranges::stable_sort(queue, before);
}

// Assigns shares: every decoding stream receives one token, and prompts receive the remaining budget in the order of
// view.running, each as much as it can use (Agrawal et al., 2023, Sarathi).
void share_decodes_first(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out);
// Variant with at most `prompt_budget` tokens for all prompts together.
void share_decodes_first(const ScheduleView& view, int64_t token_budget, int64_t prompt_budget,
                         std::vector<Share>& out);

// Returns the last running stream by (order, arrival) if it comes after `wanting`, else null. Skips streams that hold
// no blocks and `wanting` itself.
template <typename Order>
const Sequence* last_behind(const ScheduleView& view, const Sequence& wanting, Order&& order) {
  const Sequence* last = nullptr;
  auto before = [&](const Sequence& a, const Sequence& b) {
    const auto x = order(a), y = order(b);
    return x < y || (!(y < x) && a.arrival < b.arrival);
  };
  for (const Sequence* stream : view.running) {
    if (stream->kv.blocks.empty() || stream == &wanting || stream->phase != StreamPhase::running) continue;
    if (before(wanting, *stream) && (!last || before(*last, *stream))) last = stream;
  }
  return last;
}

// Selects the victim for a running stream `wanting` that needs a block: the running stream that arrived last. Null: no
// running stream arrived after `wanting`, or `wanting` is a waiting stream, which preempts nothing.
const Sequence* last_arrived(const ScheduleView& view, const Sequence& wanting);

// The KV blocks that are promised to a stream at admission; the option `reserve` of most policies.
enum class Reserve {
  whole,   // for all tokens that the request may need; the stream is never preempted
  prompt,  // for the current tokens and one more; more streams run at once, with preemptions when memory is full
};
OptionSpec reserve_option(const char* default_value);
Result<Reserve> read_reserve(const OptionValues& options);
int64_t promised_tokens(Reserve reserve, const Sequence& stream);

}  // namespace millrace
