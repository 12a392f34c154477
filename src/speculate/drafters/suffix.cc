// Drafts what most often followed the stream's last tokens, in the stream or in any other that the engine has served
// (Oliaro et al., 2024, "SuffixDecoding: Extreme Speculative Decoding for Emerging AI Applications"). The longer the
// match, the longer the draft. Streams of other tenants, and streams that share no prefixes, are never looked at.
//
// Texts are in two automata of half the size each. When the newer one is full, the older one is emptied and takes its
// place; running streams begin in it with their last tokens, and still look up what is in the other.
#include <algorithm>

#include "speculate/drafters/factories.h"
#include "speculate/suffix_automaton.h"

namespace millrace {
namespace {

constexpr int64_t kKept = 4;  // a stream brings at most one token of so many that an automaton has room for

struct SuffixMemory final : DraftMemory {
  uint64_t epoch = 0;                     // automata emptied before its text was added; 0: not added
  size_t added = 0;                       // tokens of the stream that were looked at
  int32_t last = SuffixAutomaton::kNone;  // its text in the newer automaton; kNone: that had no room
  SuffixAutomaton::Match older;           // its longest suffix in the older one
};

class Suffix final : public TextDrafter {
 public:
  Suffix(int64_t drafted, int64_t least, double factor, double share, int64_t history)
      : drafted_(drafted), least_(least), factor_(factor), share_(share), history_(history) {}

  DraftSizes sizes() const {
    return {
        .longest = drafted_, .stream_bytes = sizeof(SuffixMemory), .shared_bytes = 2 * SuffixAutomaton::bytes(half())};
  }
  std::shared_ptr<DraftMemory> remember() const override { return std::make_shared<SuffixMemory>(); }

  void propose(const Sequence& stream, int64_t most, Draft& draft) override {
    std::vector<TokenId>& out = draft.tokens;
    if (texts_.empty()) {  // not before there is a stream, when the memory has been planned
      texts_.emplace_back(half());
      texts_.emplace_back(half());
    }
    auto& memory = static_cast<SuffixMemory&>(*stream.draft.memory);
    add(stream, memory);
    SuffixAutomaton::Match match = newer().continued({memory.last, text_length(memory)});
    const SuffixAutomaton* text = &newer();
    const SuffixAutomaton::Match other = older().continued(memory.older);
    if (other.length > match.length) match = other, text = &older();
    if (match.state == SuffixAutomaton::kNone || match.length < least_) return;
    const auto longest = static_cast<int64_t>(factor_ * static_cast<double>(match.length));
    double likely = 1;
    while (std::ssize(out) < std::min({most, drafted_, longest})) {
      match = text->continued(match);  // at the end of a text, what followed its last tokens elsewhere
      if (match.length == 0) return;
      const auto next = text->likeliest(match.state);
      likely *= next.share;
      if (likely < share_) return;
      out.push_back(next.token);
      match = {next.next, text->length(next.next)};
    }
  }

 private:
  int64_t half() const { return std::max<int64_t>(1, history_ / 2); }
  SuffixAutomaton& newer() { return texts_[epoch_ % 2]; }
  SuffixAutomaton& older() { return texts_[(epoch_ + 1) % 2]; }

  int64_t text_length(const SuffixMemory& memory) {
    return memory.last == SuffixAutomaton::kNone ? 0 : newer().length(memory.last);
  }

  int32_t root_of(const Sequence& stream) {
    int32_t root = SuffixAutomaton::kNone;
    if (stream.prefix.caches) root = newer().root(stream.prefix.scope);
    return root == SuffixAutomaton::kNone ? newer().private_root() : root;
  }

  // Begins the stream's text in the newer automaton with its last tokens.
  void begin(const Sequence& stream, SuffixMemory& memory) {
    const bool moved = memory.epoch + 1 == epoch_ && memory.last != SuffixAutomaton::kNone;
    if (moved) {
      memory.older = {memory.last, older().length(memory.last)};
    } else {
      const int32_t known = stream.prefix.caches ? older().find_root(stream.prefix.scope) : SuffixAutomaton::kNone;
      memory.older = {known, 0};
    }
    const size_t size = stream.tokens.size();
    const size_t from = size - static_cast<size_t>(brought(stream));
    memory.epoch = epoch_;
    memory.last = root_of(stream);
    for (size_t i = from; i < size; ++i) extend(stream.tokens[i], memory);
    for (size_t i = moved ? memory.added : from; i < size; ++i) look_up(stream.tokens[i], memory);
    memory.added = size;
  }

  // Tokens of a stream whose text begins in an automaton.
  int64_t brought(const Sequence& stream) const { return std::min<int64_t>(std::ssize(stream.tokens), half() / kKept); }

  void extend(TokenId token, SuffixMemory& memory) {
    if (memory.last != SuffixAutomaton::kNone) memory.last = newer().extend(memory.last, token);
  }

  void look_up(TokenId token, SuffixMemory& memory) {
    if (memory.older.state != SuffixAutomaton::kNone) memory.older = older().advance(memory.older, token);
  }

  void add(const Sequence& stream, SuffixMemory& memory) {
    const bool known = memory.epoch == epoch_ && memory.added <= stream.tokens.size();
    const int64_t fresh = known ? std::ssize(stream.tokens) - static_cast<int64_t>(memory.added) : 1 + brought(stream);
    if (newer().room() < fresh) {
      ++epoch_;
      newer().clear();
    }
    if (memory.epoch != epoch_ || !known) return begin(stream, memory);
    for (; memory.added < stream.tokens.size(); ++memory.added) {
      extend(stream.tokens[memory.added], memory);
      look_up(stream.tokens[memory.added], memory);
    }
  }

  int64_t drafted_, least_;
  double factor_, share_;
  int64_t history_;
  uint64_t epoch_ = 1;
  std::vector<SuffixAutomaton> texts_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_suffix_drafter(const OptionValues& options) {
  auto suffix = std::make_unique<Suffix>(options.integer("k"), options.integer("min"), options.number("factor"),
                                         options.number("p"), options.integer("history"));
  const DraftSizes sizes = suffix->sizes();
  return text_drafter(sizes, std::move(suffix));
}

}  // namespace millrace
