// Dynamic patterns. Which blocks a query chooses, against the papers' rules computed from its heads' queries and all
// keys; attention of every table and KV format over these choices, against softmax in double; and bits: a query that
// sees every block has those of no pattern, and none depend on chunks, other streams or threads.
#include "attention/chosen_blocks.h"

#include <unistd.h>

#include <filesystem>
#include <numeric>
#include <set>

#include "attention/kept_mass.h"
#include "attention/patterns/hash_rotations.h"
#include "attention/patterns/routing_centroids.h"
#include "attention/top_blocks.h"
#include "conformance/byte_rows.h"
#include "conformance/sparse_streams.h"
#include "pattern_texts.h"

namespace millrace {
namespace {

using testing::kSparseGroup, testing::kSparseHeads, testing::kSparseKvHeads, testing::pattern_from;
using testing::PatternTexts, testing::SparseStreams;
using Vectors = std::vector<std::vector<float>>;

double dot(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t d = 0; d < a.size(); ++d) sum += double{a[d]} * double{b[d]};
  return sum;
}

// A block's score for the queries of a KV head's heads.
using BlockScore = std::function<double(const Vectors& queries, const Vectors& keys)>;

// What each block's score for a query head is changed by, from the keys of all of them.
using BlockBalance = std::function<std::vector<double>(const std::vector<Vectors>& blocks)>;

struct ChosenCase {
  const char* text;
  BlockScore score;
  int64_t top, sinks, window;  // top < 0: every block with a positive score
  BlockBalance balance = nullptr;
  std::vector<int64_t> judges = {0, 1, 2};  // by KV head: the head that chooses for it
};

double quest_score(const Vectors& queries, const Vectors& keys) {  // Tang et al., 2024, algorithm 1
  double sum = 0;
  for (const auto& q : queries)
    for (size_t d = 0; d < q.size(); ++d) {
      float least = keys[0][d], most = keys[0][d];
      for (const auto& k : keys) {
        least = std::min(least, k[d]);
        most = std::max(most, k[d]);
      }
      sum += std::max(double{q[d]} * double{least}, double{q[d]} * double{most});
    }
  return sum;
}

double mean_score(const Vectors& queries, const Vectors& keys) {  // Jiang et al., 2024, section 3.2
  double sum = 0;
  for (const auto& q : queries)
    for (const auto& k : keys) sum += dot(q, k);
  return sum / static_cast<double>(keys.size());
}

// Kitaev et al., 2020, section 2: argmax of [xR; -xR].
BlockScore collisions(int64_t hashes, int64_t buckets, uint64_t seed) {
  const auto directions = std::make_shared<RandomDirections>(hashes * buckets / 2, seed);
  const auto bucket = [=](int64_t hash, const std::vector<float>& x) {
    std::vector<double> rotated;
    for (double sign : {1.0, -1.0})
      for (int64_t i = 0; i < buckets / 2; ++i)
        rotated.push_back(sign * dot(x, directions->direction(hash * buckets / 2 + i).first(x.size())));
    return std::ranges::max_element(rotated) - rotated.begin();
  };
  return [=](const Vectors& queries, const Vectors& keys) {
    double count = 0;
    for (int64_t h = 0; h < hashes; ++h)
      for (const auto& q : queries)
        for (const auto& k : keys) count += bucket(h, q) == bucket(h, k);
    return count;
  };
}

// Roy et al., 2020, section 4.1.
BlockScore same_cluster(int64_t clusters, uint64_t seed) {
  const auto centroids = std::make_shared<RandomDirections>(clusters, seed);
  const auto nearest = [=](const std::vector<float>& x) {
    std::vector<float> normed = x;
    float mean = 0;
    for (float v : x) mean += v / static_cast<float>(x.size());
    for (float& v : normed) v -= mean;
    std::vector<double> near;
    for (int64_t c = 0; c < clusters; ++c) {
      const auto mu = centroids->direction(c).first(x.size());
      near.push_back(dot(normed, mu) / std::sqrt(dot(mu, mu)));
    }
    return std::ranges::max_element(near) - near.begin();
  };
  return [=](const Vectors& queries, const Vectors& keys) {
    double count = 0;
    for (const auto& q : queries)
      for (const auto& k : keys) count += nearest(q) == nearest(k);
    return count;
  };
}

// Tay et al., 2020, section 3.1: the columns of a matrix of scores between blocks, scaled in turns with its rows. Here
// columns sum to what they have where rows are even.
BlockBalance sinkhorn(int64_t rounds, double temperature, int64_t rows) {
  return [=](const std::vector<Vectors>& blocks) {
    const int64_t n = std::ssize(blocks), first = std::max<int64_t>(1, n - rows);
    std::vector<double> column(blocks.size(), 1.0), added(blocks.size());
    if (n < 2) return added;
    for (int64_t round = 0; round < rounds; ++round) {
      std::vector<double> sums(blocks.size()), even(blocks.size());
      for (int64_t i = first; i < n; ++i) {
        std::vector<double> weights;
        for (int64_t j = 0; j < i; ++j) {
          const Vectors &a = blocks[static_cast<size_t>(i)], &b = blocks[static_cast<size_t>(j)];
          double score = 0;
          for (const auto& x : a)
            for (const auto& y : b) score += dot(x, y);
          score /= static_cast<double>(a.size() * b.size()) * std::sqrt(static_cast<double>(a[0].size())) * temperature;
          weights.push_back(std::exp(score) * column[static_cast<size_t>(j)]);
        }
        const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
        for (size_t j = 0; j < weights.size(); ++j) {
          sums[j] += weights[j] / sum / column[j];
          even[j] += 1.0 / static_cast<double>(i);
        }
      }
      for (size_t j = 0; j + 1 < blocks.size(); ++j) column[j] = even[j] / sums[j];
    }
    double mean = 0;
    for (size_t j = 0; j + 1 < blocks.size(); ++j) mean += std::log(column[j]) / static_cast<double>(n - 1);
    for (size_t j = 0; j + 1 < blocks.size(); ++j) added[j] = temperature * (std::log(column[j]) - mean);
    return added;
  };
}

const std::vector<ChosenCase>& chosen_cases() {
  static const std::vector<ChosenCase> cases = {
      {"quest:block=16,top=4,sinks=1,window=2,first=0", quest_score, 4, 1, 2},
      {"quest:block=48,top=2,sinks=0,window=1,first=0", quest_score, 2, 0, 1},
      {"impress:block=16,top=4,sinks=1,window=2,first=0", quest_score, 4, 1, 2, nullptr, {0, 0, 0}},
      {"impress:block=32,top=3,sinks=0,window=1,first=0,probes=2", quest_score, 3, 0, 1, nullptr, {0, 0, 2}},
      {"impress:block=16,top=5,sinks=0,window=1,first=0,probes=9", quest_score, 5, 0, 1},
      {"minference:block=32,top=3,sinks=1,window=1", mean_score, 3, 1, 1},
      {"reformer:block=16,top=5,sinks=1,window=2,hashes=3,buckets=8,seed=5", collisions(3, 8, 5), 5, 1, 2},
      {"routing_transformer:block=32,top=4,sinks=0,window=2,clusters=6,seed=2", same_cluster(6, 2), 4, 0, 2},
      {"sparse_flash_attention:block=16,buckets=64,window=3,seed=4", collisions(1, 64, 4), -1, 0, 3},
      {"sinkhorn:block=16,top=4,sinks=1,window=2,rounds=3,temperature=0.05,rows=9", mean_score, 4, 1, 2,
       sinkhorn(3, 0.05, 9)},
      {"sinkhorn:block=48,top=2,sinks=0,rounds=4,temperature=0.02,rows=64", mean_score, 2, 0, 1, sinkhorn(4, 0.02, 64)},
  };
  return cases;
}

std::shared_ptr<const DynamicPattern> dynamic_from(const std::string& text) {
  return std::dynamic_pointer_cast<const DynamicPattern>(pattern_from(text));
}

struct Chooser {
  SparseStreams& s;
  const DynamicPattern& pattern;
  std::vector<float> features = std::vector<float>(static_cast<size_t>(pattern.summary_floats(s.head_dim)));
  std::vector<float> scores = std::vector<float>(100);
  std::vector<float> work = std::vector<float>(static_cast<size_t>(choose_work_floats(pattern, 100)));

