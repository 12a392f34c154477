// MInference 1.0 (Jiang et al., 2024): every head has one of three patterns, which a search gives it
// (evaluate/pattern_search.h). All see the first blocks and the newest ones; beside these
//
//   heads=a16.v6+3.b12
//
//   a  A-shape: nothing else; the newest 16 blocks are its window
//   v  vertical-slash: the 6 blocks, and the 3 distances from query to key, that had most of the attention of the last
//      queries (attention/block_lines.h)
//   b  block-sparse: the 12 blocks whose mean key has the largest product with the query
//
// Heads count through the layers, those that share a KV head as one. The paper finds lines by a prompt's last queries,
// for all of it; here queries see lines that those before them have found, since they cannot wait for later ones. And
// it pools the queries of a block, too; here each query is its own pool, since the others may come in a later chunk.
#include <charconv>
#include <vector>

#include "attention/dynamic_pattern.h"
#include "attention/patterns/factories.h"
#include "attention/top_blocks.h"

namespace millrace {
namespace {

struct HeadPattern {
  HeadChoice choice = HeadChoice::scores;
  int64_t window = 1;
  int64_t top = 0;
  LineCounts lines;
};

class MInference final : public DynamicPattern {
 public:
  MInference(std::vector<HeadPattern> heads, int64_t sinks, int64_t last)
      : heads_(std::move(heads)), sinks_(sinks), last_(last) {
    for (const HeadPattern& one : heads_) {
      has_lines_ = has_lines_ || one.choice == HeadChoice::lines;
      most_ = {std::max(most_.vertical, one.lines.vertical), std::max(most_.slash, one.lines.slash)};
    }
  }

  HeadChoice choice(const PatternPlace& at) const override { return of(at).choice; }
  LineCounts lines(const PatternPlace& at) const override { return of(at).lines; }
  LineCounts most_lines() const override { return most_; }
  int64_t line_blocks() const override { return has_lines_ ? last_ : 0; }

  void mark(const PatternPlace& at, int64_t query_block, BlockMarks& marks) const override {
    marks.add(0, sinks_);
    marks.add(query_block - of(at).window + 1, query_block);
  }

  // Sums: a block's keys and a KV head's queries are as many everywhere, so means have the same order.
  int64_t summary_floats(int64_t head_dim) const override { return head_dim; }
  void add_key(const PatternPlace&, std::span<const float> key, std::span<float> summary) const override {
    for (size_t d = 0; d < key.size(); ++d) summary[d] += key[d];
  }
  void add_query(const PatternPlace&, std::span<const float> query, std::span<float> features) const override {
    for (size_t d = 0; d < query.size(); ++d) features[d] += query[d];
  }
  void choose(const PatternPlace& at, std::span<const float> scores, std::span<float> work,
              BlockMarks& marks) const override {
    mark_top(scores, of(at).top, work, marks);
  }

  // Of lines: a query sees two blocks at a distance, and those since the last finding that its window does not reach.
  double chosen(const PatternPlace& at, int64_t left) const override {
    const HeadPattern& own = of(at);
    const auto since = static_cast<double>(std::max<int64_t>(0, last_ - own.window));
    const double lines = static_cast<double>(own.lines.vertical + 2 * own.lines.slash) +
                         since * (since + 1) / static_cast<double>(2 * last_);
    const double wanted = own.choice == HeadChoice::lines ? lines : static_cast<double>(own.top);
    return std::min(static_cast<double>(left), wanted);
  }

 private:
  const HeadPattern& of(const PatternPlace& at) const {
    return heads_[static_cast<size_t>(at.layer * at.heads + at.head) % heads_.size()];
  }

  std::vector<HeadPattern> heads_;
  int64_t sinks_, last_;
  bool has_lines_ = false;
  LineCounts most_;
};

bool parse_count(std::string_view text, int64_t least, int64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out >= least && out <= kMaxPatternBlocks;
}

// "a", "a16", "v", "v6+3", "b" or "b12"; without numbers those of `own`, which has all of them. False: none of these.
bool parse_head(std::string_view text, HeadPattern own, HeadPattern& head) {
  if (text.empty()) return false;
  const char kind = text[0];
  text.remove_prefix(1);
  const size_t plus = text.find('+');
  head = {.window = own.window};
  switch (kind) {
    case 'a':
      head.choice = HeadChoice::none;
      head.window = own.window + own.top;
      return text.empty() || parse_count(text, 1, head.window);
    case 'v':
      head.choice = HeadChoice::lines;
      head.lines = own.lines;
      return text.empty() ||
             (plus != std::string_view::npos && parse_count(text.substr(0, plus), 0, head.lines.vertical) &&
              parse_count(text.substr(plus + 1), 0, head.lines.slash));
    case 'b': head.top = own.top; return text.empty() || parse_count(text, 0, head.top);
    default: return false;
  }
}

}  // namespace

Result<std::unique_ptr<AttentionPattern>> make_minference(const OptionValues& options) {
  const HeadPattern own{.window = options.integer("window"),
                        .top = options.integer("top"),
                        .lines = {options.integer("vertical"), options.integer("slash")}};
  const std::string_view text = options.text("heads");
  std::vector<HeadPattern> heads;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('.', begin), text.size());
    const std::string_view one = text.substr(begin, end - begin);
    if (!parse_head(one, own, heads.emplace_back()))
      return Error::user(
          "heads: must be a, v or b for each head, with dots between them, or with numbers of blocks of its own: "
          "aWINDOW, vVERTICAL+SLASH, bTOP; got '" +
          std::string(one) + "'");
    begin = end + 1;
  }
  return std::unique_ptr<AttentionPattern>(
      std::make_unique<MInference>(std::move(heads), options.integer("sinks"), options.integer("last")));
}

}  // namespace millrace
