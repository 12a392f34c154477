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

class Best final : public Drafter {
 public:
  explicit Best(std::vector<std::unique_ptr<Drafter>> members) : members_(std::move(members)) {}

  std::span<const std::unique_ptr<Drafter>> members() const override { return members_; }
  int64_t longest() const override {
    int64_t longest = 0;
    for (const auto& member : members_) longest = std::max(longest, member->longest());
    return longest;
  }
  bool trees() const override {
    return std::ranges::any_of(members_, [](const auto& member) { return member->trees(); });
  }
  int64_t memory_bytes() const override {
    int64_t bytes = 0;
    for (const auto& member : members_)
      bytes += member->memory_bytes() + static_cast<int64_t>(sizeof(StreamDrafts::Member)) +
               member->longest() * static_cast<int64_t>(sizeof(TokenId) + sizeof(int32_t));
    return bytes;
  }
  int64_t shared_bytes(int64_t vocab) const override {
    int64_t bytes = 0;
    for (const auto& member : members_) bytes += member->shared_bytes(vocab);
    return bytes;
  }
  int64_t learns() const override {
    int64_t most = 0;
    for (const auto& member : members_) most = std::max(most, member->learns());
    return most;
  }
  void learn(const Sequence& stream, TokenId token, std::span<const TokenId> best) override {
    for (const auto& member : members_)
      member->learn(stream, token, best.first(std::min(best.size(), static_cast<size_t>(member->learns()))));
  }
  void begin(int64_t vocab) override {
    for (const auto& member : members_) member->begin(vocab);
  }
  Result<void> check(int64_t vocab, std::span<const std::string> tokens) const override {
    for (const auto& member : members_) MILLRACE_TRY_VOID(member->check(vocab, tokens));
    return {};
  }

 private:
  std::vector<std::unique_ptr<Drafter>> members_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_best_drafter(const OptionValues& options) {
  std::string text = options.text("of");
  std::ranges::replace(text, ';', ',');
  std::vector<std::unique_ptr<Drafter>> members;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find('+', begin), text.size());
    // A '+' before a number belongs to an option: self:attn=4+6.
    while (end + 1 < text.size() && std::isdigit(static_cast<unsigned char>(text[end + 1])))
      end = std::min(text.find('+', end + 1), text.size());
    const std::string name = text.substr(begin, end - begin);
    if (members.size() == kMaxMembers)
      return Error::user(fmt::format("of: at most {} drafters can compete", kMaxMembers));
    MILLRACE_TRY(auto member, make_drafter(name));
    if (member->has_model() || !member->members().empty())
      return Error::user(fmt::format("of: {} cannot compete; drafters without a model of their own can", name));
    members.push_back(std::move(member));
    begin = end + 1;
  }
  return std::unique_ptr<Drafter>(std::make_unique<Best>(std::move(members)));
}

}  // namespace millrace
