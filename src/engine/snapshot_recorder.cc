#include "engine/snapshot_recorder.h"

namespace millrace {
namespace {

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

StreamSnapshot::Phase phase_of(const Sequence& s) {
  switch (s.phase) {
    case StreamPhase::waiting: return StreamSnapshot::Phase::waiting;
    case StreamPhase::running: return s.held_back ? StreamSnapshot::Phase::held_back : StreamSnapshot::Phase::running;
    case StreamPhase::swapping_out: return StreamSnapshot::Phase::swapping_out;
    case StreamPhase::swapped: return StreamSnapshot::Phase::swapped;
    case StreamPhase::loading: return StreamSnapshot::Phase::loading;
    case StreamPhase::looking_up: return StreamSnapshot::Phase::looking_up;
  }
  return StreamSnapshot::Phase::waiting;
}

}  // namespace

StreamSnapshot stream_snapshot(const Sequence& s) {
  StreamSnapshot out;
  out.request = request_of(s.id);
  out.answer = answer_of(s.id);
  out.phase = phase_of(s);
  out.prompt_tokens = s.prompt_tokens;
  out.computed_tokens = s.computed;
  out.cached_tokens = s.prefix.cached;
  out.generated_tokens = s.generated();
  out.drafted_tokens = s.draft.drafted;
  out.accepted_tokens = s.draft.accepted;
  out.blocks = s.kv.held_blocks();
  out.preemptions = s.progress.preemptions;
  out.submitted = seconds(s.times.submitted);
  out.admitted = seconds(s.times.admitted);
  out.first_token = seconds(s.times.first_token);
  return out;
}

void SnapshotRecorder::step(int64_t number, const StepPlan& plan, std::span<const StepWork> work, int64_t began_ns,
                            double took) {
  if (recording_ && began_ns - last_snapshot_ > kPatienceNs) *this = {};
  if (!recording_) return;
  if (static_cast<int64_t>(steps_.size()) == kMaxSnapshotSteps) {
    steps_.pop_front();
    ++missed_;
  }
  StepSnapshot step;
  step.number = number;
  step.began = seconds(began_ns);
  step.seconds = took;
  step.streams = static_cast<int64_t>(work.size());
  step.admitted = static_cast<int64_t>(plan.admitted.size());
  step.preempted = static_cast<int64_t>(plan.preempted.size() + plan.preempted_for_blocks.size());
  for (const StepWork& item : work) {
    const Sequence& s = item.stream->sequence;
    const bool decode = item.chunk.first >= s.prompt_tokens && item.chunk.first + 1 == s.size();
    (decode ? step.decode_tokens : step.prefill_tokens) += item.chunk.count;
    if (static_cast<int64_t>(step.chunks.size()) < kMaxSnapshotStreams)
      step.chunks.push_back({request_of(s.id), answer_of(s.id), item.chunk.count, !decode, item.chunk.sample});
  }
  steps_.push_back(std::move(step));
}

void SnapshotRecorder::ended(const Sequence& sequence, int64_t now) {
  if (!recording_) return;
  if (ended_.size() == kMaxEnded) ended_.pop_front();
  ended_.push_back(stream_snapshot(sequence));
  ended_.back().ended = seconds(now);
}

void SnapshotRecorder::take(int64_t now, EngineSnapshot& snapshot) {
  recording_ = true;
  last_snapshot_ = now;
  snapshot.steps.assign(std::make_move_iterator(steps_.begin()), std::make_move_iterator(steps_.end()));
  snapshot.ended.assign(ended_.begin(), ended_.end());
  snapshot.steps_missed = missed_;
  steps_.clear();
  ended_.clear();
  missed_ = 0;
}

}  // namespace millrace
