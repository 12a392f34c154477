#include "attention/chosen_blocks.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "attention/block_lines.h"
#include "attention/block_sums.h"
#include "attention/codec_tiles.h"
#include "attention/key_summaries.h"
#include "attention/row_formats.h"

namespace millrace {
namespace {

constexpr int64_t kMaxUnitQueries = 256;
constexpr int64_t kScoredAtOnce = 4;  // queries that share one reading of a summary
constexpr int64_t kScoreLanes = 8;

// Products of one summary with the features of `count` queries, each summed in the same order whatever the count.
template <int64_t count>
void score_block(const float* features, const float* summary, int64_t floats, float* scores, int64_t stride) {
  float sums[count][kScoreLanes] = {};
  int64_t i = 0;
  for (; i + kScoreLanes <= floats; i += kScoreLanes)
    for (int64_t c = 0; c < count; ++c)
      for (int64_t l = 0; l < kScoreLanes; ++l) sums[c][l] += features[c * floats + i + l] * summary[i + l];
  for (; i < floats; ++i)
    for (int64_t c = 0; c < count; ++c) sums[c][i % kScoreLanes] += features[c * floats + i] * summary[i];
  for (int64_t c = 0; c < count; ++c) {
    const float* s = sums[c];
    const float sum = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
    scores[c * stride] = std::isnan(sum) ? -std::numeric_limits<float>::infinity() : sum;
  }
}

// Features of one token: those of its heads, added.
void read_query(const DynamicPattern& pattern, const PatternPlace& at, const float* q, int64_t group, int64_t head_dim,
                std::span<float> features) {
  std::ranges::fill(features, 0.0f);
  for (int64_t g = 0; g < group; ++g)
    pattern.add_query(at, {q + g * head_dim, static_cast<size_t>(head_dim)}, features);
}

// Adds what a member that weighs blocks against each other gives each, to the scores of `queries` queries of `group`
// heads. `work`: a float for each block, and balance_floats().
void add_balance(const DynamicPattern& pattern, const PatternPlace& at, const BlockSummaries& summaries, int64_t group,
                 int64_t queries, int64_t blocks, float* scores, float* work) {
  const int64_t floats = pattern.balance_floats(blocks);
  if (floats == 0) return;
  pattern.balance(at, summaries, {work, static_cast<size_t>(blocks)}, {work + blocks, static_cast<size_t>(floats)});
  for (int64_t i = 0; i < queries; ++i)
    for (int64_t block = 0; block < blocks; ++block)
      scores[i * blocks + block] += static_cast<float>(group) * work[block];
}

// Marks the blocks that earlier queries have found, for heads whose queries do not choose.
void mark_found(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
                int64_t kv_head, int64_t query_block, BlockMarks& marks) {
  const HeadChoice choice = pattern.choice({layer.layer, kv_head, layer.kv_heads});
  if (choice == HeadChoice::lines) mark_lines(kv, layer, pattern, table, kv_head, query_block, marks);
  if (choice == HeadChoice::sums) mark_sums(kv, layer, pattern, table, kv_head, query_block, marks);
}

// Which of a unit's queries chose which blocks: [words of 32 blocks][queries], in the bits of floats of the scratch.
class Choices {
 public:
  Choices(float* at, int64_t queries, int64_t blocks) : at_(at), queries_(queries) {
    std::fill_n(at_, (blocks + 31) / 32 * queries, 0.0f);
  }
  void set(int64_t query, const BlockMarks& marks) {
    marks.each([&](int64_t block) { store(query, block, word(query, block) | bit(block)); });
  }
  bool has(int64_t query, int64_t block) const { return word(query, block) & bit(block); }

 private:
  static uint32_t bit(int64_t block) { return uint32_t{1} << (block % 32); }
  float* place(int64_t query, int64_t block) const { return at_ + block / 32 * queries_ + query; }
  uint32_t word(int64_t query, int64_t block) const {
    uint32_t bits;
    std::memcpy(&bits, place(query, block), sizeof bits);
    return bits;
  }
  void store(int64_t query, int64_t block, uint32_t bits) { std::memcpy(place(query, block), &bits, sizeof bits); }

