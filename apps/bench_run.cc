#include "bench_run.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <span>

#include "attention/pattern_layers.h"
#include "base/philox.h"
#include "base/thread_pool.h"
#include "kernels/bandwidth.h"
#include "kv/kv_formats.h"
#include "kv/token_eviction.h"
#include "kv/window_groups.h"
#include "models/drop_tokens.h"
#include "models/eviction_observer.h"
#include "models/model_runner.h"
#include "run/compatibility/collect.h"
#include "run/plan/stored_pattern.h"
#include "run/plan/window_blocks.h"

namespace millrace {
namespace {

// A batch of streams at the same position. With an evictor each stores fewer tokens than that; begin_again() starts
// from nothing.
class BenchStreams {
 public:
  static Result<std::unique_ptr<BenchStreams>> create(const LanguageModel& model, const BenchTest& test,
                                                      std::shared_ptr<ThreadPool> threads) {
    auto s = std::unique_ptr<BenchStreams>(new BenchStreams(model, test));
    const auto& parts = model.parts();
    MILLRACE_TRY(const KvFormats formats, find_kv_formats(test.kv_format, parts.kernels));
    if (!formats.keys)
      return Error::user(
          fmt::format("KV format: there is no attention kernel for {}; use f32, f16, bf16 or q8_0", test.kv_format));
    MILLRACE_TRY(s->rule_, make_eviction_rule(test.evictor));
    const bool endless = s->rule_ && s->rule_->moves_keys();
    const int64_t positions = endless ? kv_demand(s->rule_.get(), test.prefilled(), test.longest()) : test.longest();
    if (positions > parts.model->context())
      return Error::user(fmt::format("context: the model was loaded for {} tokens, but the test needs {}",
                                     parts.model->context(), positions));
    KvLayout layout = formats.layout(test.block_tokens, parts.model->kv_layers());
    MILLRACE_TRY(const ForwardSwitches switches,
                 make_forward_switches(with_stored_patterns(*parts.files, test.kernels)));
    MILLRACE_TRY_VOID(
        resolve_pass(parts.model->spec(), formats, test.kv_format, switches, s->rule_.get(), test.longest()));
    if (s->rule_) MILLRACE_TRY_VOID(check_budgets(*s->rule_, parts.model->spec()));
    MILLRACE_TRY_VOID(add_pattern_layers(layout, switches.attention.pattern, test.longest()));
    // Layers with a window have blocks of their own where they must, and keep them all.
    MILLRACE_TRY_VOID(divide_by_budgets(layout, s->rule_.get()));
    if (!layout.divided() && (s->rule_ || formats.window_keys))
      split_all_windows(layout, test.longest(), test.longest());
    MILLRACE_TRY_VOID(formats.set_window_formats(layout));
    MILLRACE_TRY_VOID(layout.check());
    MILLRACE_TRY(const KvPoolMode mode, find_kv_pool_mode(test.kv_pool));
    if (mode == KvPoolMode::virtual_ranges) MILLRACE_TRY_VOID(layout.use_whole_pages(sysconf(_SC_PAGESIZE)));
    const int64_t tables = layout.tables(),
                  stored = most_demand(s->rule_.get(), test.prefilled(), test.longest(), tables);
    const auto blocks_for = [&](int64_t count) { return (count + layout.block_tokens - 1) / layout.block_tokens; };
    s->stream_blocks_ =
        blocks_for(layer_demand(s->rule_.get(), test.prefilled(), test.longest(), 0, tables));  // of the first table
    s->shared_blocks_ = test.shared / layout.block_tokens;
    if (test.shared > 0 && (s->rule_ || !layout.windows.empty() || mode == KvPoolMode::virtual_ranges))
      return Error::user("--shared-prefix: not with an evictor, with --kv-pool virtual, or with blocks of windows");
    const int64_t blocks =
        test.streams * blocks_demand(s->rule_.get(), test.prefilled(), test.longest(), tables, layout.block_tokens) -
        s->shared_blocks_ * (test.streams - 1);
    const int64_t context = blocks_for(layout.windows.empty() ? stored : test.longest()) * layout.block_tokens;
    // The largest batch of the test determines the size of scratch memory.
    s->batch_tokens_ =
        std::max(test.streams, std::min(test.batch_tokens, test.streams * std::max(test.prompt, test.depth)));
    ForwardLimits limits{s->batch_tokens_, test.streams, context};
    limits.switches = switches;
    MILLRACE_TRY(s->runner_, ModelRunner::create_charged(
                                 *parts.model, parts.kernels,
                                 {.threads = std::move(threads),
                                  .layout = std::move(layout),
                                  .blocks = blocks,
                                  .places = {.mode = mode, .longest = context, .streams = test.streams, .evicts = true},
                                  .limits = limits,
                                  .streams = test.streams},
                                 parts.accounts, "lower the test's tokens or streams, or raise the budget"));
    MILLRACE_TRY_VOID(s->take_blocks(test));
    s->observer_.emplace(*s->runner_);
    s->begin_again(test);
    return s;
  }

