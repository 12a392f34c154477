// Batch: flat arrays for one forward pass, built from a StepPlan. A prefill chunk and a single decode token have the
// same form: a span of n >= 1 tokens of one stream.
//
// A token has a slot and a position. Its keys and values are stored in slot first_slot + i of its stream; its position
// determines their rotation. A token sees every slot up to its own, unless the span has a Visibility.
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

// Slots [begin, end) that a token sees; it does not see the slots between segments. The scores of these keys are
// multiplied by `scale` before a softcap, and `bias` is added after it, which multiplies their weights by e^bias.
struct KeySegment {
  int64_t begin = 0;
  int64_t end = 0;
  float scale = 1;
  float bias = 0;
  int32_t document = 0;  // number of the keys' document, from 1 in slot order (see DocumentWeights); 0: no document

  bool operator==(const KeySegment&) const = default;
};

// How a query weighs the keys of documents (KeySegment::document) relative to all other keys.
struct DocumentWeights {
  float power = 1;  // the sum of the documents' weights, before normalization, is raised to this power
  // maximum number of documents that a query sees, at most kMaxChosenDocuments. The documents that receive most of the
  // query's attention are chosen. 0: all documents
  int32_t most = 0;

  bool operator==(const DocumentWeights&) const = default;
};
inline constexpr int32_t kMaxChosenDocuments = 16;

// The slots that a span's tokens see, if they do not see all slots up to their own. The restrictions are a token tree,
// segments and block lists; each may be absent. A token sees a slot if no restriction hides it. Results are identical,
// bit for bit, to those of a stream that holds only the visible keys, in slot order (attention/visible_keys.h).
//
// Every token must see its own slot, and, except in a tree, all slots between the span's first one and its own.
struct Visibility {
  // Token tree: the `tree_tokens` tokens from slot `tree_slot` on are alternatives. Token t of the tree sees the slots
  // before the tree, and each token i of the tree whose bit i is set in Batch::ancestors[ancestors + t]. Bit t is set,
  // and no higher bit is, because parents come before their children.
  int64_t tree_slot = 0;
  int64_t tree_tokens = 0;  // 0: no tree; at most kMaxTreeTokens
  int64_t ancestors = 0;    // index into Batch::ancestors
  // Segments: lists of ascending, disjoint segments; some may be empty. One list serves all KV heads. If the heads
  // store different tokens in a slot, there is one list for each KV head of each layer, layer by layer.
  int64_t segments = 0;       // index into Batch::segments
  int64_t segment_count = 0;  // segments of one list; 0: no slot is hidden
  int64_t segment_heads = 1;  // number of lists
  DocumentWeights documents;
  // true: every token sees all slots of the segments, including slots after its own; its own slot may be outside of
  // them. Used for attention in both directions and for attention to another stream's keys. Requires segments, no tree
  // and no block lists, and layers without a window.
  bool whole = false;
  // Block lists: a token sees only the slots of the listed blocks. KV head h uses list min(h, list_count - 1).
  int64_t lists = 0;       // index into Batch::block_lists
  int64_t list_count = 0;  // 0: all blocks
  // Positions of slots [0, position_count). If present, they cover the span, ascend along the slots that a token sees,
  // and a layer's window is a distance in positions. If absent, the window is a number of visible keys.
  int64_t positions = 0;       // index into Batch::slot_positions
  int64_t position_count = 0;  // 0: absent
};

// A list of indices into the stream's block table, ascending: Batch::listed_blocks[begin, begin + count).
struct BlockList {
  int64_t begin = 0;
  int64_t count = 0;
};

struct BatchSpan {
  int64_t begin = 0;        // first token, index into Batch::tokens
  int64_t count = 0;        // tokens
  int64_t first_slot = 0;   // slot of the first token in its stream; slots [0, first_slot) are already stored
  int64_t table = 0;        // start of the stream's block table in Batch::block_tables
  int64_t table_size = 0;   // blocks; covers slots [0, first_slot + count)
  int32_t state = 0;        // slot of the stream's recurrent states or KV tail, if it has one
  int32_t chunk = 0;        // index, in the batch of the whole pass, of this span or of the span it was cut from
  int32_t visibility = -1;  // index into Batch::visibility; -1: a token sees every slot up to its own
  bool answer = false;      // the tokens were sampled or drafted; false: they belong to a prompt
  int32_t exit = -1;        // index into Batch::exits; -1: the tokens run every layer
  int32_t mark = 0;         // index of the span's first mark in Batch::marks
  int32_t mark_count = 0;   // number of marks; their rows are ascending
};

// A prompt token that is passed as a row of the embedding table instead of an id. The model still scales the row.
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
  // The batch's spans with their slots and tables in KV groups 1, 2, ... They differ from `spans` for streams that have
  // dropped tokens from some groups only. Empty in most batches, or for one group: `spans` then serves the group.
  std::vector<std::vector<BatchSpan>> window_spans;
  std::vector<int32_t> output_rows;
  std::vector<BatchEmbedding> embeddings;  // in ascending order of tokens
  // Visibilities that spans refer to; empty in most batches.
  std::vector<Visibility> visibility;
  std::vector<uint64_t> ancestors;
  std::vector<KeySegment> segments;
  std::vector<BlockList> block_lists;
  std::vector<int32_t> listed_blocks;
  std::vector<int32_t> slot_positions;
  std::vector<const ExitGate*> exits;  // exit gates that spans refer to; empty in most batches
  std::vector<StateMark> marks;        // marks of all spans; a row is counted from the span's first token

  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
  std::span<const StateMark> marks_of(const BatchSpan& span) const {
    return std::span(marks).subspan(static_cast<size_t>(span.mark), static_cast<size_t>(span.mark_count));
  }
  // Returns the block tables of a group of layers (kv/window_groups.h).
  const std::vector<int32_t>& tables(int64_t group) const {
    return group == 0 ? block_tables : window_tables[static_cast<size_t>(group - 1)];
  }
  // Returns the spans with their slots and tables in `group`.
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
  // Copies the visibilities of `other`, so that this batch may contain spans of `other`.
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
