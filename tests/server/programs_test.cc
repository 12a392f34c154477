// POST /v1/programs on a live server: its results are those of the same steps sent as separate requests.
#include <gtest/gtest.h>

#include "live_server.h"

namespace millrace {
namespace {

const char* kBranches = R"({"seed": 3, "steps": [
  {"text": "Once upon a time there was a small house by the river. The cat and the dog lived there."},
  {"gen": "opening", "max_tokens": 12},
  {"fork": "ways", "count": 4, "steps": [{"text": " Then"}, {"gen": "way", "max_tokens": 8, "score": true}]},
  {"best": "best", "fork": "ways", "of": "way"},
  {"join": "ways"},
  {"text": " Happy? "}, {"select": "mood", "choices": ["yes", "no"]}], "output": "{ways}|{best}|{mood}"})";

Response post_program(int port, const std::string& program, const std::string& more = "") {
  return post(port, "/v1/programs", "{\"program\": " + program + more + "}");
}

TEST(Programs, StepsAreThoseOfSeparateRequests) {
  const LiveServer live;
  const Response reply = post_program(live.port(), kBranches);
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  ASSERT_EQ(json["steps"].size(), 6u) << reply.body;
  EXPECT_EQ(json["usage"]["requests"], 7);
  EXPECT_EQ(json["usage"]["branches"], 5);
  const std::string begin = "Once upon a time there was a small house by the river. The cat and the dog lived there.";
  const std::string opening = json["variables"]["opening"];
  std::string ways;
  for (const Json& step : json["steps"]) {
    if (step["kind"] != "gen") continue;
    const bool first = step["name"] == "opening";
    const Json body = {
        {"prompt", first ? begin : begin + opening + " Then"}, {"max_tokens", first ? 12 : 8}, {"seed", step["seed"]}};
    const Json alone = post(live.port(), "/v1/completions", body.dump()).json();
    EXPECT_EQ(alone["choices"][0]["text"], step["text"]) << step["branch"];
  }
  double best = -1;
  std::string best_text;
  for (const Json& step : json["steps"])
    if (step["name"] == "way" && step["confidence"].get<double>() > best) {
      best = step["confidence"];
      best_text = step["text"];
    }
  EXPECT_EQ(json["variables"]["best"], best_text);
  EXPECT_TRUE(json["text"] == json["variables"]["ways"].get<std::string>() + "|" + best_text + "|yes" ||
              json["text"] == json["variables"]["ways"].get<std::string>() + "|" + best_text + "|no")
      << json["text"];
  EXPECT_EQ(post_program(live.port(), kBranches).json()["text"], json["text"]);
}

TEST(Programs, ConversationsUseTheChatTemplate) {
  const LiveServer live({}, {}, {}, nullptr,
                        templated_model("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
                                        "{% if add_generation_prompt %}[assistant] {% endif %}"));
  const Response reply = post_program(live.port(), R"({"variables": {"who": "the cat"}, "steps": [
    {"system": "Tell stories."}, {"user": "About {who}."}, {"text": "One day"},
    {"gen": "one", "max_tokens": 6, "temperature": 0}, {"user": "Go on."}, {"gen": "two", "max_tokens": 6, "temperature": 0}]})",
                                      R"(, "variables": {"who": "the dog"})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  Json messages = {{{"role", "system"}, {"content", "Tell stories."}},
                   {{"role", "user"}, {"content", "About the dog."}},
                   {{"role", "assistant"}, {"content", "One day"}}};
  Json body = {{"messages", messages},
               {"max_tokens", 6},
               {"temperature", 0},
               {"seed", 0},
               {"continue_final_message", true},
               {"add_generation_prompt", false}};
  const Json first = post(live.port(), "/v1/chat/completions", body.dump()).json();
  EXPECT_EQ(first["choices"][0]["message"]["content"], json["variables"]["one"]);
  messages[2]["content"] = "One day" + json["variables"]["one"].get<std::string>();
  messages.push_back({{"role", "user"}, {"content", "Go on."}});
  body = {{"messages", messages}, {"max_tokens", 6}, {"temperature", 0}, {"seed", 0}};
  const Json second = post(live.port(), "/v1/chat/completions", body.dump()).json();
  EXPECT_EQ(second["choices"][0]["message"]["content"], json["variables"]["two"]);
  EXPECT_EQ(json["text"], json["variables"]["two"]);
}

TEST(Programs, StreamsHaveAnEventForEachStep) {
  const LiveServer live;
  const Response reply = post_program(live.port(), kBranches, ", \"stream\": true");
  ASSERT_EQ(reply.status, 200);
  EXPECT_EQ(reply.headers.at("content-type"), "text/event-stream");
  size_t steps = 0, at = 0;
  while ((at = reply.body.find("event: step\ndata: {", at)) != std::string::npos) {
    ++steps;
    ++at;
  }
  EXPECT_EQ(steps, 6u) << reply.body;
  const size_t result = reply.body.find("event: result\ndata: ");
  ASSERT_NE(result, std::string::npos) << reply.body;
  const Json json = Json::parse(reply.body.substr(result + 20), nullptr, false);
  EXPECT_EQ(json["text"], post_program(live.port(), kBranches).json()["text"]);
}

