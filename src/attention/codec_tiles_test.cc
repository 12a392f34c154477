// Attention over a KV cache with a codec equals attention over the rows that each query should see: decoded ones of its
// older blocks, raw ones of the newest. Bit for bit, but where a codec rotates queries and results, which is in f32.
#include "attention/codec_tiles.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "attention/full.h"
#include "attention/key_summaries.h"
#include "attention/token_mass.h"
#include "base/cpu.h"
#include "base/philox.h"
#include "isa_label.h"
#include "kv/token_evictor.h"
#include "tensor/half.h"

namespace millrace {
namespace {

constexpr int64_t kTileHeads = 4, kTileKvHeads = 2, kContext = 416;

struct TilesCase {
  std::string codec;
  int64_t head_dim, window;
  Isa isa;
  int threads;
};

class CodecTilesTest : public ::testing::TestWithParam<TilesCase> {
 protected:
  CodecTilesTest() : dim(GetParam().head_dim), table(make_kernel_table(GetParam().isa)), threads(GetParam().threads) {
    // Tiles that attention reads as they are stored are not rounded to f16.
    KvLayout layout{find_format(table.attend_tiles ? "f32" : "f16"), 16, {{kTileKvHeads, dim}}};
    plain.emplace(KvPool::create(layout, kContext / 16).value());
    for (int64_t i = 0; i < kContext / 16; ++i) plain_blocks.push_back(*plain->allocate());
    layout.encode_with(find_kv_codec(GetParam().codec).value());
    EXPECT_TRUE(add_key_summaries(layout, dynamic.get(), kContext).ok());
    encoded.emplace(KvPool::create(layout, 40, {.states = 3}).value());
    const KeyRope rope{.frequencies = frequencies(), .half = true};
    tiles = CodecTiles::create(*encoded, 0, table, kTokens, threads.threads(), {&rope, 1}, kContext).value();
    scratch.resize(static_cast<size_t>(attention_scratch_floats(threads.threads(), kContext, kTileHeads / kTileKvHeads,
                                                                dim, kTileKvHeads, 0, {.pattern = dynamic.get()})));
    pointers.resize(static_cast<size_t>(attention_scratch_pointers(threads.threads(), kContext, 16)));
  }

  std::vector<double> frequencies() const {
    std::vector<double> out;
    for (int64_t i = 0; i < dim / 2; ++i) out.push_back(std::pow(100.0, -2.0 * static_cast<double>(i) / dim));
    return out;
  }

  // Keys of a block, to their positions or back.
  void move(std::vector<float>& rows, int64_t first, bool back) const {
    const auto of = frequencies();
    for (int64_t at = 0; at < std::ssize(rows); at += dim) {
      for (int64_t i = 0; i < dim / 2; ++i) {
        const double angle = (back ? -1 : 1) * static_cast<double>(first + at / dim) * of[static_cast<size_t>(i)];
        float &x = rows[static_cast<size_t>(at + i)], &y = rows[static_cast<size_t>(at + i + dim / 2)];
        const double a = x, b = y;
        x = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
        y = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
      }
    }
  }

  // All heads of a stream's token: keys are 0, values 1, queries 2. Another token each time that the slot is written.
  std::vector<float> row(int64_t what, int64_t stream, int64_t slot, int64_t heads) const {
    if (const auto moved = kept_rows.find({what, stream, slot}); moved != kept_rows.end()) return moved->second;
    const auto found = written.find({stream, slot});
    const auto version = static_cast<uint64_t>(what + 3 * (found == written.end() ? 0 : found->second));
    std::vector<float> out;
    for (int64_t i = 0; i < heads * dim; ++i) {
      const auto at = static_cast<uint64_t>(slot * heads * dim + i);
      const double x = philox_uniform(version, static_cast<uint64_t>(stream), at) * 3 - (what == 2 ? 1.5 : 1);
      out.push_back(static_cast<float>(what == 2 && in_bf16() ? x / 4 : x));
    }
    return out;
  }

