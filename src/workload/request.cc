#include "workload/request.h"

#include <algorithm>

#include "base/philox.h"

namespace millrace {
namespace {

// Separates the draws for hashes from the draws for requests.
constexpr uint64_t kHashStream = 0x70726566'69780000, kPrivateStream = 0x70726976'61746500,
                   kDocumentStream = 0x646f6375'6d656e74;

void fill(uint64_t key, uint64_t stream, int64_t begin, int64_t end, int64_t vocab, std::vector<TokenId>& out) {
  for (int64_t i = begin; i < end; ++i) {
    const auto draw = philox4x32(key, static_cast<uint64_t>(i), stream);
    const uint64_t bits = (uint64_t{draw[0]} << 32 | draw[1]) >> 32;
    out.push_back(static_cast<TokenId>(bits * static_cast<uint64_t>(vocab) >> 32));
  }
}

}  // namespace

std::vector<TokenId> make_prompt(const WorkloadRequest& request, int64_t vocab) {
  std::vector<TokenId> prompt;
  prompt.reserve(static_cast<size_t>(request.prompt_tokens));
  const auto known = std::min<int64_t>(request.prompt_tokens, static_cast<int64_t>(request.tokens.size()));
  for (int64_t i = 0; i < known; ++i)
    prompt.push_back(static_cast<TokenId>(request.tokens[static_cast<size_t>(i)] % vocab));
  int64_t at = known;
  for (uint64_t document : request.documents) {
    fill(document, kDocumentStream, 0, request.document_tokens, vocab, prompt);
    at += request.document_tokens;
  }
  if (known == 0 && request.hash_block_tokens > 0) {
    for (uint64_t hash : request.prefix_hashes) {
      const int64_t end = std::min(at + request.hash_block_tokens, request.prompt_tokens);
      fill(hash, kHashStream, at, end, vocab, prompt);
      at = end;
    }
  }
  fill(request.id, kPrivateStream, at, request.prompt_tokens, vocab, prompt);
  return prompt;
}

std::vector<PromptDocument> prompt_documents(const WorkloadRequest& request) {
  std::vector<PromptDocument> out;
  for (int64_t at = 0; out.size() < request.documents.size(); at += request.document_tokens)
    out.push_back({at, at + request.document_tokens});
  return out;
}

}  // namespace millrace
