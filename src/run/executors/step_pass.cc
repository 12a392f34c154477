#include "run/executors/step_pass.h"

#include <algorithm>
#include <utility>

#include "run/prompt_embeddings.h"

namespace millrace {

StepPass::StepPass(ModelRunner& runner, EncodedDocuments* documents, LoadedDraftModel* draft, int64_t drafts,
                   int64_t streams)
    : runner_(runner),
      documents_(documents),
      features_(draft && draft->keeps() ? draft : nullptr),
      first_(draft ? draft->first_rows() : nullptr),
      evictions_(runner, drafts) {
  const ForwardLimits& limits = runner.limits();
  sampled_.reserve(static_cast<size_t>(limits.outputs));
  read_rows_.reserve(static_cast<size_t>(limits.tokens));
  reads_.reserve(static_cast<size_t>(limits.tokens));
  adapted_.reserve(static_cast<size_t>(streams));
  if (first_) known_.reserve(static_cast<size_t>(limits.tokens));
}

void StepPass::observe_attention() {
  if (!std::exchange(observes_, true)) runner_.hooks().add(mass_);
}

void StepPass::run(const StepInput& input, StepOutput& output) {
  output.clear();
  runner_.start();
  evictions_.start();
  reads_.clear();
  sampled_.clear();
  if (documents_) documents_->begin_pass();
  size_t needed = 0;  // of `sampled_`: a prompt that is only read is not sampled from
  Cursor at;
  for (size_t i = 0; i < input.chunks.size(); ++i) {
    const StepChunk& chunk = input.chunks[i];
    add(input, i, at);
    for (int64_t row = runner_.outputs() - chunk.outputs; row < runner_.outputs(); ++row)
      sampled_.push_back(static_cast<int32_t>(row));
    if (chunk.samples) needed = sampled_.size();
  }
  sampled_.resize(needed);
  if (observes_) request_mass(input);
  if (!reads_.empty() || features_) {
    forward_in_parts(output);
  } else if (find_first_rows(input)) {
    const ThreadPool::Turn turn(runner_.threads());
    runner_.forward_known(first_->layers(), known_, turn);
  } else {
    runner_.forward();
  }
  if (first_) first_->clear();
  if (documents_) documents_->end_pass();
  if (features_) features_->keep();
  if (observes_ && !runner_.context().failed) take_mass(input, output);
}

void StepPass::add(const StepInput& input, size_t index, Cursor& at) {
  const StepChunk& chunk = input.chunks[index];
  const StepReferences& of = input.references[index];
  const int64_t first_row = runner_.tokens();
  begin_stream(input, index, at);
  const int64_t sampled = features_ ? 0 : chunk.tokens - chunk.outputs;  // the first output
  if (of.rows) {
    add_rows(input, index, at.tokens, sampled);
  } else {
    for (int64_t i = 0; i < chunk.tokens; ++i) {
      const size_t from = at.tokens + static_cast<size_t>(i);
      runner_.add(input.tokens[from], input.positions[from], i >= sampled);
    }
  }
  at.tokens += static_cast<size_t>(chunk.tokens);
  show_keys(input, chunk, at);
  if (of.documents) documents_->add(*of.documents, first_row, runner_.tokens() - first_row);
  if (of.eviction) evictions_.add(*of.eviction, chunk.drafted);
}

void StepPass::begin_stream(const StepInput& input, size_t index, Cursor& at) {
  const StepChunk& chunk = input.chunks[index];
  const auto take_blocks = [&](int64_t count) {
    const auto first = std::exchange(at.blocks, at.blocks + static_cast<size_t>(count));
    return std::span(input.blocks).subspan(first, static_cast<size_t>(count));
  };
  runner_.begin(take_blocks(chunk.blocks), chunk.slot, input.references[index].adapters, chunk.state);
  if (chunk.answers) runner_.answers();
  const auto mark = std::exchange(at.marks, at.marks + static_cast<size_t>(chunk.marks));
  runner_.mark_states(std::span(input.marks).subspan(mark, static_cast<size_t>(chunk.marks)));
  runner_.exit_by(input.references[index].exit);
  for (int64_t g = 1; g <= chunk.windows; ++g) {
    const StepWindow& window = input.windows[at.windows++];
    runner_.begin_group(g, take_blocks(window.blocks), window.slot);
  }
}

// Tokens, some of which may be given as rows, or be read.
void StepPass::add_rows(const StepInput& input, size_t index, size_t from, int64_t sampled) {
  const StepChunk& chunk = input.chunks[index];
  const StepReferences& of = input.references[index];
  PromptReader* const reader = of.rows->reader.get();
  const int64_t width = runner_.model().spec().width;
  for (int64_t i = 0; i < chunk.tokens; ++i, ++from) {
    const int64_t place = chunk.first + i;
    const bool read = reader && place < of.prompt_tokens && reader->wants(place);
    if (read) reads_.push_back({reader, static_cast<int64_t>(index), place, static_cast<int32_t>(runner_.outputs())});
    const std::span<const float> row = embedding_at(*of.rows, place, width);
    if (row.empty())
      runner_.add(input.tokens[from], input.positions[from], read || i >= sampled);
    else
      runner_.add_embedding(row, input.positions[from], read || i >= sampled);
  }
}

// Tokens of a tree see their own paths only.
void StepPass::show_keys(const StepInput& input, const StepChunk& chunk, Cursor& at) {
  if (!chunk.sees) return;
  const auto parents = std::exchange(at.parents, at.parents + static_cast<size_t>(chunk.tree));
  const auto segments = std::exchange(at.segments, at.segments + static_cast<size_t>(chunk.segments));
  runner_.see({.parents = std::span(input.parents).subspan(parents, static_cast<size_t>(chunk.tree)),
               .segments = std::span(input.segments).subspan(segments, static_cast<size_t>(chunk.segments)),
               .segment_heads = chunk.segment_heads,
               .documents = chunk.documents});
}

// Drafts are computed as tokens of a plain stream. So rows of streams whose tokens see other keys, or are at other
// positions, are not used. If the pass observes queries, its observers need every token in every layer.
bool StepPass::find_first_rows(const StepInput& input) {
  if (!first_ || first_->empty() || observes_) return false;
  if (std::ranges::any_of(input.references, [](const StepReferences& of) { return of.eviction || of.documents; }))
    return false;
  first_->sort();
  known_.clear();
  for (const StepChunk& chunk : input.chunks) {
    for (int64_t i = chunk.first; i < chunk.first + chunk.tokens; ++i) {
      const bool plain = !chunk.sees && input.positions[known_.size()] == i;
      known_.push_back(plain && chunk.drafted > 0 ? first_->find(chunk.stream, i) : nullptr);
    }
  }
  return std::ranges::any_of(known_, [](const float* row) { return row != nullptr; });
}

// No exception may leave a worker.
void StepPass::ReadRow::read(const float* values) {
  try {
    reader->read(position, values);
  } catch (...) {
    failed = true;
  }
}

// With readers, or a drafter that reads hidden states. The final states of all rows first; logits of rows that are read
// some at a time, as many as fit where the layers worked; then those of the rows that are sampled, where the plan has
// them.
void StepPass::forward_in_parts(StepOutput& output) {
  const ThreadPool::Turn turn(runner_.threads());
  runner_.forward_hidden(turn);
  if (runner_.context().failed) return;
  adapted_ = runner_.adapters().runs;  // of all rows: adapters of the head need those of the piece
  const auto keep_adapters = [&](std::span<const int32_t> rows) {
    runner_.adapters().runs = adapted_;
    runner_.adapters().keep(rows);
  };
  const auto take_failures = [&] {
    for (const ReadRow& one : reads_)
      if (one.failed) output.failed.push_back(one.chunk);
  };
  for (ReadRow& one : reads_)
    if (!one.reader->logits()) one.read(runner_.hidden(one.row));
  take_failures();
  std::erase_if(reads_, [](const ReadRow& one) { return !one.reader->logits(); });
  for (size_t first = 0; first < reads_.size(); first += read_rows_.size()) {
    const size_t count = std::min(reads_.size() - first, static_cast<size_t>(runner_.most_read_rows()));
    read_rows_.clear();
    for (size_t i = first; i < first + count; ++i) read_rows_.push_back(reads_[i].row);
    keep_adapters(read_rows_);
    const float* logits = runner_.read_rows(read_rows_, turn);
    runner_.threads().parallel_for(static_cast<int64_t>(count), [&](int64_t i, int) {
      reads_[first + static_cast<size_t>(i)].read(logits + i * runner_.model().spec().vocab);
    });
  }
  take_failures();
  keep_adapters(sampled_);
  runner_.head_rows(sampled_, turn);
}

// Requests the attention mass of the last query of every observed chunk, in the middle layer, or in the next layer
// without a window. Layers that only recur have no attention.
void StepPass::request_mass(const StepInput& input) {
  AttentionMass& mass = mass_.mass;
  mass.spans.clear();
  const auto& layers = runner_.model().spec().layers;
  const auto& stored = runner_.kv().layout().layers;
  const auto attends = [&](size_t i) { return stored[i].state_values == 0 || stored[i].kv_heads > 0; };
  const size_t middle = layers.size() / 2;
  size_t chosen = middle;
  while (chosen < layers.size() && (layers[chosen].window > 0 || !attends(chosen))) ++chosen;
  if (chosen == layers.size()) chosen = middle;
  while (!attends(chosen))
    if (chosen-- == 0) return;
  mass.layer = static_cast<int64_t>(chosen);
  for (size_t i = 0; i < input.chunks.size(); ++i)
    if (input.chunks[i].observed) mass.spans.push_back(static_cast<int64_t>(i));
}

// In even shares, so that blocks of long and short prompts are comparable.
void StepPass::take_mass(const StepInput& input, StepOutput& output) {
  const AttentionMass& mass = mass_.mass;
  const int64_t block_tokens = runner_.kv().layout().block_tokens;
  const float* next = mass.mass.data();
  for (int64_t index : mass.spans) {
    const StepChunk& chunk = input.chunks[static_cast<size_t>(index)];
    const int64_t tokens = chunk.first + chunk.tokens, blocks = runner_.kv().blocks_for(tokens);
    output.masses.push_back({index, blocks});
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t held = std::min(block_tokens, tokens - b * block_tokens);
      output.shares.push_back(*next++ * static_cast<float>(tokens) / static_cast<float>(held));
    }
  }
}

}  // namespace millrace
