// Early exit: a stream that leaves behind a layer has the bits of a pass over its first layers alone, next to any other
// streams. Streams that need more layers never receive its blocks. A simulated step costs less.
#include <gtest/gtest.h>

#include "exit/exit_gate.h"
#include "model_runner.h"
#include "properties/draft_runs.h"
#include "simulate/simulation.h"

namespace millrace {
namespace {

using namespace testing;
using ExitLogits = std::vector<float>;

std::string exit_model(const std::string& name) {
  const std::string folder = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/" + name;
  return name == "target" ? std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/draft_heads/target"
                          : folder + "/model.gguf";
}

// A stream of a batch: its tokens, in blocks of its own from `block` on.
struct ExitStream {
  std::vector<TokenId> tokens;
  const ExitGate* gate = nullptr;
  int64_t block = 0;
  int64_t outputs = 1;  // last tokens whose logits are computed
};

// Logits of the streams' outputs, in one pass, by stream.
std::vector<ExitLogits> run_together(ModelRunner& runner, std::span<const BlockId> blocks,
                                     const std::vector<ExitStream>& streams) {
  runner.start();
  for (const ExitStream& one : streams) {
    runner.begin(blocks.subspan(static_cast<size_t>(one.block), 4), 0, nullptr,
                 runner.kv().states().any() ? static_cast<StateId>(one.block / 4) : 0);
    runner.exit_by(one.gate);
    const auto count = std::ssize(one.tokens);
    for (int64_t i = 0; i < count; ++i) runner.add(one.tokens[static_cast<size_t>(i)], i, i >= count - one.outputs);
  }
  runner.forward();
  std::vector<ExitLogits> out;
  int64_t row = 0;
  for (const ExitStream& one : streams) {
    out.emplace_back(runner.logits(row), runner.logits(row + one.outputs));
    row += one.outputs;
  }
  return out;
}

// By definition: the first layers, then the head.
ExitLogits first_layers(ModelRunner& runner, std::span<const BlockId> blocks, const ExitStream& stream,
                        int64_t layers) {
  runner.start();
  runner.begin(blocks.first(4), 0);
  const auto count = std::ssize(stream.tokens);
  for (int64_t i = 0; i < count; ++i) runner.add(stream.tokens[static_cast<size_t>(i)], i, i >= count - stream.outputs);
  const Model& model = runner.model();
  model.embed(runner.batch(), runner.context());
  model.head(model.run_layers(runner.batch(), 0, layers, runner.context()), runner.context());
  return {runner.logits(), runner.logits(stream.outputs)};
}

class ExitGates : public ::testing::TestWithParam<std::string> {};

TEST_P(ExitGates, AStreamHasTheBitsOfAPassOverItsFirstLayers) {
  for (const int threads : {1, 3}) {
    auto made = TestRunner::load(exit_model(GetParam()), {.threads = threads, .context = 128, .max_tokens = 128});
    ASSERT_TRUE(made.ok()) << made.error().message;
    TestRunner& runner = **made;
    const int64_t layers = runner.model().spec().layer_count(), vocab = runner.model().spec().vocab;
    ASSERT_GE(layers, 2);
    const auto first = *make_exit_gate("layers:n=1");
    const auto later = *make_exit_gate(fmt::format("layers:n={}", std::max<int64_t>(1, layers - 1)));
    const auto whole = *make_exit_gate(fmt::format("layers:n={}", layers));
    std::vector<ExitStream> streams = {{make_request(1, 9, 1, vocab).prompt, later.get(), 0, 1},
                                       {make_request(2, 5, 1, vocab).prompt, nullptr, 4, 2}};
    if (!runner.kv().states().any()) {  // the test's runner has a state for one stream
      streams.push_back({make_request(3, 17, 1, vocab).prompt, first.get(), 0, 3});
      streams.push_back({make_request(4, 1, 1, vocab).prompt, whole.get(), 0, 1});
      streams.push_back({make_request(5, 6, 1, vocab).prompt, later.get(), 0, 6});
      streams.push_back({make_request(6, 3, 1, vocab).prompt, first.get(), 0, 0});
    } else {
      streams.resize(1);
    }
    for (size_t i = 0; i < streams.size(); ++i) streams[i].block = static_cast<int64_t>(i) % 2 * 4;
    const auto stored = [&](const ExitStream& one) { return one.gate ? one.gate->stored(layers) : layers; };
    for (size_t i = 0; i < streams.size(); i += 2) {  // pairs, each in both orders, and alone
      std::vector<ExitStream> pair(streams.begin() + static_cast<ptrdiff_t>(i),
                                   streams.begin() + static_cast<ptrdiff_t>(std::min(streams.size(), i + 2)));
      for (int round = 0; round < 2; ++round, std::ranges::reverse(pair)) {
        const auto together = run_together(runner.runner(), runner.blocks(), pair);
        for (size_t k = 0; k < pair.size(); ++k) {
          EXPECT_EQ(together[k], first_layers(runner.runner(), runner.blocks(), pair[k], stored(pair[k])))
              << "stream " << i << " + " << k << ", round " << round;
          EXPECT_EQ(together[k], run_together(runner.runner(), runner.blocks(), {pair[k]})[0]);
        }
      }
    }
  }
}

// Requests of three depths at once, in every way to run them.
TEST_P(ExitGates, AnswersDoNotDependOnWhatRunsBeside) {
  const auto model = load_for(exit_model(GetParam()), *select_isa());
  ASSERT_TRUE(model);
  const int64_t layers = model->parts().model->spec().layer_count(), vocab = model->info().vocab;
  const std::vector<std::string> gates = {"layers:n=1", "",
                                          fmt::format("layers:n={}", std::max<int64_t>(1, layers / 2)), "none"};
  std::vector<Request> requests;
  for (int64_t i = 0; i < 8; ++i) {
    requests.push_back(make_request(i, 7 + 5 * i, 30 - i, vocab));
    requests.back().exit = gates[static_cast<size_t>(i) % gates.size()];
  }
  std::vector<std::vector<std::string>> alone;
  for (const Request& one : requests) {
    EngineOptions o = options();
    o.prefix_cache = false;
    alone.push_back(run_requests(*make_core(model, o), {one}, 1).emitted.begin()->second);
  }
  EXPECT_NE(alone[0], alone[1]);
  int64_t preempted = 0;
  const bool recurrent = GetParam() == "mamba";
  for (const auto& [name, o] : settings()) {
    if (recurrent && name == "virtual ranges") continue;
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(fmt::format("{}, {} threads", name, threads));
      EngineOptions mixed = o;
      mixed.threads = threads;
      if (recurrent) mixed.kv_format = EngineOptions().kv_format;
      mixed.kernels.clear();
      auto core = make_core(model, mixed);
      const DraftOutcome together = run_requests(*core, requests, 1);
      preempted += together.stats.preemptions;
      if (o.kv_format != EngineOptions().kv_format) continue;  // other bits than those of `alone`
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_EQ(together.emitted.at({static_cast<RequestId>(i + 1), 0}), alone[i]) << i;
    }
  }
  EXPECT_GT(preempted, 0);
}

TEST_P(ExitGates, EveryLayerIsThePlainModel) {
  const auto model = load_for(exit_model(GetParam()), *select_isa());
  ASSERT_TRUE(model);
  const std::vector<Request> requests = {make_request(2, 20, 12, model->info().vocab)};
  EngineOptions o = options();
  const DraftOutcome plain = run_requests(*make_core(model, o), requests, 1);
  o.kernels = {fmt::format("exit=layers:n={}", model->parts().model->spec().layer_count())};
  EXPECT_EQ(run_requests(*make_core(model, o), requests, 1).emitted, plain.emitted);
  o.kernels = {"exit=layers:n=1"};
  EXPECT_NE(run_requests(*make_core(model, o), requests, 1).emitted, plain.emitted);
  std::vector<Request> whole = requests;
  whole[0].exit = "none";
  EXPECT_EQ(run_requests(*make_core(model, o), whole, 1).emitted, plain.emitted);
}

INSTANTIATE_TEST_SUITE_P(Models, ExitGates,
                         ::testing::Values("llama", "gemma3", "qwen3moe", "deepseek2", "mamba", "target"),
                         [](const auto& one) { return one.param; });

// Drafted tokens are verified at the stream's own depth.
TEST(ExitGate, DraftersChangeNoAnswer) {
  const auto model = load_for(exit_model("target"), *select_isa());
  ASSERT_TRUE(model);
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) {
    requests.push_back(make_request(i, 9 + 5 * i, 40 - i, model->info().vocab));
    requests.back().exit = i == 3 ? "none" : "";
  }
  EngineOptions o = options(2, 64, 4);
  o.kernels = {"exit=layers:n=2"};
  const DraftOutcome plain = run_requests(*make_core(model, o), requests, 1);
  for (const char* drafter : {"ngram:n=2,min=1,k=3", "ngram:n=2,min=1,k=3,branches=2"}) {
    o.drafter = drafter;
    const DraftOutcome drafted = run_requests(*make_core(model, o), requests, 1);
    EXPECT_EQ(drafted.emitted, plain.emitted) << drafter;
    EXPECT_GT(drafted.stats.accepted_tokens, 0) << drafter;
  }
}

