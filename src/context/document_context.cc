#include "context/document_context.h"

namespace millrace {

const ContextPart* part_of(std::span<const ContextPart> parts, int64_t token) {
  for (const ContextPart& part : parts)
    if (token >= part.begin && token < part.end) return &part;
  return nullptr;
}

int64_t next_border(std::span<const ContextPart> parts, int64_t computed) {
  for (const ContextPart& part : parts) {
    if (computed < part.begin) return part.begin;
    if (computed < part.end) return part.end;
  }
  return 0;
}

}  // namespace millrace