  // Rounded queries, keys and weights are compared with f32: small scores, whose errors are small, too.
  bool in_bf16() const { return table.attend_tiles && table.find_attention(find_format("f16"))->bf16_head_dim > 0; }

  struct Chunk {
    int64_t stream, first, count;
  };

  // Runs the chunks as one batch; rows of attention, [tokens][kTileHeads * dim].
  std::vector<float> run(const std::vector<Chunk>& chunks) {
    batch.clear();
    std::vector<float> q, k, v;
    for (const Chunk& chunk : chunks) {
      std::erase_if(seen, [&](const auto& block) {
        const auto& [part, stream, head, first, decoded] = block.first;
        return stream == chunk.stream && first + encoded->layout().block_tokens > chunk.first;
      });
      auto& blocks = tables[chunk.stream];
      while (std::ssize(blocks) * encoded->layout().block_tokens < chunk.first + chunk.count)
        blocks.push_back(*encoded->allocate());
      batch.spans.push_back({batch.size(), chunk.count, chunk.first, std::ssize(batch.block_tables), std::ssize(blocks),
                             static_cast<int32_t>(chunk.stream), static_cast<int32_t>(batch.spans.size())});
      batch.block_tables.insert(batch.block_tables.end(), blocks.begin(), blocks.end());
      batch.tokens.resize(static_cast<size_t>(batch.size() + chunk.count));
      for (int64_t slot = chunk.first; slot < chunk.first + chunk.count; ++slot) {
        ++written[{chunk.stream, slot}];
        for (int64_t what : {0, 1}) kept_rows.erase({what, chunk.stream, slot});
        std::erase_if(kept_encoded, [&](const auto& one) {
          return std::get<1>(one.first) == chunk.stream && std::get<3>(one.first) == slot;
        });
        for (auto& [out, what, heads] : {std::tuple{&q, 2, kTileHeads}, {&k, 0, kTileKvHeads}, {&v, 1, kTileKvHeads}}) {
          const auto one = row(what, chunk.stream, slot, heads);
          out->insert(out->end(), one.begin(), one.end());
        }
      }
    }
    tiles.begin(batch, 0);
    for (const BatchSpan& span : batch.spans)
      for (int64_t t = span.begin; t < span.begin + span.count; ++t)
        tiles.store(span, t, k.data() + t * kTileKvHeads * dim, v.data() + t * kTileKvHeads * dim);
    tiles.encode(threads);
    std::vector<float> out(q.size());
    const AttentionLayer layer = attention(pattern);
    summarize_keys(batch, layer, table, threads, *encoded, kContext, &tiles);
    attend(batch, layer, table, threads, *encoded, q.data(), out.data(), kContext, scratch.data(), pointers.data(),
           &tiles);
    return out;
  }

  AttentionLayer attention(const std::shared_ptr<const AttentionPattern>& by) const {
    AttentionLayer layer{0, kTileHeads, kTileKvHeads, dim, GetParam().window, 0};
    layer.switches.pattern = by.get();
    return layer;
  }

  // Rows of a tile by the definition of LevelTiles.
  std::vector<float> rows_of_levels(const LevelTiles& t, KvPart part, const std::vector<uint8_t>& tile,
                                    int64_t tokens) const {
    std::vector<float> out;
    for (int64_t token = 0; token < tokens; ++token) {
      for (int64_t d = 0; d < dim; ++d) {
        const int64_t values = affine_unit_values(t.bits), within = d % values, low_bits = t.bits == 4 ? 4 : 2;
        const uint8_t* unit = tile.data() + token * t.stride + d / values * affine_unit_bytes(t.bits);
        int level = unit[within % 8] >> (within / 8 * low_bits) & ((1 << low_bits) - 1);
        if (t.bits == 3) level += 4 * (unit[8 + within / 8] >> (within % 8) & 1);
        const bool columns = part == KvPart::keys && t.key_tokens > 0;
        const int64_t groups = (dim + t.group - 1) / t.group;
        const int64_t scale = columns ? token / t.key_tokens * dim + d : token * groups + d / t.group;
        uint16_t halves[2];
        std::memcpy(halves, tile.data() + t.scales_at + 2 * scale, 2);
        std::memcpy(halves + 1, tile.data() + t.zeros_at + 2 * scale, 2);
        const float* codes = part == KvPart::keys ? t.codes : value_codes_of(t);
        const double code = codes ? double{codes[level]} : level;
        out.push_back(static_cast<float>(code * f16_to_f32(halves[0]) + f16_to_f32(halves[1])));
      }
    }
    return out;
  }

