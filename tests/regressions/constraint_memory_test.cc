// A server with `--memory 300M` refused every schema, grammar and tool: without an explicit setting no memory was
// reserved for them, and the KV cache took all that was left before the first one arrived. The tests set a KV cache
// size.
#include "run/constraint_memory.h"

#include <gtest/gtest.h>

#include "run/language_model.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

const char* const kBody =
    R"({"prompt": "Once", "max_tokens": 300, "temperature": 0, "guided_json": {"type": "object", "required": ["name", "age", "tags"],
  "properties": {"name": {"enum": ["Tim", "Lily"]}, "age": {"type": "integer", "minimum": 1, "maximum": 9}, "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}, "additionalProperties": false}})";

// 300 MiB, plus the extra memory that an instrumented build uses itself.
int64_t small_budget() {
  auto probe = LanguageModel::load("stories", {.threads = 1, .memory = int64_t{4} << 30});
  EXPECT_TRUE(probe.ok());
  int64_t loaded = 0;
  if (probe.ok()) loaded = (*probe)->parts().accounts->total();
  return std::max(300 * kMebibyte, loaded + 200 * kMebibyte);
}

int64_t account(const Engine& engine, const std::string& name) {
  for (const MemoryUse& use : engine.stats().memory)
    if (use.name == name) return use.bytes;
  return 0;
}

TEST(ConstraintMemory, ASmallBudgetHasRoomForConstraintsByDefault) {
  const int64_t budget = small_budget();
  auto model = templated_model("", budget);
  ASSERT_NE(model, nullptr);
  ServiceOptions service;
  service.stored_response_bytes = 1 << 20;
  LiveServer live(std::move(service), {}, {}, nullptr, model);
  EXPECT_GT(model->parts().accounts->total(), budget - 8 * kMebibyte) << "the KV cache has what is left";
  const Response answer = post(live.port(), "/v1/completions", kBody);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Json said = Json::parse(answer.json()["choices"][0]["text"].get<std::string>(), nullptr, false);
  EXPECT_TRUE(said.is_object() && said["age"].is_number_integer()) << answer.body;
  EXPECT_EQ(account(live.engine(), "constraints"), default_constraint_memory(model->parts().tokenizer.get(), budget));
  EXPECT_LE(model->parts().accounts->total(), budget);
  // Tool calls are constrained by schemas too.
  const Response tool =
      post(live.port(), "/v1/chat/completions",
           R"({"messages": [{"role": "user", "content": "a"}], "max_tokens": 100, "tool_choice": "required",
    "tools": [{"type": "function", "function": {"name": "go", "parameters": {"type": "object", "properties": {"far": {"type": "boolean"}}, "required": ["far"]}}}]})");
  EXPECT_EQ(tool.status, 200) << tool.body;
}

TEST(ConstraintMemory, EnginesWithoutAServerHaveRoomToo) {
  auto model = templated_model("", small_budget());
  ASSERT_NE(model, nullptr);
  auto engine = Engine::create(model, {.threads = 1});
  ASSERT_TRUE(engine.ok());
  Request request;
  request.prompt = {1};
  request.constraint.kind = Constraint::Kind::json_object;
  auto stream = (*engine)->submit(request);
  ASSERT_TRUE(stream.ok()) << stream.error().message;
}

TEST(ConstraintMemory, TheDefaultIsASixteenthWithinBounds) {
  const Tokenizer& tokenizer = *shipped_model()->parts().tokenizer;
  const int64_t least = least_constraint_memory(tokenizer);
  EXPECT_LT(least, 16 * kMebibyte);
  EXPECT_EQ(default_constraint_memory(&tokenizer, 0), 0) << "no budget, no account";
  EXPECT_EQ(default_constraint_memory(nullptr, 300 * kMebibyte), 0);
  EXPECT_EQ(default_constraint_memory(&tokenizer, 320 * kMebibyte), 20 * kMebibyte);
  EXPECT_EQ(default_constraint_memory(&tokenizer, 64 * kMebibyte), std::max(least, 4 * kMebibyte));
  EXPECT_EQ(default_constraint_memory(&tokenizer, 4 * least - 1), 0);
  EXPECT_EQ(default_constraint_memory(&tokenizer, 1024 * kMebibyte), 64 * kMebibyte);
  EXPECT_EQ(default_constraint_memory(&tokenizer, 64 * 1024 * kMebibyte), 64 * kMebibyte);
}

// The default is reduced where the model would not fit next to it, and the refusal then says what is missing.
TEST(ConstraintMemory, RefusalsNameWhatHasNoRoom) {
  auto model = templated_model("", small_budget());
  ASSERT_NE(model, nullptr);
  EngineOptions options;
  options.threads = 1;
  options.constraint_memory = 1 * kMebibyte;
  const auto refused = Engine::create(model, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("constraint memory"), std::string::npos) << refused.error().message;
  EXPECT_EQ(refused.error().kind, ErrorKind::user);

  // KV tokens that leave less than the default.
  options.constraint_memory = 0;
  auto probe = Engine::create(model, options);
  ASSERT_TRUE(probe.ok());
  const EngineStats stats = (*probe)->stats();
  const int64_t kept = account(**probe, "constraints");
  ASSERT_GT(kept, 0);
  const int64_t block_bytes = stats.kv_bytes / stats.kv_blocks;
  options.kv_tokens = (stats.kv_blocks + kept / 2 / block_bytes) * options.block_tokens;
  probe->reset();
  const auto full = Engine::create(model, options);
  ASSERT_TRUE(full.ok()) << full.error().message;
  EXPECT_EQ(account(**full, "constraints"), 0);
  Constraint any;
  any.kind = Constraint::Kind::json_object;
  const auto compiled = (*full)->compile(any);
  ASSERT_FALSE(compiled.ok());
  EXPECT_NE(compiled.error().message.find("kept for structured output"), std::string::npos) << compiled.error().message;
}

}  // namespace
}  // namespace millrace
