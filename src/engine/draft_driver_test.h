// DraftDriver with a scripted drafter and costs that are small formulas, so that every length of a draft can be
// computed by hand.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/bare_executor_test.h"
#include "engine/draft_driver.h"
#include "formats/format.h"

namespace millrace::testing {

class IdleDraftModel final : public DraftModel {
 public:
  void run(std::span<DraftRun>) override {}
};

class DriverChooser final : public BareChooser {
 public:
  TokenId best_token(int64_t row) override { return static_cast<TokenId>(100 + row); }
  void best_tokens(int64_t row, std::span<TokenId> out) override {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<TokenId>(1000 * row + static_cast<int64_t>(i));
  }
};

class DriverExecutor final : public BareExecutor {
 public:
  DriverExecutor() : BareExecutor({find_format("f16"), 4, {}}) {
    own_limits.vocab = 50;
    set_parts({.home = &home(), .chooser = &chooser_, .draft_model = &model_});
  }

 private:
  DriverChooser chooser_;
  IdleDraftModel model_;
};

// base + each * tokens; remembers the shapes that it was asked for.
class LinearCost final : public CostModel {
 public:
  double step_seconds(const StepShape& shape) const override {
    asked.push_back(shape);
    return base + each * static_cast<double>(shape.tokens);
  }
  double swap_seconds(int64_t) const override { return 1e9; }

  double base = 1, each = 0.01;
  mutable std::vector<StepShape> asked;
};

using Words = std::vector<std::string>;

// The drafts that a test gives its drafter, and the calls that the drafter has received.
struct DriverScript {
  ManualClock clock;
  Draft draft;             // of a drafter without a model
  int64_t model_most = 9;  // a draft model drafts no more
  int64_t pass_ns = 0;     // and takes so long for it
  Words heard;
};

struct NamedMemory final : DraftMemory {
  explicit NamedMemory(std::string given) : name(std::move(given)) {}
  std::string name;
};

// Drafts from the text, or with a model.
class DriverDrafter final : public TextDrafter, public Learner, public ModelDrafter {
 public:
  struct Kind {
    int64_t longest = 4;
    bool model = false, trees = false;
    int64_t learns = 0, depth = 0;
    std::string name = "only";
  };
  DriverDrafter(DriverScript& script, const Kind& kind) : script_(script), kind_(kind) {}
  int64_t learns() const override { return kind_.learns; }
  void begin(int64_t vocab) override { script_.heard.push_back(fmt::format("begin {}", vocab)); }
  std::shared_ptr<DraftMemory> remember() const override { return std::make_shared<NamedMemory>(kind_.name); }
  void propose(const Sequence& s, int64_t most, Draft& out) override {
    const auto* memory = static_cast<const NamedMemory*>(s.draft.memory.get());
    script_.heard.push_back(fmt::format("{} drafts {} with {}", kind_.name, most, memory->name));
    out = script_.draft;
  }
  void propose_all(std::span<const DraftChunk> chunks, DraftModel&) override {
    script_.heard.push_back("all " + text(chunks));
    script_.clock.advance_ns(script_.pass_ns);
    for (const DraftChunk& chunk : chunks)
      if (chunk.drafted > script_.model_most)
        chunk.stream->draft.tokens.resize(static_cast<size_t>(script_.model_most));
  }
  void follow(std::span<const DraftChunk> chunks, DraftModel&) override {
    script_.heard.push_back("follow " + text(chunks));
    script_.clock.advance_ns(script_.pass_ns);
  }
  void learn(const Sequence& s, TokenId token, std::span<const TokenId> best) override {
    script_.heard.push_back(fmt::format("{} learns {} after {}", s.id, fmt::join(best, " "), token));
  }
  void observe(const Sequence& s, int64_t committed, std::span<const TokenId> probed) override {
    script_.heard.push_back(fmt::format("{} has {}, probed {}", s.id, committed, fmt::join(probed, " ")));
  }

