// Attention of spans with a Visibility, of every table and KV format: token trees, segments, block lists and tables of
// positions, alone and combined. Compared with softmax attention in double over the keys that the definition lets a
// query see, and bit for bit with a plain stream that holds only those keys.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "attention/full.h"
#include "conformance/byte_rows.h"
#include "kernel_tables.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kKvHeads = 2, kGroup = 3, kHeads = kKvHeads * kGroup, kContext = 700;

struct StreamShape {
  int64_t head_dim = 64;
  int64_t block_tokens = 16;
  int64_t window = 0;
  float softcap = 0;
};

// Streams in one pool, whose last tokens are a batch.
struct Streams {
  Streams(const KernelTable& kernel_table, const Format& format, const StreamShape& s)
      : table(kernel_table),
        shape(s),
        codec(*kernel_table.find_codec(&format)),
        pool(
            KvPool::create({&format, s.block_tokens, {{kKvHeads, s.head_dim}}}, 4 * kContext / s.block_tokens).value()),
        threads(1) {}

  // A stream of `slots` tokens with keys and values of its own, the last `count` of which are in the batch.
  void add(int64_t slots, int64_t count) {
    const BatchSpan span = add_empty(slots, count);
    for (int64_t slot = 0; slot < slots; ++slot)
      for (int64_t h = 0; h < kKvHeads; ++h)
        for (int64_t value : {0, 1}) codec.encode(row(slot, h, value).data(), at(span, slot, h, value), shape.head_dim);
  }

  // A stream of those keys and values of another one, with its last token in the batch.
  void add_copy(Streams& from, const BatchSpan& other, const std::vector<int64_t>& slots) {
    const BatchSpan span = add_empty(std::ssize(slots), 1);
    for (int64_t slot = 0; slot < std::ssize(slots); ++slot)
      for (int64_t h = 0; h < kKvHeads; ++h)
        for (int64_t value : {0, 1})
          std::memcpy(at(span, slot, h, value), from.at(other, slots[static_cast<size_t>(slot)], h, value),
                      static_cast<size_t>(pool.row_bytes(0)));
  }

  BatchSpan add_empty(int64_t slots, int64_t count) {
    BatchSpan span{batch.size(), count, slots - count, std::ssize(batch.block_tables), pool.blocks_for(slots)};
    for (int64_t b = 0; b < span.table_size; ++b) batch.block_tables.push_back(*pool.allocate());
    batch.tokens.resize(static_cast<size_t>(batch.size() + count));
    batch.spans.push_back(span);
    return span;
  }

  uint8_t* at(const BatchSpan& span, int64_t slot, int64_t head, int64_t value) {
    const BlockId block = batch.block_tables[static_cast<size_t>(span.table + slot / shape.block_tokens)];
    uint8_t* rows = value ? pool.values(0, block, head) : pool.keys(0, block, head);
    return rows + slot % shape.block_tokens * pool.row_bytes(0);
  }
  std::vector<float> row(int64_t slot, int64_t head, int64_t value) const {
    return testing::random_values(shape.head_dim, static_cast<uint64_t>((slot * kKvHeads + head) * 2 + value));
  }
  std::vector<float> stored(const BatchSpan& span, int64_t slot, int64_t head, int64_t value) {
    std::vector<float> out(static_cast<size_t>(shape.head_dim));
    codec.decode(at(span, slot, head, value), out.data(), shape.head_dim);
    return out;
  }

  std::vector<float> run(const std::vector<float>& q, int64_t window) {
    const AttentionLayer layer{0, kHeads, kKvHeads, shape.head_dim, window, shape.softcap};
    std::vector<float> out(q.size(), NAN);
    std::vector<float> scratch(
        static_cast<size_t>(attention_scratch_floats(threads.threads(), kContext, kGroup, shape.head_dim, kKvHeads)));
    std::vector<const uint8_t*> pointers(
        static_cast<size_t>(attention_scratch_pointers(threads.threads(), kContext, shape.block_tokens)));
    attend(batch, layer, table, threads, pool, q.data(), out.data(), kContext, scratch.data(), pointers.data());
    return out;
  }

