#include "attention/block_lines.h"

#include <cmath>
#include <limits>

#include "attention/block_sparse.h"
#include "attention/block_weights.h"
#include "attention/flat_rows.h"
#include "attention/key_summaries.h"
#include "attention/row_formats.h"
#include "attention/top_blocks.h"

namespace millrace {
namespace {

constexpr float kNoLine = -1;

// What is stored behind the summary of a block.
class StoredLines {
 public:
  StoredLines(float* summary, const DynamicPattern& pattern, int64_t heads_each, int64_t head_dim)
      : query_(summary + pattern.summary_floats(head_dim)),
        found_(query_ + heads_each * head_dim),
        most_(pattern.most_lines()),
        query_floats_(static_cast<size_t>(heads_each * head_dim)) {}

  std::span<float> query() const { return {query_, query_floats_}; }
  bool has_query() const { return !std::isnan(query_[0]); }
  void forget_query() const { query_[0] = std::numeric_limits<float>::quiet_NaN(); }
  float& found() const { return *found_; }
  std::span<float> vertical() const { return {found_ + 1, static_cast<size_t>(most_.vertical)}; }
  std::span<float> slash() const { return {found_ + 1 + most_.vertical, static_cast<size_t>(most_.slash)}; }

 private:
  float *query_, *found_;
  LineCounts most_;
  size_t query_floats_;
};

int64_t queries_at_once(const DynamicPattern& pattern, int64_t group) {
  return std::min(pattern.line_blocks(), std::max<int64_t>(1, kMaxFlatRows / group));
}

// Of equal scores the newest; those of 0 only where `unseen`.
void store_top(std::span<const float> scores, int64_t count, bool unseen, std::span<float> work,
               std::span<float> lines) {
  BlockMarks top(std::ssize(scores));
  mark_top(scores, count, work, top);
  std::ranges::fill(lines, kNoLine);
  size_t next = 0;
  top.each([&](int64_t line) {
    if (next < lines.size() && (unseen || scores[static_cast<size_t>(line)] > 0))
      lines[next++] = static_cast<float>(line);
  });
}

// Of one KV head, at the end of a batch's block.
class LineFinding {
 public:
  LineFinding(const VisibleUnit& u, const DynamicPattern& pattern, float* scratch, const uint8_t** pointers)
      : u_(u),
        pattern_(pattern),
        pointers_(pointers),
        group_(u.layer.heads / u.layer.kv_heads),
        at_once_(queries_at_once(pattern, group_)),
        newest_((u.span.first_slot + u.first) / pattern.block()),
        blocks_(newest_ + 1),
        at_{u.layer.layer, u.kv_head, u.layer.kv_heads},
        table_(u.batch.tables(u.layer.group).data() + u.span.table),
        partial_(partial_at(scratch, at_once_ * group_)),
        gathered_(scratch + partial_floats(at_once_ * group_, u.layer.values())),
        vertical_(gathered_ + at_once_ * group_ * u.layer.head_dim),
        slash_(vertical_ + blocks_),
        work_(slash_ + blocks_),
        shares_(work_ + blocks_) {}

  void run() {
    std::fill_n(vertical_, blocks_, 0.0f);
    std::fill_n(slash_, blocks_, 0.0f);
    bool any = false;
    const int64_t each = pattern_.line_blocks();
    for (int64_t first = newest_ + 1 - each; first <= newest_; first += at_once_)
      any |= add(first, std::min(at_once_, newest_ + 1 - first));
    const StoredLines to = stored(newest_);
    const LineCounts counts = pattern_.lines(at_);
    const auto blocks = static_cast<size_t>(blocks_);
    to.found() = any ? 1.0f : 0.0f;
    store_top({vertical_, blocks}, counts.vertical, true, {work_, blocks}, to.vertical());
    store_top({slash_, blocks}, counts.slash, false, {work_, blocks}, to.slash());
  }

 private:
  StoredLines stored(int64_t block) const {
    return {key_summary(u_.kv, u_.layer.layer, u_.kv_head, table_, block, pattern_.block()), pattern_, group_,
            u_.layer.head_dim};
  }

  // The queries of blocks [first, first + count), each of which sees its own block and those before it. False: none.
  bool add(int64_t first, int64_t count) {
    const int64_t width = group_ * u_.layer.head_dim, rows = count * group_;
    bool any = false;
    for (int64_t c = 0; c < count; ++c) {
      const StoredLines from = stored(first + c);
      any |= from.has_query();
      if (from.has_query())
        std::ranges::copy(from.query(), gathered_ + c * width);
      else
        std::fill_n(gathered_ + c * width, width, 0.0f);
    }
    if (!any) return false;
    for (int64_t block = 0; block < first + count; ++block)
      weigh_block(u_, pattern_.block(), block, gathered_, count, partial_, pointers_, shares_ + block, blocks_);
    for (int64_t row = 0; row < rows; ++row)
      if (stored(first + row / group_).has_query()) add_row(shares_ + row * blocks_, first + row / group_);
    return true;
  }

  void add_row(float* logs, int64_t own) {
    const float most = *std::max_element(logs, logs + own + 1);
    float sum = 0;
    for (int64_t j = 0; j <= own; ++j) sum += logs[j] = std::exp(logs[j] - most);
    BlockMarks seen(own);
    pattern_.mark(at_, own, seen);
    for (int64_t j = 0; j < own; ++j) {
      if (seen.has(j)) continue;
      vertical_[j] += logs[j] / sum;
      slash_[own - j] += logs[j] / sum;
    }
  }

