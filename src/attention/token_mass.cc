#include "attention/token_mass.h"

#include <algorithm>
#include <limits>

#include "attention/block_sparse.h"
#include "attention/chosen_blocks.h"
#include "attention/codec_tiles.h"
#include "attention/document_scores.h"
#include "attention/row_formats.h"
#include "attention/visible_slots.h"
#include "kv/token_evictor.h"

namespace millrace {
namespace {

constexpr int64_t kRows = 16;        // query rows (query x head) that share one reading of the keys
constexpr int64_t kAheadKeys = 256;  // beyond a partition, for the kernel's prefetch

// Of a row of scores: whole tiles of the kernel.
int64_t score_stride(int64_t slots) { return (slots + 31) / 32 * 32; }

// The queries [first, first + count) of one span and the heads of one KV head.
struct TokenUnit {
  const Batch& batch;
  const BatchSpan& span;
  const AttentionLayer& layer;
  const KernelTable& kernels;
  KvPool& kv;
  const float* q;
  int64_t kv_head, first, count;
  int64_t drafted;  // last queries of the span whose sums are kept apart
  bool shares;
  bool own_sums = false;  // of this head, not of all
  const CodecTiles* tiles = nullptr;
  int worker = 0;
  const AttentionPattern* pattern = nullptr;

  // Of a span that weighs documents anew. Null: all keys count alike.
  const Visibility* weighing() const {
    const Visibility* seen = span.visibility < 0 ? nullptr : &batch.visibility[static_cast<size_t>(span.visibility)];
    return seen && seen->segment_count > 0 ? seen : nullptr;
  }
  int64_t group() const { return layer.heads / layer.kv_heads; }
  int64_t slots() const { return span.first_slot + first + count; }  // that the last query sees
  // The first slot that the query at `slot` sees.
  int64_t seen_from(int64_t slot) const { return layer.window > 0 ? std::max<int64_t>(0, slot + 1 - layer.window) : 0; }

  // By the kernel that attends, so that these are the scores that it weighs.
  void score(TokenMass::Scratch& s) const {
    const int64_t block_tokens = kv.layout().block_tokens, width = layer.q_width();
    const int32_t* table = batch.tables(layer.group).data() + span.table;
    for (int64_t b = 0; !tiles && b * block_tokens < slots(); ++b)
      s.blocks[static_cast<size_t>(b)] = kv.keys(layer.layer, table[b], kv_head);
    const AttentionKernel& kernel = attention_kernel(kernels, kv.layout());
    AttentionArgs args;
    args.q = q + (span.begin + first) * width + kv_head * group() * layer.head_dim;
    args.q_stride = width;
    args.queries = count;
    args.group = group();
    args.head_dim = layer.head_dim;
    args.value_dim = layer.value_dim;
    args.first_query = span.first_slot + first;
    args.window = layer.window;
    args.softcap = weighing() ? 0 : layer.softcap;  // which comes after the weights
    args.k_blocks = args.v_blocks = s.blocks.data();
    args.block_tokens = block_tokens;
    set_row_formats(kernels, kv, layer.layer, false, args);
    args.score_stride = score_stride(slots());
    args.cold = true;
    args.key_begin = seen_from(args.first_query) / kAttentionPartition * kAttentionPartition;
    for (; args.key_begin < slots(); args.key_begin += kAttentionPartition, args.cold = false) {
      if (pattern && !sees_some(args.key_begin, s)) continue;
      args.key_end = std::min(args.key_begin + kAttentionPartition, slots());
      args.key_ahead = std::min(args.key_end + kAheadKeys, slots());
      args.scores = s.scores.data() + args.key_begin;
      if (tiles)
        tiles->attend(kernel, {span, table, kv_head}, args, worker, s.blocks.data());
      else
        kernel.run(args);
    }
  }