  const KernelTable& table;
  StreamShape shape;
  const RowCodec& codec;
  KvPool pool;
  ThreadPool threads;
  Batch batch;
};

struct SeenKey {
  int64_t slot;
  float scale, bias;
  int32_t document = 0;
};

bool in_list(const Batch& batch, const Visibility& v, int64_t head, int64_t block) {
  if (v.list_count == 0) return true;
  const BlockList& list = batch.block_lists[static_cast<size_t>(v.lists + std::min(head, v.list_count - 1))];
  for (int64_t i = 0; i < list.count; ++i)
    if (batch.listed_blocks[static_cast<size_t>(list.begin + i)] == block) return true;
  return false;
}

// By the definition in flow/batch.h, without the window.
std::vector<SeenKey> seen_by(const Batch& batch, const BatchSpan& span, int64_t query, int64_t kv_head,
                             int64_t block_tokens) {
  const Visibility& v = batch.visibility[static_cast<size_t>(span.visibility)];
  const int64_t own = span.first_slot + query;
  const auto in_tree = [&](int64_t slot) { return v.tree_tokens > 0 && slot >= v.tree_slot; };
  std::vector<SeenKey> seen;
  for (int64_t slot = 0; slot <= own; ++slot) {
    SeenKey key{slot, 1, 0};
    bool visible = v.segment_count == 0;
    for (int64_t i = v.segments; i < v.segments + v.segment_count; ++i) {
      const KeySegment& segment = batch.segments[static_cast<size_t>(i)];
      if (slot < segment.begin || slot >= segment.end) continue;
      visible = true;
      key.scale = segment.scale;
      key.bias = segment.bias;
      key.document = segment.document;
    }
    if (in_tree(own) && in_tree(slot))
      visible = visible &&
                (batch.ancestors[static_cast<size_t>(v.ancestors + own - v.tree_slot)] >> (slot - v.tree_slot) & 1);
    if (visible && in_list(batch, v, kv_head, slot / block_tokens)) seen.push_back(key);
  }
  return seen;
}

// The window, by position or by count: how many of the keys it leaves.
int64_t in_window(const Batch& batch, const BatchSpan& span, int64_t query, const std::vector<SeenKey>& seen,
                  int64_t window) {
  if (window == 0) return std::ssize(seen);
  const Visibility& v = batch.visibility[static_cast<size_t>(span.visibility)];
  if (v.position_count == 0) return std::min(window, std::ssize(seen));
  const auto position = [&](int64_t slot) { return batch.slot_positions[static_cast<size_t>(v.positions + slot)]; };
  return std::ranges::count_if(
      seen, [&](const SeenKey& key) { return position(key.slot) > position(span.first_slot + query) - window; });
}

// By the definition of DocumentWeights: turns scores into logarithms of weights, of which -inf is a key that is left
// out. False: which documents are chosen hangs on the rounding of a kernel.
bool weigh_documents(const DocumentWeights& how, std::span<const SeenKey> keys, std::vector<double>& scores) {
  std::map<int32_t, double> sums;
  for (size_t i = 0; i < keys.size(); ++i)
    if (keys[i].document != 0) sums[keys[i].document] += std::exp(scores[i]);
  std::vector<std::pair<double, int32_t>> order;
  for (const auto& [document, sum] : sums) order.push_back({-std::log(sum), document});
  std::ranges::sort(order);
  const auto most = static_cast<size_t>(how.most);
  if (how.most > 0 && most < order.size()) {
    if (order[most].first - order[most - 1].first < 0.02) return false;
    for (size_t i = most; i < order.size(); ++i) sums.erase(order[i].second);
  }
  double all = 0;
  for (const auto& [document, sum] : sums) all += sum;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].document == 0) continue;
    scores[i] = sums.contains(keys[i].document) ? scores[i] + (how.power - 1) * std::log(all) : -INFINITY;
  }
  return true;
}

