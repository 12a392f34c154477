// What several policies are made of: shares handed out along an order, victims from its end, promises of blocks.
//
// An order is a function of a stream to anything that compares with <: the smaller comes first.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "schedule/policy.h"

namespace millrace {

// Stable, so that equals stay in order of arrival.
template <typename Order>
void sort_by(std::vector<const Sequence*>& queue, Order&& order) {
  auto before = [&](const Sequence* a, const Sequence* b) { return order(*a) < order(*b); };
  if (!std::ranges::is_sorted(queue, before)) std::ranges::stable_sort(queue, before);
}

// Every stream that decodes gets its token; what is left of the budget goes to the prompts, in the running order, as
// much to each as it can take (Agrawal et al., 2023, Sarathi).
void share_decodes_first(const ScheduleView& view, int64_t token_budget, std::vector<Share>& out);
// The same with at most `prompt_budget` tokens for all prompts together.
void share_decodes_first(const ScheduleView& view, int64_t token_budget, int64_t prompt_budget,
                         std::vector<Share>& out);

// The last of the running streams by (order, arrival), if it stands behind `wanting`; null: none does. Streams that
// hold nothing and, for a running `wanting`, itself do not count.
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

// The running stream that arrived last, for a running stream that lacks a block; waiting ones displace nobody.
const Sequence* last_arrived(const ScheduleView& view, const Sequence& wanting);

// How much of its KV cache a stream is promised when it is admitted; the option `reserve` of most policies.
enum class Reserve {
  whole,   // what its request may come to: it is never preempted
  prompt,  // what it holds now and one token: more streams at once, and preemption when that was too bold
};
OptionSpec reserve_option(const char* default_value);
Result<Reserve> read_reserve(const OptionValues& options);
int64_t promised_tokens(Reserve reserve, const Sequence& stream);

}  // namespace millrace
