// Lookahead decoding (Fu, Bailis, Stoica and Zhang, 2024, Break the Sequential Dependency of LLM Inference Using
// Lookahead Decoding). Beside the stream's next token a step runs a window of guesses, the lookahead branch: `w`
// columns of n - 1 levels, the last n - 1 iterations of a Jacobi iteration of the greedy tokens at the next positions.
// A token sees the first level up to its column, and its own column. The model's tokens behind the last level are the
// next iteration; a column and the token behind it are an n-gram of the model's, which enters the stream's pool.
// N-grams that begin with the stream's last token are verified, in the same step, as branches of one tree.
//
//   stream | a b c d     level 0, a chain behind the stream's last token        n-gram of column 0: a e i + the token
//          | e f g h     level 1: e follows a, f follows b ...                  that the model puts behind i
//          | i j k l     level 2: i follows e ...
#include <fmt/format.h>

#include <algorithm>

#include "base/philox.h"
#include "speculate/draft_tree.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

// The n-grams of one stream: for each first token, the latest of them. Of fixed size: first tokens share sets, of which
// a new n-gram takes the oldest place.
class NgramPool {
 public:
  NgramPool(int64_t n, int64_t places)
      : rest_(static_cast<size_t>(n - 1)),
        places_(static_cast<size_t>(places)),
        entries_(kSets * places_),
        tokens_(kSets * places_ * rest_) {}

  void add(TokenId first, std::span<const TokenId> rest) {
    const size_t set = set_of(first);
    size_t oldest = set;
    for (size_t i = set; i < set + places_; ++i) {
      if (entries_[i].stamp > 0 && entries_[i].first == first && std::ranges::equal(rest_of(i), rest)) {
        entries_[i].stamp = ++stamp_;
        return;
      }
      if (entries_[i].stamp < entries_[oldest].stamp) oldest = i;
    }
    entries_[oldest] = {first, ++stamp_};
    std::ranges::copy(rest, tokens_.begin() + static_cast<ptrdiff_t>(oldest * rest_));
  }

  // What followed this token in the latest n-gram that begins with it; -1: there is none.
  TokenId latest_after(TokenId first) const {
    const size_t set = set_of(first);
    const Entry* latest = nullptr;
    for (size_t i = set; i < set + places_; ++i)
      if (entries_[i].first == first && entries_[i].stamp > (latest ? latest->stamp : 0)) latest = &entries_[i];
    return latest ? rest_of(static_cast<size_t>(latest - entries_.data()))[0] : -1;
  }

  // Calls visit(rest) for the n-grams that begin with this token, the latest first.
  template <typename Visit>
  void visit(TokenId first, Visit visit) const {
    const size_t set = set_of(first);
    for (int64_t below = INT64_MAX;;) {
      size_t latest = kSets * places_;
      for (size_t i = set; i < set + places_; ++i) {
        const Entry& entry = entries_[i];
        if (entry.first != first || entry.stamp == 0 || entry.stamp >= below) continue;
        if (latest == kSets * places_ || entry.stamp > entries_[latest].stamp) latest = i;
      }
      if (latest == kSets * places_) return;
      below = entries_[latest].stamp;
      visit(rest_of(latest));
    }
  }

  int64_t bytes() const {
    return static_cast<int64_t>(entries_.size() * sizeof(Entry) + tokens_.size() * sizeof(TokenId));
  }

 private:
  static constexpr size_t kSets = 1024;
  struct Entry {
    TokenId first = 0;
    int64_t stamp = 0;  // 0: empty
  };

  size_t set_of(TokenId first) const { return (static_cast<uint32_t>(first) * 2654435769u >> 22) % kSets * places_; }
  std::span<const TokenId> rest_of(size_t entry) const { return {tokens_.data() + entry * rest_, rest_}; }

  size_t rest_, places_;
  std::vector<Entry> entries_;
  std::vector<TokenId> tokens_;
  int64_t stamp_ = 0;
};

struct LookaheadMemory final : DraftMemory {
  static constexpr int64_t kPlaces = 4;  // at least, for first tokens that share a set

  LookaheadMemory(int64_t columns, int64_t n, int64_t branches)
      : window(static_cast<size_t>(columns * (n - 1))),
        iterations(static_cast<size_t>(columns)),
        ngram(static_cast<size_t>(n - 1)),
        pool(n, std::max(branches, kPlaces)) {}

  int64_t bytes() const {
    return pool.bytes() +
           static_cast<int64_t>((window.size() + ngram.size()) * sizeof(TokenId) + iterations.size() * sizeof(int64_t));
  }

  std::vector<TokenId> window;      // [level, column]
  std::vector<int64_t> iterations;  // of each column since it was guessed
  int64_t levels = 0;               // that it has; 0: not begun
  std::vector<TokenId> ngram;       // scratch
  NgramPool pool;
};

class Lookahead final : public TextDrafter {
 public:
  Lookahead(int64_t columns, int64_t n, int64_t branches) : columns_(columns), n_(n), branches_(branches) {}

