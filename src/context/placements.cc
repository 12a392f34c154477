#include "context/placements.h"

#include <algorithm>

namespace millrace {
namespace {

ContextPart part_behind(int64_t begin, int64_t end, int64_t sinks) {
  ContextPart part{.begin = begin, .end = end, .moved = begin - sinks};
  if (sinks > 0) part.sees.push_back({0, sinks});
  part.sees.push_back({begin, end});
  return part;
}

}  // namespace

ContextPlan moved_documents(std::span<const PromptDocument> documents, int64_t sinks) {
  sinks = std::min(sinks, documents.front().begin);
  ContextPlan plan;
  for (const PromptDocument& document : documents)
    plan.parts.push_back(part_behind(document.begin, document.end, sinks));
  return plan;
}

ContextPlan overlaid_documents(std::span<const PromptDocument> documents, int64_t sinks) {
  const int64_t first = documents.front().begin;
  sinks = std::min(sinks, first);
  ContextPlan plan;
  int64_t begin = first, furthest = first;  // the positions that are taken
  for (const PromptDocument& document : documents) {
    plan.parts.push_back(part_behind(begin, document.end, sinks));
    plan.parts.back().stays = true;
    furthest = std::max(furthest, sinks + document.end - begin);
    begin = document.end;
  }
  plan.moved = begin - furthest;
  return plan;
}

std::vector<KeySegment> weighed_documents(const ContextPlan& plan, float scale, bool apart) {
  std::vector<KeySegment> out;
  const int64_t first = plan.parts.front().begin;
  if (first > 0) out.push_back({0, first});
  int32_t number = 0;
  for (const ContextPart& part : plan.parts) {
    number = apart ? number + 1 : 1;
    out.push_back({part.begin, part.end, scale, 0, number});
  }
  out.push_back({plan.parts.back().end, ContextPlan::kOpenEnd});
  return out;
}

}  // namespace millrace
