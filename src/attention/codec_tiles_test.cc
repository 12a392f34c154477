// Attention over a KV cache with a codec equals attention over the rows that each query should see, bit for bit:
// decoded ones of its older blocks, raw ones of the newest.
#include "attention/codec_tiles.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <tuple>

#include "attention/full.h"
#include "base/cpu.h"
#include "base/philox.h"
#include "isa_label.h"
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
    KvLayout layout{find_format("f16"), 16, {{kTileKvHeads, dim}}};
    plain.emplace(KvPool::create(layout, kContext / 16).value());
    for (int64_t i = 0; i < kContext / 16; ++i) plain_blocks.push_back(*plain->allocate());
    layout.encode_with(find_kv_codec(GetParam().codec).value());
    encoded.emplace(KvPool::create(layout, 40, {.states = 3}).value());
    tiles = CodecTiles::create(*encoded, 0, table, kTokens, threads.threads()).value();
    scratch.resize(static_cast<size_t>(
        attention_scratch_floats(threads.threads(), kContext, kTileHeads / kTileKvHeads, dim, kTileKvHeads)));
    pointers.resize(static_cast<size_t>(attention_scratch_pointers(threads.threads(), kContext, 16)));
  }

  // All heads of a stream's token: keys are 0, values 1, queries 2. Another token each time that the slot is written.
  std::vector<float> row(int64_t what, int64_t stream, int64_t slot, int64_t heads) const {
    const auto found = written.find({stream, slot});
    const auto version = static_cast<uint64_t>(what + 3 * (found == written.end() ? 0 : found->second));
    std::vector<float> out;
    for (int64_t i = 0; i < heads * dim; ++i) {
      const auto at = static_cast<uint64_t>(slot * heads * dim + i);
      const double x = philox_uniform(version, static_cast<uint64_t>(stream), at) * 3 - (what == 2 ? 1.5 : 1);
      out.push_back(static_cast<float>(x));
    }
    return out;
  }

  struct Chunk {
    int64_t stream, first, count;
  };

  // Runs the chunks as one batch; rows of attention, [tokens][kTileHeads * dim].
  std::vector<float> run(const std::vector<Chunk>& chunks) {
    batch.clear();
    std::vector<float> q, k, v;
    for (const Chunk& chunk : chunks) {
      auto& blocks = tables[chunk.stream];
      while (std::ssize(blocks) * encoded->layout().block_tokens < chunk.first + chunk.count)
        blocks.push_back(*encoded->allocate());
      batch.spans.push_back({batch.size(), chunk.count, chunk.first, std::ssize(batch.block_tables), std::ssize(blocks),
                             static_cast<int32_t>(chunk.stream), static_cast<int32_t>(batch.spans.size())});
      batch.block_tables.insert(batch.block_tables.end(), blocks.begin(), blocks.end());
      batch.tokens.resize(static_cast<size_t>(batch.size() + chunk.count));
      for (int64_t slot = chunk.first; slot < chunk.first + chunk.count; ++slot) {
        ++written[{chunk.stream, slot}];
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
    const AttentionLayer layer{0, kTileHeads, kTileKvHeads, dim, GetParam().window, 0};
    attend(batch, layer, table, threads, *encoded, q.data(), out.data(), kContext, scratch.data(), pointers.data(),
           &tiles);
    return out;
  }

  // What the query of a token should give: its keys and values by the rule, in rows of f16.
  std::vector<float> expected(int64_t stream, int64_t query) {
    const KvLayout& layout = encoded->layout();
    const int64_t tokens = layout.block_tokens, raw = (query / tokens - layout.residual_blocks()) * tokens;
    for (int64_t head = 0; head < kTileKvHeads; ++head) {
      for (KvPart part : {KvPart::keys, KvPart::values}) {
        for (int64_t first = 0; first <= query; first += tokens) {
          std::vector<float> rows;
          for (int64_t slot = first; slot < first + tokens; ++slot) {
            const auto all = row(part == KvPart::keys ? 0 : 1, stream, slot, kTileKvHeads);
            for (int64_t d = 0; d < dim; ++d)
              rows.push_back(f16_to_f32(f32_to_f16(all[static_cast<size_t>(head * dim + d)])));
          }
          std::vector<uint16_t> halves;
          for (float x : rows) halves.push_back(f32_to_f16(x));
          if (first < raw) {
            std::vector<uint8_t> tile(static_cast<size_t>(layout.codec->tile_bytes(tokens, dim)));
            layout.codec->store(part, rows.data(), tokens, dim, tile.data());
            layout.codec->load(part, make_kernel_table(Isa::ref), tile.data(), tokens, dim,
                               reinterpret_cast<uint8_t*>(halves.data()));
          }
          for (int64_t slot = first; slot < std::min(first + tokens, kContext); ++slot) {
            const BlockId block = plain_blocks[static_cast<size_t>(slot / 16)];
            uint8_t* to = (part == KvPart::keys ? plain->keys(0, block, head) : plain->values(0, block, head));
            std::memcpy(to + slot % 16 * 2 * dim, halves.data() + (slot - first) * dim, static_cast<size_t>(2 * dim));
          }
        }
      }
    }
    Batch one;
    one.tokens.resize(1);
    one.spans.push_back({0, 1, query, 0, std::ssize(plain_blocks)});
    one.block_tables.assign(plain_blocks.begin(), plain_blocks.end());
    const auto q = row(2, stream, query, kTileHeads);
    std::vector<float> out(q.size());
    const AttentionLayer layer{0, kTileHeads, kTileKvHeads, dim, GetParam().window, 0};
    attend(one, layer, table, threads, *plain, q.data(), out.data(), kContext, scratch.data(), pointers.data());
    return out;
  }

  void check(const std::vector<Chunk>& chunks) {
    const std::vector<float> out = run(chunks);
    int64_t token = 0;
    for (const Chunk& chunk : chunks) {
      for (int64_t i = 0; i < chunk.count; ++i, ++token) {
        const int64_t slot = chunk.first + i, within = slot % encoded->layout().block_tokens;
        if (i > 0 && i + 1 < chunk.count && within > 1 && slot % 37 != 0) continue;
        const auto want = expected(chunk.stream, slot);
        ASSERT_EQ(std::memcmp(out.data() + token * kTileHeads * dim, want.data(), want.size() * sizeof(float)), 0)
            << "stream " << chunk.stream << ", slot " << slot;
      }
    }
  }

  static constexpr int64_t kTokens = 300;
  int64_t dim;
  KernelTable table;
  ThreadPool threads;
  std::optional<KvPool> plain, encoded;
  CodecTiles tiles;
  std::vector<BlockId> plain_blocks;
  std::map<int64_t, std::vector<BlockId>> tables;
  std::map<std::pair<int64_t, int64_t>, int64_t> written;
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
