// A server with --record aborted at the first request with tools or a structural tag: the table of names in
// recording.cc had none for Constraint::Kind::structure, which was added after it. No test recorded more than plain
// requests. These tests cover all kinds, so that a new one cannot be forgotten.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/enum_table.h"
#include "server/live_server.h"
#include "server/telemetry/recording.h"

namespace millrace {
namespace {

using Kind = Constraint::Kind;

// One constraint of each kind. It is a switch, so that a kind without a case is a compiler warning and fails below.
Constraint constraint_of(Kind kind) {
  switch (kind) {
    case Kind::none: return {};
    case Kind::json_object: return {kind, "", {}, ""};
    case Kind::json_schema:
      return {kind, R"({"type": "object", "properties": {"a\n\"": {"const": "\u0001"}}})", {}, ""};
    case Kind::regex: return {kind, "[a-z]{1,3}", {}, ""};
    case Kind::grammar: return {kind, "root ::= \"a\"", {}, "<think>"};
    case Kind::choice: return {kind, "", {"yes", "no", ""}, ""};
    case Kind::structure: return {kind, R"({"type":"regex","pattern":"[a-z]{1,8}"})", {}, "call:"};
  }
  ADD_FAILURE() << "no constraint of kind " << static_cast<int>(kind);
  return {};
}

class RecordedStructure : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() / ("recorded_structure." + std::to_string(getpid()) + ".jsonl");
  }
  void TearDown() override { std::filesystem::remove(path_); }
  std::string path_;
};

TEST_F(RecordedStructure, EveryKindIsReadBackUnchanged) {
  {
    auto recorder = Recorder::create(path_, {.model = "m", .prompts = true});
    ASSERT_TRUE(recorder.ok()) << recorder.error().message;
    for (Kind kind : kAllOf<Kind>) {
      RecordedRequest one{.id = "kind"};
      one.request.prompt = {1, 2, 3};
      one.request.constraint = constraint_of(kind);
      one.answers.push_back({.finish = FinishReason::stop, .ids = {4, 5}});
      ASSERT_TRUE((*recorder)->write(one, std::chrono::steady_clock::now()).ok());
    }
  }
  const auto recording = read_recording(path_);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_EQ(recording->requests.size(), kEnumerators<Kind>);
  for (size_t i = 0; i < recording->requests.size(); ++i) {
    const Constraint &wanted = constraint_of(kAllOf<Kind>[i]), &read = recording->requests[i].request.constraint;
    EXPECT_EQ(read.kind, wanted.kind);
    EXPECT_EQ(read.text, wanted.text);
    EXPECT_EQ(read.choices, wanted.choices);
    EXPECT_EQ(read.trigger, wanted.trigger);
  }
}

TEST_F(RecordedStructure, EveryFinishReasonIsReadBack) {
  {
    auto recorder = Recorder::create(path_, {.prompts = true});
    ASSERT_TRUE(recorder.ok());
    RecordedRequest one;
    one.request.prompt = {1};
    for (FinishReason reason : kAllOf<FinishReason>) one.answers.push_back({.finish = reason, .ids = {7}});
    for (EarlyStopping early : kAllOf<EarlyStopping>) {
      one.request.beams = 2;
      one.request.early_stopping = early;
      ASSERT_TRUE((*recorder)->write(one, std::chrono::steady_clock::now()).ok());
    }
  }
  const auto recording = read_recording(path_);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_EQ(recording->requests.size(), kEnumerators<EarlyStopping>);
  for (size_t i = 0; i < recording->requests.size(); ++i) {
    EXPECT_EQ(recording->requests[i].request.early_stopping, kAllOf<EarlyStopping>[i]);
    ASSERT_EQ(recording->requests[i].answers.size(), kEnumerators<FinishReason>);
    for (size_t j = 0; j < recording->requests[i].answers.size(); ++j)
      EXPECT_EQ(recording->requests[i].answers[j].finish, kAllOf<FinishReason>[j]);
  }
}

// Through a server: tools, a structural tag and every other kind are recorded, read back and replayed on the same
// engine.
TEST_F(RecordedStructure, RequestsOfALiveServerReplayToTheSameTokens) {
  const std::vector<std::pair<std::string, std::string>> requests = {
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "seed": 1, "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}}]})"},
      {"/v1/chat/completions",
       R"({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 12, "seed": 2, "tool_choice": "auto",
        "tools": [{"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}]})"},
      {"/v1/completions",
       R"({"prompt": "Once", "max_tokens": 12, "seed": 3, "response_format": {"type": "structural_tag", "format": {"type": "regex", "pattern": "[a-z]{1,8}"}}})"},
      {"/v1/completions",
       R"({"prompt": "Once", "max_tokens": 12, "seed": 4, "response_format": {"type": "json_object"}})"},
      {"/v1/completions", R"({"prompt": "Once", "max_tokens": 12, "seed": 5, "guided_regex": "[a-z]{1,9}"})"},
      {"/v1/completions",
       R"({"prompt": "Once", "max_tokens": 12, "seed": 6, "guided_grammar": "root ::= \"yes\" | \"no\""})"},
      {"/v1/completions", R"({"prompt": "Once", "max_tokens": 12, "seed": 7, "guided_choice": ["yes", "no"]})"},
      {"/v1/completions",
       R"({"prompt": "Once", "max_tokens": 12, "seed": 8, "guided_json": {"type": "object", "properties": {"a": {"type": "integer"}}}})"},
      {"/v1/completions", R"({"prompt": "Once", "max_tokens": 12, "seed": 9})"}};
  {
    ServiceOptions service;
    auto telemetry = Telemetry::create({.record = path_, .record_prompts = true, .version = "test"}, "stories",
                                       {.model = "stories", .prompts = true});
    ASSERT_TRUE(telemetry.ok());
    service.telemetry = std::move(*telemetry);
    LiveServer live(std::move(service), {}, {}, nullptr,
                    templated_model("{% for m in messages %}{{ m.content }}{% endfor %}"));
    for (const auto& [path, body] : requests) {
      Client client(live.port());
      client.post(path, body);
      EXPECT_EQ(client.response().status, 200) << body;
    }
  }
  const auto recording = read_recording(path_);
  ASSERT_TRUE(recording.ok()) << recording.error().message;
  ASSERT_EQ(recording->requests.size(), requests.size());
  auto engine = Engine::create(shipped_model(), {.threads = 1});
  ASSERT_TRUE(engine.ok());
  EnumTable<Kind, int> seen;
  for (const RecordedRequest& one : recording->requests) {
    ++seen[one.request.constraint.kind];
    auto stream = (*engine)->submit(one.request);
    ASSERT_TRUE(stream.ok()) << stream.error().message;
    std::vector<TokenId> tokens;
    while (const auto event = (*stream)->next())
      if (counts_as_answer(*event)) tokens.push_back(event->token);
    ASSERT_EQ(one.answers.size(), 1u);
    EXPECT_EQ(tokens, one.answers[0].ids);
    EXPECT_EQ(token_digest(tokens), one.answers[0].digest);
  }
  for (Kind kind : kAllOf<Kind>)
    EXPECT_GT(seen[kind], 0) << "no request was recorded with kind " << static_cast<int>(kind);
}

}  // namespace
}  // namespace millrace