// A prefix is found by streams that store as many layers, and by no others.
TEST(ExitGate, StreamsOfOneDepthSharePrefixes) {
  const auto model = load_for(exit_model("target"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  auto core = make_core(model, options(1, 64, 4));
  const auto run = [&](RequestId id, const std::string& exit) {
    Request request = make_request(4, 33, 4, vocab);
    request.exit = exit;
    EXPECT_TRUE(core->add(id, request).ok());
    return run_all(*core, vocab).at(id);
  };
  const Shown whole = run(1, ""), two = run(2, "layers:n=2"), one = run(3, "layers:n=1");
  EXPECT_EQ(whole.cached + two.cached + one.cached, 0);
  const Shown again_two = run(4, "layers:n=2"), again_one = run(5, "layers:n=1"), again = run(6, "none");
  EXPECT_EQ(again_two.cached, 32);
  EXPECT_EQ(again_one.cached, 32);
  EXPECT_EQ(again.cached, 32);
  EXPECT_TRUE(again_two.same_bits(two) && again_one.same_bits(one) && again.same_bits(whole));
  Request asked = make_request(4, 33, 4, vocab);
  asked.exit = "layers:n=3";
  EXPECT_EQ(core->cached_tokens(asked), 0);
  asked.exit = "layers:n=2";
  EXPECT_EQ(core->cached_tokens(asked), 32);
}

TEST(ExitGate, Refusals) {
  const auto model = load_for(exit_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options();
  o.kernels = {"exit=layers:n=3"};
  const auto refused = EngineCore::create(model, o);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "exit layers:n=3: n: the model has 2 layers");
  o.kernels = {"exit=layers:n=1", "exit=layers:n=2"};
  EXPECT_FALSE(EngineCore::create(model, o).ok());
  auto core = make_core(model, options());
  Request request = make_request(1, 4, 4, model->info().vocab);
  for (const char* exit : {"layers:n=0", "layers:n=3", "layers:m=1", "nothing"}) {
    request.exit = exit;
    EXPECT_FALSE(core->add(1, request).ok()) << exit;
  }
}

// A gate decides by the rows that it sees: the rows whose first value is positive leave.
class SignGate final : public ExitGate {
 public:
  explicit SignGate(int64_t depth) : depth_(depth) {}
  Result<void> check(int64_t) const override { return {}; }
  int64_t next(int64_t depth) const override { return depth < depth_ ? depth_ : kNever; }
  void stop(const ExitRows& rows, std::span<uint8_t> stops) const override {
    for (size_t i = 0; i < stops.size(); ++i) stops[i] = rows.rows[i * static_cast<size_t>(rows.width)] > 0;
  }
  int64_t stored(int64_t) const override { return depth_; }

 private:
  int64_t depth_;
};

TEST(ExitGate, SeesTheRowsBehindItsLayer) {
  auto made = TestRunner::load(exit_model("target"), {.context = 128, .max_tokens = 64});
  ASSERT_TRUE(made.ok()) << made.error().message;
  TestRunner& runner = **made;
  const int64_t layers = runner.model().spec().layer_count();
  const SignGate gate(2);
  int64_t left = 0, stayed = 0;
  for (TokenId token = 1; token < 12; ++token) {
    const ExitStream stream{{token}, &gate, 0, 1}, other{{token}, nullptr, 4, 1};
    const auto together = run_together(runner.runner(), runner.blocks(), {stream, other});
    EXPECT_EQ(together[1], first_layers(runner.runner(), runner.blocks(), other, layers));
    runner.runner().start();
    runner.runner().begin(runner.blocks(), 0);
    runner.runner().add(token, 0, true);
    {
      const ThreadPool::Turn turn(runner.runner().threads());
      runner.runner().forward_first(2, turn);
    }
    const bool leaves = runner.runner().residual()[0] > 0;
    ++(leaves ? left : stayed);
    EXPECT_EQ(together[0], first_layers(runner.runner(), runner.blocks(), stream, leaves ? 2 : layers)) << token;
  }
  EXPECT_GT(left, 0);
  EXPECT_GT(stayed, 0);
}

// Time of 20 requests on a simulated machine with 32 layers.
double simulated_seconds(const std::string& exit, const std::string& of_requests) {
  SimulatedLoad load;
  load.requests = 20;
  load.arrival_seconds = [](int64_t i) { return 0.01 * static_cast<double>(i); };
  load.request = [&](int64_t i) {
    Request request;
    request.prompt.assign(100, static_cast<TokenId>(i));
    request.max_tokens = request.known_tokens = 20;
    request.exit = of_requests;
    return request;
  };
  EngineOptions o;
  o.context = 1024;
  o.kv_tokens = 8192;
  if (!exit.empty()) o.kernels = {"exit=" + exit};
  std::vector<std::unique_ptr<CostModel>> costs;
  costs.push_back(*load_cost_model("llama-7b-a100"));
  const auto result = simulate(load, std::move(costs), o, {.model = {.layers = 32}});
  EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
  return result.ok() ? result->seconds : 0;
}

TEST(ExitGate, ASimulatedStepCostsTheLayersThatRun) {
  const double whole = simulated_seconds("", ""), half = simulated_seconds("layers:n=16", "");
  EXPECT_LT(half, 0.75 * whole);
  EXPECT_EQ(simulated_seconds("", "layers:n=16"), half);
  EXPECT_EQ(simulated_seconds("layers:n=16", "none"), whole);
  EXPECT_EQ(simulated_seconds("layers:n=32", ""), whole);
  StepShape shape;
  shape.add(100, 1, 1, 0.5);
  EXPECT_EQ(shape.whole_tokens(), 0.5);
  EXPECT_EQ(shape.read_layers(), 0.5);
  shape.add(0, 3, 1);
  EXPECT_EQ(shape.whole_tokens(), 3.5);
  EXPECT_EQ(shape.read_layers(), 1);
}

}  // namespace
}  // namespace millrace
