// VisibleKeys: the slots that the tokens of one span see, as techniques describe them (ModelRunner::see()). In a Batch
// it becomes a Visibility (flow/batch.h), which defines each part.
#pragma once

#include <span>
#include <string_view>

#include "base/result.h"
#include "flow/batch.h"
#include "models/arch_spec.h"

namespace millrace {

struct VisibleKeys {
  // A tree of the span's last tokens, which may include stored ones: for each of them, the index of its parent among
  // them, smaller than its own. -1: it has none and follows the token before the tree. At most kMaxTreeTokens.
  std::span<const int32_t> parents;
  std::span<const KeySegment> segments;
  int64_t segment_heads = 1;  // lists that these are, of equal length (Visibility::segment_heads)
  DocumentWeights documents = {};
  bool whole = false;  // Visibility::whole
  // Per KV head, or one for all.
  std::span<const std::span<const int32_t>> block_lists;
  // Positions of the stream's first slots; the slots between these and the span are at the positions directly before
  // the span's.
  std::span<const int32_t> positions;
};

// Adds it to the batch's last span, whose tokens are all there.
void add_visibility(const VisibleKeys& visible, Batch& batch);
void reserve_visibility(int64_t spans, int64_t tokens, Batch& batch);

// Checks that a model's streams may have a visibility. `what` begins the error message. Errors: unsupported.
Result<void> check_visible(const ArchSpec& spec, std::string_view what);
// Also checks that their keys can be moved to other positions (Model::move_keys()).
Result<void> check_movable(const ArchSpec& spec, std::string_view what);

}  // namespace millrace