TEST(Programs, ErrorsNameThePlace) {
  const LiveServer live;
  const auto error = [&](const std::string& program, const std::string& more = "") {
    const Response reply = post_program(live.port(), program, more);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return reply.json()["error"]["message"].get<std::string>();
  };
  EXPECT_EQ(error("{}"), "program: steps: must be a list of steps");
  EXPECT_EQ(error(R"({"steps": [{"text": "x"}, {"gen": "a", "max": 3}]})"),
            "program: steps[1].max: is not a key of this object; see docs/programs.md");
  EXPECT_EQ(error(R"({"steps": [{"text": "{a}"}]})"), "program: steps[0]: {a}: is not set before this step");
  EXPECT_EQ(error(R"({"steps": [{"text": "x"}]})", R"(, "variables": {"a": "b"})"),
            "variables.a: the program has no such variable");
  EXPECT_NE(error(R"({"steps": [{"text": "x"}, {"gen": "a", "regex": "("}]})").find("gen a: "), std::string::npos);
  const Response unknown = post_program(live.port(), R"({"steps": [{"text": "x"}, {"gen": "a", "model": "large"}]})");
  EXPECT_EQ(unknown.status, 400);
  EXPECT_NE(unknown.body.find("'large' is not served here"), std::string::npos) << unknown.body;
  EXPECT_EQ(post_program(live.port(), R"({"steps": [{"text": "only text"}]})").json()["text"], "only text");
}

// A member of the family program answers messages; its answers are those of the requests that it stands for.
TEST(Programs, AMemberAnswersMessages) {
  const LiveServer live({}, {}, {}, nullptr, templated_model("{% for m in messages %}{{ m.content }}\n{% endfor %}"));
  const std::string messages =
      R"("messages": [{"role": "user", "content": "Once upon a time {there}"}], "max_tokens": 6)";
  const Response reply = post(live.port(), "/v1/programs", "{" + messages + R"(, "seed": 5, "temperature": 0.9,
                              "millrace": {"use": ["program=best_of:n=3"]}})");
  ASSERT_EQ(reply.status, 200) << reply.body;
  const Json json = reply.json();
  EXPECT_EQ(json["usage"]["requests"], 3);
  std::string best;
  double confidence = -1;
  for (const Json& step : json["steps"]) {
    const Json alone = post(live.port(), "/v1/chat/completions",
                            "{" + messages + ", \"temperature\": 0.9, \"seed\": " + step["seed"].dump() + "}")
                           .json();
    EXPECT_EQ(alone["choices"][0]["message"]["content"], step["text"]);
    if (step["confidence"].get<double>() <= confidence) continue;
    confidence = step["confidence"];
    best = step["text"];
  }
  EXPECT_EQ(json["text"], best);
  for (const auto& [body, message] : std::vector<std::pair<std::string, std::string>>{
           {"{" + messages + "}", "program: is missing; messages are for millrace.use"},
           {R"({"millrace": {"use": ["program=best_of"]}})", "millrace.use: needs messages"},
           {"{" + messages + R"(, "millrace": {"use": ["program=tree"]}})", "millrace.use: program: unknown 'tree'"},
           {"{" + messages + R"(, "millrace": {"use": ["sampler=greedy"]}})",
            "millrace.use: must be one choice, program=NAME:key=value,..."},
           {"{" + messages + R"(, "program": {}, "millrace": {"use": ["program=best_of"]}})",
            "millrace.use: cannot be combined with program"}}) {
    const Response refused = post(live.port(), "/v1/programs", body);
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_TRUE(refused.json()["error"]["message"].get<std::string>().starts_with(message)) << refused.body;
  }
}

// The engine's work ends with the client.
TEST(Programs, ALeavingClientCancelsItsGenerations) {
  const LiveServer live;
  {
    Client client(live.port());
    client.post("/v1/programs",
                R"({"program": {"steps": [{"text": "Once upon a time"}, {"fork": "f", "count": 8, "steps": [
                {"gen": "a", "max_tokens": 400}]}, {"join": "f"}]}})");
    for (int i = 0; i < 500 && live.server->service().engine().stats().running == 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_GT(live.server->service().engine().stats().running, 0);
  }
  for (int i = 0; i < 2000 && live.server->service().engine().stats().running > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_EQ(live.server->service().engine().stats().running, 0);
  EXPECT_EQ(live.server->service().engine().stats().waiting, 0);
}

}  // namespace
}  // namespace millrace