  float* at_;
  int64_t queries_;
};

class ChosenAttention {
 public:
  ChosenAttention(const VisibleUnit& u, const DynamicPattern& pattern, const Partial& total, const Partial& scratch,
                  const uint8_t** pointers, float* choice)
      : u_(u),
        pattern_(pattern),
        total_(total),
        scratch_(scratch),
        pointers_(pointers),
        group_(u.layer.heads / u.layer.kv_heads),
        width_(u.layer.heads * u.layer.head_dim),
        slot_(u.span.first_slot + u.first),
        query_block_(slot_ / pattern.block()),
        floats_(pattern.summary_floats(u.layer.head_dim)),
        table_(u.batch.tables(u.layer.group).data() + u.span.table),
        features_(choice),
        scores_(features_ + u.queries * floats_),
        work_(scores_ + u.queries * query_block_),
        gathered_(work_ + query_block_),
        choices_(gathered_ + u.queries * group_ * u.layer.head_dim, u.queries, query_block_),
        balance_(gathered_ + u.queries * (group_ * u.layer.head_dim + (query_block_ + 31) / 32)) {}

  void run() {
    if (pattern_.choice(at()) != HeadChoice::scores) return attend_unchosen();
    choose();
    std::fill_n(total_.sum, u_.queries * group_, 0.0f);  // no key yet
    std::fill_n(total_.top, u_.queries * group_, -std::numeric_limits<float>::infinity());
    each_run(true, [&](int64_t first, int64_t count) { attend_all(first, count); });
    if (dense_count_ == u_.queries) return;
    for (int64_t block = 0; block < query_block_; ++block) attend_block(block);
    each_run(false, [&](int64_t first, int64_t count) { attend_own(first, count); });
  }

 private:
  PatternPlace at() const { return {u_.layer.layer, u_.kv_head, u_.layer.kv_heads}; }
  const float* q_of(int64_t query) const { return q_of(query, u_.kv_head); }
  const float* q_of(int64_t query, int64_t kv_head) const {
    return u_.q + (u_.span.begin + u_.first + query) * width_ + kv_head * group_ * u_.layer.head_dim;
  }

  // Runs of queries that see every block, or of those that do not.
  template <typename Use>
  void each_run(bool dense, Use use) const {
    for (int64_t i = 0; i < u_.queries;) {
      int64_t end = i;
      while (end < u_.queries && dense_[static_cast<size_t>(end)] == dense) ++end;
      if (end > i) use(i, end - i);
      i = std::max(end, i + 1);
    }
  }

  void choose() {
    BlockMarks seen(query_block_);
    pattern_.mark(at(), query_block_, seen);
    const bool all = seen.count() == query_block_;
    dense_count_ = all ? u_.queries : 0;
    std::fill_n(dense_.begin(), u_.queries, all);
    if (all) return;
    score();
    for (int64_t i = 0; i < u_.queries; ++i) {
      BlockMarks marks(query_block_);
      seen.each([&](int64_t block) { marks.add(block); });
      const auto blocks = static_cast<size_t>(query_block_);
      pattern_.choose(at(), {scores_ + i * query_block_, blocks}, {work_, blocks}, marks);
      const bool dense = marks.count() == query_block_;
      dense_[static_cast<size_t>(i)] = dense;
      dense_count_ += dense;
      if (!dense) choices_.set(i, marks);
    }
  }

  void score() {
    const PatternPlace judge{u_.layer.layer, pattern_.judge(at()), u_.layer.kv_heads};
    for (int64_t i = 0; i < u_.queries; ++i)
      read_query(pattern_, judge, q_of(i, judge.head), group_, u_.layer.head_dim,
                 {features_ + i * floats_, static_cast<size_t>(floats_)});
    for (int64_t block = 0; block < query_block_; ++block) {
      const float* summary = key_summary(u_.kv, u_.layer.layer, judge.head, table_, block, pattern_.block());
      int64_t i = 0;
      for (; i + kScoredAtOnce <= u_.queries; i += kScoredAtOnce)
        score_block<kScoredAtOnce>(features_ + i * floats_, summary, floats_, scores_ + i * query_block_ + block,
                                   query_block_);
      for (; i < u_.queries; ++i)
        score_block<1>(features_ + i * floats_, summary, floats_, scores_ + i * query_block_ + block, query_block_);
    }
    add_balance(pattern_, judge, StoredSummaries(u_.kv, pattern_, u_.layer, judge.head, table_), group_, u_.queries,
                query_block_, scores_, balance_);
  }

