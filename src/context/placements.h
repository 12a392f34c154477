// Plans shared by several contexts: the positions at which documents are computed and to which their keys are moved.
// Thread-safe.
#pragma once

#include "context/document_context.h"

namespace millrace {

// Returns a plan in which every document is computed directly after the sinks, which are at most `sinks` of the
// prompt's first tokens, and is then moved to its position in the prompt. Tokens between documents see all tokens
// before them.
ContextPlan moved_documents(std::span<const PromptDocument> documents, int64_t sinks);

// Variant in which documents stay where they are computed, so that all have the same positions, directly after the
// sinks. The tokens after the last document continue at the position after the longest document. Tokens between two
// documents belong to the second one.
ContextPlan overlaid_documents(std::span<const PromptDocument> documents, int64_t sinks);

// Returns the segments that the tokens after overlaid documents see. Scores of the documents' keys are multiplied by
// `scale`. With `apart`, the documents are numbered from 1; otherwise, all have number 1.
std::vector<KeySegment> weighed_documents(const ContextPlan& plan, float scale, bool apart);

}  // namespace millrace
