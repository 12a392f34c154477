// A simulation holds the blocks that an engine holds: the same requests in both, step by step, with every kind of
// evictor, budgets by layer, KV formats, and memory for all streams or for some.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/clock.h"
#include "kv/kv_formats.h"
#include "properties/stream_bits.h"
#include "run/executors/simulated_executor.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kRequests = 9;

class MillisecondSteps final : public CostModel {
 public:
  double step_seconds(const StepShape&) const override { return 1e-3; }
  double swap_seconds(int64_t) const override { return 1e-3; }
};

struct Pair {
  ManualClock clock;
  std::unique_ptr<EngineCore> engine, simulation;
};

class SimulatedBlocks : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
    layers_ = model_->parts().model->spec().layer_count();
  }

  std::unique_ptr<Pair> make(const EngineOptions& o) const {
    auto pair = std::make_unique<Pair>();
    pair->engine = make_core(model_, o);
    auto executor =
        SimulatedExecutor::create(std::make_unique<MillisecondSteps>(), pair->clock, o,
                                  {.layers = layers_, .kv_heads = model_->parts().model->kv_layers().front().kv_heads});
    EXPECT_TRUE(executor.ok()) << (executor.ok() ? "" : executor.error().message);
    if (!executor.ok()) return nullptr;
    EngineOptions own = o;
    own.prefix_cache = (*executor)->shares_prefixes();  // as Simulation does
    auto core = EngineCore::create(std::move(*executor), own, &pair->clock);
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    if (!core.ok()) return nullptr;
    pair->simulation = std::move(*core);
    return pair;
  }

  // Requests of many lengths arrive at different times; some evict in another way than the engine.
  Request request(int64_t i, const char* own_evictor) const {
    Request r = make_request(i, 5 + 29 * i % 70, 20 + 11 * i % 37, model_->info().vocab);
    for (int64_t d = 0; has_documents_ && d < 3; ++d) {  // in front of it, in any order
      const auto text = make_request(100 + (i * d + i) % 4, 17 + 5 * ((i * d + i) % 4), 1, model_->info().vocab).prompt;
      const int64_t begin = r.documents.empty() ? 0 : r.documents.back().end;
      r.prompt.insert(r.prompt.begin() + begin, text.begin(), text.end());
      r.documents.push_back({begin, begin + std::ssize(text)});
    }
    if (has_documents_) r.prompt.resize(static_cast<size_t>(r.documents.back().end + 5));
    r.known_tokens = r.max_tokens;
    if (i % 3 == 2) r.evictor = own_evictor;
    return r;
  }

  struct Seen {
    int64_t steps = 0, most_held = 0, least_excess = INT64_MAX, most_excess = 0, preemptions = 0, evicted = 0;
  };
  // excess: blocks that the simulation holds beyond the engine's.
  Seen run(const EngineOptions& o, const char* own_evictor = "") const {
    const auto pair = make(o);
    Seen seen;
    if (!pair || !pair->engine) return seen;
    EngineCore &engine = *pair->engine, &simulation = *pair->simulation;
    std::vector<TokenEvent> events;
    for (int64_t added = 0; added < kRequests || !engine.idle() || !simulation.idle(); ++seen.steps) {
      if (added < kRequests && seen.steps % 7 == 0) {
        const auto id = static_cast<RequestId>(++added);
        EXPECT_TRUE(engine.add(id, request(added, own_evictor)).ok());
        EXPECT_TRUE(simulation.add(id, request(added, own_evictor)).ok());
      }
      engine.step(events);
      simulation.step(events);
      EXPECT_TRUE(simulation.check_blocks().ok());
      const int64_t held = engine.kv().total_blocks() - engine.kv().free_blocks();
      const int64_t excess = simulation.kv().total_blocks() - simulation.kv().free_blocks() - held;
      seen.most_held = std::max(seen.most_held, held);
      seen.least_excess = std::min(seen.least_excess, excess);
      seen.most_excess = std::max(seen.most_excess, excess);
      if (seen.steps > 5000) {
        ADD_FAILURE() << "does not end";
        break;
      }
    }
    seen.preemptions = engine.stats().preemptions;
    seen.evicted = engine.stats().evicted_tokens;
    EXPECT_EQ(simulation.stats().preemptions, seen.preemptions);
    EXPECT_EQ(simulation.stats().steps, engine.stats().steps);
    return seen;
  }

  EngineOptions machine(const char* evictor) const {
    EngineOptions o = options(1, 24, 4);
    o.evictor = evictor;
    o.policy = "fcfs:reserve=prompt";
    return o;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t layers_ = 0;
  bool has_documents_ = false;
};