  void attend_unchosen() {
    BlockMarks marks(query_block_);
    pattern_.mark(at(), query_block_, marks);
    mark_found(u_.kv, u_.layer, pattern_, table_, u_.kv_head, query_block_, marks);
    attend_marked(u_, pattern_.block(), marks, total_, scratch_, pointers_);
  }

  void attend_all(int64_t first, int64_t count) {
    VisibleUnit part(u_);
    part.first += first;
    part.queries = count;
    BlockMarks all(query_block_);
    all.add(0, query_block_);
    const int64_t row = first * group_;
    attend_marked(part, pattern_.block(), all, total_.from(row, u_.layer.values()), scratch_, pointers_);
  }

  AttentionArgs args_for(int64_t block, int64_t keys) {
    return block_args(u_, pattern_.block(), block, keys, scratch_, pointers_);
  }

  void attend_block(int64_t block) {
    int64_t count = 0;
    for (int64_t i = 0; i < u_.queries; ++i)
      if (choices_.has(i, block)) chosen_[static_cast<size_t>(count++)] = i;
    for (int64_t begin = 0, end; begin < count; begin = end) {
      const int64_t encoded = encoded_of(block, begin);
      for (end = begin + 1; end < count && encoded_of(block, end) == encoded;) ++end;
      attend_run(block, begin, end - begin, encoded);
    }
  }

  // KV blocks of an earlier block that the c-th chosen query sees encoded; the others it sees raw.
  int64_t encoded_of(int64_t block, int64_t c) const {
    if (!u_.encoded) return 0;
    const int64_t each = pattern_.block() / u_.kv.layout().block_tokens;
    const int64_t raw = u_.encoded->first_raw(slot_ + chosen_[static_cast<size_t>(c)]);
    return std::clamp<int64_t>(raw - block * each, 0, each);
  }

  // Chosen queries [begin, begin + count).
  void attend_run(int64_t block, int64_t begin, int64_t count, int64_t encoded) {
    const std::span<const int64_t> chosen(chosen_.data() + begin, static_cast<size_t>(count));
    AttentionArgs args = args_for(block, pattern_.block());
    args.queries = count;
    args.first_query = pattern_.block();  // all of them see the whole block
    const bool neighbours = chosen.back() - chosen.front() == count - 1;
    args.q = neighbours ? q_of(chosen.front()) : gathered_;
    args.q_stride = neighbours ? width_ : group_ * u_.layer.head_dim;
    for (int64_t c = 0; !neighbours && c < count; ++c)
      std::copy_n(q_of(chosen[static_cast<size_t>(c)]), args.q_stride, gathered_ + c * args.q_stride);
    if (u_.encoded)
      u_.encoded->attend_before(u_.kernel, codec_keys(), args, encoded, u_.worker, pointers_);
    else
      u_.kernel.run(args);
    if (neighbours) return join(0, chosen.front(), count);
    for (int64_t c = 0; c < count; ++c) join(c, chosen[static_cast<size_t>(c)], 1);
  }

  CodecKeys codec_keys() const { return {u_.span, table_, u_.kv_head, u_.encoded->places(u_.worker)}; }

  void attend_own(int64_t first, int64_t count) {
    const int64_t within = slot_ % pattern_.block() + first;
    AttentionArgs args = args_for(query_block_, within + count);
    args.queries = count;
    args.first_query = within;
    args.q = q_of(first);
    args.q_stride = width_;
    if (u_.encoded)
      u_.encoded->attend(u_.kernel, codec_keys(), args, u_.worker, pointers_);
    else
      u_.kernel.run(args);
    join(0, first, count);
  }

  // Partials of `count` queries of a call, from the c-th on, to the totals of queries from `query` on.
  void join(int64_t c, int64_t query, int64_t count) {
    const int64_t dims = u_.layer.values();
    join_partial(u_.kernels, count * group_, dims, scratch_.from(c * group_, dims), total_.from(query * group_, dims));
  }

