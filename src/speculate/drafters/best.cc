// Several drafters compete for each stream. All of them draft in every step; the engine judges every draft by the
// tokens that the stream then has, whether it ran or not, and takes the one of which it expects most tokens to be kept
// (engine/draft_driver.h). Nothing is lost by exploring, as with bandits that see only what they choose.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "speculate/drafters/factories.h"
#include "speculate/stream_drafts.h"

namespace millrace {
namespace {

constexpr size_t kMaxMembers = 8;

// Adds what the engine keeps to judge the drafts of one of several drafters (StreamDrafts).
TextPart judged(TextPart part) {
  part.sizes.stream_bytes += static_cast<int64_t>(sizeof(StreamDrafts::Member)) +
                             part.sizes.longest * static_cast<int64_t>(sizeof(TokenId) + sizeof(int32_t));
  return part;
}

}  // namespace

Result<std::unique_ptr<Drafter>> make_best_drafter(const OptionValues& options) {
  std::string text = options.text("of");
  std::ranges::replace(text, ';', ',');
  auto best = std::make_unique<Drafter>();
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('+', begin), text.size());
    // A '+' before a number belongs to an option: self:attn=4+6.
    while (end + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[end + 1])))
      end = std::min(text.find('+', end + 1), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (best->texts.size() == kMaxMembers)
      return Error::user(fmt::format("of: at most {} drafters can compete", kMaxMembers));
    MILLRACE_TRY(auto member, make_drafter(name));
    if (member->model || member->texts.size() > 1)
      return Error::user(fmt::format("of: {} cannot compete; drafters without a model of their own can", name));
    best->texts.push_back(judged(std::move(member->texts.front())));
    begin = end + 1;
  }
  return best;
}

}  // namespace millrace
