#include "server/telemetry/recording.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <limits>

#include "sampling/schema.h"

namespace millrace {
namespace {

RecordedRequest full_request() {
  RecordedRequest out{.id = "req \"1\"\n"};
  Request& r = out.request;
  r.prompt = {1, 5, 9};
  r.sampling.seed = std::numeric_limits<uint64_t>::max();
  r.sampling.temperature = 0.1 + 0.2;
  r.sampling.logit_bias = {{4, -1.5}};
  r.sampling.dry_breakers = {"\n"};
  r.max_tokens = -1;
  r.min_tokens = 2;
  r.ignore_eos = true;
  r.stop = {"END", "\xE2\x82\xAC"};
  r.constraint = {Constraint::Kind::choice, "", {"yes", "no"}, "=>"};
  r.cache_prompt = false;
  r.evictor = "h2o:budget=64";
  r.documents = {{0, 1}, {1, 2}};
  r.document_context = "kvlink:sinks=0";
  r.n = 2;
  r.best_of = 3;
  r.priority = -4;
  out.answers = {{.finish = FinishReason::stop, .ids = {7, 8}}, {.finish = FinishReason::cancelled, .ids = {}}};
  return out;
}

std::string recorded(bool prompts, int requests = 1) {
  const std::string path = (std::filesystem::path(::testing::TempDir()) / "recording_test.jsonl").string();
  {
    auto recorder = Recorder::create(path, {"m", "avx2", "f16", prompts});
    EXPECT_TRUE(recorder.ok());
    for (int i = 0; i < requests; ++i)
      EXPECT_TRUE((*recorder)->write(full_request(), std::chrono::steady_clock::now()).ok());
  }
  std::ifstream file(path);
  return std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
}

TEST(Recording, RoundTripsAllFieldsThatAffectAnAnswer) {
  const auto read = parse_recording(recorded(true), "r");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->head.model, "m");
  EXPECT_TRUE(read->head.prompts);
  ASSERT_EQ(read->requests.size(), 1u);
  const RecordedRequest expected = full_request();
  const RecordedRequest& actual = read->requests[0];
  EXPECT_EQ(actual.id, expected.id);
  EXPECT_EQ(actual.request.prompt, expected.request.prompt);
  for (const OptionSpec& spec : sampling_schema())
    EXPECT_EQ(sampling_option_text(actual.request.sampling, spec.name),
              sampling_option_text(expected.request.sampling, spec.name))
        << spec.name;
  EXPECT_EQ(actual.request.max_tokens, -1);
  EXPECT_EQ(actual.request.min_tokens, 2);
  EXPECT_TRUE(actual.request.ignore_eos);
  EXPECT_EQ(actual.request.stop, expected.request.stop);
  EXPECT_EQ(actual.request.constraint.kind, Constraint::Kind::choice);
  EXPECT_EQ(actual.request.constraint.choices, expected.request.constraint.choices);
  EXPECT_EQ(actual.request.constraint.trigger, "=>");
  EXPECT_FALSE(actual.request.cache_prompt);
  EXPECT_EQ(actual.request.evictor, "h2o:budget=64");
  ASSERT_EQ(actual.request.documents.size(), 2u);
  EXPECT_EQ(actual.request.documents[1].begin, 1);
  EXPECT_EQ(actual.request.documents[1].end, 2);
  EXPECT_EQ(actual.request.document_context, "kvlink:sinks=0");
  EXPECT_EQ(actual.request.n, 2);
  EXPECT_EQ(actual.request.best_of, 3);
  EXPECT_EQ(actual.request.priority, -4);
  ASSERT_EQ(actual.answers.size(), 2u);
  EXPECT_EQ(actual.answers[0].digest, token_digest({7, 8}));
  EXPECT_EQ(actual.answers[0].ids, (std::vector<TokenId>{7, 8}));
  EXPECT_EQ(actual.answers[1].finish, FinishReason::cancelled);
}

TEST(Recording, WithoutPromptsContainsNoPromptTokens) {
  const std::string text = recorded(false, 2);
  EXPECT_EQ(text.find("\"prompt\":"), std::string::npos);
  EXPECT_EQ(text.find("\"ids\""), std::string::npos);
  const auto read = parse_recording(text, "r");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->requests[0].prompt_tokens, 3);
  EXPECT_EQ(read->requests[0].prompt_hash, read->requests[1].prompt_hash);
  EXPECT_NE(read->requests[0].prompt_hash,
            parse_recording(recorded(false), "r")->requests[0].prompt_hash);  // salted per file
}

