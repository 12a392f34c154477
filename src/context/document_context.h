// DocumentContext: how a prompt that is made of documents becomes keys and values. One file each under contexts/ and
// one line in builtin.cc. A member says which tokens are computed apart from the others, what they see, and where their
// keys move when they are complete; the engine does the rest. Tokens that no part has see every token before them.
// Immutable, so one may be used by several threads at once.
//
//   prompt   <s> [document 0] [document 1] question      tokens 0 | 1 .. 4 | 5 .. 9 | 10 ..
//   part     {5, 10, moved 4, sees <s> and itself}       computed at positions 1 .. 5, then moved to 5 .. 9
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/registry.h"
#include "flow/batch.h"
#include "millrace/request.h"

namespace millrace {

// Tokens [begin, end) of the prompt, which are computed apart from the others.
struct ContextPart {
  int64_t begin = 0;
  int64_t end = 0;
  // They are computed at positions so much lower than their indices in the prompt; then their keys are rotated to
  // these.
  int64_t moved = 0;
  // What they see, in slots, which are indices in the prompt: tokens before `begin` that are in no part, and the part
  // itself. If those come first in the prompt and are `begin - moved` tokens, the part's keys are those of a stream
  // that begins with them, and are shared with such streams through the prefix cache.
  std::vector<KeySegment> sees;
};

class DocumentContext {
 public:
  virtual ~DocumentContext() = default;
  // Ascending and disjoint. `documents` are, too, and end before the prompt does.
  virtual std::vector<ContextPart> parts(std::span<const PromptDocument> documents) const = 0;
};

using DocumentContextFactory = Result<std::unique_ptr<const DocumentContext>> (*)(const OptionValues& options);
const Registry<DocumentContextFactory>& document_contexts();

// `text` is NAME[:key=value,...]; null for "" and "none". Errors (user): unknown name or option.
Result<std::shared_ptr<const DocumentContext>> make_document_context(std::string_view text);

// The part that has this token; null: none.
const ContextPart* part_of(std::span<const ContextPart> parts, int64_t token);
// The first token after `computed` tokens at which a part begins or ends; 0: there is none.
int64_t next_border(std::span<const ContextPart> parts, int64_t computed);

}  // namespace millrace