 private:
  static std::string text(std::span<const DraftChunk> chunks) {
    std::string out;
    for (const DraftChunk& chunk : chunks)
      out += fmt::format("{}{}:[{}+{}]{}", out.empty() ? "" : " ", chunk.stream->id, chunk.first, chunk.own,
                         chunk.drafted);
    return out;
  }
  DriverScript& script_;
  Kind kind_;
};

inline std::unique_ptr<Drafter> driver_drafter(DriverScript& script, const DriverDrafter::Kind& kind) {
  const DraftSizes sizes{.longest = kind.longest, .trees = kind.trees};
  auto drafter = std::make_unique<DriverDrafter>(script, kind);
  if (!kind.model) return text_drafter(sizes, std::move(drafter));
  return drafter_of(ModelPart{
      .sizes = sizes, .depth = kind.depth > 0 ? kind.depth : kind.longest, .spec = {}, .drafter = std::move(drafter)});
}

class DraftDriverTest : public ::testing::Test {
 protected:
  void open(std::unique_ptr<Drafter> drafter, bool automatic, bool learned = false) {
    EnginePlan plan;
    plan.options.draft_length = automatic ? "auto" : "fixed";
    plan.drafter = std::move(drafter);
    auto made = DraftDriver::create(plan);
    ASSERT_TRUE(made.ok()) << made.error().message;
    driver_ = std::make_unique<DraftDriver>(std::move(*made));
    auto cost = std::make_unique<LinearCost>();
    cost_ = cost.get();
    loop_.cost = cost_;
    (learned ? loop_.own_cost : kept_cost_) = std::move(cost);
    loop_.executor = std::make_unique<DriverExecutor>();
    loop_.clock = &script_.clock;
    ASSERT_TRUE(driver_->attach(loop_).ok());
    script_.heard.clear();
  }
  void open(const DriverDrafter::Kind& kind, bool automatic, bool learned = false) {
    open(driver_drafter(script_, kind), automatic, learned);
  }
  // A stream that decodes: five tokens are stored, and the last one is to run.
  LiveStream& decoding_stream(int64_t max_total = 100) {
    auto made = std::make_unique<LiveStream>();
    Sequence& s = made->sequence;
    s.id = static_cast<RequestId>(lists_.running().size()) + 1;
    s.phase = StreamPhase::running;
    s.tokens = {1, 2, 3, 4, 5, 6};
    s.prompt_tokens = s.computed = 5;
    s.max_total = max_total;
    lists_.add_running(std::move(made));
    return *lists_.running().back();
  }
  int64_t drafted(size_t stream = 0) const { return lists_.running()[stream]->sequence.draft.size(); }
  // The step's work where every stream decodes with its whole draft.
  std::vector<StepWork> decode_all() const {
    std::vector<StepWork> work;
    for (const StreamPtr& one : lists_.running()) {
      const Sequence& s = one->sequence;
      work.push_back({one.get(), {s.id, s.computed, 1 + s.draft.size(), true, s.draft.size()}});
    }
    return work;
  }
  // Proposes, and runs the drafter's model for `ns` a step.
  void run_pass(int64_t ns) {
    driver_->propose(lists_);
    script_.pass_ns = ns;
    auto work = decode_all();
    driver_->before_pass(work);
  }
  int64_t proposed() {
    driver_->propose(lists_);
    return drafted();
  }
  const DraftDecisions& decisions() const { return loop_.stats.draft_decisions; }
  // Proposes, and returns the number of drafted tokens if they are expected to pay; 0 if there are none, or if they
  // run in a trial only (TrialSteps).
  int64_t worthwhile() {
    const int64_t before = decisions().chosen;
    const int64_t tokens = proposed();
    return decisions().chosen > before ? tokens : 0;
  }

  DriverScript script_;
  LoopContext loop_;
  std::unique_ptr<CostModel> kept_cost_;
  LinearCost* cost_ = nullptr;
  StreamLists lists_;
  std::unique_ptr<DraftDriver> driver_;
};

inline constexpr int64_t kSecond = 1'000'000'000;

}  // namespace millrace::testing
