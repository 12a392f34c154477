#include "run/executors/step_input.h"

#include <algorithm>

namespace millrace {
namespace {

// Tokens before `token` that a chunk of the stream's context sees which begins with it.
int64_t seen_before(const ContextPlan& context, int64_t token) {
  const ContextPart* part = part_of(context, token);
  const auto& sees = part ? part->sees : context.sees;
  if (!part && (!context.behind(token) || sees.empty())) return token;
  int64_t seen = 0;
  for (const KeySegment& segment : sees) seen += std::max<int64_t>(0, std::min(segment.end, token) - segment.begin);
  return seen;
}

void add_tables(const Sequence& s, StepChunk& chunk, StepInput& input) {
  chunk.slot = chunk.first - s.kv.left_out;
  chunk.state = s.kv.state;
  for (const StateMark& mark : s.kv.marks) {
    if (mark.row >= chunk.tokens) break;
    input.marks.push_back(mark);
    ++chunk.marks;
  }
  if (!input.tables) return;
  chunk.blocks = std::ssize(s.kv.blocks);
  input.blocks.insert(input.blocks.end(), s.kv.blocks.begin(), s.kv.blocks.end());
  chunk.windows = std::ssize(s.kv.windows);
  for (size_t g = 0; g < s.kv.windows.size(); ++g) {
    const auto& blocks = s.kv.windows[g].blocks;
    input.windows.push_back({chunk.first - s.kv.left_out_of(static_cast<int64_t>(g) + 1), std::ssize(blocks)});
    input.blocks.insert(input.blocks.end(), blocks.begin(), blocks.end());
  }
}

void add_segments(std::span<const KeySegment> segments, StepChunk& chunk, StepInput& input) {
  chunk.sees = true;
  chunk.segments = std::ssize(segments);
  input.segments.insert(input.segments.end(), segments.begin(), segments.end());
}

// Tokens at positions that are lower by `moved`; those of a tree at the positions that they have in their paths.
void add_tokens(const Sequence& s, int64_t moved, const StepChunk& chunk, StepInput& input) {
  const int64_t end = chunk.first + chunk.tokens - chunk.tree;
  for (int64_t i = chunk.first; i < end; ++i) {
    input.tokens.push_back(s.token_at(i));
    input.positions.push_back(i - moved);
  }
  const size_t tree = input.positions.size();
  for (int64_t i = 0; i < chunk.tree; ++i) {
    const int64_t parent = s.draft.parent(i);
    input.parents.push_back(static_cast<int32_t>(parent));
    input.tokens.push_back(s.draft.tokens[static_cast<size_t>(i)]);
    input.positions.push_back(parent < 0 ? s.size() - moved : input.positions[tree + static_cast<size_t>(parent)] + 1);
  }
}

}  // namespace

void StepInput::clear() {
  chunks.clear();
  tokens.clear();
  positions.clear();
  blocks.clear();
  windows.clear();
  segments.clear();
  parents.clear();
  marks.clear();
  references.clear();
}

void StepInput::reserve(const KvPool& kv, int64_t streams, int64_t most_tokens, int64_t context) {
  const auto all = static_cast<size_t>(streams), pass = static_cast<size_t>(most_tokens);
  chunks.reserve(all);
  references.reserve(all);
  tokens.reserve(pass);
  positions.reserve(pass);
  parents.reserve(pass);
  if (kv.states().any()) marks.reserve(pass);
  if (!tables) return;
  windows.reserve(all * static_cast<size_t>(kv.groups() - 1));
  // Tables may be longer than the pool where blocks are given back or tokens are dropped, as in reserve_tables().
  const bool longer = kv.layout().window > 0 || kv.divided() || (kv.groups() > 1 && kv.evicts());
  int64_t entries = 0;
  for (int64_t g = 0; g < kv.groups(); ++g)
    entries += longer ? streams * kv.blocks_for(context) : kv.group(g).total_blocks();
  blocks.reserve(static_cast<size_t>(entries));
}

void StepOutput::clear() {
  masses.clear();
  shares.clear();
  failed.clear();
  unread.clear();
}

void add_chunk(const StepSource& source, const PlannedChunk& planned, StepInput& input) {
  const auto& [s, own] = source.stream;
  const ContextPlan& context = source.context;
  StepChunk chunk{.stream = s.id,
                  .first = planned.first,
                  .tokens = planned.count,
                  .drafted = planned.drafted,
                  .tree = s.draft.is_chain(planned.drafted) ? 0 : planned.drafted,
                  .outputs = planned.outputs(),
                  .answers = planned.first >= s.prompt_tokens,
                  .samples = planned.sample && s.size() < s.max_total,
                  .observed = planned.first < s.prompt_tokens && s.prefix.caches};
  add_tables(s, chunk, input);
  const ContextPart* part = part_of(context, planned.first);
  const bool behind = context.behind(planned.first);
  chunk.keys = (context.empty() ? planned.first : seen_before(context, planned.first)) - s.mean_left_out();
  int64_t moved = part ? part->moved : behind ? context.moved : 0;
  if (source.eviction) moved += planned.first - source.eviction->position(planned.first);
  add_tokens(s, moved, chunk, input);
  if (chunk.tree == 0 && part) {
    add_segments(part->sees, chunk, input);
  } else if (chunk.tree > 0 || (behind && !source.sees.empty())) {
    add_segments(source.sees, chunk, input);
    chunk.segment_heads = source.sees_lists;
    chunk.documents = context.documents;
  }
  input.chunks.push_back(chunk);
  input.references.push_back({.adapters = own.adapters.empty() ? nullptr : &own.adapters,
                              .rows = s.request.reader || !s.request.embeddings.empty() ? &s.request : nullptr,
                              .prompt_tokens = s.prompt_tokens,
                              .documents = own.lease.get(),
                              .eviction = source.eviction,
                              .exit = source.exit});
}

}  // namespace millrace