  const VisibleUnit& u_;
  const DynamicPattern& pattern_;
  const Partial total_, scratch_;
  const uint8_t** pointers_;
  const int64_t group_, width_, slot_, query_block_, floats_;
  const int32_t* table_;
  float* features_;  // [queries, floats]
  float* scores_;    // [queries, earlier blocks]
  float* work_;      // [earlier blocks]
  float* gathered_;  // [queries, group, head_dim]
  Choices choices_;
  float* balance_;  // as add_balance() says
  int64_t dense_count_ = 0;
  std::array<bool, kMaxUnitQueries> dense_;
  std::array<int64_t, kMaxUnitQueries> chosen_;
};

}  // namespace

int64_t chosen_blocks_floats(const DynamicPattern* pattern, int64_t context, int64_t queries, int64_t group,
                             int64_t head_dim) {
  if (!pattern) return 0;
  queries = std::min(queries, pattern->block());
  const int64_t blocks = context / pattern->block() + 1;
  return queries * (pattern->summary_floats(head_dim) + blocks + group * head_dim + (blocks + 31) / 32) + 2 * blocks +
         pattern->balance_floats(blocks);
}

void attend_chosen(const VisibleUnit& u, const DynamicPattern& pattern, const Partial& total, const Partial& scratch,
                   const uint8_t** pointers, float* choice) {
  ChosenAttention(u, pattern, total, scratch, pointers, choice).run();
}

AttentionArgs block_args(const VisibleUnit& u, int64_t pattern_block, int64_t block, int64_t keys, const Partial& to,
                         const uint8_t** pointers) {
  const int64_t block_tokens = u.kv.layout().block_tokens, layer = u.layer.layer;
  const bool own_values = u.kv.layout().layers[static_cast<size_t>(layer)].planes() > 1;
  const int64_t first = block * (pattern_block / block_tokens), count = (keys + block_tokens - 1) / block_tokens;
  const int32_t* table = u.batch.tables(u.layer.group).data() + u.span.table;
  for (int64_t b = 0; b < count; ++b) {
    if (u.encoded) {
      u.encoded->places(u.worker)[b] = static_cast<int32_t>(first + b);
      continue;
    }
    pointers[b] = u.kv.keys(layer, table[first + b], u.kv_head);
    if (own_values) pointers[count + b] = u.kv.values(layer, table[first + b], u.kv_head);
  }
  AttentionArgs args;
  args.block_tokens = block_tokens;
  args.group = u.layer.heads / u.layer.kv_heads;
  args.head_dim = u.layer.head_dim;
  args.value_dim = u.layer.value_dim;
  args.key_end = keys;
  args.key_ahead = keys;
  args.cold = true;
  args.softcap = u.layer.softcap;
  args.unify = u.layer.switches.unify;
  args.unified_max = u.layer.switches.unified_max;
  args.k_blocks = pointers;
  args.v_blocks = own_values ? pointers + count : pointers;
  set_partial(to, args);
  set_row_formats(u.kernels, u.kv, layer, u.residuals, args);
  return args;
}

int64_t choose_work_floats(const AttentionPattern& pattern, int64_t blocks) {
  const DynamicPattern* dynamic = dynamic_pattern(&pattern);
  return blocks + (dynamic ? dynamic->balance_floats(blocks) : 0);
}

void choose_blocks(KvPool& kv, const AttentionLayer& layer, const AttentionPattern& pattern, const int32_t* table,
                   int64_t kv_head, int64_t query_block, const float* q, float* features, float* scores, float* work,
                   BlockMarks& marks) {
  const PatternPlace at{layer.layer, kv_head, layer.kv_heads};
  pattern.mark(at, query_block, marks);
  const DynamicPattern* dynamic = dynamic_pattern(&pattern);
  if (!dynamic || marks.count() == query_block) return;
  if (dynamic->choice(at) != HeadChoice::scores)
    return mark_found(kv, layer, *dynamic, table, kv_head, query_block, marks);
  const int64_t floats = dynamic->summary_floats(layer.head_dim);
  const auto blocks = static_cast<size_t>(query_block);
  const int64_t group = layer.heads / layer.kv_heads;
  const PatternPlace judge{layer.layer, dynamic->judge(at), layer.kv_heads};
  read_query(*dynamic, judge, q + (judge.head - kv_head) * group * layer.head_dim, group, layer.head_dim,
             {features, static_cast<size_t>(floats)});
  for (int64_t block = 0; block < query_block; ++block)
    score_block<1>(features, key_summary(kv, layer.layer, judge.head, table, block, pattern.block()), floats,
                   scores + block, 1);
  add_balance(*dynamic, judge, StoredSummaries(kv, *dynamic, layer, judge.head, table), group, 1, query_block, scores,
              work);
  dynamic->choose(at, {scores, blocks}, {work, blocks}, marks);
}

}  // namespace millrace