// Empty: it cannot be told.
std::vector<double> softmax_attention(Streams& s, const BatchSpan& span, const float* q, int64_t kv_head,
                                      std::span<const SeenKey> keys, bool rounded) {
  const auto operand = [&](float x) { return double{rounded ? bf16_to_f32(f32_to_bf16(x)) : x}; };
  std::vector<double> scores, out(static_cast<size_t>(s.shape.head_dim));
  double max = -INFINITY, sum = 0;
  for (const SeenKey& key : keys) {
    const auto row = s.stored(span, key.slot, kv_head, 0);
    double dot = 0;
    for (size_t d = 0; d < row.size(); ++d) dot += operand(q[d] * key.scale) * operand(row[d]);
    if (s.shape.softcap > 0) dot = s.shape.softcap * std::tanh(dot / s.shape.softcap);
    scores.push_back(dot + key.bias);
  }
  const DocumentWeights& how = s.batch.visibility[static_cast<size_t>(span.visibility)].documents;
  if (!weigh_documents(how, keys, scores)) return {};
  for (const double score : scores) max = std::max(max, score);
  for (size_t i = 0; i < keys.size(); ++i) {
    const double weight = std::exp(scores[i] - max);
    const auto row = s.stored(span, keys[i].slot, kv_head, 1);
    for (size_t d = 0; d < row.size(); ++d) out[d] += weight * operand(row[d]);
    sum += weight;
  }
  for (double& x : out) x /= sum;
  return out;
}

// The same query as the last token of a plain stream that holds only `keys`.
std::vector<float> plain_stream(Streams& s, const BatchSpan& span, const std::vector<float>& query,
                                std::span<const SeenKey> keys, int64_t window) {
  std::vector<int64_t> slots;
  for (const SeenKey& key : keys) slots.push_back(key.slot);
  Streams alone(s.table, *s.pool.layout().format, s.shape);
  alone.add_copy(s, span, slots);
  return alone.run(query, window);
}

// Runs the batch's only span and compares every `step`-th query.
void expect_definition(Streams& s, int64_t step = 1) {
  int64_t compared = 0, heads = 0;
  const BatchSpan span = s.batch.spans.front();
  const int64_t width = kHeads * s.shape.head_dim;
  auto q = testing::random_values(span.count * width, 4711);
  for (float& x : q) x *= 1.5f / std::sqrt(static_cast<float>(s.shape.head_dim));
  const auto actual = s.run(q, s.shape.window);
  const Format& format = *s.pool.layout().format;
  const bool rounded = s.shape.head_dim <= s.table.find_attention(&format)->bf16_head_dim;
  const bool operands = rounded && !testing::multiplies_bytes(s.table, format);
  for (int64_t i = 0; i < span.count; i += step) {
    SCOPED_TRACE("query " + std::to_string(i));
    const std::vector<float> query(q.begin() + i * width, q.begin() + (i + 1) * width);
    for (int64_t kv_head = 0; kv_head < kKvHeads; ++kv_head) {
      const auto all = seen_by(s.batch, span, i, kv_head, s.shape.block_tokens);
      const int64_t window = in_window(s.batch, span, i, all, s.shape.window);
      const auto seen = std::span(all).last(static_cast<size_t>(window));
      std::vector<float> plain;
      if (std::ranges::none_of(all,
                               [](const SeenKey& key) { return key.scale != 1 || key.bias != 0 || key.document != 0; }))
        plain = plain_stream(s, span, query, all, s.shape.window == 0 ? 0 : window);
      for (int64_t h = kv_head * kGroup; h < (kv_head + 1) * kGroup; ++h) {
        ++heads;
        const auto expected = softmax_attention(s, span, query.data() + h * s.shape.head_dim, kv_head, seen, operands);
        const float* out = actual.data() + i * width + h * s.shape.head_dim;
        compared += !expected.empty();
        if (expected.empty()) continue;
        for (int64_t d = 0; d < s.shape.head_dim; ++d)
          ASSERT_NEAR(out[d], expected[static_cast<size_t>(d)], rounded ? 6e-3 : 1e-5) << "head " << h << " dim " << d;
        for (int64_t d = 0; d < s.shape.head_dim && !plain.empty(); ++d)
          ASSERT_EQ(out[d], plain[static_cast<size_t>(h * s.shape.head_dim + d)]) << "head " << h << " dim " << d;
      }
    }
  }
  EXPECT_GE(2 * compared, heads);
}

