#include "schedule/planner.h"

#include <algorithm>

#include "schedule/preemption.h"

namespace millrace {
namespace {

int64_t held(const Sequence& stream) { return stream.kv.held_blocks(); }
// Tokens from `end` on until the stream's evictor chooses, a part of its context begins or ends, a copy of its state is
// taken, or its prompt ends where that matters: no chunk crosses that point.
int64_t before_border(const Sequence& stream, int64_t end) {
  const int64_t evict_at = stream.kv.evict_at > 0 ? stream.kv.evict_at : INT64_MAX;
  const int64_t border = stream.kv.border >= 0 ? stream.kv.border : INT64_MAX;
  const int64_t state = stream.kv.state_at > 0 ? stream.kv.state_at : INT64_MAX;
  const int64_t prompt = stream.prompt_apart && end < stream.prompt_tokens ? stream.prompt_tokens : INT64_MAX;
  return std::min({evict_at, border, state, prompt}) - end;
}
int64_t may_run(const Sequence& stream) { return std::min(stream.remaining(), before_border(stream, stream.computed)); }
int64_t promised(const Sequence& stream) { return std::max<int64_t>(0, stream.kv.reserved_blocks - held(stream)); }

double again_seconds(const CostModel& cost, const Sequence& stream) {
  StepShape shape;
  shape.add(0, stream.computed, false, stream.depth);
  return cost.step_seconds(shape);
}
double swap_seconds(const CostModel& cost, const Sequence& stream) { return 2 * cost.swap_seconds(stream.stored()); }

// Whether swapping out and in is faster than recomputing.
bool swaps_cheaper(const ScheduleView& view, const Sequence& stream) {
  return view.cost && stream.stored() > 0 && swap_seconds(*view.cost, stream) < again_seconds(*view.cost, stream);
}

}  // namespace

int64_t Planner::promised_blocks(const Sequence& stream, const PlannerLimits& limits) const {
  if (stream.non_preemptible) return std::min(stream.width * blocks_needed(stream, limits), limits.total_blocks);
  const int64_t least = std::min(std::max(stream.size() + 1, spared_tokens(stream)), stream.max_total);
  const int64_t tokens = std::max(least, acting().promise(stream, limits));
  return std::min(blocks_of(stream, tokens, limits), limits.total_blocks);
}

Planner::Account Planner::open_account(const ScheduleView& view) {
  residents_.assign(view.running.begin(), view.running.end());
  Account account{view.free_blocks, view.leaving_blocks, view.swap_tokens_free,
                  static_cast<int64_t>(view.running.size())};
  for (const Sequence* stream : view.running) account.spare -= promised(*stream);
  return account;
}

bool Planner::remains(const Sequence& stream) const {
  return std::ranges::find(residents_, &stream) != residents_.end();
}

// The policy sees only streams that may be preempted, and can name no other. Null: no victim.
const Sequence* Planner::ask_victim(const ScheduleView& view, const Sequence& wanting) {
  movable_.clear();
  const bool newcomer = wanting.phase == StreamPhase::waiting || wanting.phase == StreamPhase::swapped;
  for (const Sequence* stream : residents_)
    if (may_be_victim(*stream, newcomer)) movable_.push_back(stream);
  ScheduleView rest = view;
  rest.running = movable_;
  const Sequence* victim = acting().victim(rest, wanting);
  return std::ranges::find(movable_, victim) != movable_.end() ? victim : nullptr;
}

// The victim's blocks become spare, at once or when they have reached the tier. Shared blocks do not count.
PlannedPreemption Planner::send_away(const ScheduleView& view, const Sequence& victim, Account& account) {
  const bool swap = account.swap_tokens >= victim.stored() && swaps_cheaper(view, victim);
  const int64_t blocks = victim.kv.own_blocks();
  account.spare += promised(victim) + (swap ? 0 : blocks);
  if (swap) {
    account.arriving += blocks;
    account.swap_tokens -= victim.stored();
  }
  --account.streams;
  std::erase(residents_, &victim);
  return {victim.id, swap};
}

// Whether preempting the victim for a waiting stream gains more than it costs.
bool Planner::pays(const ScheduleView& view, const Sequence& victim, const Sequence& candidate,
                   const Account& account) const {
  if (!view.cost || victim.stored() == 0) return true;
  const bool swap = account.swap_tokens >= victim.stored() && swaps_cheaper(view, victim);
  return (swap ? swap_seconds(*view.cost, victim) : again_seconds(*view.cost, victim)) <=
         acting().gain_seconds(victim, candidate);
}

// Makes room for one queued stream, if the policy's victims and the free blocks suffice.
bool Planner::place(const ScheduleView& view, const Sequence& candidate, Account& account, StepPlan& plan) {
  const PlannerLimits& limits = view.limits;
  int64_t needed = promised_blocks(candidate, limits) - candidate.kv.shared_blocks;
  // Streams that were promised less than they may need will grow: leave them some blocks, or they would soon be
  // preempted.
  if (account.streams > 0 && needed + candidate.kv.shared_blocks < blocks_needed(candidate, limits))
    needed += limits.total_blocks / 100;
  const Account before = account;
  const size_t preempted_before = plan.preempted.size();
  saved_ = residents_;
  const auto full = [&] { return account.streams + candidate.width > limits.residents(); };
  while (full() || needed > account.spare) {
    const bool only_wait = !full() && needed <= account.spare + account.arriving;
    if (only_wait) return false;  // the preempted streams' blocks are still being moved out
    const Sequence* victim = ask_victim(view, candidate);
    if (!victim || !pays(view, *victim, candidate, account)) {
      account = before;
      residents_ = saved_;
      plan.preempted.resize(preempted_before);
      return false;
    }
    plan.preempted.push_back(send_away(view, *victim, account));
  }
  account.spare -= promised_blocks(candidate, limits) - candidate.kv.shared_blocks;
  account.streams += candidate.width;
  plan.admitted.push_back(candidate.id);
  return true;
}

void Planner::observe(const ScheduleEvent& event) {
  last_arrival_ = std::max(last_arrival_, event.stream->arrival);
  watch_.observe(event);
  policy_->observe(event);
}

void Planner::observe_step(bool ran, bool moves) {
  watch_.step(ran, moves);
  if (!watch_.locked()) return;
  ++livelocks_;
  last_livelock_ = watch_.why();
  until_arrival_ = last_arrival_;
  watch_.begin_anew();
}

// Returns to the policy when the streams of the live-lock have finished.
void Planner::end_livelock(const ScheduleView& view) {
  const auto there = [this](const Sequence* stream) { return stream->arrival <= until_arrival_; };
  if (until_arrival_ > 0 && std::ranges::none_of(view.waiting, there) && std::ranges::none_of(view.running, there))
    until_arrival_ = 0;
}

void Planner::plan_places(const ScheduleView& view, StepPlan& plan) {
  end_livelock(view);
  Account account = open_account(view);
  // Blocks that running streams lack for their current tokens are not given away: a stream may have left memory for
  // them.
  for (const Sequence* stream : view.running)
    account.spare -= std::max<int64_t>(
        0, blocks_of(*stream, stream->size(), view.limits) - std::max(held(*stream), stream->kv.reserved_blocks));
  queue_.clear();
  for (const Sequence* stream : view.waiting)
    if (!stream->held_back) queue_.push_back(stream);
  if (!queue_.empty()) {
    acting().rank(queue_, view);
    for (const Sequence* candidate : queue_)
      if (!place(view, *candidate, account, plan)) break;  // no overtaking
  }
  if (account.swap_tokens == 0) return;
  std::erase_if(residents_, [](const Sequence* stream) { return !may_be_victim(*stream, true); });
  ScheduleView rest = view;
  rest.running = residents_;
  rest.free_blocks = account.spare + account.arriving;
  const Sequence* early = acting().leave_early(rest);
  if (!early || !remains(*early) || account.swap_tokens < early->stored()) return;
  plan.preempted.push_back({early->id, true});
}

void Planner::squeeze(const ScheduleView& view, const Sequence& victim, Account& account, StepPlan& plan) {
  for (size_t i = 0; i < plan.chunks.size(); ++i) {
    if (plan.chunks[i].request != victim.id) continue;
    tokens_left_ += plan.chunks[i].count;
    outputs_left_ += plan.chunks[i].outputs();
    account.spare += spare_taken_[i];
    plan.chunks.erase(plan.chunks.begin() + static_cast<ptrdiff_t>(i));
    spare_taken_.erase(spare_taken_.begin() + static_cast<ptrdiff_t>(i));
    break;
  }
  plan.preempted_for_blocks.push_back(send_away(view, victim, account));
}

// Finds `lacking` spare blocks for a running stream. False: it does not run in this step, and may have been preempted
// itself.
bool Planner::find_blocks(const ScheduleView& view, const Sequence& stream, int64_t lacking, Account& account,
                          StepPlan& plan) {
  while (account.spare < lacking) {
    if (account.spare + account.arriving >= lacking) return false;  // blocks will soon arrive
    const Sequence* victim = ask_victim(view, stream);
    if (!victim && stream.non_preemptible) return false;  // cannot happen: it was promised all that it may need
    if (!victim) victim = &stream;
    squeeze(view, *victim, account, plan);
    if (victim == &stream) return false;
  }
  return true;
}

void Planner::plan_chunks(const ScheduleView& view, StepPlan& plan) {
  const PlannerLimits& limits = view.limits;
  Account account = open_account(view);
  shares_.clear();
  spare_taken_.clear();
  runnable_.clear();
  // One that is still loading, or waits for copies of its documents, would take shares that others can use.
  for (const Sequence* stream : view.running)
    if (stream->phase == StreamPhase::running && stream->remaining() > 0 && !stream->held_back && may_run(*stream) > 0)
      runnable_.push_back(stream);
  ScheduleView ready = view;
  ready.running = runnable_;
  acting().share(ready, limits.batch_tokens, shares_);
  tokens_left_ = limits.batch_tokens;
  outputs_left_ = limits.outputs;
  for (const Share& share : shares_) {
    const Sequence& stream = *share.stream;
    if (stream.phase != StreamPhase::running || !remains(stream)) continue;
    if (static_cast<int64_t>(plan.chunks.size()) >= limits.max_streams || tokens_left_ <= 0) break;
    PlannedChunk chunk{stream.id, stream.computed, std::min({tokens_left_, share.tokens, may_run(stream)}), false};
    if (limits.whole_prompts) {
      chunk.count = stream.remaining();
      if (chunk.count > tokens_left_) continue;
    }
    chunk.sample = chunk.first + chunk.count == stream.size();
    if (chunk.sample && outputs_left_ == 0) {
      if (limits.whole_prompts) continue;
      chunk.sample = false;
      --chunk.count;  // the last token waits for a step that can sample it
    }
    if (chunk.count <= 0) continue;
    const int64_t needed = blocks_of(stream, chunk.first + chunk.count, limits) - held(stream);
    const int64_t lacking = std::max<int64_t>(0, needed - promised(stream));
    if (lacking > account.spare && !find_blocks(view, stream, lacking, account, plan)) continue;
    chunk.count = std::min(chunk.count, tokens_left_);
    account.spare -= lacking;
    tokens_left_ -= chunk.count;
    outputs_left_ -= chunk.sample;
    plan.chunks.push_back(chunk);
    spare_taken_.push_back(lacking);
  }
  add_drafts(view, account, plan);
}

// Lengthens the chunks of streams that decode by their drafts: never at the cost of another stream's tokens, of a
// preemption, or of a block that a stream was promised.
void Planner::add_drafts(const ScheduleView& view, Account& account, StepPlan& plan) {
  for (const Sequence* stream : runnable_) {
    int64_t count = std::min({std::ssize(stream->draft.tokens), tokens_left_, outputs_left_});
    if (count <= 0 || !stream->decoding()) continue;
    const auto chunk = std::ranges::find(plan.chunks, stream->id, &PlannedChunk::request);
    if (chunk == plan.chunks.end() || !chunk->sample) continue;
    const PlannerLimits& limits = view.limits;
    const int64_t end = chunk->first + chunk->count;
    const int64_t covered = std::max(held(*stream) + promised(*stream), blocks_of(*stream, end, limits));
    const int64_t blocks = stream->kv.dead_blocks + covered + std::max<int64_t>(0, account.spare);
    count = std::min(count, before_border(*stream, end));
    if (stream->kv.by_layer)
      while (count > 0 && blocks_of(*stream, end + count, limits) > blocks) --count;
    else
      count = std::min(count, blocks * limits.block_tokens + stream->kv.left_out - end);
    if (count <= 0) continue;
    account.spare -= std::max<int64_t>(0, blocks_of(*stream, end + count, limits) - covered);
    chunk->count += count;
    chunk->drafted = count;
    tokens_left_ -= count;
    outputs_left_ -= count;
  }
}

}  // namespace millrace