  // What attention sees of a block of raw rows that was encoded.
  std::vector<float> seen_rows(KvPart part, std::vector<float> rows, int64_t first) const {
    const KvCodec& codec = *encoded->layout().codec;
    const int64_t tokens = encoded->layout().block_tokens;
    const std::vector<float> raw = rows;
    const bool turned = part == KvPart::keys && codec.before_rope();
    if (turned) move(rows, first, true);
    for (float& x : rows) x = f16_to_f32(f32_to_f16(x));
    std::vector<uint8_t> tile(static_cast<size_t>(codec.tile_bytes(tokens, dim)));
    codec.store(part, rows.data(), tokens, dim, tile.data());
    if (const auto levels = codec.level_tiles(tokens, dim); levels && table.attend_tiles && !codec.before_rope())
      return rows_of_levels(*levels, part, tile, tokens);
    std::vector<uint16_t> halves(rows.size());
    codec.load(part, make_kernel_table(Isa::ref), tile.data(), tokens, dim, reinterpret_cast<uint8_t*>(halves.data()));
    std::vector<float> out;
    for (const uint16_t half : halves) out.push_back(f16_to_f32(half));
    if (turned) move(out, first, false);
    if (first == 0) std::copy_n(raw.begin(), codec.sink_tokens() * dim, out.begin());
    return out;
  }

  void turn(std::vector<float>& heads, bool back) const {
    const KvCodec& codec = *encoded->layout().codec;
    for (size_t at = 0; at < heads.size(); at += static_cast<size_t>(dim))
      back ? codec.rotate_back(heads.data() + at, dim) : codec.rotate(heads.data() + at, dim);
  }

  // The rows of a block as a query sees them: encoded and decoded, or raw. Kept until a run writes into the block.
  const std::vector<float>& block_rows(KvPart part, int64_t stream, int64_t head, int64_t first, bool decoded) {
    std::vector<float>& rows = seen[{part, stream, head, first, decoded}];
    if (!rows.empty()) return rows;
    for (int64_t slot = first; slot < first + encoded->layout().block_tokens; ++slot) {
      const auto all = row(part == KvPart::keys ? 0 : 1, stream, slot, kTileKvHeads);
      rows.insert(rows.end(), all.begin() + head * dim, all.begin() + (head + 1) * dim);
    }
    turn(rows, false);
    for (float& x : rows) x = f16_to_f32(f32_to_f16(x));
    if (!decoded) return rows;
    rows = seen_rows(part, rows, first);
    for (int64_t i = 0; i < encoded->layout().block_tokens; ++i)
      if (const auto found = kept_encoded.find({part, stream, head, first + i}); found != kept_encoded.end())
        std::ranges::copy(found->second, rows.begin() + i * dim);
    return rows;
  }