template <typename Body>
void for_each(const std::vector<StreamShape>& shapes, const Body& body) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16", "q8_0"})
      for (const StreamShape& shape : shapes) {
        if (shape.head_dim % find_format(format)->block_values != 0) continue;
        SCOPED_TRACE(isa_name(table.isa) + " " + format + " head_dim " + std::to_string(shape.head_dim) + " block " +
                     std::to_string(shape.block_tokens) + " window " + std::to_string(shape.window));
        Streams s(table, *find_format(format), shape);
        body(s);
      }
}

Visibility& see(Streams& s) {
  s.batch.spans.back().visibility = static_cast<int32_t>(s.batch.visibility.size());
  return s.batch.visibility.emplace_back();
}

// Random parents: some nodes follow no other node, some runs are chains.
void add_tree(Streams& s, Visibility& v, int64_t tokens, uint64_t seed) {
  const BatchSpan& span = s.batch.spans.back();
  v.tree_slot = span.first_slot + span.count - tokens;
  v.tree_tokens = tokens;
  v.ancestors = std::ssize(s.batch.ancestors);
  for (int64_t i = 0; i < tokens; ++i) {
    const double draw = philox_uniform(seed, 3, static_cast<uint64_t>(i));
    const int64_t parent = draw < 0.5 ? i - 1 : static_cast<int64_t>(draw * 2 * static_cast<double>(i + 1)) - 1 - i;
    const int64_t checked = std::clamp<int64_t>(parent, -1, i - 1);
    const uint64_t path = checked < 0 ? 0 : s.batch.ancestors[static_cast<size_t>(v.ancestors + checked)];
    s.batch.ancestors.push_back(path | uint64_t{1} << i);
  }
}

void add_segments(Streams& s, Visibility& v, const std::vector<KeySegment>& segments) {
  v.segments = std::ssize(s.batch.segments);
  v.segment_count = std::ssize(segments);
  s.batch.segments.insert(s.batch.segments.end(), segments.begin(), segments.end());
}

// Every block is in the list with probability 1/2, the span's own always.
void add_lists(Streams& s, Visibility& v, int64_t lists, uint64_t seed) {
  const BatchSpan& span = s.batch.spans.back();
  v.lists = std::ssize(s.batch.block_lists);
  v.list_count = lists;
  for (int64_t l = 0; l < lists; ++l) {
    const int64_t begin = std::ssize(s.batch.listed_blocks);
    for (int64_t b = 0; b < span.table_size; ++b) {
      const bool own = b >= span.first_slot / s.shape.block_tokens;
      if (own || philox_uniform(seed, static_cast<uint64_t>(l), static_cast<uint64_t>(b)) < 0.5)
        s.batch.listed_blocks.push_back(static_cast<int32_t>(b));
    }
    s.batch.block_lists.push_back({begin, std::ssize(s.batch.listed_blocks) - begin});
  }
}