  // Marks what each query sees.
  void choose(TokenMass::Scratch& s) const {
    const int32_t* table = batch.tables(layer.group).data() + span.table;
    const int64_t width = layer.q_width();
    s.marks.clear();
    for (int64_t i = 0; i < count; ++i) {
      const int64_t query_block = (span.first_slot + first + i) / pattern->block();
      const float* query = q + (span.begin + first + i) * width + kv_head * group() * layer.head_dim;
      choose_blocks(kv, layer, *pattern, table, kv_head, query_block, query, s.features.data(), s.block_scores.data(),
                    s.work.data(), s.marks.emplace_back(query_block));
    }
  }

  // Whether some query sees a key of the partition that begins there.
  bool sees_some(int64_t key, const TokenMass::Scratch& s) const {
    const int64_t first_block = key / pattern->block(), end = (key + kAttentionPartition - 1) / pattern->block() + 1;
    return std::ranges::any_of(s.marks, [&](const BlockMarks& marks) {
      for (int64_t block = first_block; block < end; ++block)
        if (block >= marks.end() || marks.has(block)) return true;
      return false;
    });
  }

  // Runs of slots that the query sees, as use(first, end).
  template <typename Use>
  void each_seen(int64_t query, const TokenMass::Scratch& s, const Use& use) const {
    const int64_t end = span.first_slot + first + query + 1;
    if (!pattern) return use(seen_from(end - 1), end);
    const BlockMarks& marks = s.marks[static_cast<size_t>(query)];
    const int64_t block = pattern->block();
    marks.each([&](int64_t b) { use(b * block, (b + 1) * block); });
    use(marks.end() * block, end);
  }

  // Slots in no segment; returns how many they are.
  int64_t hide_gaps(int64_t query, const TokenMass::Scratch& s, std::span<const KeySegment> segments,
                    float* scores) const {
    int64_t hidden = 0;
    each_seen(query, s, [&](int64_t begin, int64_t end) {
      const auto hide_until = [&](int64_t slot) {
        for (; begin < std::min(slot, end); ++begin, ++hidden) scores[begin] = -std::numeric_limits<float>::infinity();
      };
      for (const KeySegment& segment : segments) {
        hide_until(segment.begin);
        begin = std::max(begin, segment.end);
      }
      hide_until(end);
    });
    return hidden;
  }

  // Changes its scores as the context of its documents does; returns how many keys it does not see for that.
  int64_t weigh(int64_t query, const TokenMass::Scratch& s, float* scores) const {
    const Visibility* const seen = weighing();
    if (!seen) return 0;
    const auto segments = segments_of(batch, *seen, kv.layout(), layer.layer, kv_head);
    const auto each = [&](const auto& use) {
      each_seen(query, s, [&](int64_t first_slot, int64_t end_slot) {
        for (const KeySegment& segment : segments) {
          const int64_t begin = std::max(first_slot, segment.begin), end = std::min(end_slot, segment.end);
          if (begin < end) use(begin, end, segment);
        }
      });
    };
    return hide_gaps(query, s, segments, scores) + weigh_documents(each, seen->documents, layer.softcap, scores);
  }

  int64_t* sums_of(int64_t query, TokenMass::Scratch& s) const {
    const int64_t line =
        (own_sums ? kv_head * (1 + drafted) : 0) + std::max<int64_t>(0, first + query - (span.count - drafted) + 1);
    return s.sums.data() + line * (span.first_slot + span.count);
  }