  // What the query of a token should give: its keys and values by the rule, in rows of f16.
  std::vector<float> expected(int64_t stream, int64_t query) {
    const KvLayout& layout = encoded->layout();
    const int64_t tokens = layout.block_tokens, raw = (query / tokens - layout.residual_blocks()) * tokens;
    for (int64_t head = 0; head < kTileKvHeads; ++head) {
      for (KvPart part : {KvPart::keys, KvPart::values}) {
        for (int64_t first = 0; first <= query; first += tokens) {
          const std::vector<float>& rows = block_rows(part, stream, head, first, first < raw);
          const RowCodec& format = *table.find_codec(plain->layout().format);
          for (int64_t slot = first; slot < std::min(first + tokens, kContext); ++slot) {
            const BlockId block = plain_blocks[static_cast<size_t>(slot / 16)];
            uint8_t* to = (part == KvPart::keys ? plain->keys(0, block, head) : plain->values(0, block, head));
            format.encode(rows.data() + (slot - first) * dim, to + slot % 16 * plain->row_bytes(0), dim);
          }
        }
      }
    }
    Batch one;
    one.tokens.resize(1);
    one.spans.push_back({0, 1, query, 0, std::ssize(plain_blocks)});
    one.block_tables.assign(plain_blocks.begin(), plain_blocks.end());
    auto q = row(2, stream, query, kTileHeads);
    turn(q, false);
    std::vector<float> out(q.size());
    attend(one, attention(marking ? marking : pattern), table, threads, *plain, q.data(), out.data(), kContext,
           scratch.data(), pointers.data());
    turn(out, true);
    return out;
  }

  // Moves `kept` of `stored` slots, as the codec and by its definition.
  void compact(int64_t stream, int64_t stored, const std::vector<int32_t>& kept) {
    const KvCodec& codec = *encoded->layout().codec;
    const int64_t tokens = encoded->layout().block_tokens, count = std::ssize(kept),
                  residual = encoded->layout().residual_blocks();
    const auto raw_from = [&](int64_t slot) { return std::max<int64_t>(0, slot / tokens - residual) * tokens; };
    const int64_t raw = raw_from(stored - 1), full = count / tokens * tokens;
    std::map<std::tuple<KvPart, int64_t, int64_t>, std::vector<float>> tiles_after;  // by head and first slot
    std::map<std::tuple<int64_t, int64_t>, std::vector<float>> rows_after;
    std::map<std::tuple<KvPart, int64_t, int64_t>, std::vector<float>> encoded_after;  // by head and slot
    for (KvPart part : {KvPart::keys, KvPart::values}) {
      for (int64_t head = 0; head < kTileKvHeads; ++head) {
        const auto row_at = [&](int64_t slot, bool decoded) {
          const auto& rows = block_rows(part, stream, head, slot / tokens * tokens, decoded);
          const auto first = rows.begin() + slot % tokens * dim;
          return std::vector<float>(first, first + dim);
        };
        for (int64_t first = 0; first < full; first += tokens) {
          std::vector<float> rows;
          const bool same = kept[static_cast<size_t>(first)] == first &&
                            kept[static_cast<size_t>(first + tokens - 1)] == first + tokens - 1;
          for (int64_t i = first; i < first + tokens; ++i) {
            const int64_t slot = kept[static_cast<size_t>(i)];
            for (const float x : row_at(slot, same || codec.by_token(part) || slot < raw)) rows.push_back(x);
          }
          if (!same && !codec.by_token(part)) rows = seen_rows(part, rows, first);
          tiles_after[{part, head, first}] = rows;
        }
        for (int64_t i = raw_from(count); i < count; ++i) {
          const int64_t slot = kept[static_cast<size_t>(i)];
          auto one = row_at(slot, slot < raw);
          turn(one, true);
          auto& all = rows_after[{part == KvPart::keys ? 0 : 1, i}];
          all.insert(all.end(), one.begin(), one.end());
          if (codec.by_token(part)) encoded_after[{part, head, i}] = row_at(slot, true);
        }
      }
    }
    tiles.compact({tables.at(stream), static_cast<StateId>(stream), stored, kept}, threads);
    std::erase_if(seen, [&](const auto& block) { return std::get<1>(block.first) == stream; });
    for (auto& [place, rows] : tiles_after) {
      const auto& [part, head, first] = place;
      seen[{part, stream, head, first, true}] = std::move(rows);
    }
    for (auto& [place, rows] : encoded_after) {
      const auto& [part, head, slot] = place;
      kept_encoded[{part, stream, head, slot}] = std::move(rows);
    }
    for (auto& [place, rows] : rows_after)
      kept_rows[{std::get<0>(place), stream, std::get<1>(place)}] = std::move(rows);
  }

