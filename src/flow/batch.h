// Batch: flat arrays for one forward pass, built only from a StepPlan. Prefill chunks and single decode
// tokens are the same thing: a span of n >= 1 tokens of one stream.
//
// Slot and position are separate: a token's keys and values are at slot first_slot + i of its stream, and its position
// rotates them. It sees every slot up to its own, unless the span has a Visibility.
//
//   tokens     [ s0 s0 s0 s0 | s1 | s2 s2 ]     spans[0].count = 4, spans[1].count = 1, spans[2].count = 2
//   positions  [  0  1  2  3 | 57 |  8  9 ]
//   output_rows: indices into tokens whose logits are needed, ascending
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "flow/state_mark.h"
#include "millrace/token.h"

namespace millrace {

class ExitGate;

inline constexpr int64_t kMaxTreeTokens = 64;

// Slots [begin, end) that are seen, the slots between segments are not. Scores are multiplied by `scale` (before a
// softcap), and `bias` is added to them (after it): the weights of these keys are multiplied by e^bias.
struct KeySegment {
  int64_t begin = 0;
  int64_t end = 0;
  float scale = 1;
  float bias = 0;
  int32_t document = 0;  // that the keys are of, numbered from 1 in slot order (Visibility::documents); 0: of none

  bool operator==(const KeySegment&) const = default;
};

// How a query weighs the keys of documents (KeySegment::document), as against all other keys.
struct DocumentWeights {
  float power = 1;  // the sum of their weights, before the softmax divides, is raised to this power
  int32_t most =
      // maximum number of documents that a query sees, those that receive most of its attention; at most
      // kMaxChosenDocuments. 0: all
      0;

  bool operator==(const DocumentWeights&) const = default;
};
inline constexpr int32_t kMaxChosenDocuments = 16;

// The slots that a span's tokens see, if these are not all slots up to their own. A token sees a slot if every part
// that is present lets it. The keys that it sees count, in slot order, as keys 0, 1, 2, ... of a stream that holds
// nothing else: results are the bits of that stream (attention/visible_keys.h).
//
// Every token must see its own slot, and, except in a tree, all slots between the span's first one and its own.
struct Visibility {
  // Token tree: the tokens from slot tree_slot on, tree_tokens of them, are alternatives. Each of them sees the older
  // slots and those tokens of the tree that are set in its ancestors[slot - tree_slot]; bit i is token i of the tree.
  // Its own bit is set, and no higher one: parents come before their children.
  int64_t tree_slot = 0;
  int64_t tree_tokens = 0;  // 0: no tree; at most kMaxTreeTokens
  int64_t ancestors = 0;    // index into Batch::ancestors
  // Segments, ascending and disjoint; some may be empty. There is one list for all KV heads. If the heads store
  // different tokens in a slot, there is one list for each KV head of each layer, layer by layer.
  int64_t segments = 0;       // index into Batch::segments
  int64_t segment_count = 0;  // segments of one list; 0: no slot is left out
  int64_t segment_heads = 1;  // lists
  DocumentWeights documents;
  // Every token sees all slots of the segments, those behind its own too, and need not see its own: attention in both
  // directions, or to the keys of another stream. With segments only, in layers without a window.
  bool whole = false;
  // Block lists: only the slots of the listed blocks. KV head h has list min(h, list_count - 1).
  int64_t lists = 0;       // index into Batch::block_lists
  int64_t list_count = 0;  // 0: all blocks
  // Positions of slots [0, position_count), which then cover the span; ascending along the slots that a token sees. A
  // layer's window counts them. Without them it counts the keys that the token sees.
  int64_t positions = 0;  // index into Batch::slot_positions
  int64_t position_count = 0;
};

// Indices into the stream's block table, ascending: Batch::listed_blocks from `begin` on.
struct BlockList {
  int64_t begin = 0;
  int64_t count = 0;
};

struct BatchSpan {
  int64_t begin = 0;        // first token, index into Batch::tokens
  int64_t count = 0;        // tokens
  int64_t first_slot = 0;   // the stream's slot of the first token; slots [0, first_slot) are already stored
  int64_t table = 0;        // start of the stream's block table in Batch::block_tables
  int64_t table_size = 0;   // blocks; covers slots [0, first_slot + count)
  int32_t state = 0;        // the stream's slot of recurrent states or of its KV tail, where it has one
  int32_t chunk = 0;        // index of this span, or of the one that it was a part of, in the batch of the whole pass
  int32_t visibility = -1;  // index into Batch::visibility; -1: every slot up to the token's own
  bool answer = false;      // its tokens were sampled, or drafted, and are not of a prompt
  int32_t exit = -1;        // index into Batch::exits; -1: its tokens run every layer
  int32_t mark = 0;         // its first mark, index into Batch::marks
  int32_t mark_count = 0;   // marks, whose rows are ascending
};

// A token of the prompt that is passed as its row of the embedding table, before the model's scaling, instead of by its
// id.
struct BatchEmbedding {
  int64_t token = 0;           // index into Batch::tokens, whose entry is not used
  const float* row = nullptr;  // [width]
};

struct Batch {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<BatchSpan> spans;
  std::vector<int32_t> block_tables;
  std::vector<std::vector<int32_t>> window_tables;  // block tables of KV groups 1, 2, ...
  // The batch's spans in KV groups 1, 2, ...: slots and tables of streams that have dropped tokens from group 0 and so
  // have other slots there than in these groups. Empty in most batches: one numbering then serves all groups, entry by
  // entry.
  std::vector<std::vector<BatchSpan>> window_spans;
  std::vector<int32_t> output_rows;
  std::vector<BatchEmbedding> embeddings;  // ascending
  // Visibilities of the spans that have one; empty in most batches.
  std::vector<Visibility> visibility;
  std::vector<uint64_t> ancestors;
  std::vector<KeySegment> segments;
  std::vector<BlockList> block_lists;
  std::vector<int32_t> listed_blocks;
  std::vector<int32_t> slot_positions;
  std::vector<const ExitGate*> exits;  // the gates of the spans that have one; empty in most batches
  std::vector<StateMark> marks;        // marks of all spans; a row is counted from the span's first token

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  std::span<const StateMark> marks_of(const BatchSpan& span) const {
    return std::span(marks).subspan(static_cast<size_t>(span.mark), static_cast<size_t>(span.mark_count));
  }
  // The block tables of a group of layers (kv/window_groups.h).
  const std::vector<int32_t>& tables(int64_t group) const {
    return group == 0 ? block_tables : window_tables[static_cast<size_t>(group - 1)];
  }
  // The spans with their slots and tables in that group.
  const std::vector<BatchSpan>& spans_of(int64_t group) const {
    if (group == 0 || window_spans.empty()) return spans;
    const std::vector<BatchSpan>& own = window_spans[static_cast<size_t>(group - 1)];
    return own.empty() ? spans : own;
  }
  void clear() {
    tokens.clear();
    positions.clear();
    spans.clear();
    block_tables.clear();
    for (auto& table : window_tables) table.clear();
    for (auto& own : window_spans) own.clear();
    output_rows.clear();
    embeddings.clear();
    visibility.clear();
    ancestors.clear();
    segments.clear();
    block_lists.clear();
    listed_blocks.clear();
    slot_positions.clear();
    exits.clear();
    marks.clear();
  }
  // The spans of `other` may then refer to its visibility.
  void copy_visibility(const Batch& other) {
    visibility = other.visibility;
    ancestors = other.ancestors;
    segments = other.segments;
    block_lists = other.block_lists;
    listed_blocks = other.listed_blocks;
    slot_positions = other.slot_positions;
  }
};

}  // namespace millrace
