#include "engine/draft_driver.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "flow/batch.h"
#include "speculate/prediction.h"

namespace millrace {
namespace {

constexpr double kPrior = 0.6;           // share of tokens kept of drafts that nothing is known of ...
constexpr double kModelPrior = 0.9;      // ... of a draft model, which learns only from drafts that run
constexpr double kPriorWeight = 2;       // in tokens
constexpr double kForgetInStream = 0.9;  // a stream's text changes, so its last ten drafts count
constexpr double kForget = 0.98;
constexpr double kFadeUnused = 0.99;  // of what is known of a draft model that is not asked, so that it is asked again
// Tokens that a step with a window of probes is worth: before any has run; the weight of one that has; and how fast
// what is known fades while none runs.
constexpr double kWindowPrior = 4, kWindowWeight = 0.1, kWindowFade = 0.0005;
constexpr int64_t kReservedTokens = 4096;  // of a step's drafts; more allocate
constexpr double kSmooth = 0.9;            // of figures that are shown, and of the time of a draft model's pass

double seconds_of(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

void shorten(Draft& draft, int64_t most) {
  if (draft.size() <= most) return;
  draft.probes = std::max<int64_t>(0, draft.probes - (draft.size() - most));
  draft.tokens.resize(static_cast<size_t>(most));
  if (!draft.parents.empty()) draft.parents.resize(static_cast<size_t>(most));
}

// Of a tree's candidates: tokens of its longest branch.
int64_t branch_length(const Draft& draft) {
  const int64_t candidates = draft.candidates(draft.size());
  if (draft.parents.empty()) return candidates;
  std::array<int8_t, kMaxTreeTokens> depth{};
  int64_t most = 0;
  for (int64_t i = 0; i < std::min<int64_t>(candidates, kMaxTreeTokens); ++i) {
    const int64_t parent = draft.parent(i);
    depth[static_cast<size_t>(i)] = static_cast<int8_t>(parent < 0 ? 1 : depth[static_cast<size_t>(parent)] + 1);
    most = std::max<int64_t>(most, depth[static_cast<size_t>(i)]);
  }
  return most;
}

}  // namespace

Result<DraftDriver> DraftDriver::create(EnginePlan& plan) {
  DraftDriver driver;
  driver.drafter_ = std::move(plan.drafter);
  driver.acceptance_ = std::move(plan.acceptance);
  driver.automatic_ = plan.options.draft_length == "auto";
  driver.learns_times_ = plan.options.cost_model.empty();
  if (!driver.drafter_) return driver;
  driver.longest_ = driver.drafter_->longest();
  driver.trees_ = driver.drafter_->trees();
  if (driver.longest_ > kDraftPositions)
    return Error::internal(
        fmt::format("drafter: drafts of {} tokens; at most {} are counted", driver.longest_, kDraftPositions));
  driver.prior_ = driver.drafter_->model ? kModelPrior : kPrior;
  driver.window_kept_ = kWindowPrior;
  driver.shares_.resize(driver.members() + 1);  // and that of predictions
  driver.drafts_.resize(driver.members() + 1);
  for (Draft& draft : driver.drafts_) {
    draft.tokens.reserve(static_cast<size_t>(driver.longest_));
    draft.parents.reserve(static_cast<size_t>(driver.longest_));
  }
  return driver;
}

Result<void> DraftDriver::attach(LoopContext& loop) {
  loop_ = &loop;
  if (!drafter_) return {};
  offered_.reserve(static_cast<size_t>(loop.limits.max_streams));
  lengths_.reserve(loop.limits.max_streams, std::min(loop.limits.max_streams * longest_, kReservedTokens));
  const int64_t vocab = loop.executor->limits().vocab;
  drafter_->begin(vocab);
  best_.resize(static_cast<size_t>(std::min(drafter_->learns(), vocab)));
  if (!drafter_->model) return {};
  model_ = loop.executor->draft_model();
  if (!model_) return Error::internal("drafter: the executor was made without its model");
  return {};
}

void DraftDriver::propose(const StreamLists& lists) {
  propose_whole(lists);
  if (!drafter_) return;
  if (automatic_) choose_lengths(lists);
  for (const LiveStream* stream : offered_) {
    ++loop_->stats.drafts;
    const auto length = static_cast<double>(stream->sequence.draft.size());
    loop_->stats.draft_length = kSmooth * loop_->stats.draft_length + (1 - kSmooth) * length;
  }
}

void DraftDriver::propose_whole(const StreamLists& lists) {
  offered_.clear();
  if (!drafter_) return;
  const int64_t began = loop_->now();
  for (const StreamPtr& stream : lists.running()) {
    stream->sequence.draft.clear();
    stream->own.odds = nullptr;
    if (may_draft(*stream)) offer(*stream);
  }
  loop_->stats.draft_seconds += seconds_of(loop_->now() - began);
}

bool DraftDriver::may_draft(const LiveStream& stream) const {
  const Sequence& s = stream.sequence;
  return s.phase == StreamPhase::running && !s.held_back && s.decoding() && !stream.beams;
}

void DraftDriver::offer(LiveStream& stream) {
  Sequence& s = stream.sequence;
  // The step samples one token more than it keeps of the draft.
  const int64_t most = std::min(longest_, s.max_total - s.size() - 1);
  if (most <= 0) return;
  s.draft.tokens.reserve(static_cast<size_t>(longest_));
  if (loop_->kv().layout().recurrent()) s.kv.marks.reserve(static_cast<size_t>(longest_));
  if (trees_) s.draft.parents.reserve(static_cast<size_t>(longest_));
  if (!stream.drafts) {
    stream.drafts = std::make_unique<StreamDrafts>();
    const bool predicted = !model_ && !s.request.prediction.empty();
    stream.drafts->members.resize(members() + (predicted ? 1 : 0));
    for (size_t i = 0; i < members(); ++i) {
      stream.drafts->members[i].memory = remember(i);
      if (model_) continue;
      const DraftSizes& sizes = drafter_->texts[i].sizes;
      stream.drafts->members[i].trial.reserve(sizes.longest, sizes.trees);
    }
    if (predicted) stream.drafts->members.back().trial.reserve(longest_, false);
    s.draft.memory = stream.drafts->members[0].memory;
  }
  if (model_) {
    if (stream.load.active()) return;                     // blocks of its last layers may still be on their way
    s.draft.tokens.assign(static_cast<size_t>(most), 0);  // set by before_pass()
  } else {
    draft(stream, most);
  }
  if (s.draft.size() > 0) offered_.push_back(&stream);
}

// Every member drafts, and behind them the request's prediction, if it has one; the stream gets the draft of which most
// tokens are expected to be kept.
void DraftDriver::draft(LiveStream& stream, int64_t most) {
  Sequence& s = stream.sequence;
  StreamDrafts& known = *stream.drafts;
  judge(stream);
  double best = 0;
  for (size_t i = 0; i < known.members.size(); ++i) {
    StreamDrafts::Member& member = known.members[i];
    drafts_[i].clear();
    if (i < members()) {
      s.draft.memory = member.memory;
      const int64_t own = std::min(most, drafter_->texts[i].sizes.longest);
      drafter_->texts[i].drafter->propose(s, own, drafts_[i]);
      shorten(drafts_[i], own);
    } else {
      draft_predicted(s, most, drafts_[i].tokens);
    }
    if (drafts_[i].size() == 0) continue;
    if (automatic_ || known.members.size() > 1) member.trial.begin(drafts_[i], s);
    const double kept = expected(member, drafts_[i]);
    if (s.draft.size() > 0 && kept <= best) continue;
    best = kept;
    known.chosen = i;
    static_cast<Draft&>(s.draft) = drafts_[i];
  }
  if (known.chosen < members()) s.draft.memory = known.members[known.chosen].memory;
}

// The stream's tokens confirm or refute earlier drafts.
void DraftDriver::judge(LiveStream& stream) {
  for (size_t i = 0; i < stream.drafts->members.size(); ++i) {
    StreamDrafts::Member& member = stream.drafts->members[i];
    member.trial.follow(stream.sequence, [&](int64_t place, bool kept) {
      member.shares.add(place, kept, kForgetInStream);
      shares_[i].add(place, kept, kForget);
    });
    if (i == stream.drafts->chosen) loop_->stats.draft_acceptance = shares_[i].share(0, prior_, kPriorWeight);
  }
}

// Tokens of the draft that are kept, by what the stream alone has shown.
double DraftDriver::expected(const StreamDrafts::Member& member, const Draft& draft) const {
  const int64_t length = branch_length(draft);
  double likely = 1, kept = 0;
  for (int64_t i = 0; i < length; ++i) {
    likely *= member.shares.share(i, kPrior, kPriorWeight);
    kept += likely;
  }
  return kept;
}

// The share kept at this place of the stream's drafts, where the stream has shown little by what all streams have.
double DraftDriver::share(const LiveStream& stream, int64_t place) const {
  const StreamDrafts& known = *stream.drafts;
  const double usual = shares_[known.chosen].share(place, prior_, kPriorWeight);
  return known.members[known.chosen].shares.share(place, usual, kPriorWeight);
}

void DraftDriver::choose_lengths(const StreamLists& lists) {
  if (offered_.empty()) return;
  lengths_.clear();
  StepShape plain;
  for (const StreamPtr& stream : lists.running()) {
    const Sequence& s = stream->sequence;
    if (s.phase == StreamPhase::running && !s.held_back && s.decoding()) plain.add(s.stored(), 1, 1, s.depth);
  }
  for (const LiveStream* stream : offered_) {
    const Draft& draft = stream->sequence.draft;
    if (draft.parents.empty() && !(model_ && trees_)) {
      double likely = 1;
      lengths_.add_chain(draft.size(), [&](int64_t place) { return likely *= share(*stream, place); });
      continue;
    }
    const int64_t length = model_ ? std::min(draft.size(), drafter_->model->depth) : branch_length(draft);
    double likely = 1, kept = 0;
    for (int64_t i = 0; i < length; ++i) kept += likely *= share(*stream, i);
    // Probes make later drafts: what counts is what steps with them have kept on average.
    if (draft.probes > 0)
      lengths_.add_probed_tree(draft.size() - draft.probes, kept, draft.probes, window_kept_);
    else
      lengths_.add_tree(draft.size(), kept);
  }
  decide(estimate_lengths(plain));
  for (size_t i = 0; i < offered_.size(); ++i) {
    const DraftOffer& offer = lengths_.offers()[i];
    Draft& draft = offered_[i]->sequence.draft;
    if (draft.probes > 0 && offer.chosen < draft.size()) window_kept_ += kWindowFade * (kWindowPrior - window_kept_);
    shorten(draft, offer.chosen);
    if (!model_ || offer.chosen > 0) continue;
    StreamDrafts& known = *offered_[i]->drafts;
    known.members[known.chosen].shares.fade(kFadeUnused);
    shares_[known.chosen].fade(kFadeUnused);
  }
}

// Chooses lengths by what they cost on top of the step `plain`, which has no drafts.
DraftEstimate DraftDriver::estimate_lengths(const StepShape& plain) {
  const CostModel& cost = *loop_->cost;
  const bool learned = loop_->own_cost && learns_times_;
  const PlannerLimits& limits = loop_->limits;
  const int64_t room = std::min(limits.batch_tokens - plain.tokens, limits.outputs - plain.outputs);
  return lengths_.choose(plain.outputs, room, [&](int64_t tokens, int64_t longest) {
    const double drafting = longest > 0 ? pass_seconds(tokens, longest) * static_cast<double>(longest) : 0;
    if (learned) return drafting + times_.seconds(plain.tokens + tokens, cost);
    StepShape shape = plain;
    shape.tokens += tokens;
    shape.outputs += tokens;
    shape.keys += tokens;
    shape.pairs += static_cast<double>(tokens) * static_cast<double>(plain.keys) / static_cast<double>(plain.tokens);
    return drafting + cost.step_seconds(shape);
  });
}

// Runs the best lengths in a trial now and then where they do not pay, and counts.
void DraftDriver::decide(const DraftEstimate& best) {
  DraftDecisions& decisions = loop_->stats.draft_decisions;
  decisions.yield = best.yield;
  decisions.time = best.time;
  if (best.pays()) {
    ++decisions.chosen;
    trials_.ran();
  } else if (best.tokens > 0 && trials_.try_step(best.time - 1)) {
    ++decisions.trials;
    lengths_.take();
  } else {
    ++decisions.declined;
  }
}

void DraftDriver::gather(std::span<const StepWork> work) {
  chunks_.clear();
  for (const StepWork& item : work)
    if (!item.lost)
      chunks_.push_back(
          {&item.stream->own, &item.stream->sequence, item.chunk.first, item.chunk.own(), item.chunk.drafted});
}

bool DraftDriver::before_pass(std::span<StepWork> work) {
  if (!drafter_) return false;
  pass_began_ns_ = loop_->now();
  const bool shorter = model_ && run_model(work);
  step_tokens_ = 0;
  for (const StepWork& item : work) {
    step_tokens_ += item.chunk.count;
    if (item.chunk.own() == 1 && item.chunk.sample) continue;
    step_tokens_ = 0;
    break;
  }
  return shorter;
}

// Passes for about as many streams, on average, take about as long.
size_t DraftDriver::pass_index(int64_t tokens, int64_t longest) const {
  const auto streams = static_cast<uint64_t>((tokens + longest - 1) / longest);
  return std::min<size_t>(static_cast<size_t>(std::bit_width(streams)), pass_seconds_.size()) - 1;
}

double DraftDriver::pass_seconds(int64_t tokens, int64_t longest) const {
  const size_t here = pass_index(tokens, longest);
  for (size_t i = here + 1; i-- > 0;)
    if (pass_seconds_[i] > 0) return pass_seconds_[i];
  for (size_t i = here + 1; i < pass_seconds_.size(); ++i)
    if (pass_seconds_[i] > 0) return pass_seconds_[i];
  return 0;
}

bool DraftDriver::run_model(std::span<StepWork> work) {
  int64_t longest = 0, drafted = 0;
  gather(work);
  drafter_->model->drafter->propose_all(chunks_, *model_);
  bool shorter = false;
  for (StepWork& item : work) {
    const int64_t unused = item.chunk.drafted - std::min(item.chunk.drafted, item.stream->sequence.draft.size());
    item.chunk.drafted -= unused;
    item.chunk.count -= unused;
    shorter |= unused > 0;
    longest = std::max(longest, item.chunk.drafted);
    drafted += item.chunk.drafted;
  }
  const int64_t began = std::exchange(pass_began_ns_, loop_->now());
  const double took = seconds_of(pass_began_ns_ - began);
  loop_->stats.draft_seconds += took;
  if (longest == 0) return shorter;
  // A pass that also runs a prompt, or that is interrupted, takes longer: the fastest one of late counts.
  double& seconds = pass_seconds_[pass_index(drafted, longest)];
  const double each = took / static_cast<double>(longest);
  seconds = seconds == 0 ? each : std::min(each, kSmooth * seconds + (1 - kSmooth) * each);
  return shorter;
}

void DraftDriver::after_pass(std::span<const StepWork> work) {
  if (!model_) return;
  const int64_t began = loop_->now();
  gather(work);
  drafter_->model->drafter->follow(chunks_, *model_);
  loop_->stats.draft_seconds += seconds_of(loop_->now() - began);
}

void DraftDriver::end_step() {
  if (!drafter_ || !automatic_ || step_tokens_ == 0) return;
  times_.observe(step_tokens_, seconds_of(loop_->now() - pass_began_ns_), *loop_->cost);
}

// Every row that ran tells what follows its token, whether the token was kept or not.
void DraftDriver::learn(const Sequence& stream, int64_t count, int64_t committed, int64_t row, Executor& executor) {
  if (best_.empty() || stream.request.beams > 1) return;
  for (int64_t i = -1; i < count; ++i) {
    const int64_t last = stream.size() - committed - 1;  // the stream's last token when the step ran
    const TokenId token = stream.token_at(i < 0 ? last : stream.size() + i);
    executor.chooser().best_tokens(row + 1 + i, best_);
    for (const TextPart& part : drafter_->texts)
      if (part.learner)
        part.learner->learn(
            stream, token, std::span(best_).first(std::min(best_.size(), static_cast<size_t>(part.learner->learns()))));
  }
}

// A stream that has ended has nothing to learn.
void DraftDriver::observe(LiveStream& stream, int64_t count, int64_t committed, int64_t row, Executor& executor) {
  if (!drafter_) return;
  Sequence& s = stream.sequence;
  learn(s, count, committed, row, executor);
  if (count > 0 && s.draft.probes > 0)
    window_kept_ += kWindowWeight * (static_cast<double>(committed - 1) - window_kept_);
  if (model_ && count > 0) {
    StreamDrafts::Member& member = stream.drafts->members[0];
    for (int64_t i = 0; i < std::min({count, committed, drafter_->model->depth}); ++i) {
      const bool kept = i + 1 < committed;
      member.shares.add(i, kept, kForgetInStream);
      shares_[0].add(i, kept, kForget);
    }
    loop_->stats.draft_acceptance = shares_[0].share(0, prior_, kPriorWeight);
  }
  const size_t chosen = stream.drafts ? stream.drafts->chosen : 0;
  const size_t member = chosen < members() ? chosen : 0;
  if (!(model_ ? trees_ : drafter_->texts[member].sizes.trees)) return;
  probed_.clear();
  for (int64_t i = s.draft.candidates(count); i < count; ++i)
    probed_.push_back(executor.chooser().best_token(row + 1 + i));
  if (model_)
    drafter_->model->drafter->observe(s, committed, probed_);
  else
    drafter_->texts[member].drafter->observe(s, committed, probed_);
}

std::shared_ptr<DraftMemory> DraftDriver::remember(size_t member) const {
  return drafter_->model ? drafter_->model->drafter->remember() : drafter_->texts[member].drafter->remember();
}

}  // namespace millrace