  const VisibleUnit& u_;
  const DynamicPattern& pattern_;
  const uint8_t** pointers_;
  const int64_t group_, at_once_, newest_, blocks_;
  const PatternPlace at_;
  const int32_t* table_;
  const Partial partial_;
  float* gathered_;                   // [at_once, group, head_dim]
  float *vertical_, *slash_, *work_;  // [blocks]
  float* shares_;                     // [at_once, group, blocks]
};

// Calls use(span, block) for each block that the batch completes.
template <typename Use>
void each_completed(std::span<const BatchSpan> spans, int64_t block, const Use& use) {
  for (const BatchSpan& span : spans)
    for (int64_t b = span.first_slot / block; (b + 1) * block <= span.first_slot + span.count; ++b) use(span, b);
}

}  // namespace

int64_t line_floats(const DynamicPattern& pattern, int64_t heads_each, int64_t head_dim) {
  if (pattern.line_blocks() == 0) return 0;
  return heads_each * head_dim + 1 + pattern.most_lines().vertical + pattern.most_lines().slash;
}

int64_t line_scratch_floats(const DynamicPattern* pattern, int64_t context, int64_t group, int64_t head_dim,
                            int64_t value_dim) {
  if (!pattern || pattern->line_blocks() == 0) return 0;
  const int64_t rows = queries_at_once(*pattern, group) * group, blocks = context / pattern->block() + 1;
  return partial_floats(rows, std::max(value_dim, head_dim)) + rows * head_dim + (3 + rows) * blocks;
}

void find_lines(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                KvPool& kv, const float* q, int64_t context, float* scratch, const uint8_t** pointers,
                const CodecTiles* tiles) {
  const DynamicPattern* pattern = dynamic_pattern(pattern_of(layer, context));
  if (!pattern || pattern->line_blocks() == 0) return;
  const int64_t group = layer.heads / layer.kv_heads, block = pattern->block();
  const std::vector<BatchSpan>& spans = batch.spans_of(layer.group);
  const int32_t* tables = batch.tables(layer.group).data();
  int64_t findings = 0;
  each_completed(spans, block, [&](const BatchSpan& span, int64_t b) {
    const int64_t token = span.begin + (b + 1) * block - 1 - span.first_slot;
    for (int64_t h = 0; h < layer.kv_heads; ++h) {
      const StoredLines to(key_summary(kv, layer.layer, h, tables + span.table, b, block), *pattern, group,
                           layer.head_dim);
      std::copy_n(q + (token * layer.heads + h * group) * layer.head_dim, group * layer.head_dim, to.query().data());
    }
    findings += (b + 1) % pattern->line_blocks() == 0;
  });
  const int64_t floats = line_scratch_floats(pattern, context, group, layer.head_dim, layer.values());
  const int64_t pointer_slot = attention_scratch_pointers(1, context, kv.layout().block_tokens);
  const AttentionKernel& kernel = attention_kernel(kernels, kv.layout());
  pool.parallel_for(findings * layer.kv_heads, [&](int64_t index, int worker) {
    const int64_t head = index % layer.kv_heads;
    if (pattern->choice({layer.layer, head, layer.kv_heads}) != HeadChoice::lines) return;
    int64_t left = index / layer.kv_heads;
    each_completed(spans, block, [&](const BatchSpan& span, int64_t b) {
      if ((b + 1) % pattern->line_blocks() != 0 || left-- != 0) return;
      VisibleUnit unit{batch, span, layer, kernels, kv, kernel, q, head, (b + 1) * block - 1 - span.first_slot, 1};
      unit.encoded = tiles;
      unit.worker = worker;
      LineFinding(unit, *pattern, scratch + worker * floats, pointers + worker * pointer_slot).run();
    });
  });
}

void forget_lines(const DynamicPattern& pattern, const KvLayer& own, KvPool& kv, const int32_t* table, int64_t kv_head,
                  int64_t block) {
  if (pattern.line_blocks() == 0) return;
  const int64_t layer = own.side->layer;
  const KvLayer& keys = kv.layout().layers[static_cast<size_t>(layer)];
  const StoredLines lines(key_summary(kv, layer, kv_head, table, block, pattern.block()), pattern, keys.heads_each,
                          keys.head_dim);
  lines.forget_query();
  lines.found() = 0;
}

void mark_lines(KvPool& kv, const AttentionLayer& layer, const DynamicPattern& pattern, const int32_t* table,
                int64_t kv_head, int64_t query_block, BlockMarks& marks) {
  const int64_t end = query_block / pattern.line_blocks() * pattern.line_blocks();  // of the last finding
  if (end == 0) return marks.add(0, query_block);
  const StoredLines lines(key_summary(kv, layer.layer, kv_head, table, end - 1, pattern.block()), pattern,
                          layer.heads / layer.kv_heads, layer.head_dim);
  if (lines.found() == 0) return marks.add(0, query_block);
  marks.add(end, query_block);
  for (const float block : lines.vertical()) marks.add(static_cast<int64_t>(block));
  for (const float distance : lines.slash()) {
    if (distance < 0) continue;
    // From the last token of a block, all keys of a distance are in one block; from the others they reach into the
    // next.
    marks.add(query_block - static_cast<int64_t>(distance));
    marks.add(query_block - static_cast<int64_t>(distance) - 1);
  }
}

}  // namespace millrace