  const EvictionRule* rule() const { return rule_.get(); }
  const WeightSource* source() const { return model_.parts().model->source(); }
  // Why the last prefill() or decode() stopped.
  Error stopped() const { return failure_.value_or(Error::cancelled("bench: interrupted")); }

  // No token is stored any longer. Without an evictor this changes nothing.
  void begin_again(const BenchTest& test) {
    evictions_.clear();
    for (int64_t stream = 0; rule_ && stream < streams_; ++stream) {
      const KvLayout& layout = runner_->kv().layout();
      evictions_.push_back({TokenEviction(rule_, test.prefilled(), test.longest(), layout.heads(), layout.tables())});
      evictions_.back().eviction.reserve(0, model_.parts().model->spec().gates.dims);
    }
  }

  // Divides the whole pool among the streams.
  Result<void> take_blocks(const BenchTest& test) {
    auto& tables = blocks_;
    for (int64_t stream = 0; stream < test.streams; ++stream) {
      KvRange range;
      for (int64_t i = 0; i < stream_blocks_; ++i) {
        if (stream > 0 && i < shared_blocks_) {
          tables.push_back(tables[static_cast<size_t>(i)]);
          continue;
        }
        MILLRACE_TRY(BlockId block, runner_->kv().allocate(range));
        tables.push_back(block);
      }
    }
    for (size_t i = tables.size(); test.scatter && i > 1; --i)
      std::swap(tables[i - 1], tables[static_cast<size_t>(philox_uniform(2, 0, i) * static_cast<double>(i))]);
    for (int64_t g = 1; g < runner_->kv().groups(); ++g) {
      KvPool& group = runner_->kv().group(g);
      // By layer: what it needs of the one pool, and nothing spare.
      const int64_t needed =
          group.blocks_for(layer_demand(rule_.get(), test.prefilled(), test.longest(), g, group.layout().tables())) *
          test.streams;
      auto& all = windows_.emplace_back();
      while (group.divided() ? std::ssize(all) < needed : group.free_blocks() > 0) {
        MILLRACE_TRY(BlockId block, group.allocate());
        all.push_back(block);
      }
    }
    return {};
  }

