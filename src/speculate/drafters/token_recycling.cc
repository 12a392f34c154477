// Token recycling (Luo et al., 2024, Turning Trash into Treasure: Accelerating Inference of Large Language Models with
// Token Recycling): a matrix has the k tokens that the model last found likeliest after each token. Every row of logits
// updates it, those of rejected tokens too. The draft is a fixed tree over it, breadth first from the stream's last
// token: likelier candidates have more and longer branches.
//
//   the -> cat dog sun        stream  the       draft  cat       tokens  cat dog sat ran
//   cat -> sat ran and                                 |-- sat    parents  -1  -1  0   0
//   dog -> ran                                         '-- ran
#include <algorithm>
#include <cmath>

#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

// The share of a token's continuations that the candidate of this rank is taken to have. Only the order of the products
// along the branches matters, which shapes the tree like the paper's: the first candidates go deepest.
double assumed_share(int64_t rank) { return 0.6 / std::pow(static_cast<double>(rank + 1), 1.7); }

struct TreePlace {
  int32_t parent;  // in the tree; -1: the stream's last token
  int32_t rank;    // among its parent's candidates
  int32_t depth;
  double share;
};

// The `tokens` heaviest places, heaviest first, so that parents precede their children.
std::vector<TreePlace> tree_shape(int64_t tokens, int64_t candidates, int64_t depth) {
  std::vector<TreePlace> tree, open;
  const auto open_below = [&](int32_t parent, int32_t level, double share) {
    if (level >= depth) return;
    for (int32_t rank = 0; rank < candidates; ++rank)
      open.push_back({parent, rank, level, share * assumed_share(rank)});
  };
  open_below(-1, 0, 1);
  while (!open.empty() && std::ssize(tree) < tokens) {
    const auto heaviest = std::ranges::max_element(open, {}, &TreePlace::share);
    tree.push_back(*heaviest);
    open.erase(heaviest);
    open_below(static_cast<int32_t>(tree.size() - 1), tree.back().depth + 1, tree.back().share);
  }
  return tree;
}

class TokenRecycling final : public TextDrafter, public Learner {
 public:
  TokenRecycling(int64_t candidates, int64_t tokens, int64_t depth, int64_t tables)
      : candidates_(candidates),
        shape_(tree_shape(tokens, candidates, depth)),
        placed_(shape_.size()),
        tables_(static_cast<size_t>(tables)) {}

  DraftSizes sizes() const {
    return {.longest = std::ssize(shape_),
            .trees = true,
            .vocab_bytes = std::ssize(tables_) * candidates_ * static_cast<int64_t>(sizeof(TokenId))};
  }
  int64_t learns() const override { return candidates_; }
  void begin(int64_t vocab) override { vocab_ = vocab; }

  void learn(const Sequence& stream, TokenId token, std::span<const TokenId> best) override {
    Table* table = find_table(stream);
    if (table && token >= 0 && token < vocab_) std::ranges::copy(best, row(*table, token).begin());
  }

  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    ++now_;
    Table* table = find_table(stream);
    if (!table) return;
    for (size_t i = 0; i < shape_.size(); ++i) {
      const TreePlace& place = shape_[i];
      placed_[i] = -1;
      const int32_t parent = place.parent < 0 ? -1 : placed_[static_cast<size_t>(place.parent)];
      if (out.size() >= most || (place.parent >= 0 && parent < 0)) continue;
      const TokenId after = parent < 0 ? stream.tokens.back() : out.tokens[static_cast<size_t>(parent)];
      if (after < 0 || after >= vocab_) continue;
      const TokenId next = row(*table, after)[static_cast<size_t>(place.rank)];
      if (next < 0) continue;  // nothing was learned of it
      placed_[i] = static_cast<int32_t>(out.size());
      out.tokens.push_back(next);
      out.parents.push_back(parent);
    }
  }

 private:
  // A matrix belongs to the streams that may share prefixes: what was served to one tenant does not show in the speed
  // of another one's answers.
  struct Table {
    std::vector<TokenId> next;  // [vocab, candidates]; -1: none
    bool shared = false;        // by the streams of a scope; otherwise it is one stream's
    uint64_t owner = 0;         // that scope, or the stream
    int64_t used = -1;          // when; -1: never
  };
  static constexpr int64_t kHeld = 256;  // drafts of all streams for which an unused table stays its owner's

  std::span<TokenId> row(Table& table, TokenId token) const {
    return std::span(table.next).subspan(static_cast<size_t>(token * candidates_), static_cast<size_t>(candidates_));
  }

  // The table of the stream's owner, who takes the one that was unused for longest. Null: all are in use by others.
  Table* find_table(const Sequence& stream) {
    if (vocab_ == 0) return nullptr;
    const bool shared = stream.prefix.caches;
    const uint64_t owner = shared ? stream.prefix.scope : stream.id;
    Table* oldest = &tables_.front();
    for (Table& table : tables_) {
      if (table.used >= 0 && table.shared == shared && table.owner == owner) {
        table.used = now_;
        return &table;
      }
      if (table.used < oldest->used) oldest = &table;
    }
    if (oldest->used >= 0 && now_ - oldest->used < kHeld) return nullptr;
    oldest->next.assign(static_cast<size_t>(vocab_ * candidates_), -1);
    oldest->shared = shared;
    oldest->owner = owner;
    oldest->used = now_;
    return oldest;
  }

  int64_t candidates_;
  std::vector<TreePlace> shape_;
  std::vector<int32_t> placed_;  // of each place, its token in the draft; -1: left out
  std::vector<Table> tables_;
  int64_t vocab_ = 0, now_ = 0;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_token_recycling_drafter(const OptionValues& options) {
  auto recycling = std::make_unique<TokenRecycling>(options.integer("k"), options.integer("tokens"),
                                                    options.integer("depth"), options.integer("tables"));
  const DraftSizes sizes = recycling->sizes();
  return text_drafter(sizes, std::move(recycling));
}

}  // namespace millrace
