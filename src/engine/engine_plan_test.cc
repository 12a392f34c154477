// An engine of a plan: what the options name is constructed once, and everything takes it from the plan.
#include "run/plan/engine_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>

#include "engine/engine_core.h"
#include "run/executors/cpu_executor.h"
#include "run/language_model.h"
#include "speculate/datastore.h"
#include "test_paths.h"

namespace millrace {
namespace {

std::shared_ptr<const LanguageModel> plan_model() {
  return LanguageModel::load(std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/llama3/model.gguf", {.threads = 1})
      .value();
}

// The drafter's file is deleted once the plan exists, so that a second reading of the option would fail.
TEST(PlannedEngines, MembersAreReadOnce) {
  const auto model = plan_model();
  const Tokenizer* tokenizer = model->parts().tokenizer.get();
  const int64_t vocab = tokenizer ? tokenizer->vocab_size() : model->info().vocab;
  const auto path = std::filesystem::path(::testing::TempDir()) / fmt::format("engine_plan.{}.store", getpid());
  const std::vector<TokenId> text = {5, 6, 7, 8, 5, 6, 7, 8};
  ASSERT_TRUE(write_datastore(path, vocab, tokenizer ? vocabulary_hash(tokenizer->spec().tokens) : 1, text).ok());
  EngineOptions options{.threads = 1, .context = 64, .max_streams = 2, .evictor = "streamingllm:window=28"};
  options.drafter = fmt::format("rest:file={},branches=1,min=1,k=3", path.string());
  options.policy = "vtc";
  options.kv_tier = "memory:tokens=64";
  auto plan = EnginePlan::create(options, *model);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  std::filesystem::remove(path);
  EXPECT_FALSE(EnginePlan::create(options, *model).ok()) << "read again, the text is refused";
  EXPECT_EQ(plan->longest_draft(), 3);
  auto executor = CpuExecutor::create(model, *plan);
  ASSERT_TRUE(executor.ok()) << executor.error().message;
  EXPECT_EQ((*executor)->limits().drafts, 3);
  auto core = EngineCore::create(std::move(*executor), std::move(*plan));
  ASSERT_TRUE(core.ok()) << core.error().message;
  Request request;
  request.prompt = {1, 5, 6, 7};
  request.max_tokens = 8;
  request.sampling.allowed_tokens = {5, 6, 7, 8};
  ASSERT_TRUE((*core)->add(1, request).ok());
  std::vector<TokenEvent> events;
  while (!(*core)->idle()) (*core)->step(events);
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back().finish, FinishReason::length);
  EXPECT_GT((*core)->stats().drafted_tokens, 0) << "the datastore goes on behind each of the allowed tokens";
}

TEST(PlannedEngines, UnknownMembersAreRefused) {
  const KernelTable kernels = make_kernel_table(Isa::ref);
  const std::pair<const char*, std::function<void(EngineOptions&)>> cases[] = {
      {"drafter", [](EngineOptions& o) { o.drafter = "unknown"; }},
      {"acceptance", [](EngineOptions& o) { o.acceptance = "unknown"; }},
      {"evictor", [](EngineOptions& o) { o.evictor = "unknown"; }},
      {"context", [](EngineOptions& o) { o.document_context = "unknown"; }},
      {"policy", [](EngineOptions& o) { o.policy = "unknown"; }},
      {"KV pool", [](EngineOptions& o) { o.kv_pool = "unknown"; }},
      {"kernel", [](EngineOptions& o) { o.kernels = {"unknown"}; }},
      {"KV tier", [](EngineOptions& o) { o.kv_tier = "unknown"; }},
      {"KV store", [](EngineOptions& o) { o.kv_store = "unknown"; }},
  };
  for (const auto& [family, name] : cases) {
    EngineOptions options;
    name(options);
    const auto plan = EnginePlan::create(options, kernels);
    ASSERT_FALSE(plan.ok()) << family;
    EXPECT_EQ(plan.error().kind, ErrorKind::user) << family;
    EXPECT_NE(plan.error().message.find(family), std::string::npos) << plan.error().message;
  }
  EngineOptions options;
  options.kv_format = "unknown";
  const auto plan = EnginePlan::create(options, kernels);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->formats.keys, nullptr) << "the executor names the formats of its kernels";
}

// prepare() constructs the members that a request names, and shares the engine's own; add() queues the result as it is.
TEST(PreparedRequests, HoldTheirMembers) {
  EngineOptions options{.threads = 1, .context = 64, .max_streams = 2, .evictor = "streamingllm:window=28"};
  options.document_context = "independent";
  auto core = EngineCore::create(plan_model(), options);
  ASSERT_TRUE(core.ok()) << core.error().message;
  Request request;
  request.prompt = {1, 5, 6, 7, 8, 9};
  request.max_tokens = 8;
  const auto plain = (*core)->prepare(request), other = (*core)->prepare(request);
  ASSERT_TRUE(plain.ok() && other.ok());
  EXPECT_EQ(plain->evictor->text, options.evictor);
  EXPECT_EQ(plain->evictor, other->evictor) << "one object, of the engine";
  EXPECT_EQ(plain->context, nullptr) << "it has no documents";
  EXPECT_TRUE(plain->plan.empty());
  request.evictor = "none";
  EXPECT_EQ((*core)->prepare(request)->evictor, nullptr);
  request.evictor = "streamingllm:window=20";
  EXPECT_EQ((*core)->prepare(request)->evictor->text, request.evictor);
  request.documents = {{1, 3}, {3, 5}};
  auto apart = (*core)->prepare(request);
  ASSERT_TRUE(apart.ok()) << apart.error().message;
  EXPECT_TRUE(apart->apart());
  EXPECT_EQ(apart->plan.parts.size(), 2u);
  EXPECT_EQ(apart->evictor->joined, 5) << "the documents end there";
  ASSERT_TRUE((*core)->add(1, std::move(*apart)).ok());
  std::vector<TokenEvent> events;
  while (!(*core)->idle()) (*core)->step(events);
  EXPECT_EQ(events.back().finish, FinishReason::length);
  request.evictor = "unknown";
  EXPECT_FALSE((*core)->prepare(request).ok());
  EXPECT_FALSE((*core)->check(request).ok());
  request.evictor.clear();
  request.document_context = "unknown";
  EXPECT_FALSE((*core)->check(request).ok());
}

}  // namespace
}  // namespace millrace