  // Each query's softmax over the slots that it sees, whose scores move together, as if there were no others.
  void add(TokenMass::Scratch& s) const {
    constexpr auto kUnits = static_cast<float>(1 / kMassUnit);
    for (int64_t row = 0; row < count * group(); ++row) {
      const int64_t query = row / group(), from = pattern ? 0 : seen_from(span.first_slot + first + query);
      float* scores = s.scores.data() + row * score_stride(slots());
      float* seen = scores + from;
      int64_t keys = 0;
      const int64_t hidden = weigh(query, s, scores);
      each_seen(query, s, [&](int64_t begin, int64_t end) {
        if (seen + keys != scores + begin) std::copy(scores + begin, scores + end, seen + keys);
        keys += end - begin;
      });
      kernels.softmax(seen, keys);
      const float even = 1.0f / static_cast<float>(keys - hidden);
      const float* weight = seen;
      each_seen(query, s, [&, sums = sums_of(query, s)](int64_t begin, int64_t end) {
        if (shares)
          for (int64_t i = begin; i < end; ++i) sums[i] += *weight++ >= even;
        else
          for (int64_t i = begin; i < end; ++i) sums[i] += static_cast<int32_t>(*weight++ * kUnits);
      });
    }
  }
};

// Vectors that are long enough stay as they are: streams that have reached their budget allocate nothing.
template <typename T>
void grow(std::vector<T>& vector, int64_t size) {
  if (std::ssize(vector) < size) vector.resize(static_cast<size_t>(size));
}

void prepare(TokenMass::Scratch& s, int64_t rows, int64_t slots, int64_t block_tokens, int64_t drafted,
             int64_t most_drafted, int64_t heads) {
  grow(s.blocks, attention_scratch_pointers(1, slots, block_tokens));
  grow(s.scores, rows * score_stride(slots));
  grow(s.sums, heads * (1 + std::max(drafted, most_drafted)) * slots);
  std::fill_n(s.sums.begin(), heads * (1 + drafted) * slots, int64_t{0});
}

void prepare_choice(TokenMass::Scratch& s, const AttentionPattern& pattern, int64_t tile, int64_t slots,
                    int64_t head_dim) {
  const DynamicPattern* dynamic = dynamic_pattern(&pattern);
  s.marks.reserve(static_cast<size_t>(tile));
  const int64_t blocks = slots / pattern.block() + 1;
  grow(s.work, choose_work_floats(pattern, blocks));
  if (!dynamic) return;
  grow(s.features, dynamic->summary_floats(head_dim));
  grow(s.block_scores, blocks);
}

// The sums of one head, or of all, from column `column` of the observed ones on.
void add_sums(const int64_t* sums, int64_t slots, int64_t column, const TokenMass::Span& observed) {
  const auto at = [&](int64_t i) { return static_cast<size_t>(i * observed.heads + column); };
  for (int64_t i = 0; i < std::ssize(observed.mass) / observed.heads; ++i) observed.mass[at(i)] += sums[i];
  const int64_t* drafts = sums + slots;
  for (int64_t i = 0; i < std::ssize(observed.draft_mass) / observed.heads; ++i)
    observed.draft_mass[at(i)] += drafts[i];
}

}  // namespace

void observe_token_mass(const Batch& batch, const AttentionLayer& layer, const KernelTable& kernels, ThreadPool& pool,
                        KvPool& kv, const float* q, int64_t context, TokenMass& mass, const CodecTiles* tiles) {
  const int64_t group = layer.heads / layer.kv_heads, tile = std::max<int64_t>(1, kRows / group);
  const AttentionPattern* of_layer = pattern_of(layer, context);
  mass.scratch.resize(static_cast<size_t>(pool.threads()));
  for (const TokenMass::Span& observed : mass.spans) {
    const BatchSpan& span = batch.spans_of(layer.group)[static_cast<size_t>(observed.span)];
    const AttentionPattern* pattern = of_layer && of_layer->applies(span.answer) ? of_layer : nullptr;
    const int64_t slots = span.first_slot + span.count, queries = span.count - observed.skipped;
    const int64_t units = (queries + tile - 1) / tile;
    const bool own_sums = observed.heads > 1 && !observed.whole_layers;
    const int64_t heads = own_sums ? layer.kv_heads : 1;
    for (TokenMass::Scratch& s : mass.scratch) {
      if (pattern) prepare_choice(s, *pattern, tile, slots, layer.head_dim);
      prepare(s, std::min(tile, std::max(queries, 1 + mass.most_drafted)) * group, slots, kv.layout().block_tokens,
              observed.drafted, mass.most_drafted, heads);
    }
    pool.parallel_for(layer.kv_heads * units, [&](int64_t index, int worker) {
      if (observed.attends && observed.attends[index / units] == 0) return;
      const int64_t first = observed.skipped + index % units * tile;
      const TokenUnit unit{.batch = batch,
                           .span = span,
                           .layer = layer,
                           .kernels = kernels,
                           .kv = kv,
                           .q = q,
                           .kv_head = index / units,
                           .first = first,
                           .count = std::min(tile, span.count - first),
                           .drafted = observed.drafted,
                           .shares = observed.shares,
                           .own_sums = own_sums,
                           .tiles = tiles,
                           .worker = worker,
                           .pattern = pattern};
      TokenMass::Scratch& s = mass.scratch[static_cast<size_t>(worker)];
      if (pattern) unit.choose(s);
      unit.score(s);
      unit.add(s);
    });
    // Whole layers have as many sums as heads, whether or not these are apart.
    const int64_t apart = own_sums ? 1 : kv.layout().tables_per_layer();
    const int64_t column = observed.heads > 1 ? kv.layout().heads_before(layer.layer / apart * apart) : 0;
    for (const TokenMass::Scratch& s : mass.scratch)
      for (int64_t head = 0; head < (observed.heads > 1 ? layer.kv_heads * apart : 1); ++head)
        add_sums(s.sums.data() + (own_sums ? head : 0) * (1 + observed.drafted) * slots, slots, column + head,
                 observed);
  }
}

void observe_per_head_tables(const Batch& batch, const AttentionLayer& first, const KernelTable& kernels,
                             ThreadPool& pool, KvPool& kv, const float* q, TokenMass& mass) {
  const int64_t group = first.heads, tile = std::max<int64_t>(1, kRows / group);
  const int64_t each = std::ssize(mass.spans) / kv.layout().tables_per_layer();
  const auto span_at = [&](int64_t index) -> const BatchSpan& {
    return batch.spans_of(first.group + index / each)[static_cast<size_t>(mass.spans[static_cast<size_t>(index)].span)];
  };
  mass.scratch.resize(static_cast<size_t>(pool.threads()));
  for (int64_t i = 0; i < std::ssize(mass.spans); ++i) {
    const TokenMass::Span& observed = mass.spans[static_cast<size_t>(i)];
    const BatchSpan& span = span_at(i);
    for (TokenMass::Scratch& s : mass.scratch)
      prepare(s, std::min(tile, std::max(span.count - observed.skipped, 1 + mass.most_drafted)) * group,
              span.first_slot + span.count, kv.layout().block_tokens, observed.drafted, mass.most_drafted, 1);
  }
  pool.parallel_for(std::ssize(mass.spans), [&](int64_t index, int worker) {
    const TokenMass::Span& observed = mass.spans[static_cast<size_t>(index)];
    const BatchSpan& span = span_at(index);
    const int64_t head = index / each, slots = span.first_slot + span.count;
    AttentionLayer own = first;
    own.layer += head;
    own.group += head;
    TokenMass::Scratch& s = mass.scratch[static_cast<size_t>(worker)];
    std::fill_n(s.sums.begin(), (1 + observed.drafted) * slots, int64_t{0});
    for (int64_t query = observed.skipped; query < span.count; query += tile) {
      const TokenUnit unit{.batch = batch,
                           .span = span,
                           .layer = own,
                           .kernels = kernels,
                           .kv = kv,
                           .q = q + head * group * own.head_dim,
                           .kv_head = 0,
                           .first = query,
                           .count = std::min(tile, span.count - query),
                           .drafted = observed.drafted,
                           .shares = observed.shares,
                           .worker = worker};
      unit.score(s);
      unit.add(s);
    }
    add_sums(s.sums.data(), slots, 0, observed);
  });
}

int64_t token_mass_bytes(int64_t slots, int64_t drafted, int64_t group, int64_t heads,
                         const AttentionPattern* pattern) {
  const int64_t blocks = pattern ? slots / pattern->block() + 1 : 0;
  const int64_t marks = pattern ? std::max<int64_t>(1, kRows / group) * static_cast<int64_t>(sizeof(BlockMarks)) : 0;
  const int64_t choice = pattern ? marks + 4 * (blocks + choose_work_floats(*pattern, blocks)) : 0;
  return 4 * score_stride(slots) * std::max<int64_t>(kRows, group) + 8 * slots * heads * (1 + drafted) + choice;
}

}  // namespace millrace