  void check(const std::vector<Chunk>& chunks) {
    const std::vector<float> out = run(chunks);
    int64_t token = 0;
    for (const Chunk& chunk : chunks) {
      for (int64_t i = 0; i < chunk.count; ++i, ++token) {
        const int64_t slot = chunk.first + i, within = slot % encoded->layout().block_tokens;
        if (i > 0 && i + 1 < chunk.count && within > 1 && slot % 37 != 0) continue;
        const auto want = expected(chunk.stream, slot);
        const float* got = out.data() + token * kTileHeads * dim;
        const KvCodec& codec = *encoded->layout().codec;
        if (!codec.rotates() && !codec.before_rope() && !in_bf16() && !marking) {
          ASSERT_EQ(std::memcmp(got, want.data(), want.size() * sizeof(float)), 0)
              << "stream " << chunk.stream << ", slot " << slot;
          continue;
        }
        const double rounding = codec.rotates() ? 0.02 : 0.015;
        const double exact = kept_rows.empty() ? 4e-6 : 1e-4;  // rows that were kept are rounded on the way here
        const double in_halves = kept_rows.empty() ? rounding : rounding + 0.01;
        const double tolerance = codec.before_rope() ? 0.03 : in_bf16() ? in_halves : exact;
        for (size_t d = 0; d < want.size(); ++d)
          ASSERT_NEAR(got[d], want[d], tolerance) << "stream " << chunk.stream << ", slot " << slot;
      }
    }
  }

  // Of blocks of `dynamic` of stream 0.
  void check_summaries(std::initializer_list<int64_t> blocks) {
    const KvCodec& codec = *encoded->layout().codec;
    for (const int64_t block : blocks) {
      for (int64_t head = 0; head < kTileKvHeads; ++head) {
        std::vector<float> want(static_cast<size_t>(2 * dim));
        const auto* by = dynamic_pattern(dynamic.get());
        by->start_summary(want);
        for (int64_t first = block * 128; first < (block + 1) * 128; first += encoded->layout().block_tokens) {
          std::vector<float> rows = block_rows(KvPart::keys, 0, head, first, true);
          if (codec.rotates()) turn(rows, true);
          for (int64_t at = 0; at < std::ssize(rows); at += dim)
            by->add_key({0, head, kTileKvHeads},
                        std::span(rows).subspan(static_cast<size_t>(at), static_cast<size_t>(dim)), want);
        }
        const float* actual = key_summary(*encoded, 0, head, tables[0].data(), block, 128);
        for (int64_t i = 0; i < 2 * dim; ++i)
          ASSERT_NEAR(actual[i], want[static_cast<size_t>(i)], 4e-3) << block << " " << head << " " << i;
      }
    }
  }

