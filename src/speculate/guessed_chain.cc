#include "speculate/guessed_chain.h"

#include <algorithm>

namespace millrace {
namespace {

ChainMemory& chain_memory(const Sequence& s) { return static_cast<ChainMemory&>(*s.draft.memory); }

}  // namespace

void GuessedChain::begin(std::span<const DraftChunk> chunks, int64_t most) {
  all_.clear();
  running_.clear();
  int64_t picks = 0;
  for (const DraftChunk& chunk : chunks) {
    if (chunk.drafted == 0) continue;
    const Sequence& s = *chunk.stream;
    ChainMemory& memory = chain_memory(s);
    grams_.read(s, memory.read);
    memory.read = s.size();
    running_.push_back(all_.size());
    all_.push_back({&chunk, std::min(most, chunk.drafted), 0, 0, picks});
    picks += all_.back().wanted;
  }
  picks_.resize(static_cast<size_t>(picks));
}

// The stream's first token without the model's keys.
int64_t GuessedChain::first_missing(const DraftChunk& chunk) const {
  const DraftState& draft = chunk.stream->draft;
  if (draft.stored == DraftState::kAll || !draft.memory) return std::min(chunk.first, draft.stored);
  return std::min(chunk.first, std::max(draft.stored, chain_memory(*chunk.stream).valid));
}

void GuessedChain::draft(std::span<const DraftChunk> chunks, int64_t most, bool picks, DraftModel& model) {
  begin(chunks, most);
  while (!running_.empty()) {
    runs_.clear();
    for (const size_t index : running_) {
      Link& link = all_[index];
      Sequence& s = *link.chunk->stream;
      link.guessed = grams_.guess(s, link.done, std::min(guesses_, link.wanted - link.done - 1));
      const int64_t first = link.done > 0 ? s.size() + link.done - 1 : first_missing(*link.chunk);
      DraftRun run{link.chunk->owner, &s, first, s.size() + link.done + link.guessed - first, true};
      run.weighs = picks;
      run.picks =
          std::span(picks_).subspan(static_cast<size_t>(link.picks + link.done), static_cast<size_t>(link.guessed + 1));
      runs_.push_back(run);
    }
    model.run(runs_);
    size_t left = 0;
    for (const size_t index : running_) {
      Link& link = all_[index];
      std::vector<TokenId>& tokens = link.chunk->stream->draft.tokens;
      for (bool right = true; right; ++link.done, --link.guessed) {
        TokenId& token = tokens[static_cast<size_t>(link.done)];
        const TokenId drawn = picks_[static_cast<size_t>(link.picks + link.done)].drawn;
        right = link.guessed > 0 && token == drawn;
        token = drawn;
      }
      if (link.done < link.wanted) running_[left++] = index;
    }
    running_.resize(left);
  }
}

void GuessedChain::follow(std::span<const DraftChunk> chunks, DraftModel& model) {
  runs_.clear();
  for (const DraftChunk& chunk : chunks) {
    if (chunk.drafted > 0) continue;
    Sequence& s = *chunk.stream;
    const int64_t first = first_missing(chunk);
    runs_.push_back({chunk.owner, &s, first, chunk.first + chunk.own - first});
    s.draft.stored = DraftState::kAll;
    if (s.draft.memory) chain_memory(s).valid = 0;
  }
  if (!runs_.empty()) model.run(runs_);
}

}  // namespace millrace
