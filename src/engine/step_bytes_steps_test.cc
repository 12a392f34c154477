// An engine whose every step passes through bytes: its executor gets what was read back, and so does the engine.
// Answers are those of an engine without.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine_core.h"
#include "run/executors/cpu_executor.h"
#include "run/executors/step_bytes.h"
#include "test_paths.h"

namespace millrace {
namespace {

// References are found again by the streams' ids.
class BytesExecutor final : public Executor {
 public:
  explicit BytesExecutor(std::unique_ptr<Executor> inner) : inner_(std::move(inner)) { set_parts(inner_->parts()); }
  const ExecutorLimits& limits() const override { return inner_->limits(); }
  Result<void> check(const Request& request) const override { return inner_->check(request); }
  const Facts& facts() const override { return inner_->facts(); }
  void observe_attention() override { inner_->observe_attention(); }
  const float* logits() const override { return inner_->logits(); }
  void forward(const StepInput& input, StepOutput& output) override {
    const KvPool& kv = home().kv();
    const StepBounds bounds{.tokens = limits().tokens,
                            .outputs = limits().outputs,
                            .vocab = limits().vocab,
                            .blocks = kv.ids(),
                            .block_tokens = kv.layout().block_tokens,
                            .groups = kv.groups(),
                            .states = kv.states().slots()};
    auto read = read_step_input(write_step(input), bounds);
    ASSERT_TRUE(read.ok()) << read.error().message;
    std::map<RequestId, StepReferences> references;
    for (size_t i = 0; i < input.chunks.size(); ++i) references[input.chunks[i].stream] = input.references[i];
    for (size_t i = 0; i < read->chunks.size(); ++i) read->references[i] = references.at(read->chunks[i].stream);
    StepOutput made;
    inner_->forward(*read, made);
    auto result = read_step_output(write_step(made), *read);
    ASSERT_TRUE(result.ok()) << result.error().message;
    masses += std::ssize(result->masses);
    trees += std::ranges::any_of(read->chunks, [](const StepChunk& chunk) { return chunk.tree > 0; });
    segments += std::ssize(read->segments);
    output = std::move(*result);
  }

  int64_t masses = 0, trees = 0, segments = 0;  // that steps had

 private:
  std::unique_ptr<Executor> inner_;
};

Request bytes_request(int64_t prompt, int64_t seed) {
  Request request;
  for (int64_t i = 0; i < prompt; ++i) request.prompt.push_back(static_cast<TokenId>(3 + (i * i + seed) % 11));
  request.max_tokens = 12;
  request.ignore_eos = true;
  request.sampling.seed = static_cast<uint64_t>(seed);
  request.sampling.temperature = seed % 2 == 0 ? 0 : 0.7;
  return request;
}

using Answers = std::map<RequestId, std::vector<TokenId>>;

Answers answers_of(EngineCore& core, bool documents) {
  for (RequestId id = 1; id <= 3; ++id) {
    Request request = bytes_request(20 + 3 * static_cast<int64_t>(id), static_cast<int64_t>(id));
    if (documents) request.documents = {{1, 9}, {9, 18}};
    EXPECT_TRUE(core.add(id, std::move(request)).ok());
  }
  Answers answers;
  for (int i = 0; i < 300 && !core.idle(); ++i) {
    std::vector<TokenEvent> events;
    core.step(events);
    for (const TokenEvent& event : events)
      if (event.token >= 0) answers[event.request].push_back(event.token);
  }
  EXPECT_TRUE(core.idle());
  return answers;
}

struct BytesCase {
  std::string name;
  void (*set)(EngineOptions& options);
  bool documents = false;
  bool masses = false, trees = false, segments = false;  // that its steps must have
};

TEST(StepBytesSteps, AnswersAreTheSame) {
  auto model = LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf",
                                   {.threads = 1, .context = 64});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const std::vector<BytesCase> cases = {
      {.name = "trees", .set = [](EngineOptions& o) { o.drafter = "ngram:min=1,k=4,branches=2"; }, .trees = true},
      {.name = "importance", .set = [](EngineOptions& o) { o.prefix_evict = "importance"; }, .masses = true},
      {.name = "evictor", .set = [](EngineOptions& o) { o.evictor = "h2o:budget=16"; }},
      {.name = "documents",
       .set = [](EngineOptions& o) { o.document_context = "independent"; },
       .documents = true,
       .segments = true}};
  for (const BytesCase& one : cases) {
    EngineOptions options;
    options.threads = 1;
    options.block_tokens = 4;
    options.batch_tokens = 16;
    options.max_streams = 3;
    one.set(options);
    auto plain = EngineCore::create(*model, options);
    auto inner = CpuExecutor::create(*model, options);
    ASSERT_TRUE(plain.ok()) << one.name << ": " << plain.error().message;
    ASSERT_TRUE(inner.ok()) << one.name << ": " << inner.error().message;
    auto executor = std::make_unique<BytesExecutor>(std::move(*inner));
    const BytesExecutor& seen = *executor;
    auto core = EngineCore::create(std::move(executor), options);
    ASSERT_TRUE(core.ok()) << one.name << ": " << core.error().message;
    EXPECT_EQ(answers_of(**core, one.documents), answers_of(**plain, one.documents)) << one.name;
    EXPECT_EQ(seen.masses > 0, one.masses) << one.name;
    EXPECT_EQ(seen.trees > 0, one.trees) << one.name;
    EXPECT_EQ(seen.segments > 0, one.segments) << one.name;
  }
}

}  // namespace
}  // namespace millrace
