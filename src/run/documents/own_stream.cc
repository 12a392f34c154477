#include "run/documents/own_stream.h"

#include "kv/prefix_key.h"

namespace millrace {

int64_t tokens_before(const ContextPart& part) {
  const int64_t begin = part.begin - part.skipped, before = begin - part.moved;
  const bool own = !part.sees.empty() && part.sees.back() == KeySegment{begin, part.end};
  if (!own) return -1;
  if (before == 0) return part.sees.size() == 1 ? 0 : -1;
  return part.sees.size() == 2 && part.sees.front() == KeySegment{0, before} ? before : -1;
}

std::vector<TokenId> own_stream(const Sequence& s, const ContextPart& part, int64_t block_tokens) {
  std::vector<TokenId> tokens(s.tokens.begin(), s.tokens.begin() + tokens_before(part));
  tokens.insert(tokens.end(), s.tokens.begin() + part.begin - part.skipped, s.tokens.begin() + part.end);
  const int64_t rest = std::ssize(tokens) % block_tokens;
  tokens.insert(tokens.end(), static_cast<size_t>(rest > 0 ? block_tokens - rest : 0), kFillToken);
  return tokens;
}

}  // namespace millrace