  static constexpr int64_t kTokens = 300;
  // What queries are run with; and a static one that marks the same, if that one is dynamic.
  std::shared_ptr<const AttentionPattern> pattern, marking;
  const std::shared_ptr<const AttentionPattern> dynamic =
      make_attention_pattern("quest:block=128,top=0,first=0,sinks=1,window=1").value();
  int64_t dim;
  KernelTable table;
  ThreadPool threads;
  std::optional<KvPool> plain, encoded;
  CodecTiles tiles;
  std::vector<BlockId> plain_blocks;
  std::map<int64_t, std::vector<BlockId>> tables;
  std::map<std::pair<int64_t, int64_t>, int64_t> written;
  std::map<std::tuple<KvPart, int64_t, int64_t, int64_t, bool>, std::vector<float>> seen;  // by block_rows
  // Rows that compact() has moved, as they are before any rotation: decoded ones of keys or of values, all heads.
  std::map<std::tuple<int64_t, int64_t, int64_t>, std::vector<float>> kept_rows;
  // Of those, encoded by token, in blocks that were not complete: part, stream, head, slot.
  std::map<std::tuple<KvPart, int64_t, int64_t, int64_t>, std::vector<float>> kept_encoded;
  std::vector<float> scratch;
  std::vector<const uint8_t*> pointers;
  Batch batch;
};

TEST_P(CodecTilesTest, EachQuerySeesOlderBlocksDecodedAndTheNewestRaw) {
  check({{0, 0, 5}, {1, 0, 150}, {2, 0, 1}});
  check({{0, 5, 1}, {1, 150, 70}, {2, 1, 140}});
  check({{2, 141, 20}, {0, 6, 100}, {1, 220, 130}});
  check({{1, 350, 1}, {2, 161, 1}, {0, 106, 1}});
  check({{1, 351, 1}});
  check({{1, 352, 3}});
  check({{0, 107, 290}});
  check({{0, 397, 19}});
}

// Blocks of patterns have 128 tokens, so that the middle ones of 416 are left out.
TEST_P(CodecTilesTest, QueriesOfAPatternSeeItsBlocks) {
  if (GetParam().window > 0) return;  // which the layer keeps
  for (const char* text : {"sink_window:block=128,sinks=1,window=1", "sink_window:block=128,sinks=0,window=2"}) {
    pattern = make_attention_pattern(text).value();
    check({{0, 0, 130}, {1, 0, 150}});
    check({{0, 130, 1}, {1, 150, 140}});
    check({{1, 290, 120}, {0, 131, 170}});
    check({{0, 301, 1}, {1, 410, 1}, {2, 0, 3}});
    check({{0, 302, 114}});
  }
}

// Those that choose read block by block, and join what they read: no more than the ends of a stream here.
TEST_P(CodecTilesTest, QueriesThatChooseSeeTheirBlocks) {
  if (GetParam().window > 0) return;
  pattern = dynamic;
  marking = make_attention_pattern("sink_window:block=128,sinks=1,window=1").value();
  check({{0, 0, 130}, {1, 0, 150}});
  check({{0, 130, 1}, {1, 150, 140}});
  check({{1, 290, 120}, {0, 131, 170}});
  check({{0, 301, 1}, {1, 410, 1}, {2, 0, 3}});
}

// They choose by what is stored: of each dimension the smallest and the largest of the decoded keys.
TEST_P(CodecTilesTest, SummariesAreOfEncodedKeys) {
  if (GetParam().window > 0) return;
  pattern = dynamic;
  run({{0, 0, 100}});
  run({{0, 100, 200}});
  check_summaries({0, 1});
}

TEST_P(CodecTilesTest, SummariesOfKeptTokensAreOfTheirEncodedKeys) {
  if (GetParam().window > 0 || encoded->layout().codec->before_rope()) return;
  pattern = dynamic;
  run({{0, 0, 300}});
  std::vector<int32_t> kept;
  for (int32_t slot = 0; slot < 300; ++slot)
    if (slot < 20 || slot % 3 == 1 || slot > 260) kept.push_back(slot);
  compact(0, 300, kept);
  tiles.at_layer(1);  // of the pass before: another one
  summarize_again(tables[0], 0, std::ssize(kept), dynamic.get(), table, threads, *encoded, &tiles);
  ASSERT_GE(std::ssize(kept), 128);
  check_summaries({0});
}

// Tokens that are kept have their rows: those that are encoded by token lose nothing, and others are encoded anew.
TEST_P(CodecTilesTest, KeptTokensMoveTogether) {
  if (GetParam().window > 0 || encoded->layout().codec->before_rope()) return;  // the latter are refused
  check({{0, 0, 300}, {1, 0, 90}});
  std::vector<int32_t> kept;
  for (int32_t slot = 0; slot < 300; ++slot)
    if (slot < 40 || slot % 3 == 1 || slot > 270) kept.push_back(slot);
  const auto count = std::ssize(kept);
  compact(0, 300, kept);
  check({{0, count, 1}, {1, 90, 1}});
  check({{0, count + 1, 150}});
  kept.clear();
  for (int32_t slot = 0; slot < count + 151; ++slot)
    if (slot % 4 != 2) kept.push_back(slot);
  compact(0, count + 151, kept);
  check({{0, std::ssize(kept), 1}});
  check({{0, std::ssize(kept) + 1, 60}, {1, 91, 40}});
}

// Of each query over what it sees: softmax of its products with the rows of keys.
TEST_P(CodecTilesTest, MassIsThatOfTheKeysThatQueriesSee) {
  if (GetParam().window > 0) return;
  run({{0, 0, 150}});
  run({{0, 150, 40}});
  std::vector<float> q;
  for (int64_t slot = 150; slot < 190; ++slot)
    for (float x : row(2, 0, slot, kTileHeads)) q.push_back(x);
  std::vector<int64_t> mass(190);
  TokenMass observed;
  observed.spans.push_back({.mass = mass});
  observe_token_mass(batch, attention(nullptr), table, threads, *encoded, q.data(), kContext, observed, &tiles);
  std::vector<double> want(190);
  const int64_t tokens = encoded->layout().block_tokens, residual = encoded->layout().residual_blocks();
  for (int64_t slot = 150; slot < 190; ++slot) {
    auto heads = row(2, 0, slot, kTileHeads);
    turn(heads, false);
    for (int64_t h = 0; h < kTileHeads; ++h) {
      std::vector<double> weights;
      double sum = 0;
      for (int64_t s = 0; s <= slot; ++s) {
        const bool decoded = s / tokens < slot / tokens - residual;
        const auto& rows = block_rows(KvPart::keys, 0, h / (kTileHeads / kTileKvHeads), s / tokens * tokens, decoded);
        double product = 0;
        for (int64_t d = 0; d < dim; ++d)
          product += heads[static_cast<size_t>(h * dim + d)] * rows[static_cast<size_t>(s % tokens * dim + d)];
        weights.push_back(std::exp(product));
        sum += weights.back();
      }
      for (size_t s = 0; s < weights.size(); ++s) want[s] += weights[s] / sum;
    }
  }
  for (size_t s = 0; s < want.size(); ++s)
    EXPECT_NEAR(static_cast<double>(mass[s]) * kMassUnit, want[s], 0.02 * want[s] + 0.02) << s;
}

// Slots written again, as after rejected drafts: across the end of a block, and back.
TEST_P(CodecTilesTest, RowsTakenBackAreWrittenAgain) {
  check({{0, 0, 90}});
  check({{0, 90, 12}});  // completes a block
  check({{0, 92, 2}});
  check({{0, 93, 1}});
  check({{0, 94, 8}});
  check({{0, 95, 33}});
  check({{0, 96, 1}});
  for (int64_t slot = 97; slot < 140; ++slot) check({{0, slot, 1}});
}

std::vector<TilesCase> tiles_cases() {
  std::vector<TilesCase> out;
  for (Isa isa : isa_levels()) {
    out.push_back({"kivi:bits=2", 64, 0, isa, 2});
    out.push_back({"kivi:bits=4", 40, 0, isa, 1});
    out.push_back({"kivi:bits=2,residual=40", 32, 0, isa, 2});
    out.push_back({"kivi:bits=4,residual=128,group=64", 64, 100, isa, 1});
    out.push_back({"kivi:bits=4,group=128", 16, 0, isa, 1});
    out.push_back({"turboquant:bits=2", 32, 0, isa, 1});
    if (isa == Isa::ref) continue;
    out.push_back({"flexgen_kv", 128, 0, isa, 2});
    out.push_back({"flexgen_kv:bits=3,group=32", 72, 0, isa, 1});
    out.push_back({"atom_kv:residual=20", 80, 90, isa, 2});
    out.push_back({"quarot_kv:bits=3", 64, 0, isa, 2});
    out.push_back({"turboquant", 48, 100, isa, 2});
    out.push_back({"kvquant:bits=4,group=32", 64, 0, isa, 2});
    out.push_back({"kvquant:bits=3,group=32,outliers=0", 64, 0, isa, 1});
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecTilesTest, ::testing::ValuesIn(tiles_cases()), [](const auto& one) {
  std::string name = one.param.codec + "_" + testing::isa_label(one.param.isa);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

}  // namespace
}  // namespace millrace
