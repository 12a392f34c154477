#include "engine/placed_documents.h"

#include <algorithm>
#include <cstring>

#include "run/documents/own_stream.h"

namespace millrace {
namespace {

// A run of slots of a stream.
struct Rows {
  std::span<const BlockId> blocks;
  int64_t slot;
};

void copy_rows(KvPool& kv, const Rows& from, const Rows& to, int64_t count) {
  const int64_t block_tokens = kv.layout().block_tokens;
  for (int64_t done = 0, run; done < count; done += run) {
    const int64_t source = from.slot + done, target = to.slot + done;
    run = std::min(count - done, block_tokens - std::max(source % block_tokens, target % block_tokens));
    const BlockId source_block = from.blocks[static_cast<size_t>(source / block_tokens)];
    const BlockId target_block = to.blocks[static_cast<size_t>(target / block_tokens)];
    for (int64_t layer = 0; layer < std::ssize(kv.layout().layers); ++layer) {
      const int64_t read = source % block_tokens, written = target % block_tokens;
      const int64_t heads = kv.layout().layers[static_cast<size_t>(layer)].kv_heads;
      for (int64_t kind = 0; kind < kv.planes(layer); ++kind) {
        const int64_t row = kv.plane_row_bytes(layer, kind);
        for (int64_t h = 0; h < heads; ++h)
          std::memcpy(kv.plane(layer, target_block, kind, h) + written * row,
                      kv.plane(layer, source_block, kind, h) + read * row, static_cast<size_t>(run * row));
      }
    }
  }
}

}  // namespace

void PlacedDocuments::begin(LiveStream& stream) {
  const Sequence& s = stream.sequence;
  if (stream.context.empty() || s.phase != StreamPhase::running || s.computed > 0) return;
  if (stream.context.placed) return run(stream);
  const ContextPart& first = stream.context.parts.front();
  if (first.begin > 0)
    take_start(stream, first);
  else
    take(stream, first);
  run(stream);
}

void PlacedDocuments::run(LiveStream& stream) {
  Sequence& s = stream.sequence;
  if (stream.context.placed) return place(stream);
  while (s.kv.border > 0 && s.computed == s.kv.border && left_ > 0) {
    const ContextPart* ended = part_of(stream.context, s.computed - 1);
    if (ended && ended->end == s.computed) {
      leave(stream, *ended);
      if (ended->moved != 0 && !ended->stays) {
        loop_.executor->home().move_keys(s.kv.blocks, ended->begin, ended->end - ended->begin, ended->moved);
        left_ -= ended->end - ended->begin;
        worked_ = true;
      }
      if (ended->refreshes()) stream.stale.push_back(static_cast<size_t>(ended - stream.context.parts.data()));
    }
    const ContextPart* begun = part_of(stream.context, s.computed);
    note_border(stream);              // which is the part's end
    if (begun) take(stream, *begun);  // perhaps all of it
  }
  // Blocks of the prompt: what a pattern knows of them is of keys at the places that they now have.
  if (s.prompt_apart && !stream.context.empty() && s.computed == s.prompt_tokens)
    loop_.executor->home().keys_changed(s.kv.blocks, 0, s.stored());
}

// Parts whose rows are kept elsewhere. The stream waits at one until all of it is placed; blocks for its prompt were
// promised when it was admitted.
void PlacedDocuments::place(LiveStream& stream) {
  Sequence& s = stream.sequence;
  for (note_border(stream); s.computed == s.kv.border && left_ > 0; note_border(stream)) {
    const ContextPart& part = *part_of(stream.context, s.computed);
    const int64_t before = left_;
    const bool complete = loop_.executor->documents()->hold_part(stream.ref(), part, left_);
    loop_.stats.prompt_tokens += before - left_;
    worked_ |= left_ < before;
    const int64_t count = std::min(left_, part.end - s.computed);
    if (!complete || count <= 0 || !ledger_.reserve(stream, s.computed + count)) return;
    take_placed(s, count, loop_.executor->documents()->put_part(stream.ref(), part, count));
  }
}

// Counts rows that are now the stream's, `known` of which were there already.
void PlacedDocuments::take_placed(Sequence& s, int64_t count, int64_t known) {
  s.computed += count;
  left_ -= count;
  worked_ = true;
  const int64_t further = std::max<int64_t>(0, s.computed - s.progress.furthest);  // 0: it was preempted behind it
  s.prefix.cached += std::min(known, further);
  s.progress.furthest += further;
}

// Tokens before the first part, where these are what it sees: they are in what the index holds of it.
void PlacedDocuments::take_start(LiveStream& stream, const ContextPart& first) {
  if (tokens_before(first) == first.begin) take_rows(stream, first, 0, first.begin);
}

// What the index holds of the rest of the part, one token at least; what this step may not copy is left for the next.
void PlacedDocuments::take(LiveStream& stream, const ContextPart& part) {
  const int64_t before = tokens_before(part);
  if (before < 0) return;
  Sequence& s = stream.sequence;
  const int64_t rest = part.end - s.computed, most = std::clamp<int64_t>(left_, 1, rest);
  if (take_rows(stream, part, before + s.computed - part.begin, most) && most < rest) s.kv.border = s.computed;
}

// Rows from row `from` of the part's own stream on, `most` at most: the stream's next ones. Whether all `most` were
// there.
bool PlacedDocuments::take_rows(LiveStream& stream, const ContextPart& part, int64_t from, int64_t most) {
  Sequence& s = stream.sequence;
  if (!index_ || !s.request.cache_prompt) return false;
  const int64_t block_tokens = loop_.kv().layout().block_tokens;
  const std::vector<BlockId> found = index_->match(own_stream(s, part, block_tokens), s.prefix.scope);
  const int64_t known = std::min(std::ssize(found) * block_tokens - from, most);
  const bool takes = known > 0 && ledger_.reserve(stream, s.computed + known);
  if (takes) {
    copy_rows(loop_.kv(), {found, from}, {s.kv.blocks, s.computed}, known);
    take_placed(s, known, known);
  }
  for (const BlockId block : found) loop_.kv().release(block);
  return takes && known == most;
}

// As far as free blocks reach, and those that the index gives up: it takes these in their place.
void PlacedDocuments::leave(const LiveStream& stream, const ContextPart& part) {
  const Sequence& s = stream.sequence;
  const int64_t before = tokens_before(part);
  if (!index_ || !s.request.cache_prompt || before < 0) return;
  const int64_t block_tokens = loop_.kv().layout().block_tokens;
  const auto tokens = own_stream(s, part, block_tokens);
  const int64_t full = std::ssize(tokens) / block_tokens, known = index_->known_blocks(tokens, s.prefix.scope);
  if (known == full) return;
  std::vector<BlockId> blocks =
      index_->match(std::span(tokens).first(static_cast<size_t>(known * block_tokens)), s.prefix.scope);
  while (std::ssize(blocks) < full) {
    auto block = loop_.kv().allocate();
    if (!block.ok() && index_->evict(1) == 1) block = loop_.kv().allocate();
    if (!block.ok()) break;
    blocks.push_back(*block);
  }
  const int64_t first = known * block_tokens, count = std::ssize(blocks) * block_tokens;
  const int64_t head = std::clamp<int64_t>(before - first, 0, count - first);  // of the tokens before the part
  copy_rows(loop_.kv(), {s.kv.blocks, first}, {blocks, first}, head);
  const int64_t end = std::min(count, before + part.end - part.begin);
  copy_rows(loop_.kv(), {s.kv.blocks, part.begin + first + head - before}, {blocks, first + head},
            std::max<int64_t>(0, end - first - head));
  if (s.prompt_apart) loop_.executor->home().keys_changed(blocks, first, end);
  index_->insert(std::span(tokens).first(static_cast<size_t>(count)), blocks, s.prefix.scope, s.request.keep_seconds);
  for (const BlockId block : blocks) loop_.kv().release(block);
}

void note_border(LiveStream& stream) {
  if (!stream.context.empty()) stream.sequence.kv.border = next_border(stream.context, stream.sequence.computed);
}

}  // namespace millrace