  // Adds `count` tokens to every stream, filling each batch with whole streams or parts of them; a part ends where the
  // stream's evictor chooses. Computes the last token's logits, as for a prompt. Calls `passed` with the tokens of each
  // pass.
  bool prefill(int64_t first, int64_t count, const std::function<bool(int64_t)>& passed) {
    start();
    std::vector<int64_t> done(static_cast<size_t>(streams_), std::clamp<int64_t>(shared_tokens() - first, 0, count));
    done.front() = 0;  // computes what all share
    for (bool more = true; more;) {
      more = false;
      for (int64_t stream = 0; stream < streams_; ++stream) {
        int64_t& of_stream = done[static_cast<size_t>(stream)];
        while (of_stream < count) {
          const int64_t part = std::min(
              {count - of_stream, batch_tokens_ - runner_->tokens(), before_eviction(stream, first + of_stream)});
          if (part == 0) break;
          add(stream, first + of_stream, part, of_stream + part == count);
          of_stream += part;
          if (runner_->tokens() == batch_tokens_ && !flush(passed)) return false;
        }
        more |= of_stream < count;
      }
      if (runner_->tokens() > 0 && !flush(passed)) return false;
    }
    return true;
  }

  // Prepares plain reads of `bytes` with this test's threads.
  Result<PlainReads> plain_reads(double bytes) {
    const auto whole = static_cast<int64_t>(bytes);
    MILLRACE_TRY(auto hold,
                 MemoryHold::take(model_.parts().accounts, "reads", whole, "omit --beside, or raise the budget"));
    memory_.push_back(std::move(hold));
    return PlainReads::create(runner_->threads(), whole);
  }

  bool decode(int64_t first, int64_t count, const std::function<bool(int64_t)>& passed) {
    for (int64_t i = 0; i < count; ++i) {
      start();
      for (int64_t stream = 0; stream < streams_; ++stream) add(stream, first + i, 1, true, true);
      if (!flush(passed)) return false;
    }
    return true;
  }

 private:
  BenchStreams(const LanguageModel& model, const BenchTest& test)
      : model_(model), streams_(test.streams), alike_(test.alike) {}

  struct Evicted {
    TokenEviction eviction;
    int64_t computed = 0;
  };

  void start() {
    runner_->start();
    observer_->start();
  }

  int64_t shared_tokens() const { return shared_blocks_ * runner_->kv().layout().block_tokens; }
  std::span<const BlockId> blocks_of(int64_t stream) const {
    return std::span(blocks_).subspan(static_cast<size_t>(stream * stream_blocks_),
                                      static_cast<size_t>(stream_blocks_));
  }
  // Of a group of layers.
  std::span<const BlockId> blocks_of(int64_t stream, int64_t group) const {
    if (group == 0) return blocks_of(stream);
    const auto& all = windows_[static_cast<size_t>(group - 1)];
    const int64_t shares = runner_->kv().divided() ? streams_ : streams_ + 1;  // KvPoolOptions::evicts
    const size_t each = all.size() / static_cast<size_t>(shares);
    return std::span(all).subspan(static_cast<size_t>(stream) * each, each);
  }
  Evicted* evicted(int64_t stream) { return rule_ ? &evictions_[static_cast<size_t>(stream)] : nullptr; }
  int64_t before_eviction(int64_t stream, int64_t position) {
    return rule_ ? evicted(stream)->eviction.next() - position : INT64_MAX;
  }

  void add(int64_t stream, int64_t first, int64_t count, bool output, bool answer = false) {
    Evicted* const evicting = evicted(stream);
    runner_->begin(blocks_of(stream), first - (evicting ? evicting->eviction.evicted() : 0), nullptr,
                   static_cast<StateId>(stream));
    if (answer) runner_->answers();
    runner_->exit_by(runner_->limits().switches.exit.get());
    const bool divided = runner_->kv().divided();
    for (int64_t g = 1; g < runner_->kv().groups(); ++g)
      runner_->begin_group(g, blocks_of(stream, g), first - (divided ? evicting->eviction.evicted(g) : 0));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t text = first + i < shared_tokens() ? 0 : stream;
      const double random = philox_uniform(1, static_cast<uint64_t>(text), static_cast<uint64_t>(first + i));
      const auto token = static_cast<TokenId>(random * static_cast<double>(model_.info().vocab));
      runner_->add(alike_ ? 0 : token, evicting ? evicting->eviction.position(first + i) : first + i,
                   output && i + 1 == count);
    }
    if (!evicting) return;
    observer_->add(evicting->eviction);
    evicting->computed = first + count;
  }