  // Of a span's query at `slot`; `q` is that of the KV head's first head.
  BlockMarks marks(const BatchSpan& span, int64_t slot, int64_t kv_head, const float* q) {
    BlockMarks out(slot / pattern.block());
    choose_blocks(s.pool, s.attention(&pattern), pattern, s.batch.block_tables.data() + span.table, kv_head, out.end(),
                  q, features.data(), scores.data(), work.data(), out);
    return out;
  }
};

// A set of blocks is right if it has those that all see and as many others as there should be, and none that is left
// out scores more than one of them.
void expect_choice(const ChosenCase& one, const BlockMarks& marks, const std::vector<double>& scores) {
  int64_t free = 0, chosen = 0;
  double worst = 1e30, best_left = -1e30;
  for (int64_t j = 0; j < marks.end(); ++j) {
    if (j < one.sinks || marks.end() - j < one.window) {
      ASSERT_TRUE(marks.has(j)) << j;
      continue;
    }
    ++free;
    chosen += marks.has(j);
    const double score = scores[static_cast<size_t>(j)];
    double& side = marks.has(j) ? worst : best_left;
    side = marks.has(j) ? std::min(worst, score) : std::max(best_left, score);
  }
  if (one.top < 0) {
    EXPECT_LE(best_left, 0);
    EXPECT_GT(worst, 0);
    return;
  }
  EXPECT_EQ(chosen, std::min(one.top, free));
  EXPECT_LE(best_left, worst + 1e-4);
}

TEST(ChosenBlocks, AreThoseThatThePapersDefine) {
  std::set<std::string> covered;
  for (const ChosenCase& one : chosen_cases())
    for (const char* format : {"f16", "q8_0"}) {
      SCOPED_TRACE(std::string(format) + " " + one.text);
      const auto pattern = dynamic_from(one.text);
      ASSERT_TRUE(pattern);
      covered.insert(std::string(one.text).substr(0, std::string(one.text).find(':')));
      SparseStreams s(testing::attention_tables().back(), *find_format(format), 64, 16, 0, pattern.get());
      s.add(500, 499, 1);
      const BatchSpan& span = s.batch.spans[0];
      const auto q = s.queries();
      Chooser chooser{s, *pattern};
      int64_t changes = 0;
      for (int64_t i : {0, 60, 197, 310, 405, 478, 498})
        for (int64_t kv_head = 0; kv_head < kSparseKvHeads; ++kv_head) {
          const int64_t slot = span.first_slot + i, judge = one.judges[static_cast<size_t>(kv_head)];
          Vectors queries;
          for (int64_t g = 0; g < kSparseGroup; ++g) {
            const auto first = q.begin() + (i * kSparseHeads + judge * kSparseGroup + g) * s.head_dim;
            queries.emplace_back(first, first + s.head_dim);
          }
          const BlockMarks marks =
              chooser.marks(span, slot, kv_head, q.data() + (i * kSparseHeads + kv_head * kSparseGroup) * s.head_dim);
          std::vector<double> scores;
          std::vector<Vectors> blocks;
          for (int64_t j = 0; j < marks.end(); ++j) {
            Vectors keys(static_cast<size_t>(pattern->block()), std::vector<float>(static_cast<size_t>(s.head_dim)));
            for (int64_t k = 0; k < pattern->block(); ++k)
              s.codec.decode(s.at(span, j * pattern->block() + k, judge, 0), keys[static_cast<size_t>(k)].data(),
                             s.head_dim);
            scores.push_back(one.score(queries, keys));
            blocks.push_back(std::move(keys));
          }
          if (one.balance) {
            const auto best = [&] { return std::ranges::max_element(scores) - scores.begin(); };
            const auto added = one.balance(blocks);
            const auto unbalanced = best();
            for (size_t j = 0; j < scores.size(); ++j) scores[j] += static_cast<double>(queries.size()) * added[j];
            changes += best() != unbalanced;
          }
          SCOPED_TRACE(slot);
          ASSERT_NO_FATAL_FAILURE(expect_choice(one, marks, scores));
        }
      EXPECT_EQ(changes > 0, one.balance != nullptr);
    }
  for (const auto& entry : attention_patterns().entries()) {
    const auto pattern = entry.member ? pattern_from(entry.info.name) : nullptr;
    const DynamicPattern* dynamic = dynamic_pattern(pattern.get());
    const bool scored = dynamic && dynamic->sums().kept == 0;  // block_sums_test.cc has patterns with sums
    EXPECT_TRUE(!scored || covered.contains(entry.info.name)) << entry.info.name;
  }
}

// Roy et al., 2020, section 4.1, with centroids of each head from a file.
TEST(ChosenBlocks, FittedRoutingUsesTheCentroidsOfItsHead) {
  constexpr int64_t kClusters = 5, kDims = 24;
  RoutingCentroids centroids{kClusters, kDims, {}};
  for (uint64_t layer : {0, 1}) centroids.layers.push_back(testing::random_values(2 * kClusters * kDims, layer));
  for (auto& layer : centroids.layers)
    for (size_t i = 0; i < layer.size(); i += kDims) {  // to length 1, as they are fitted
      const std::span row(&layer[i], kDims);
      const auto length = static_cast<float>(std::sqrt(dot(row, row)));
      for (float& x : row) x /= length;
    }
  const std::string path = std::filesystem::temp_directory_path() / ("millrace_routing_" + std::to_string(::getpid()));
  ASSERT_TRUE(write_routing_centroids(path, centroids, "test").ok());
  const auto pattern = dynamic_from("routing_transformer:centroids=" + path);
  std::filesystem::remove(path);
  ASSERT_TRUE(pattern);
  ASSERT_EQ(pattern->summary_floats(kDims), kClusters);
  std::set<int64_t> chosen;
  for (uint64_t i = 0; i < 40; ++i) {
    const PatternPlace at{static_cast<int64_t>(i % 2), static_cast<int64_t>(i / 2 % 2), 2};
    auto x = testing::random_values(kDims, 100 + i);
    std::vector<float> summary(kClusters), features(kClusters), expected(kClusters);
    pattern->add_key(at, x, summary);
    pattern->add_query(at, x, features);
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / kDims;
    for (float& value : x) value -= static_cast<float>(mean);
    std::vector<double> near;
    for (int64_t c = 0; c < kClusters; ++c)
      near.push_back(dot(x, {centroids.of(at.layer, at.head) + c * kDims, size_t{kDims}}));
    const auto best = std::ranges::max_element(near) - near.begin();
    expected[static_cast<size_t>(best)] = 1;
    EXPECT_EQ(summary, expected) << i;
    EXPECT_EQ(features, expected) << i;
    chosen.insert(best);
  }
  EXPECT_EQ(std::ssize(chosen), kClusters);
}

TEST(ChosenBlocks, OfEqualScoresTheNewerIsTaken) {
  const std::vector<float> scores = {3, 1, 2, 2, 2, 0, 3};
  std::vector<float> work(scores.size());
  BlockMarks marks(7);
  marks.add(5);
  mark_top(scores, 3, work, marks);
  for (int64_t j = 0; j < 7; ++j) EXPECT_EQ(marks.has(j), j == 0 || j >= 4) << j;
}

TEST(ChosenBlocks, NoKeyExceedsQuestsBound) {
  const auto pattern = dynamic_from("quest:block=32,first=0");
  std::vector<float> summary(128), features(128);
  pattern->start_summary(summary);
  Vectors keys;
  for (uint64_t i = 0; i < 32; ++i) pattern->add_key({}, keys.emplace_back(testing::random_values(64, i)), summary);
  for (uint64_t i = 0; i < 50; ++i) {
    const auto q = testing::random_values(64, 1000 + i);
    std::ranges::fill(features, 0.0f);
    pattern->add_query({}, q, features);
    for (const auto& k : keys) EXPECT_LE(dot(q, k), dot(features, summary) + 1e-5);
  }
}

// The summary of a block is the same bits whichever chunks its keys came in, and is written anew with them.
TEST(ChosenBlocks, SummariesDoNotDependOnChunks) {
  for (const ChosenCase& one : chosen_cases()) {
    SCOPED_TRACE(one.text);
    const auto pattern = dynamic_from(one.text);
    SparseStreams s(testing::attention_tables().back(), *find_format("f16"), 64, 16, 0, pattern.get());
    s.add(300, 1, 1);
    const BatchSpan& span = s.batch.spans[0];
    const auto bytes = [&] {
      std::vector<float> out;
      for (int64_t block = 0; (block + 1) * pattern->block() <= 300; ++block)
        for (int64_t h = 0; h < kSparseKvHeads; ++h) {
          const float* first =
              key_summary(s.pool, 0, h, s.batch.block_tables.data() + span.table, block, pattern->block());
          out.insert(out.end(), first, first + pattern->summary_floats(64));
        }
      return out;
    };
    const auto expected = bytes();
    for (int64_t chunk : {1, 7, 100}) {
      for (int64_t b = 0; b < span.table_size; ++b)
        for (int64_t h = 0; h < kSparseKvHeads; ++h)
          std::memset(s.pool.keys(1, s.batch.block_tables[static_cast<size_t>(span.table + b)], h), 255, 8);
      for (int64_t begin = 0; begin < 300; begin += chunk)
        s.summarize(span, begin, std::min<int64_t>(300, begin + chunk));
      EXPECT_TRUE(testing::same_bits(bytes(), expected)) << chunk;
    }
  }
}

TEST(ChosenBlocks, AttentionIsSoftmaxOverTheChoice) {
  for (const KernelTable& table : testing::attention_tables())
    for (const char* format : {"f32", "f16", "bf16", "q8_0"})
      for (const ChosenCase& one : {chosen_cases()[0], chosen_cases()[2], chosen_cases()[5]}) {
        SCOPED_TRACE(isa_name(table.isa) + " " + format + " " + one.text);
        const auto pattern = dynamic_from(one.text);
        SparseStreams s(table, *find_format(format), 64, 16, format[0] == 'b' ? 2.0f : 0.0f, pattern.get());
        s.add(520, 60, 1);
        s.add(300, 1, 2);
        const auto actual = s.run(pattern.get()), q = s.queries();
        const bool rounded = s.head_dim <= table.find_attention(find_format(format))->bf16_head_dim;
        const bool operands = rounded && !testing::multiplies_bytes(table, *find_format(format));
        Chooser chooser{s, *pattern};
        for (const BatchSpan& span : s.batch.spans)
          for (int64_t i = 0; i < span.count; i += 29)
            for (int64_t h = 0; h < kSparseHeads; ++h) {
              const int64_t slot = span.first_slot + i, own = slot / pattern->block(), kv_head = h / kSparseGroup;
              const int64_t token = (span.begin + i) * kSparseHeads;
              const BlockMarks marks =
                  chooser.marks(span, slot, kv_head, q.data() + (token + kv_head * kSparseGroup) * s.head_dim);
              ASSERT_LT(marks.count(), marks.end());
              const int64_t row = (token + h) * s.head_dim;
              const auto expected = s.reference(
                  span, slot, q.data() + row, kv_head,
                  [&](int64_t key) { return key / pattern->block() == own || marks.has(key / pattern->block()); },
                  operands);
              for (int64_t d = 0; d < s.head_dim; ++d)
                ASSERT_NEAR(actual[static_cast<size_t>(row + d)], expected[static_cast<size_t>(d)],
                            rounded ? 6e-3 : 1e-5)
                    << "slot " << slot << " head " << h << " dim " << d;
            }
      }
}

TEST(ChosenBlocks, KeptMassIsThatOfTheSeenKeys) {
  for (const char* text : {"full:block=32", "sink_window:block=32,sinks=1,window=2", "quest:block=32,top=2,first=0"}) {
    SCOPED_TRACE(text);
    const auto pattern = pattern_from(text);
    SparseStreams s(testing::attention_tables().back(), *find_format("f32"), 64, 16, 0, pattern.get());
    s.add(400, 90, 1);
    const BatchSpan& span = s.batch.spans[0];
    const auto q = s.queries();
    double mass = 0, keys = 0;
    int64_t queries = 0;
    for (int64_t i = 0; i < span.count; ++i) {
      const int64_t slot = span.first_slot + i, own = slot / 32;
      if (slot % 17 != 16) continue;
      for (int64_t h = 0; h < kSparseHeads; ++h, ++queries) {
        const int64_t kv_head = h / kSparseGroup, token = i * kSparseHeads;
        std::vector<float> features(128), scores(100), key(64);
        std::vector<float> work(static_cast<size_t>(choose_work_floats(*pattern, 100)));
        BlockMarks marks(own);
        choose_blocks(s.pool, s.attention(pattern.get()), *pattern, s.batch.block_tables.data() + span.table, kv_head,
                      own, q.data() + (token + kv_head * kSparseGroup) * 64, features.data(), scores.data(),
                      work.data(), marks);
        double kept = 0, all = 0, seen = 0;
        for (int64_t j = 0; j <= slot; ++j) {
          s.codec.decode(s.at(span, j, kv_head, 0), key.data(), 64);
          const double weight = std::exp(dot({q.data() + (token + h) * 64, 64}, key));
          const bool sees = j / 32 == own || marks.has(j / 32);
          all += weight;
          if (sees) kept += weight;
          seen += sees;
        }
        mass += kept / all;
        keys += seen / static_cast<double>(slot + 1);
      }
    }
    KeptMass kept;
    observe_kept_mass(s.batch, s.attention(pattern.get()), s.table, s.pool, q.data(), testing::kSparseContext,
                      {{&kept, 1}});
    ASSERT_GT(queries, 0);
    EXPECT_EQ(kept.queries, queries);
    EXPECT_NEAR(kept.mass, mass, 1e-4);
    EXPECT_NEAR(kept.keys, keys, 1e-9);
    EXPECT_EQ(kept.mean_keys() < 1, std::string(text) != "full:block=32");
  }
}

std::vector<std::string> all_block_texts() {
  std::vector<std::string> out = {"quest:block=32,top=0,first=1", "minference:block=96,top=4"};
  for (const PatternTexts& texts : testing::pattern_texts())
    if (dynamic_from(texts.all)) out.push_back(texts.all);
  return out;
}

TEST(ChosenBlocks, AllBlocksHaveTheBitsOfNoPattern) {
  for (const KernelTable& table : testing::attention_tables())
    for (const std::string& text : all_block_texts()) {
      SCOPED_TRACE(isa_name(table.isa) + " " + text);
      const auto pattern = pattern_from(text);
      SparseStreams s(table, *find_format("f16"), 64, 16, 0, pattern.get());
      s.add(420, 40, 1);
      s.add(300, 1, 2);
      EXPECT_TRUE(testing::same_bits(s.run(pattern.get()), s.run(nullptr)));
    }
}

// label(arm-slow): takes up to half a minute on a simulated processor, and native runs test it
TEST(ChosenBlocks, BitsDoNotDependOnChunksStreamsAndThreads) {
  for (const KernelTable& table : testing::attention_tables())
    for (const ChosenCase& one : chosen_cases()) {
      SCOPED_TRACE(isa_name(table.isa) + " " + one.text);
      const auto pattern = pattern_from(one.text);
      SparseStreams whole(table, *find_format("f16"), 64, 16, 0, pattern.get());
      whole.add(420, 420, 1);
      const auto expected = whole.run(pattern.get());
      EXPECT_FALSE(testing::same_bits(whole.run(nullptr), expected));
      const int64_t width = kSparseHeads * whole.head_dim;
      for (const auto& [slots, count] : {std::pair<int64_t, int64_t>{420, 1}, {419, 7}, {410, 130}, {63, 5}}) {
        SparseStreams part(table, *find_format("f16"), 64, 16, 0, pattern.get());
        part.add(100, 70, 9);
        part.add(slots, count, 1);
        const auto actual = part.run(pattern.get(), count % 3 + 1);
        const std::vector<float> tail(actual.begin() + 70 * width, actual.end());
        const auto first = expected.begin() + (slots - count) * width;
        EXPECT_TRUE(testing::same_bits(tail, std::vector<float>(first, first + count * width)))
            << slots << " " << count;
      }
    }
}

}  // namespace
}  // namespace millrace
