// Where documents are computed and where their keys end, as several contexts have it. Thread-safe.
#pragma once

#include "context/document_context.h"

namespace millrace {

// Every document is computed behind the prompt's first tokens, `sinks` of them at most, and then moved to its place in
// the prompt. Tokens between documents see all tokens before them.
ContextPlan moved_documents(std::span<const PromptDocument> documents, int64_t sinks);

// Variant in which documents stay: all have the same positions, directly behind the sinks. The tokens after the last
// document have positions behind the longest document. Tokens between documents belong to the next one.
ContextPlan overlaid_documents(std::span<const PromptDocument> documents, int64_t sinks);

// Segments for the tokens behind overlaid documents, which weigh these with `scale`. The documents are numbered from 1,
// or all 1 where not `apart`.
std::vector<KeySegment> weighed_documents(const ContextPlan& plan, float scale, bool apart);

}  // namespace millrace