  void evict() {
    for (int64_t stream = 0; stream < std::ssize(evictions_); ++stream) {
      auto& [eviction, computed] = *evicted(stream);
      if (computed != eviction.next()) continue;
      drop_tokens(*runner_, eviction, computed, static_cast<StateId>(stream),
                  [&](int64_t g) { return blocks_of(stream, g); });
    }
  }

  bool flush(const std::function<bool(int64_t)>& passed) {
    runner_->forward();
    if (auto read = runner_->take_failure(); !read.ok()) {
      failure_ = read.error();
      return false;
    }
    evict();
    const int64_t tokens = runner_->tokens();
    start();
    return passed(tokens);
  }

  const LanguageModel& model_;
  std::shared_ptr<const EvictionRule> rule_;  // null: none
  std::unique_ptr<ModelRunner> runner_;
  std::optional<EvictionObserver> observer_;
  std::vector<Evicted> evictions_;
  std::optional<Error> failure_;
  std::vector<MemoryHold> memory_;             // beside the runner's own
  std::vector<BlockId> blocks_;                // [streams, stream_blocks]
  std::vector<std::vector<BlockId>> windows_;  // of the further groups of layers
  int64_t streams_ = 1, stream_blocks_ = 0, shared_blocks_ = 0, batch_tokens_ = 0;
  bool alike_ = false;
};

// Generates tokens [first, first + count) of every stream with a plain read after each step. Records the reads in
// `result`; returns the seconds of the steps.
Result<double> decode_beside_reads(BenchStreams& streams, PlainReads& reads, int64_t first, int64_t count,
                                   const std::function<bool(int64_t)>& passed, BenchResult& result) {
  using Clock = std::chrono::steady_clock;
  double all = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto start = Clock::now();
    if (!streams.decode(first + i, 1, passed)) return streams.stopped();
    const double step = std::chrono::duration<double>(Clock::now() - start).count();
    all += step;
    result.reads_gb_per_s.push_back(reads.once());
    result.read_fractions.push_back(result.work.bytes / static_cast<double>(count) / step / 1e9 /
                                    result.reads_gb_per_s.back());
  }
  return all;
}

// The counts of a weight source since `before`, added to `sum`.
WeightFigures reads_since(const WeightFigures& before, WeightFigures after, const WeightFigures& sum) {
  for (int64_t WeightFigures::*figure :
       {&WeightFigures::bytes_read, &WeightFigures::reads, &WeightFigures::hits, &WeightFigures::misses,
        &WeightFigures::wait_ns, &WeightFigures::read_ns, &WeightFigures::prefetched, &WeightFigures::prefetched_used,
        &WeightFigures::failed, &WeightFigures::wasted_bytes, &WeightFigures::neurons, &WeightFigures::neurons_run,
        &WeightFigures::experts, &WeightFigures::cold_experts})
    after.*figure += sum.*figure - before.*figure;
  return after;
}

// A test that is ready to be repeated.
class PreparedTest {
 public:
  using Passed = std::function<bool(int64_t tokens)>;

  static Result<PreparedTest> create(const LanguageModel& model, const BenchTest& test, bool warmup,
                                     std::shared_ptr<ThreadPool> threads, const Passed& passed) {
    PreparedTest out;
    out.test_ = test;
    MILLRACE_TRY(out.streams_, BenchStreams::create(model, test, std::move(threads)));
    const auto quiet = [&](int64_t) { return passed(0); };
    // Longer than a busy system needs to notice that two threads share a core.
    constexpr auto kWarmup = std::chrono::milliseconds(150);
    for (const auto start = Clock::now(); warmup && Clock::now() - start < kWarmup;) {
      const int64_t count = std::min(test.prompt, test.batch_tokens), first = out.rule() ? 0 : test.depth;
      out.streams_->begin_again(test);
      if (count > 0 && !out.streams_->prefill(first, count, quiet)) return out.stopped();
      if (test.generate > 0 && !out.streams_->decode(first + (out.rule() ? count : 0), 1, quiet)) return out.stopped();
    }
    out.result_.work = bench_work(model, test, out.rule());
    MILLRACE_TRY_VOID(out.fill_context(quiet));
    if (!test.beside) return out;
    MILLRACE_TRY(out.reads_, out.streams_->plain_reads(out.result_.work.bytes / static_cast<double>(test.generate)));
    return out;
  }