TEST(Recording, DetectsEveryTruncation) {
  const std::string text = recorded(true, 2);
  for (size_t length = 0; length < text.size() - 1; ++length) {
    const auto read = parse_recording(std::string_view(text).substr(0, length), "file");
    ASSERT_FALSE(read.ok()) << length;
    EXPECT_EQ(read.error().kind, ErrorKind::corrupt);
    EXPECT_TRUE(read.error().message.starts_with("file")) << read.error().message;
    EXPECT_EQ(read.error().message.find('\n'), std::string::npos);
  }
  const size_t last_line = text.rfind('\n', text.size() - 2) + 1;
  EXPECT_EQ(parse_recording(std::string_view(text).substr(0, last_line), "file", false)->requests.size(), 2u);
  EXPECT_EQ(parse_recording(std::string_view(text).substr(0, last_line - 5), "file", false)->requests.size(), 1u);
}

TEST(Recording, RejectsDamagedFiles) {
  const std::string text = recorded(true);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string out = text;
    const size_t at = out.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return parse_recording(out.replace(at, from.size(), to), "f");
  };
  EXPECT_EQ(with("\"millrace_recording\":1", "\"millrace_recording\":2").error().kind, ErrorKind::unsupported);
  EXPECT_NE(with("\"ids\":[7,8]", "\"ids\":[7,9]").error().message.find("digest"), std::string::npos);
  EXPECT_NE(with("[1,5,9]", "[1,-5,9]").error().message.find("line 2: prompt"), std::string::npos);
  EXPECT_FALSE(with("[1,5,9]", "[]").ok());
  EXPECT_FALSE(with("\"n\":2", "\"n\":1e30").ok());
  EXPECT_FALSE(with("\"n\":2", "\"n\":true").ok());
  EXPECT_FALSE(with("\"max_tokens\":-1", "\"max_tokens\":18446744073709551615").ok());
  EXPECT_FALSE(with("\"kind\":\"choice\"", "\"kind\":\"spell\"").ok());
  EXPECT_FALSE(with("\"temperature\":\"", "\"temperature\":\"x").ok());
  EXPECT_FALSE(with("\"arrival\":", "\"arrived\":").ok());
  EXPECT_FALSE(with("{\"end\":1}", "{\"end\":2}").ok());
  EXPECT_FALSE(with("{\"end\":1}", "{\"end\":1}\n{}").ok());
  EXPECT_FALSE(parse_recording("{\"a\": 1}\n", "f").ok());
  EXPECT_FALSE(read_recording("/nonexistent/recording").ok());
  EXPECT_FALSE(Recorder::create("/nonexistent/recording", {}).ok());
}

// A full disk: what is not written is reported, and the file stays whole.
TEST(Recording, AFullDiskLosesNoRequestSilently) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "full_recording.jsonl";
  auto recorder = Recorder::create(path, {.prompts = true});
  ASSERT_TRUE(recorder.ok());
  RecordedRequest request{.id = "id"};
  request.request.prompt = {1, 2, 3};
  request.answers = {{.ids = {7, 8}}};
  const auto write = [&] { return (*recorder)->write(request, std::chrono::steady_clock::now()); };
  size_t written = 0, lost = 0;
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit all{};
  ::getrlimit(RLIMIT_FSIZE, &all);
  rlimit small = all;
  small.rlim_cur = 2000;
  ::setrlimit(RLIMIT_FSIZE, &small);
  for (int i = 0; i < 50; ++i) ++(write().ok() ? written : lost);
  ::setrlimit(RLIMIT_FSIZE, &all);
  EXPECT_GT(written, 0u);
  EXPECT_GT(lost, 0u);
  EXPECT_TRUE(write().ok()) << "there is space again";
  recorder->reset();
  std::signal(SIGXFSZ, before);
  const auto read = read_recording(path);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->requests.size(), written + 1);
  std::filesystem::remove(path);
}

TEST(Recording, OnlyTheOwnerReadsIt) {
  const std::filesystem::path path = std::filesystem::path(::testing::TempDir()) / "owner_recording.jsonl";
  ASSERT_TRUE(Recorder::create(path, {}).ok());
  using std::filesystem::perms;
  EXPECT_EQ(std::filesystem::status(path).permissions(), perms::owner_read | perms::owner_write);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace millrace