  std::shared_ptr<DraftMemory> remember() const override {
    return std::make_shared<LookaheadMemory>(columns_, n_, branches_);
  }

  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    auto& memory = static_cast<LookaheadMemory&>(*stream.draft.memory);
    if (memory.levels == 0) {
      memory.levels = 1;
      guess(stream, 0, memory);
    }
    int64_t branches = 0;
    memory.pool.visit(stream.tokens.back(), [&](std::span<const TokenId> rest) {
      if (branches++ < branches_) add_branch(out, rest, most);
    });
    const int64_t first = out.size(), count = memory.levels * columns_;
    if (first + count > most) return;  // the window is run whole or not at all
    for (int64_t i = 0; i < count; ++i) {
      out.tokens.push_back(memory.window[static_cast<size_t>(i)]);
      const int64_t parent = i >= columns_ ? first + i - columns_ : i == 0 ? -1 : first + i - 1;
      out.parents.push_back(static_cast<int32_t>(parent));
    }
    out.probes = count;
  }

  void observe(const Sequence& stream, int64_t committed, std::span<const TokenId> probed) override {
    auto* memory = static_cast<LookaheadMemory*>(stream.draft.memory.get());
    if (!memory || memory->levels == 0) return;
    int64_t passed = committed;  // columns that are behind the stream's last token now
    if (std::ssize(probed) == memory->levels * columns_) {
      const auto next = probed.last(static_cast<size_t>(columns_));
      if (memory->levels == n_ - 1) {
        collect(next, *memory);
        std::copy(memory->window.begin() + columns_, memory->window.end(), memory->window.begin());
        --passed;  // the columns begin one token later without their first level
      } else {
        ++memory->levels;
      }
      std::ranges::copy(next, memory->window.begin() + (memory->levels - 1) * columns_);
      for (int64_t& iterations : memory->iterations) ++iterations;
    }
    const int64_t kept = std::max<int64_t>(0, columns_ - passed);
    for (int64_t level = 0; level < memory->levels; ++level) {
      const auto begin = memory->window.begin() + level * columns_;
      std::copy(begin + (columns_ - kept), begin + columns_, begin);
    }
    std::copy(memory->iterations.end() - kept, memory->iterations.end(), memory->iterations.begin());
    collect_own(stream, committed, *memory);
    guess(stream, kept, *memory);
  }

 private:
  // Fills the columns from `first` on. The first level goes on as the latest n-gram with the token before did, so that
  // it often is right at once; otherwise, and below, with tokens of the stream, drawn by its length.
  void guess(const Sequence& stream, int64_t first, LookaheadMemory& memory) const {
    for (int64_t level = 0; level < memory.levels; ++level)
      for (int64_t column = first; column < columns_; ++column) {
        const auto place = static_cast<size_t>(level * columns_ + column);
        const TokenId before = level > 0     ? memory.window[place - static_cast<size_t>(columns_)]
                               : column == 0 ? stream.tokens.back()
                                             : memory.window[place - 1];
        const TokenId known = memory.pool.latest_after(before);
        const double drawn = philox_uniform(static_cast<uint64_t>(stream.size()), static_cast<uint64_t>(level),
                                            static_cast<uint64_t>(column));
        memory.window[place] =
            known >= 0 ? known : stream.tokens[static_cast<size_t>(drawn * static_cast<double>(stream.size()))];
      }
    std::fill(memory.iterations.begin() + first, memory.iterations.end(), 0);
  }

  // The n-grams that end with the last `count` tokens of the answer.
  void collect_own(const Sequence& stream, int64_t count, LookaheadMemory& memory) const {
    const std::span<const TokenId> tokens = stream.tokens;
    for (int64_t end = stream.size() - count + 1; end <= stream.size(); ++end)
      if (end - (n_ - 1) >= stream.prompt_tokens)
        memory.pool.add(tokens[static_cast<size_t>(end - n_)],
                        tokens.subspan(static_cast<size_t>(end - n_ + 1), static_cast<size_t>(n_ - 1)));
  }

  // The n-grams of the columns whose levels, except the first, are the model's.
  void collect(std::span<const TokenId> next, LookaheadMemory& memory) const {
    for (int64_t column = 0; column < columns_; ++column) {
      if (memory.iterations[static_cast<size_t>(column)] < n_ - 2) continue;
      for (int64_t level = 1; level < n_ - 1; ++level)
        memory.ngram[static_cast<size_t>(level - 1)] = memory.window[static_cast<size_t>(level * columns_ + column)];
      memory.ngram.back() = next[static_cast<size_t>(column)];
      memory.pool.add(memory.window[static_cast<size_t>(column)], memory.ngram);
    }
  }

  int64_t columns_, n_, branches_;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_lookahead_drafter(const OptionValues& options) {
  const int64_t columns = options.integer("w"), n = options.integer("n"), branches = options.integer("g");
  const int64_t tokens = (n - 1) * (columns + branches);
  if (tokens > kMaxTreeTokens)
    return Error::user(
        fmt::format("(n - 1) * (w + g) is {} tokens; a step runs at most {} of a stream", tokens, kMaxTreeTokens));
  return text_drafter({.longest = tokens, .trees = true, .stream_bytes = LookaheadMemory(columns, n, branches).bytes()},
                      std::make_unique<Lookahead>(columns, n, branches));
}

}  // namespace millrace
