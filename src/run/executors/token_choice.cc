#include "run/executors/token_choice.h"

#include <algorithm>
#include <utility>

#include "sampling/logprobs.h"
#include "sampling/mask_units.h"

namespace millrace {

TokenChoice::TokenChoice(const Tokenizer* tokenizer, int64_t vocab, ThreadPool& threads, int64_t outputs)
    : tokenizer_(tokenizer),
      vocab_(vocab),
      threads_(threads),
      scratch_(static_cast<size_t>(outputs > 1 ? threads.threads() : 1)),
      chosen_(static_cast<size_t>(outputs)) {
  jobs_.reserve(static_cast<size_t>(outputs));
  for (Scratch& scratch : scratch_) {  // any worker may get its first job in any step
    scratch.row.reserve(vocab);
    scratch.raw.reserve(static_cast<size_t>(vocab));
  }
}

void TokenChoice::forget() {
  for (int64_t row = 0; row < rows_; ++row) chosen_[static_cast<size_t>(row)].stream = nullptr;
  rows_ = 0;
  rule_ = nullptr;
  units_ = mask_units().step;
}

// A lone stream is sampled by choose(), without a job for the pool.
void TokenChoice::choose_ahead(std::span<const ChoiceWork> work, const Acceptance& acceptance, float* logits) {
  forget();
  if (!acceptance.exact()) use(acceptance);
  if (threads_.threads() == 1 && !rule_) return;
  jobs_.clear();
  for (const ChoiceWork& item : work) {
    const Sequence& s = *item.sequence;
    if (item.chunk.sample && item.chooses && s.size() < s.max_total) jobs_.push_back({&item, rows_});
    if (rule_) std::fill_n(starts_.begin() + rows_, item.chunk.outputs(), Start{rows_, item.chunk.drafted});
    rows_ += item.chunk.outputs();
  }
  if (threads_.threads() == 1 || jobs_.size() < 2) return;
  const ThreadPool::Turn turn(threads_);
  threads_.parallel_for(std::ssize(jobs_), [&](int64_t i, int worker) {
    choose_chunk(jobs_[static_cast<size_t>(i)], logits, scratch_[static_cast<size_t>(worker)]);
  });
}

void TokenChoice::use(const Acceptance& acceptance) {
  rule_ = &acceptance;
  starts_.resize(chosen_.size());
  for (Scratch& scratch : scratch_) {
    scratch.drafted.reserve(static_cast<size_t>(kMaxTreeTokens));
    scratch.weights.reserve(static_cast<size_t>(vocab_));
  }
}

// As the engine will ask for them: up to the first token that ends the stream or that its draft does not have.
void TokenChoice::choose_chunk(const Job& job, float* logits, Scratch& scratch) {
  const StreamRef stream{*job.work->sequence, *job.work->own};
  const Sequence& s = stream.sequence;
  const int64_t drafted = job.work->chunk.drafted;
  int64_t at = -1;  // the drafted token behind which it samples; -1: the stream's last token
  for (int64_t kept = 0; s.size() + kept < s.max_total; ++kept) {
    const int64_t row = job.row + 1 + at;
    Chosen& chosen = chosen_[static_cast<size_t>(row)];
    chosen.stream = &stream.own;
    chosen.event = {};
    chosen.thrown = nullptr;
    try {
      chosen.ended = sample(stream, s.generated() + kept, row, logits, scratch, chosen.event);
    } catch (...) {  // no exception may leave a worker
      chosen.thrown = std::current_exception();
      return;
    }
    if (!chosen.ended.ok() || *chosen.ended || !stream.own.sampler->prepare(0)) return;
    at = kept_child(s.draft, at, drafted, chosen.event.token);
    if (at < 0) return;
  }
}

bool TokenChoice::may_choose(StreamRef stream, int64_t row) const {
  return (row < rows_ && chosen_[static_cast<size_t>(row)].stream == &stream.own) || stream.own.sampler->prepare(0);
}

Result<bool> TokenChoice::choose(StreamRef stream, int64_t row, float* logits, TokenEvent& event) {
  if (row < rows_) {
    Chosen& chosen = chosen_[static_cast<size_t>(row)];
    if (std::exchange(chosen.stream, nullptr) == &stream.own) {
      if (chosen.thrown) std::rethrow_exception(std::exchange(chosen.thrown, nullptr));
      event = std::move(chosen.event);
      return std::move(chosen.ended);
    }
  }
  return sample(stream, stream.sequence.generated(), row, logits, scratch_.front(), event);
}

// Runs on any thread, on one at a time for each stream. `position` counts the stream's generated tokens.
Result<bool> TokenChoice::sample(StreamRef stream, int64_t position, int64_t row, float* all, Scratch& scratch,
                                 TokenEvent& event) {
  const Request& request = stream.sequence.request;
  const std::span<float> logits(all + row * vocab_, static_cast<size_t>(vocab_));
  const bool wants_logprobs = request.sampling.logprobs >= 0 || stream.own.scored;
  if (wants_logprobs) scratch.raw.assign(logits.begin(), logits.end());  // sampling modifies the row
  MILLRACE_TRY(event.token, choose_token(stream, position, row, logits, scratch));
  stream.own.sampler->accept(event.token);
  if (wants_logprobs) {
    Logprobs logprobs = compute_logprobs(scratch.raw, event.token, request.sampling.logprobs);
    event.logprob = logprobs.chosen;
    event.top_logprobs = std::move(logprobs.top);
  }
  event.end_token = (tokenizer_ && tokenizer_->is_eog(event.token) && !request.ignore_eos) ||
                    std::ranges::find(request.stop_tokens, event.token) != request.stop_tokens.end();
  if (event.end_token) return true;
  if (!stream.own.detokenizer) return false;
  event.text = stream.own.stop.push(stream.own.detokenizer->push(event.token));
  if (stream.own.stop.stopped()) event.stopped_by = stream.own.stop.matched();
  if (stream.own.stop.stopped() || stream.own.sampler->ended()) return true;
  if (stream.sequence.prompt_tokens + position + 1 < stream.sequence.max_total) prepare_next(*stream.own.sampler);
  return false;
}

// Work on the stream's next token that fits in the step.
void TokenChoice::prepare_next(SamplerChain& sampler) {
  const MaskUnits units = mask_units();
  if (sampler.prepare(units.own)) return;
  const int64_t part = std::max<int64_t>(1, units.step / 4);
  while (units_.fetch_sub(part) >= part)
    if (sampler.prepare(part)) return;
}

// By the rule where tokens were drafted for the position, else by plain sampling.
Result<TokenId> TokenChoice::choose_token(StreamRef stream, int64_t position, int64_t row, std::span<float> logits,
                                          Scratch& scratch) const {
  scratch.drafted.clear();
  if (rule_ && row < rows_) {
    const auto [first, drafted] = starts_[static_cast<size_t>(row)];
    const Draft& draft = stream.sequence.draft;
    visit_children(draft, row - first - 1, drafted, [&](int64_t i) {
      const DraftOdds* odds = stream.own.odds && stream.own.odds[i].logits ? stream.own.odds + i : nullptr;
      scratch.drafted.push_back({draft.tokens[static_cast<size_t>(i)], odds});
      return true;
    });
  }
  if (scratch.drafted.empty()) return stream.own.sampler->sample(logits, position, scratch.row);
  if (!std::ranges::all_of(scratch.drafted, &DraftedToken::odds))
    for (DraftedToken& one : scratch.drafted) one.odds = nullptr;
  MILLRACE_TRY_VOID(stream.own.sampler->distribution(logits, position, scratch.row));
  if (scratch.row.candidates().size() < 2) return draw(scratch.row);
  return rule_->choose(scratch.row, scratch.drafted, scratch.weights);
}

}  // namespace millrace
