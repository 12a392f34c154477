// URLs, event streams and the answers in them: what is parsed, and what is rejected.
#include <gtest/gtest.h>

#include "workload/remote/completion_api.h"
#include "workload/remote/event_stream.h"
#include "workload/remote/url.h"

namespace millrace {
namespace {

TEST(Url, PartsAndErrors) {
  auto url = Url::parse("http://localhost:8080/api/");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "localhost");
  EXPECT_EQ(url->port, "8080");
  EXPECT_EQ(url->path, "/api");
  EXPECT_EQ(url->host_header(), "localhost:8080");
  url = Url::parse("http://[::1]");
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->host, "::1");
  EXPECT_EQ(url->host_header(), "[::1]");
  for (const char* text : {"", "localhost:80", "http://", "http://:80", "http://h:0", "http://h:70000", "http://h:80x",
                           "http://[::1", "http://[::1]x", "http://h/a b", "http://h/\r\nX: y", "http://u@h"})
    EXPECT_FALSE(Url::parse(text).ok()) << text;
  EXPECT_EQ(Url::parse("https://h").error().kind, ErrorKind::unsupported);
}

std::vector<std::string> events(std::string_view bytes, size_t piece, size_t most = 1000) {
  EventStream stream(most);
  std::vector<std::string> out;
  for (size_t at = 0; at < bytes.size(); at += piece) {
    if (!stream
             .push(bytes.substr(at, piece),
                   [&](std::string_view data) {
                     out.emplace_back(data);
                     return data != "stop";
                   })
             .ok()) {
      out.push_back("ERROR");
      break;
    }
  }
  return out;
}

TEST(EventStream, EventsDoNotDependOnChunking) {
  const std::string bytes =
      ": comment\nevent: x\ndata: a\ndata:b\n\ndata\n\nid: 3\n\ndatax: c\n\ndata: d\r\n\r\ndata: e\r\rdata: lost";
  for (size_t piece : {1, 2, 3, 7, 1000})
    EXPECT_EQ(events(bytes, piece), (std::vector<std::string>{"a\nb", "", "d", "e"})) << piece;
}

TEST(EventStream, StopsAndBounds) {
  EXPECT_EQ(events("data: stop\n\ndata: a\n\n", 1000), (std::vector<std::string>{"stop"}));
  for (size_t piece : {1, 1000}) {
    EXPECT_EQ(events("data: " + std::string(100, 'x') + "\n\n", piece, 50), (std::vector<std::string>{"ERROR"}));
    EXPECT_EQ(events("data: 0123456789\ndata: 0123456789\ndata: 0123456789\n\n", piece, 30),
              (std::vector<std::string>{"ERROR"}));
  }
}

TEST(CompletionApi, MalformedEventsAreErrors) {
  for (auto api : {CompletionApi::completions, CompletionApi::chat, CompletionApi::llama}) {
    for (const char* text : {"", "{", "[]", "3", "{\"error\":{\"message\":\"no\"}}"})
      EXPECT_NE(read_completion_chunk(api, text).error, "") << text;
    EXPECT_NE(read_completion_chunk(api, std::string(100000, '[')).error, "");
    for (const char* text : {"{}", R"({"choices":3})", R"({"choices":[3]})",
                             R"({"choices":[{"text":3,"delta":[]}],"usage":{"completion_tokens":-5}})"}) {
      const CompletionChunk chunk = read_completion_chunk(api, text);
      EXPECT_FALSE(chunk.token) << text;
      EXPECT_EQ(chunk.output_tokens, -1);
    }
    EXPECT_TRUE(read_completion_chunk(api, "[DONE]").done);
  }
  EXPECT_EQ(completion_error(R"({"error":{"message":"two\nlines"}})"), "two lines");
  EXPECT_EQ(completion_error("<html>"), "");
}

TEST(CompletionApi, EqualTokensAreEqualWords) {
  EXPECT_EQ(words_of({1, 2, 1}), "and that and");
  WorkloadRequest request;
  request.prompt_tokens = 6;
  request.output_tokens = 0;
  EXPECT_NE(completion_body({.api = CompletionApi::llama}, request).find("\"n_predict\":1"), std::string::npos);
}

}  // namespace
}  // namespace millrace
