#include "run/prompt_embeddings.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace millrace {

Result<void> check_embeddings(const Request& request, int64_t width) {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  int64_t free = 0;  // the first position after the rows before
  for (const PromptEmbeddings& given : request.embeddings) {
    if (!given.rows || given.rows->empty())
      return Error::user(fmt::format("embeddings: position {} has no rows", given.begin));
    const auto values = static_cast<int64_t>(given.rows->size());
    if (values % width != 0)
      return Error::user(
          fmt::format("embeddings: {} values at position {} are not rows of {}", values, given.begin, width));
    if (given.begin >= 0 && given.begin < free)
      return Error::user(fmt::format(
          "embeddings: position {} comes after position {}; they must ascend and not overlap", given.begin, free - 1));
    if (given.begin < 0 || given.begin > prompt || values / width > prompt - given.begin)
      return Error::user(fmt::format("embeddings: {} rows at position {} do not fit in a prompt of {} tokens",
                                     values / width, given.begin, prompt));
    if (std::ranges::any_of(*given.rows, [](float value) { return !(value - value == 0.0f); }))
      return Error::user(fmt::format("embeddings: the rows at position {} hold NaN or infinity", given.begin));
    free = given.begin + values / width;
  }
  return {};
}

std::span<const float> embedding_at(const Request& request, int64_t position, int64_t width) {
  const auto after = std::ranges::upper_bound(request.embeddings, position, {}, &PromptEmbeddings::begin);
  if (after == request.embeddings.begin()) return {};
  const PromptEmbeddings& given = *std::prev(after);
  const int64_t first = (position - given.begin) * width;
  if (first >= std::ssize(*given.rows)) return {};
  return std::span(*given.rows).subspan(static_cast<size_t>(first), static_cast<size_t>(width));
}

std::string embeddings_identity(const Request& request) {
  std::string out;
  for (const PromptEmbeddings& given : request.embeddings) {
    if (!given.rows) continue;  // refused by check_embeddings()
    const XXH128_hash_t hash = XXH3_128bits(given.rows->data(), given.rows->size() * sizeof(float));
    out += fmt::format("{}:{:016x}{:016x};", given.begin, hash.high64, hash.low64);
  }
  return out;
}

int64_t embeddings_bytes(const Request& request) {
  int64_t bytes = 0;
  for (const PromptEmbeddings& given : request.embeddings)
    if (given.rows) bytes += static_cast<int64_t>(given.rows->size() * sizeof(float));
  return bytes;
}

}  // namespace millrace
