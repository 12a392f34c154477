// Retrieval-based speculative decoding (He, Zhong, Cai, Lee and He, 2024, REST: Retrieval-Based Speculative Decoding):
// finds the longest suffix of the stream that occurs in a datastore, a large text with its suffix array in a mapped
// file, and drafts what followed it there. The continuations form a trie, whose nodes are weighted by how often they
// occur; its heaviest nodes are the draft.
//
//   datastore   the cat sat . the cat ran . the cat sat on        stream   ... the cat
//   trie        sat 2 (. 1, on 1), ran 1 (. 1)                    draft    sat, ran, sat ., sat on ...
#include <fmt/format.h>

#include <algorithm>

#include "flow/batch.h"
#include "speculate/datastore.h"
#include "speculate/drafters/factories.h"

namespace millrace {
namespace {

// Of the occurrences of a node, so many are looked at, in even distances: the continuations with a larger share are
// all found, and a node costs a bounded time.
constexpr int64_t kLooked = 16;

class Rest final : public TextDrafter {
 public:
  Rest(Datastore store, int64_t most_matched, int64_t least_matched, int64_t drafted, int64_t branches)
      : store_(std::move(store)),
        vocab_(store_.vocab()),
        most_matched_(most_matched),
        least_matched_(least_matched),
        drafted_(drafted),
        branches_(branches) {
    open_.reserve(static_cast<size_t>((longest() + 1) * kLooked));
  }

  void begin(int64_t vocab) override { vocab_ = std::min(vocab_, vocab); }
  Result<void> check(int64_t vocab, std::span<const std::string> tokens) const override {
    MILLRACE_TRY_VOID(store_.check_vocabulary(vocab, tokens.empty() ? 0 : vocabulary_hash(tokens)));
    return store_.verify();
  }

  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    int64_t depth = 0;
    const Datastore::Range match = longest_match(stream.tokens, depth);
    if (match.count() == 0) return;
    open_.clear();
    made_ = 0;
    add_continuations(match, depth, -1, 1);
    while (!open_.empty() && out.size() < std::min(most, longest())) {
      std::ranges::pop_heap(open_, lighter);
      const Node node = open_.back();
      open_.pop_back();
      out.tokens.push_back(node.token);
      if (trees()) out.parents.push_back(node.parent);
      if (!trees()) open_.clear();  // a chain of the heaviest
      if (node.length < drafted_)
        add_continuations(node.range, depth + node.length, static_cast<int32_t>(out.size() - 1), node.length + 1);
    }
  }

 private:
  int64_t longest() const { return drafted_ * branches_; }
  bool trees() const { return branches_ > 1; }

  struct Node {
    Datastore::Range range;  // its occurrences
    TokenId token;
    int32_t parent;  // in the draft
    int64_t length;  // tokens from the stream's last one
    int64_t made;
  };
  static bool lighter(const Node& a, const Node& b) {  // of equal weights the first one goes first
    return a.range.count() != b.range.count() ? a.range.count() < b.range.count() : a.made > b.made;
  }

  // The occurrences of the longest suffix of the tokens that has some. If a suffix occurs, so do the shorter ones.
  Datastore::Range longest_match(std::span<const TokenId> tokens, int64_t& length) const {
    int64_t occurs = 0, absent = std::min<int64_t>(most_matched_, std::ssize(tokens)) + 1;
    Datastore::Range found;
    for (int64_t next = absent - 1; occurs + 1 < absent; next = (occurs + absent) / 2) {
      const Datastore::Range range = store_.find(tokens.last(static_cast<size_t>(next)));
      if (range.count() > 0)
        occurs = next, found = range;
      else
        absent = next;
    }
    length = occurs;
    return occurs >= least_matched_ ? found : Datastore::Range();
  }

  void add_continuations(Datastore::Range range, int64_t depth, int32_t parent, int64_t length) {
    int64_t done = range.begin;
    for (int64_t i = 0; i < kLooked && done < range.end; ++i) {
      const int64_t even = range.begin + range.count() * i / kLooked;
      if (range.count() > kLooked && even < done) continue;
      const int64_t place = std::max(even, done);
      const TokenId token = store_.after(place, depth);
      const Datastore::Range next = store_.narrow({done, range.end}, depth, token);
      done = std::max(next.end, place + 1);
      if (token < 0 || token >= vocab_ || next.count() == 0) continue;
      open_.push_back({next, token, parent, length, made_++});
      std::ranges::push_heap(open_, lighter);
    }
  }

  Datastore store_;
  int64_t vocab_;
  int64_t most_matched_, least_matched_, drafted_, branches_;
  std::vector<Node> open_;  // a heap: continuations of the draft that are not in it
  int64_t made_ = 0;
};

}  // namespace

Result<std::unique_ptr<Drafter>> make_rest_drafter(const OptionValues& options) {
  if (options.text("file").empty())
    return Error::user("file: give the path of a datastore, which `millrace datastore` writes");
  const int64_t most = options.integer("n"), least = options.integer("min");
  if (least > most) return Error::user(fmt::format("min: must be at most n, which is {}, got {}", most, least));
  const int64_t drafted = options.integer("k"), branches = options.integer("branches");
  if (branches > 1 && branches * drafted > kMaxTreeTokens)
    return Error::user(fmt::format("branches: {} branches of k={} tokens are {}; a tree has at most {}", branches,
                                   drafted, branches * drafted, kMaxTreeTokens));
  MILLRACE_TRY(auto store, Datastore::open(options.text("file")));
  return text_drafter({.longest = drafted * branches, .trees = branches > 1},
                      std::make_unique<Rest>(std::move(store), most, least, drafted, branches));
}

}  // namespace millrace
