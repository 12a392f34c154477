// When the drain time was over, streams ended in the middle, without an error event, and queued requests got no byte at
// all: clients saw a reset connection. The test of a stopping server read until the end, whatever it was.
#include <thread>

#include "regressions/step_gate.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kDrainChat = R"("messages": [{"role": "user", "content": "Once upon a time"}])";

std::string rest_of(Client& client) {
  std::string out;
  for (std::string part = client.chunk(); !part.empty(); part = client.chunk()) out += part;
  return out;
}

TEST(DrainAnswers, EveryClientGetsAnErrorInItsApisFormat) {
  EngineOptions options;
  options.max_streams = 5;
  auto live = std::make_unique<LiveServer>(ServiceOptions(), HttpLimits(), options, nullptr,
                                           templated_model("{{ messages[0]['content'] }}"));
  const int port = live->port();
  auto gate = std::make_unique<StepGate>(live->engine());
  const std::pair<const char*, std::string> streams[] = {
      {"/v1/completions", R"({"prompt": "Once upon a time", "stream": true})"},
      {"/v1/messages", std::string("{\"max_tokens\": 200, \"stream\": true, ") + kDrainChat + "}"},
      {"/api/chat", std::string("{") + kDrainChat + "}"},
      {"/completion", R"({"prompt": "Once upon a time", "stream": true})"},
      {"/v1/responses", R"({"input": "Once upon a time", "stream": true})"}};
  std::vector<std::unique_ptr<Client>> clients;
  for (const auto& [path, body] : streams) {
    clients.push_back(std::make_unique<Client>(port));
    clients.back()->post(path, body);
  }
  ASSERT_TRUE(comes_true([&] { return live->server->counts().answering == 5; }));
  // One step each until every stream has sent its first event.
  const auto begun = [&] {
    gate->allow(1);
    gate->wait_until_held();
    return live->engine().stats().running == 5 && live->engine().stats().generated_tokens >= 10;
  };
  ASSERT_TRUE(comes_true(begun));
  for (auto& client : clients) ASSERT_EQ(client->head().status, 200);
  Client waits(port), waits_to_stream(port), half(port);
  waits.post("/v1/completions", R"({"prompt": "One"})");
  waits_to_stream.post("/v1/messages", std::string("{\"max_tokens\": 5, \"stream\": true, ") + kDrainChat + "}");
  half.send("POST /api/chat HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 100\r\n\r\n");
  ASSERT_EQ(half.head().status, 100);  // its head has been read
  ASSERT_TRUE(
      comes_true([&] { return live->server->counts().answering == 7 && live->server->counts().connections == 8; }));
  std::thread stopping([&] { live.reset(); });  // the engine is in a step that does not finish
  const std::string completions = rest_of(*clients[0]), messages = rest_of(*clients[1]), ollama = rest_of(*clients[2]),
                    llama = rest_of(*clients[3]), responses = rest_of(*clients[4]);
  const Response whole = waits.response(), stream = waits_to_stream.response(), part = half.response();
  gate.reset();
  stopping.join();
  for (const std::string* text : {&completions, &llama}) {
    ASSERT_FALSE(events_of(*text).empty()) << *text;
    EXPECT_EQ(Json::parse(events_of(*text).back(), nullptr, false).value(Json::json_pointer("/error/type"), ""),
              "unavailable_error")
        << *text;
  }
  EXPECT_NE(messages.find("event: error\ndata: {\"type\":\"error\""), std::string::npos) << messages;
  EXPECT_EQ(messages.find("message_stop"), std::string::npos);
  const std::string last_line = ollama.substr(std::min(ollama.size(), ollama.rfind('\n', ollama.size() - 2) + 1));
  EXPECT_TRUE(Json::parse(last_line, nullptr, false).contains("error")) << ollama;
  EXPECT_NE(responses.find("event: error\n"), std::string::npos) << responses;
  EXPECT_EQ(whole.status, 503);
  EXPECT_EQ(whole.json().value(Json::json_pointer("/error/type"), ""), "unavailable_error") << whole.body;
  EXPECT_EQ(stream.status, 529);
  EXPECT_EQ(stream.json().value(Json::json_pointer("/error/type"), ""), "overloaded_error") << stream.body;
  EXPECT_EQ(part.status, 503);
  EXPECT_TRUE(part.json().is_object() && part.json()["error"].is_string()) << part.body;
}

}  // namespace
}  // namespace millrace