void add_positions(Streams& s, Visibility& v, int64_t gap_at, int64_t gap) {
  const BatchSpan& span = s.batch.spans.back();
  v.positions = std::ssize(s.batch.slot_positions);
  v.position_count = span.first_slot + span.count;
  for (int64_t slot = 0; slot < v.position_count; ++slot)
    s.batch.slot_positions.push_back(static_cast<int32_t>(slot + (slot >= gap_at ? gap : 0)));
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, TreesAtEveryPlaceOfAPartition) {
  for_each({{.head_dim = 64}, {.head_dim = 40, .block_tokens = 7, .window = 9}}, [](Streams& s) {
    for (int64_t first : {0, 1, 31, 200, 255, 256, 300}) {
      SCOPED_TRACE(first);
      s.batch.clear();
      s.add(first + 64, 64);
      add_tree(s, see(s), 64, static_cast<uint64_t>(first));
      expect_definition(s, 7);
      for (int64_t b = 0; b < std::ssize(s.batch.block_tables); ++b)
        s.pool.release(s.batch.block_tables[static_cast<size_t>(b)]);
    }
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, TokensBeforeTheTreeSeeEverySlotUpToTheirOwn) {
  for_each({{.softcap = 2}}, [](Streams& s) {
    s.add(301, 90);
    add_tree(s, see(s), 33, 5);
    expect_definition(s, 3);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, SegmentsLeaveSlotsOut) {
  for_each({{.head_dim = 32, .block_tokens = 5}, {.window = 40}}, [](Streams& s) {
    s.add(611, 111);
    add_segments(s, see(s), {{0, 3}, {17, 40}, {41, 345}, {480, 1 << 20}});
    expect_definition(s, 11);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, SegmentsHaveTheirOwnScaleAndBias) {
  for_each({{.head_dim = 64}, {.head_dim = 64, .window = 350, .softcap = 1.5f}}, [](Streams& s) {
    s.add(560, 41);
    add_segments(s, see(s), {{0, 30, 1, 0.7f}, {30, 300, 1.25f, -1.5f}, {310, 500, 0.5f, 0}, {500, 560}});
    expect_definition(s, 5);
  });
}

// Documents of several lengths, some longer than a partition, with other keys before, between and behind them.
std::vector<KeySegment> documents(float scale) {
  return {{0, 5},        {5, 40, scale, 0, 1},    {40, 330, scale, 0, 2},
          {330, 335},    {335, 420, scale, 0, 3}, {420, 500, scale, 0, 4},
          {500, 1 << 20}};
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, DocumentsAreWeighedAsAWhole) {
  for_each({{.head_dim = 64}, {.head_dim = 32, .block_tokens = 5, .window = 170, .softcap = 3}}, [](Streams& s) {
    s.add(560, 41);
    Visibility& v = see(s);
    add_segments(s, v, documents(1.25f));
    v.documents.power = 0.75f;
    expect_definition(s, 8);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, EveryHeadChoosesItsDocuments) {
  for_each({{.head_dim = 64}, {.head_dim = 32, .block_tokens = 5, .window = 170}}, [](Streams& s) {
    s.add(560, 41);
    Visibility& v = see(s);
    add_segments(s, v, documents(2));
    for (int32_t most : {1, 3}) {
      s.batch.visibility.back().documents.most = most;
      expect_definition(s, 8);
    }
    s.batch.visibility.back().documents.power = 0.5f;
    expect_definition(s, 20);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, TreesBehindDocuments) {
  for_each({{.head_dim = 64}}, [](Streams& s) {
    s.add(560, 60);
    Visibility& v = see(s);
    add_tree(s, v, 50, 12);
    add_segments(s, v, documents(1.5f));
    v.documents = {0.8f, 2};
    expect_definition(s, 7);
  });
}

// A choice of all documents is none.
// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, AllDocumentsChosenAreTheDefault) {
  for_each({{.head_dim = 64}}, [](Streams& s) {
    s.add(560, 3);
    add_segments(s, see(s), documents(1));
    s.batch.visibility.back().documents.most = 4;
    expect_definition(s);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, BlockListsOfEveryKvHead) {
  for_each({{.block_tokens = 16}, {.head_dim = 32, .block_tokens = 3, .window = 50}}, [](Streams& s) {
    for (int64_t lists : {1, 2}) {
      s.batch.clear();
      s.add(650, 67);
      add_lists(s, see(s), lists, 8);
      expect_definition(s, 13);
      for (const BlockId block : s.batch.block_tables) s.pool.release(block);
    }
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, WindowsCountPositions) {
  for_each({{.window = 1}, {.window = 50}, {.window = 100}, {.window = 1000}}, [](Streams& s) {
    s.add(330, 60);
    add_positions(s, see(s), 250, 60);
    expect_definition(s, 4);
  });
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(VisibleKeys, AllOfThemTogether) {
  for_each({{.window = 290}, {.block_tokens = 11, .softcap = 3}}, [](Streams& s) {
    s.add(640, 60);
    Visibility& v = see(s);
    add_tree(s, v, 50, 12);
    add_segments(s, v, {{2, 100}, {120, 300}, {301, 640}});
    add_lists(s, v, 2, 13);
    add_positions(s, v, 400, 33);
    expect_definition(s, 3);
  });
}

}  // namespace
}  // namespace millrace
