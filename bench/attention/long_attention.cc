// Attention of one layer of the 1.1B shape on its own: what patterns of blocks and shared prefixes gain over attention
// to everything, beside what is left to compute. Random keys, values (f16) and queries; ways take turns in every round,
// medians; wall time.
//
//   long_attention patterns [TOKENS [THREADS [PATTERN...]]]   a prompt in chunks of 512
//   long_attention shared [PREFIX [THREADS [STREAMS [COMMON]]]]        streams that decode behind one prefix; with
//       COMMON, only so many tokens are common to all, and the rest of the prefix to every four streams
//
// `of proportion`: time that falls as much as the pairs of a query and a key would be 100 %. Patterns that choose
// blocks also take the time of their summaries and lines; keys seen are those that they would choose.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "attention/block_lines.h"
#include "attention/full.h"
#include "attention/pattern_layers.h"
#include "attention/shared_prefixes.h"
#include "base/cpu.h"

namespace millrace {
namespace {

constexpr int64_t kHeads = 32, kKvHeads = 8, kDim = 64, kBlockTokens = 16, kChunk = 512;
constexpr int kRounds = 3, kSharedRounds = 21;
constexpr const char* kPatterns[] = {
    "sparse_transformer",
    "sparse_transformer:form=fixed",
    "longformer",
    "bigbird",
    "structured_sparse",
    "semsa:windows=4.16.8+25.32",
    "sink_window",
    "sink_window:window=64",
    "bigbird:window=32,random=32",
    "longformer:window=32,global=2,dilation=2",
};

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// With the layers that the pattern has beside its keys.
KvLayout layout_of(const AttentionPattern* pattern, int64_t context) {
  const KvLayer layer{.kv_heads = kKvHeads, .head_dim = kDim, .heads_each = kHeads / kKvHeads};
  KvLayout layout{find_format("f16"), kBlockTokens, {layer}};
  if (const auto added = add_pattern_layers(layout, pattern, context); !added.ok()) std::abort();
  return layout;
}

struct Bench {
  Bench(Isa isa, int threads, int64_t most_context, int64_t most_queries, int64_t slots,
        const AttentionPattern* pattern = nullptr)
      : table(make_kernel_table(isa)),
        pool(threads),
        context(most_context),
        kv(KvPool::create(layout_of(pattern, most_context), slots / kBlockTokens).value()),
        q(static_cast<size_t>(most_queries * kHeads * kDim)),
        out(q.size()) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (float& x : q) x = 0.3f * normal(random);
    std::vector<float> values(1 << 20);
    for (float& x : values) x = normal(random);
    for (int64_t h = 0; h < kKvHeads; ++h) {
      for (int64_t b = 0; b < slots / kBlockTokens; ++b) {
        for (int64_t row = 0; row < kBlockTokens; ++row) {
          for (uint8_t* plane : {kv.keys(0, static_cast<BlockId>(b), h), kv.values(0, static_cast<BlockId>(b), h)})
            kv.layout().format->encode(values.data() + random() % (values.size() - kDim), plane + row * kv.row_bytes(0),
                                       kDim);
        }
      }
    }
  }

  // A stream of `slots` tokens, the last `count` of them in the batch, in the blocks from `first` on; the first
  // `shared` slots are in blocks from 0 on.
  void add(Batch& batch, int64_t slots, int64_t count, int64_t shared, int64_t first) const {
    const int64_t blocks = (slots + kBlockTokens - 1) / kBlockTokens;
    batch.spans.push_back({batch.size(), count, slots - count, std::ssize(batch.block_tables), blocks});
    for (int64_t b = 0; b < blocks; ++b)
      batch.block_tables.push_back(static_cast<BlockId>(b * kBlockTokens < shared ? b : first + b));
    batch.tokens.resize(static_cast<size_t>(batch.size() + count));
  }

  void run(const Batch& batch, const AttentionSwitches& switches, const SharedPrefixes* prefixes) {
    const AttentionLayer layer{.heads = kHeads, .kv_heads = kKvHeads, .head_dim = kDim, .switches = switches};
    const int64_t group = kHeads / kKvHeads;
    scratch.resize(
        static_cast<size_t>(attention_scratch_floats(pool.threads(), context, group, kDim, kKvHeads, kDim, switches)));
    pointers.resize(static_cast<size_t>(attention_scratch_pointers(pool.threads(), context, kBlockTokens)));
    summarize_keys(batch, layer, table, pool, kv, context);
    find_lines(batch, layer, table, pool, kv, q.data(), context, scratch.data(), pointers.data());
    attend(batch, layer, table, pool, kv, q.data(), out.data(), context, scratch.data(), pointers.data(), nullptr,
           prefixes);
  }

