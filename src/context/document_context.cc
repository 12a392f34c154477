#include "context/document_context.h"

#include <utility>

namespace millrace {

void add_links(const DocumentContext& context, Request& request) {
  std::vector<TokenId> prompt;
  std::vector<PromptDocument> documents;
  int64_t done = 0;
  const auto copy_until = [&](int64_t end) {
    prompt.insert(prompt.end(), request.prompt.begin() + done, request.prompt.begin() + end);
    done = end;
  };
  for (const PromptDocument& document : request.documents) {
    if (document.begin < done || document.end <= document.begin || document.end > std::ssize(request.prompt)) return;
    copy_until(document.begin);
    const int64_t begin = std::ssize(prompt);
    copy_until(document.end);
    const std::vector<TokenId> links = context.links(std::ssize(documents));
    documents.push_back({begin, std::ssize(prompt)});
    prompt.insert(prompt.end(), links.begin(), links.end());
  }
  copy_until(std::ssize(request.prompt));
  request.prompt = std::move(prompt);
  request.documents = std::move(documents);
}

DocumentTokens take_documents(Request& request) {
  DocumentTokens taken;
  int64_t done = 0;
  for (const PromptDocument& document : request.documents) {
    if (document.begin < done || document.end <= document.begin || document.end >= std::ssize(request.prompt))
      return {};
    taken.emplace_back(request.prompt.begin() + document.begin, request.prompt.begin() + document.end);
    done = document.end;
  }
  for (auto document = request.documents.rbegin(); document != request.documents.rend(); ++document)
    request.prompt.erase(request.prompt.begin() + document->begin, request.prompt.begin() + document->end);
  request.documents.clear();
  return taken;
}

const ContextPart* part_of(const ContextPlan& plan, int64_t token) {
  for (const ContextPart& part : plan.parts)
    if (token >= part.begin && token < part.end) return &part;
  return nullptr;
}

int64_t next_border(const ContextPlan& plan, int64_t computed) {
  for (const ContextPart& part : plan.parts) {
    if (computed < part.begin) return part.begin;
    if (computed < part.end) return plan.placed ? computed : part.end;
  }
  return -1;
}

ContextPlan place_parts(ContextPlan plan) {
  plan.placed = true;
  for (ContextPart& part : plan.parts) {
    part.skipped = std::exchange(part.fresh_first, 0);
    part.begin += part.skipped;
  }
  std::erase_if(plan.parts, [](const ContextPart& part) { return part.begin == part.end; });
  return plan;
}

}  // namespace millrace