  // Once more.
  Result<void> repeat(const Passed& passed) {
    if (!result_.samples_ns.empty() && rule())  // the last repetition has moved and dropped what it was given
      MILLRACE_TRY_VOID(fill_context([&](int64_t) { return passed(0); }));
    const WeightSource* const source = streams_->source();
    const auto before = source ? source->figures() : std::nullopt;
    const auto start = Clock::now();
    double seconds = 0;
    if (reads_) {
      MILLRACE_TRY(seconds, decode_beside_reads(*streams_, *reads_, test_.depth, test_.generate, passed, result_));
    } else {
      if (test_.prompt > 0 && !streams_->prefill(test_.depth, test_.prompt, passed)) return stopped();
      if (test_.generate > 0 && !streams_->decode(test_.depth + test_.prompt, test_.generate, passed)) return stopped();
      seconds = std::chrono::duration<double>(Clock::now() - start).count();
    }
    result_.samples_ns.push_back(std::max<int64_t>(1, std::llround(seconds * 1e9)));
    if (before) result_.disk = reads_since(*before, *source->figures(), result_.disk.value_or(WeightFigures{}));
    return {};
  }

  BenchResult take_result() { return std::move(result_); }

 private:
  using Clock = std::chrono::steady_clock;

  Error stopped() const { return streams_->stopped(); }
  const EvictionRule* rule() const { return streams_->rule(); }

  // The tokens before those that are timed. They are kept: repetitions overwrite only what follows.
  Result<void> fill_context(const Passed& passed) {
    streams_->begin_again(test_);
    if (test_.depth > 0 && !streams_->prefill(0, test_.depth, passed)) return stopped();
    return {};
  }

  BenchTest test_;
  std::unique_ptr<BenchStreams> streams_;
  std::optional<PlainReads> reads_;
  BenchResult result_;
};

}  // namespace

Result<std::vector<BenchResult>> run_bench(const LanguageModel& model, std::span<const BenchTest> tests,
                                           int repetitions, bool warmup, const std::function<bool(double)>& passed) {
  double all = 0;
  for (const BenchTest& test : tests) all += static_cast<double>(test.tokens()) * repetitions;
  int64_t done = 0;
  const auto count = [&](int64_t tokens) { return passed(static_cast<double>(done += tokens) / all); };
  const auto threads = std::make_shared<ThreadPool>(tests.front().threads);
  std::vector<PreparedTest> prepared;
  for (const BenchTest& test : tests) {
    MILLRACE_TRY(auto one, PreparedTest::create(model, test, warmup, threads, [&](int64_t) { return passed(0); }));
    prepared.push_back(std::move(one));
  }
  for (int i = 0; i < repetitions; ++i)
    for (PreparedTest& one : prepared) MILLRACE_TRY_VOID(one.repeat(count));
  std::vector<BenchResult> results;
  for (PreparedTest& one : prepared) results.push_back(one.take_result());
  for (BenchResult& result : results)
    for (size_t i = 0; results.size() > 1 && i < result.samples_ns.size(); ++i)
      result.times_first.push_back(static_cast<double>(results.front().samples_ns[i]) /
                                   static_cast<double>(result.samples_ns[i]));
  return results;
}

}  // namespace millrace