  KernelTable table;
  ThreadPool pool;
  int64_t context;
  KvPool kv;
  std::vector<float> q, out, scratch;
  std::vector<const uint8_t*> pointers;
};

// Of the pairs of a query and a key, those that the pattern keeps.
double kept_pairs(const AttentionPattern* pattern, int64_t tokens) {
  if (!pattern) return 1;
  double kept = pattern_density(*pattern, 1, kKvHeads, tokens);
  const DynamicPattern* dynamic = dynamic_pattern(pattern);
  const int64_t block = pattern->block();
  for (int64_t head = 0; dynamic && head < kKvHeads; ++head)
    for (int64_t own = 0; own * block < tokens; ++own) {
      BlockMarks marks(own);
      const PatternPlace at{0, head, kKvHeads};
      pattern->mark(at, own, marks);
      const double more = dynamic->chosen(at, own - marks.count()) * static_cast<double>(block * block);
      kept += 2 * more / static_cast<double>(tokens) / static_cast<double>(tokens + 1) / kKvHeads;
    }
  return kept;
}

int patterns(Isa isa, int64_t tokens, int threads, std::vector<std::string> names) {
  struct Way {
    std::string name;
    std::shared_ptr<const AttentionPattern> pattern;
    std::unique_ptr<Bench> bench;
    std::vector<double> seconds;
  };
  std::vector<Way> ways;
  const auto add_way = [&](const std::string& name, std::shared_ptr<const AttentionPattern> pattern) {
    const AttentionPattern* own = pattern.get();
    ways.push_back({name, std::move(pattern), std::make_unique<Bench>(isa, threads, tokens, kChunk, tokens, own), {}});
  };
  add_way("everything", nullptr);
  if (names.empty()) names.assign(std::begin(kPatterns), std::end(kPatterns));
  for (const std::string& name : names) {
    auto made = make_attention_pattern(name);
    if (!made.ok()) {
      fmt::print(stderr, "{}\n", made.error().message);
      return 1;
    }
    add_way(name, *made);
  }
  for (int round = 0; round < kRounds; ++round) {
    for (Way& way : ways) {
      const double begin = seconds_now();
      for (int64_t slot = 0; slot < tokens; slot += kChunk) {
        Batch batch;
        way.bench->add(batch, std::min(tokens, slot + kChunk), std::min(kChunk, tokens - slot), 0, 0);
        way.bench->run(batch, {.pattern = way.pattern.get()}, nullptr);
      }
      way.seconds.push_back(seconds_now() - begin);
    }
  }
  fmt::print("{}, {} tokens, {} threads\n\n", isa_name(isa), tokens, ways[0].bench->pool.threads());
  fmt::print("| pattern | keys seen | ms | GFLOP/s | speed | of proportion |\n|---|---:|---:|---:|---:|---:|\n");
  const double all = median(ways[0].seconds);
  for (const Way& way : ways) {
    const double density = kept_pairs(way.pattern.get(), tokens);
    const double pairs = 0.5 * static_cast<double>(tokens) * static_cast<double>(tokens + 1) * density;
    const double seconds = median(way.seconds);
    fmt::print("| `{}` | {:.1f} % | {:.1f} | {:.0f} | {:.2f} | {:.0f} % |\n", way.name, 100 * density, 1e3 * seconds,
               pairs * kHeads * kDim * 4 / seconds * 1e-9, all / seconds, 100 * all * density / seconds);
  }
  return 0;
}

int shared(Isa isa, int64_t prefix, int threads, int64_t streams, int64_t common) {
  constexpr int64_t kOwn = 64;  // tokens of each stream behind the prefix
  const int64_t groups = common < prefix ? (streams + 3) / 4 : 1;
  Bench bench(isa, threads, prefix + kOwn, streams, streams * (prefix + kOwn) + groups * prefix);
  Batch together, apart;
  const int64_t blocks = (prefix + kOwn) / kBlockTokens;
  for (int64_t s = 0; s < streams; ++s) {
    bench.add(together, prefix + kOwn - 7, 1, prefix, prefix / kBlockTokens + s * blocks);
    bench.add(apart, prefix + kOwn - 7, 1, 0, prefix / kBlockTokens + s * blocks);
    const int64_t group_blocks = (streams * (prefix + kOwn) + s / 4 * prefix) / kBlockTokens;
    for (int64_t b = common / kBlockTokens; b < prefix / kBlockTokens && s / 4 > 0; ++b)
      together.block_tables[static_cast<size_t>(together.spans.back().table + b)] =
          static_cast<BlockId>(group_blocks + b);
  }
  SharedPrefixes prefixes;
  prefixes.reserve(streams);
  prefixes.find(together.spans, together.block_tables, kBlockTokens);
  struct Way {
    const char* name;
    const Batch* batch;
    const SharedPrefixes* prefixes;
    double keys;  // whose bytes are read
    std::vector<double> seconds;
  };
  const double each = static_cast<double>(prefix + kOwn);
  const double once = static_cast<double>(common + groups * (prefix - common) + streams * kOwn);
  Way ways[] = {{"own copies, each its own", &apart, nullptr, static_cast<double>(streams) * each, {}},
                {"one prefix, each its own", &together, nullptr, static_cast<double>(streams) * each, {}},
                {"one prefix, read once", &together, &prefixes, once, {}}};
  for (int round = 0; round < kSharedRounds; ++round) {
    for (Way& way : ways) {
      const double begin = seconds_now();
      bench.run(*way.batch, {.shared_prefixes = true}, way.prefixes);
      way.seconds.push_back(seconds_now() - begin);
    }
  }
  fmt::print("{}, {} streams behind {} tokens, {} of them common to all, {} threads\n\n", isa_name(bench.table.isa),
             streams, prefix, common, bench.pool.threads());
  fmt::print("| keys and values | us | GB/s read | GFLOP/s | speed |\n|---|---:|---:|---:|---:|\n");
  for (const Way& way : ways) {
    const double seconds = median(way.seconds);
    fmt::print("| {} | {:.0f} | {:.1f} | {:.0f} | {:.2f} |\n", way.name, 1e6 * seconds,
               way.keys * kKvHeads * kDim * 4 / seconds * 1e-9,
               static_cast<double>(streams) * each * kHeads * kDim * 4 / seconds * 1e-9,
               median(ways[1].seconds) / seconds);
  }
  return 0;
}

// Within [least, most]; nothing otherwise.
std::optional<int64_t> number(const char* text, int64_t least, int64_t most) {
  char* end = nullptr;
  const long long value = std::strtoll(text, &end, 10);
  if (end == text || *end != '\0' || value < least || value > most) return std::nullopt;
  return value;
}

int run(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "";
  const auto first = argc > 2 ? number(argv[2], 1024, 1 << 17) : mode == "shared" ? 4096 : 16384;
  const auto threads = argc > 3 ? number(argv[3], 1, 256) : 1;
  const auto isa = select_isa();
  if (!isa.ok()) {
    fmt::print(stderr, "{}\n", isa.error().message);
    return 1;
  }
  if (first && threads && *first % kBlockTokens == 0) {
    const int workers = static_cast<int>(*threads);
    if (mode == "patterns")
      return patterns(*isa, *first, workers, std::vector<std::string>(argv + std::min(argc, 4), argv + argc));
    const auto streams = argc > 4 ? number(argv[4], 2, 64) : 16;
    const auto common = argc > 5 ? number(argv[5], 0, *first) : *first;
    if (mode == "shared" && streams && common && *common % kBlockTokens == 0 && argc < 7)
      return shared(*isa, *first, workers, *streams, *common);
  }
  fmt::print(
      stderr,
      "usage: long_attention patterns [TOKENS [THREADS [PATTERN...]]]\n"
      "       long_attention shared [PREFIX [THREADS [STREAMS [COMMON]]]]\n"
      "tokens: 1024 to 131072, a multiple of 16; threads: 1 to 256; streams: 2 to 64; common: up to the prefix\n");
  return 2;
}

}  // namespace
}  // namespace millrace

int main(int argc, char** argv) { return millrace::run(argc, argv); }