TEST_F(SimulatedBlocks, AreThoseOfTheEngine) {
  for (const char* evictor :
       {"", "streamingllm:sinks=2,window=11,slack=3", "window:budget=20,slack=5,scope=head,prompt=evicted",
        "h2o:budget=20,slack=5", "key_norm:budget=20,slack=5,prompt=evicted", "key_norm:budget=20,slack=5,skip=1",
        "snapkv:budget=20,window=6,slack=5,scope=layer", "tova:budget=16,slack=4,scope=head",
        "pyramidkv:budget=20,window=5,slack=4", "pyramidkv:budget=24,window=5,beta=4,slack=7,prompt=evicted",
        "scissorhands:budget=20,recent=4,slack=5,layers=1.4", "snapkv:budget=20,window=4,slack=5,heads=1.5.2.9"}) {
    SCOPED_TRACE(evictor);
    for (const int64_t tokens : {4096, 200}) {
      EngineOptions o = machine(evictor);
      o.kv_tokens = tokens;
      const Seen seen = run(o, "h2o:budget=9,slack=2");
      EXPECT_EQ(seen.least_excess, 0);
      EXPECT_EQ(seen.most_excess, 0);
      EXPECT_GT(seen.evicted, 0);
      EXPECT_GT(seen.most_held, 0);
      if (tokens == 200 && *evictor == 0) {
        EXPECT_GT(seen.preemptions, 0);
      }
    }
  }
}

// Which tokens are in every layer depends on attention, so that a layer of the engine may store fewer than its budget.
TEST_F(SimulatedBlocks, OfACascadeAreAtLeastThoseOfTheEngine) {
  const Seen seen = run(machine("spatten:keep=24,final=10,slack=4,prompt=evicted"));
  EXPECT_GT(seen.evicted, 0);
  EXPECT_GE(seen.least_excess, 0);
  EXPECT_LE(seen.most_excess, seen.most_held / 2);
}

// Whether they are computed or taken from the cache.
TEST_F(SimulatedBlocks, OfDocumentsAreThoseOfTheEngine) {
  has_documents_ = true;
  for (const char* context : {"kvlink", "ape", "epic:recompute=4", "cacheblend"})
    for (const char* evictor : {"", "h2o:budget=20,slack=5", "window:budget=20,slack=5,scope=head,prompt=evicted"}) {
      SCOPED_TRACE(context);
      SCOPED_TRACE(evictor);
      EngineOptions o = machine(evictor);
      o.document_context = context;
      const auto pair = make(o);
      ASSERT_TRUE(pair);
      const Seen seen = run(o);
      EXPECT_EQ(seen.least_excess, 0);
      EXPECT_EQ(seen.most_excess, 0);
      EXPECT_GT(seen.most_held, 0);
      EXPECT_EQ(seen.evicted > 0, *evictor != 0);
    }
}

// Rows of which are kept apart.
TEST_F(SimulatedBlocks, OfEncodedDocumentsAreThoseOfTheEngine) {
  has_documents_ = true;
  for (const char* format : {"kivi:bits=4", "kvquant:group=32,residual=20"})
    for (const char* context : {"kvlink", "ape", "epic:recompute=4"})
      for (const int64_t kept : {0, 48}) {
        SCOPED_TRACE(fmt::format("{} {} {}", format, context, kept));
        EngineOptions o = machine("");
        o.kv_format = format;
        o.document_context = context;
        o.document_tokens = kept;
        const Seen seen = run(o);
        EXPECT_EQ(seen.least_excess, 0);
        EXPECT_EQ(seen.most_excess, 0);
        EXPECT_GT(seen.most_held, 0);
      }
}

// A pattern's streams may drop tokens there as here.
TEST_F(SimulatedBlocks, OfPatternsAreThoseOfTheEngine) {
  for (const char* pattern : {"attention=quest:block=16,top=1", "attention=bigbird:block=16"}) {
    SCOPED_TRACE(pattern);
    EngineOptions o = machine("h2o:budget=20,slack=5");
    o.kernels = {pattern};
    const Seen seen = run(o, "streamingllm:sinks=2,window=11,slack=3");
    EXPECT_EQ(seen.least_excess, 0);
    EXPECT_EQ(seen.most_excess, 0);
    EXPECT_GT(seen.evicted, 0);
  }
}

TEST_F(SimulatedBlocks, FollowTheFormat) {
  for (const char* format : {"f16", "f32", "kivi:bits=2", "turboquant:residual=40"}) {
    SCOPED_TRACE(format);
    EngineOptions o = machine("");
    o.kv_format = format;
    const auto pair = make(o);
    ASSERT_TRUE(pair);
    const KvLayout &engine = pair->engine->kv().layout(), &simulated = pair->simulation->kv().layout();
    EXPECT_EQ(simulated.block_tokens, engine.block_tokens);
    const auto tokens = static_cast<double>(pair->simulation->kv().total_blocks() * simulated.block_tokens);
    const auto formats = find_kv_formats(format, make_kernel_table(Isa::ref));
    const int64_t tails = std::max(o.max_streams, o.resident_streams) * engine.tail_tokens;
    // In the memory of 4096 tokens of F16.
    EXPECT_NEAR(tokens, static_cast<double>(4096 - tails) * 16 / formats->bits_per_value(), 32);
    const Seen seen = run(o);
    EXPECT_EQ(seen.least_excess, 0);
    EXPECT_EQ(seen.most_excess, 0);
  }
}

}  // namespace
}  // namespace millrace
