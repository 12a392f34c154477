// "millrace": {"use": [...]}: techniques for one request, in every API that generates text.
#include "server/api/endpoint.h"
#include "server/generation/engine_choices.h"
#include "server/live_server.h"

namespace millrace {
namespace {

constexpr const char* kCompletions = "/v1/completions";

std::string completion(const std::string& fields) {
  return R"({"prompt": "Once upon a time", "max_tokens": 12, "seed": 5)" + fields + "}";
}

TEST(RequestUse, IsWhatTheRequestsOwnFieldsWouldDo) {
  LiveServer live;
  const Json own = post(live.port(), kCompletions, completion(R"(, "temperature": 1.5, "min_p": 0.2)")).json();
  const Json used =
      post(live.port(), kCompletions,
           completion(R"(, "millrace": {"use": ["sampler=temperature:temperature=1.5", "sampler=min_p:min_p=0.2"]})"))
          .json();
  ASSERT_TRUE(used.contains("choices")) << used;
  EXPECT_EQ(used["choices"], own["choices"]);
  EXPECT_FALSE(own.contains("millrace"));
  const Json& applied = used["millrace"]["applied"];
  ASSERT_EQ(applied.size(), 2u);
  EXPECT_EQ(applied[1]["family"], "sampler");
  EXPECT_EQ(applied[1]["name"], "min_p");
  EXPECT_EQ(applied[1]["options"], (Json{{"min_p", 0.2}}));
  EXPECT_EQ(applied[1]["effect"], "min_p 0.2 instead of 0.05");
}

TEST(RequestUse, EveryApiAnswersWhatItApplied) {
  LiveServer live;
  const std::string use = R"(, "millrace": {"use": ["sampler=greedy"]})";
  const std::string messages = R"({"messages": [{"role": "user", "content": "Once"}])";
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/chat/completions", messages + R"(, "max_tokens": 2)"},
      {"/v1/completions", R"({"prompt": "Once", "max_tokens": 2)"},
      {"/v1/responses", R"({"input": "Once", "max_output_tokens": 16)"},
      {"/v1/messages", messages + R"(, "max_tokens": 2)"},
      {"/completion", R"({"prompt": "Once", "n_predict": 2)"},
      {"/api/generate", R"({"prompt": "Once", "stream": false, "options": {"num_predict": 2})"},
      {"/api/chat", messages + R"(, "stream": false, "options": {"num_predict": 2})"},
  };
  for (const auto& [path, body] : requests) {
    const Response answer = post(live.port(), path, body + use + "}");
    ASSERT_EQ(answer.status, 200) << path << answer.body;
    EXPECT_EQ(answer.json()["millrace"]["applied"][0]["name"], "greedy") << path << answer.body;
  }
  const Response stream =
      post(live.port(), "/v1/chat/completions", messages + R"(, "max_tokens": 2, "stream": true)" + use + "}");
  EXPECT_NE(stream.body.find(R"("millrace":{"applied":[{"family":"sampler","name":"greedy")"), std::string::npos)
      << stream.body;
}

TEST(RequestUse, AnEvictorOfOneRequest) {
  LiveServer live;
  const auto answer = [&](const std::string& fields) {
    return post(
               live.port(), "/completion",
               R"({"prompt": "Once upon a time", "n_predict": 60, "temperature": 0, "ignore_eos": true)" + fields + "}")
        .json();
  };
  const Json plain = answer("");
  EXPECT_FALSE(plain["timings"].contains("evicted_n"));
  const Json evicted = answer(R"(, "millrace": {"use": ["evictor=streamingllm:sinks=1,window=7,slack=4"]})");
  ASSERT_TRUE(evicted.contains("timings")) << evicted;
  EXPECT_GE(evicted["timings"]["evicted_n"], 40);
  EXPECT_LE(evicted["timings"]["kept_n"], 12);
  EXPECT_EQ(evicted["millrace"]["applied"][0]["name"], "streamingllm");
  EXPECT_EQ(evicted["millrace"]["applied"][0]["effect"],
            "running streams drop keys and values by streamingllm:sinks=1,window=7,slack=4");
  EXPECT_NE(evicted["content"], plain["content"]);
  EXPECT_EQ(answer("")["content"], plain["content"]);  // other requests keep everything
}

TEST(RequestUse, AnExitOfOneRequest) {
  EngineOptions engine;
  engine.kernels = {"exit=layers:n=2"};
  LiveServer live({}, {}, engine);
  const auto answer = [&](const std::string& own) {
    const std::string body = R"({"prompt": "Once upon a time", "n_predict": 20, "temperature": 0, "ignore_eos": true)";
    const Response out = post(live.port(), "/completion", body + own + "}");
    EXPECT_EQ(out.status, 200) << out.body;
    return out.json();
  };
  const Json two = answer(""), whole = answer(R"(, "millrace": {"use": ["exit=none"]})");
  EXPECT_EQ(two["millrace"], Json::parse(R"({"engine": {"exit": "layers:n=2"}})"));
  EXPECT_EQ(whole["millrace"]["applied"][0]["effect"], "tokens run every layer");
  EXPECT_FALSE(whole["millrace"].contains("engine")) << whole;
  const Json one = answer(R"(, "millrace": {"use": ["exit=layers:n=1"]})");
  EXPECT_EQ(one["millrace"]["applied"][0]["effect"], "tokens leave the model early by layers:n=1");
  EXPECT_NE(one["content"], two["content"]);
  EXPECT_NE(whole["content"], two["content"]);
  EXPECT_EQ(answer("")["content"], two["content"]);
  const Response wrong =
      post(live.port(), "/completion", R"({"prompt": "Once", "millrace": {"use": ["exit=layers:n=99"]}})");
  EXPECT_EQ(wrong.status, 400) << wrong.body;
}

TEST(EngineChoices, AreNamedInEveryAnswer) {
  EngineOptions engine;
  engine.kv_format = "q8_0:values=f16";
  engine.evictor = "window:budget=64";
  LiveServer live({}, {}, engine);
  const Json expected = {{"kv_format", "q8_0:values=f16"}, {"evictor", "window:budget=64"}};
  const std::string messages = R"({"messages": [{"role": "user", "content": "Once"}])";
  const std::pair<const char*, std::string> requests[] = {
      {"/v1/chat/completions", messages + R"(, "max_tokens": 2)"},
      {kCompletions, R"({"prompt": "Once", "max_tokens": 2)"},
      {"/v1/responses", R"({"input": "Once", "max_output_tokens": 16)"},
      {"/v1/messages", messages + R"(, "max_tokens": 2)"},
      {"/completion", R"({"prompt": "Once", "n_predict": 2)"},
      {"/api/generate", R"({"prompt": "Once", "stream": false, "options": {"num_predict": 2})"},
  };
  for (const auto& [path, body] : requests) {
    const Response answer = post(live.port(), path, body + "}");
    EXPECT_EQ(answer.json()["millrace"]["engine"], expected) << path << answer.body;
  }
  const Response stream = post(live.port(), kCompletions, R"({"prompt": "Once", "max_tokens": 2, "stream": true})");
  EXPECT_NE(stream.body.find(R"("millrace":{"engine":{"kv_format":"q8_0:values=f16")"), std::string::npos)
      << stream.body;
  const Json own =
      post(live.port(), kCompletions, completion(R"(, "millrace": {"use": ["evictor=h2o:budget=32"]})")).json();
  EXPECT_EQ(own["millrace"]["applied"][0]["name"], "h2o");
  EXPECT_EQ(own["millrace"]["engine"], (Json{{"kv_format", "q8_0:values=f16"}}));
}

TEST(EngineChoices, NameAPatternAndOfFilesTheNameOnly) {
  EngineOptions o;
  EXPECT_EQ(engine_choices(o, {}), Json::object());
  o.evictor = "none";
  o.kernels = {"flash_decoding", "attention=bigbird:window=2"};
  EXPECT_EQ(engine_choices(o, {}), (Json{{"attention", "bigbird:window=2"}}));
  for (const char* rest : {"", ",bits=3"}) {
    o.kv_format = std::string("kvquant:levels=/srv/models/levels.json") + rest;
    EXPECT_EQ(engine_choices(o, {})["kv_format"], std::string("kvquant:levels=levels.json") + rest);
  }
  o.kv_format = "f16:window=kivi:bits=4/residual=32";
  EXPECT_EQ(engine_choices(o, {})["kv_format"], o.kv_format);
}

TEST(EngineChoices, NameTheContextOfDocuments) {
  EngineOptions o;
  Request plain, with, own;
  with.documents = own.documents = {{1, 5}};
  own.document_context = "none";
  o.document_context = "none";
  EXPECT_EQ(engine_choices(o, with), Json::object());
  for (const auto& [given, named] :
       {std::pair("kvlink", "kvlink"),
        {"cepe:model=/srv/models/CEPE//,tokens=512", "cepe:model=CEPE,tokens=512"},
        {"kvlink:links=5,link_embeddings=/srv/links.gguf", "kvlink:links=5,link_embeddings=links.gguf"}}) {
    o.document_context = given;
    EXPECT_EQ(engine_choices(o, with), (Json{{"context", named}}));
    EXPECT_EQ(engine_choices(o, plain), Json::object());
    EXPECT_EQ(engine_choices(o, own), Json::object());
  }
}

TEST(EngineChoices, AnAnswerNamesTheContextOfItsDocuments) {
  EngineOptions engine;
  engine.document_context = "kvlink";
  LiveServer live({}, {}, engine);
  const auto named = [&](const std::string& documents) {
    return post(live.port(), kCompletions, R"({"prompt": "Once", "max_tokens": 2)" + documents + "}")
        .json()["millrace"];
  };
  EXPECT_EQ(named(R"(, "millrace": {"documents": ["One text."]})"), (Json{{"engine", {{"context", "kvlink"}}}}));
  EXPECT_TRUE(named("").is_null());
}

// Steps that change answers without an option of the request: the acceptance of drafts, kernels, partial fetches.
TEST(EngineChoices, NameEveryLossyStepOfTheEngine) {
  EngineOptions engine;
  engine.kernels = {"unified_max:max=4"};
  engine.drafter = "ngram";
  engine.acceptance = "typical:epsilon=0.3";
  LiveServer live({}, {}, engine);
  const Json expected = {{"kernel", "unified_max:max=4"}, {"acceptance", "typical:epsilon=0.3"}};
  const Response answer = post(live.port(), kCompletions, R"({"prompt": "Once", "max_tokens": 2})");
  EXPECT_EQ(answer.json()["millrace"]["engine"], expected) << answer.body;
  // What is read and not answered runs the same kernels, and drafts nothing.
  const Response vectors = post(live.port(), "/v1/embeddings", R"({"input": "Once", "pooling": "last"})");
  EXPECT_EQ(vectors.json()["millrace"]["engine"], (Json{{"kernel", "unified_max:max=4"}})) << vectors.body;
  EngineOptions o;
  o.kv_store = "ssd:path=secret/file,order=importance,fetch=0.5";
  o.kernels = {"unified_max", "fused", "padded_experts:capacity=2"};
  EXPECT_EQ(
      engine_choices(o, {}, "switch"),
      (Json{{"router", "switch"}, {"kernel", "unified_max; padded_experts:capacity=2"}, {"store", "ssd:fetch=0.5"}}));
  EXPECT_EQ(engine_choices({}, {}, "topk", "powerinfer:file=secret/a.neurons,predictor=file"),
            (Json{{"weights", "powerinfer:file=a.neurons,predictor=file"}}));
  EXPECT_EQ(engine_choices({}, {}, "topk", "powerinfer:file=secret/a.neurons"), Json::object());
}

TEST(RequestUse, LeavesOutWhatTheServerChose) {
  EngineOptions engine;
  engine.evictor = "window:budget=16";
  engine.document_context = "kvlink";
  LiveServer live({}, {}, engine);
  const std::string start = R"({"prompt": "Once upon a time", "n_predict": 30, "temperature": 0, "ignore_eos": true)";
  const auto answer = [&](const std::string& own) {
    const Response out = post(live.port(), "/completion", start + R"(, "millrace": {)" + own + "}}");
    EXPECT_EQ(out.status, 200) << out.body;
    return out.json();
  };
  EXPECT_TRUE(answer("")["timings"].contains("evicted_n"));
  const Json kept = answer(R"("use": ["evictor=none"])");
  EXPECT_FALSE(kept["timings"].contains("evicted_n")) << kept;
  EXPECT_EQ(kept["millrace"], Json::parse(R"({"applied": [{"family": "evictor", "name": "none", "options": {},
      "effect": "running streams keep all keys and values"}]})"));
  const Json whole = answer(R"("use": ["evictor=none", "context=none", "prompt=none"], "documents": ["A text."])");
  EXPECT_FALSE(whole["millrace"].contains("engine")) << whole;
  EXPECT_EQ(whole["millrace"]["applied"].size(), 3u) << whole;
}

// A context without documents changes nothing, so it is not reported.
TEST(RequestUse, AContextWithoutDocumentsIsNotApplied) {
  LiveServer live;
  for (const char* own : {R"("use": ["context=kvlink"])", R"("use": ["context=kvlink"], "documents": [])"}) {
    const Response out = post(live.port(), kCompletions, completion(std::string(R"(, "millrace": {)") + own + "}"));
    EXPECT_EQ(out.status, 200) << out.body;
    EXPECT_FALSE(out.json().contains("millrace")) << out.body;
  }
}

// Keys of our own object are ours: one that is not known is misspelt. Every endpoint with a body knows the object.
TEST(RequestUse, UnknownKeysAreRefused) {
  LiveServer live;
  const std::string own = R"("millrace": {"uses": ["sampler=greedy"]})";
  for (const Endpoint& endpoint : endpoints()) {
    if (!endpoint.format) continue;
    Json body = Json::parse("{" + own + "}");
    for (const Field& field : endpoint.fields)
      if (field.required)
        body[field.name] = field.name == "messages"  ? Json::parse(R"([{"role": "user", "content": "a"}])")
                           : field.types & kJsonText ? Json("a")
                                                     : Json(4);
    const Response refused = post(live.port(), endpoint.path, body.dump());
    EXPECT_EQ(refused.status, 400) << endpoint.path << refused.body;
    EXPECT_NE(refused.body.find("millrace.uses: is not a field of millrace; its fields are use, documents, blocks"),
              std::string::npos)
        << endpoint.path << refused.body;
  }
  EXPECT_EQ(post(live.port(), kCompletions, completion(R"(, "millrace": {"": 1})")).status, 400);
  EXPECT_EQ(post(live.port(), kCompletions, completion(R"(, "millrace": {})")).status, 200);
  for (const char* path : {"/v1/embeddings", "/tokenize"}) {
    const std::string body = std::string(R"({"input": "a", "content": "a", )") + own + "}";
    const Response refused = post(live.port(), path, body);
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_NE(refused.body.find("millrace: is not supported"), std::string::npos) << refused.body;
  }
}

// The second request has the same documents in another order, and another question.
TEST(RequestUse, DocumentsAreReusedInAnyOrder) {
  LiveServer live;
  const std::string one = "Anna had a red ball. She lost it in the park near the old tree, where the big dog was.";
  const std::string two = "Tom found a red ball near the old tree. He took it home and showed it to his mother.";
  const auto answer = [&](const std::string& first, const std::string& second, const char* use) {
    const std::string documents = Json{first, second}.dump();
    return post(live.port(), "/completion",
                R"({"prompt": "Then Anna went to", "n_predict": 8, "temperature": 0, "millrace": {"documents": )" +
                    documents + use + "}}")
        .json();
  };
  const char* linked = R"(, "use": ["context=kvlink"])";
  const Json plain = answer(one, two, "");
  ASSERT_TRUE(plain.contains("content")) << plain;
  const Json cold = answer(two, one, linked);
  ASSERT_TRUE(cold.contains("content")) << cold;
  EXPECT_EQ(cold["millrace"]["applied"][0]["effect"], "documents in prompts become keys and values by kvlink");
  const Json warm = answer(one, two, linked);
  EXPECT_EQ(warm["tokens_evaluated"], plain["tokens_evaluated"]);
  EXPECT_GE(warm["timings"]["cache_n"], 30) << warm;
  EXPECT_EQ(answer(two, one, linked)["content"], cold["content"]);
}

// In a conversation they come first in the user's last message, behind the same tokens as in any other order.
TEST(RequestUse, DocumentsOfAConversationAreReused) {
  LiveServer live;
  const std::string one = "Anna had a red ball. She lost it in the park near the old tree, where the big dog was.";
  const std::string two = "Tom found a red ball near the old tree. He took it home and showed it to his mother.";
  const auto answer = [&](const std::string& documents, const char* use, const std::string& text = "Who was it?") {
    return post(live.port(), "/v1/chat/completions",
                R"({"max_tokens": 8, "temperature": 0, "messages": [{"role": "user", "content": )" + Json(text).dump() +
                    R"(}], "millrace": {"documents": )" + documents + use + "}}")
        .json();
  };
  const char* linked = R"(, "use": ["context=kvlink"])";
  const Json plain = answer(Json{one, two}.dump(), "");
  ASSERT_TRUE(plain.contains("choices")) << plain;
  const Json cold = answer(Json{two, one}.dump(), linked);
  ASSERT_TRUE(cold.contains("choices")) << cold;
  EXPECT_EQ(cold["millrace"]["applied"][0]["name"], "kvlink");
  const Json warm = answer(Json{one, two}.dump(), linked);
  EXPECT_EQ(warm["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"]);
  EXPECT_GE(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 30) << warm;
  EXPECT_EQ(answer(Json{two, one}.dump(), linked)["choices"], cold["choices"]);
  const Json marked = answer(Json::array({one}).dump(), "", "[[millrace:documents]]");
  EXPECT_EQ(
      marked["error"]["message"],
      "documents: the chat template changes the user's message, or repeats it; send a prompt that is text instead");
}

TEST(RequestUse, BlocksAreDocuments) {
  LiveServer live;
  const auto answer = [&](const char* fields) {
    return post(live.port(), "/completion",
                std::string(R"({"prompt": "Then", "n_predict": 4, "temperature": 0, "millrace": {)") + fields + "}}")
        .json();
  };
  const Json plain = answer(""), documents = answer(R"("documents": ["One text.", "Another."])");
  const Json blocks = answer(R"("blocks": ["One text.", "Another."])");
  EXPECT_GT(documents["tokens_evaluated"], plain["tokens_evaluated"]) << documents;
  EXPECT_EQ(blocks["tokens_evaluated"], documents["tokens_evaluated"]) << blocks;
  EXPECT_EQ(blocks["content"], documents["content"]);
  EXPECT_EQ(answer(R"("blocks": ["a"], "documents": ["a"])")["error"]["message"],
            "millrace.blocks: is another name of millrace.documents; give only one of them");
}

TEST(RequestUse, DocumentsNeedAPromptOfText) {
  LiveServer live;
  const std::string documents = R"("millrace": {"documents": ["one", ""]})";
  const std::pair<std::string, std::string> cases[] = {
      {R"({"prompt": [1, 2], )" + documents + "}",
       "millrace.documents: come before a prompt that is text or in a conversation, not before tokens"},
      {R"({"prompt": "x", )" + documents + "}", "millrace.documents: document 1 is empty"},
      {R"({"prompt": "", "millrace": {"documents": ["one"]}})", "millrace.documents: a prompt must follow"},
      {R"({"prompt": "x", "echo": true, "millrace": {"documents": ["one"]}})",
       "millrace.documents: are not echoed; omit echo"},
      {R"({"prompt": "x", "prompt_logprobs": 1, "millrace": {"documents": ["one"]}})",
       "millrace.documents: are not scored; omit prompt_logprobs"},
  };
  for (const auto& [body, message] : cases) {
    const Response refused = post(live.port(), kCompletions, body);
    EXPECT_EQ(refused.status, 400) << body;
    EXPECT_EQ(refused.json()["error"]["message"], message);
  }
  // However many prompts there are, the documents are encoded once, and no further than the context.
  const std::string many = Json{{"prompt", std::vector<std::string>(100, "x")},
                                {"millrace", {{"documents", Json::array({std::string(200000, 'a')})}}}}
                               .dump();
  const Response refused = post(live.port(), kCompletions, many);
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(refused.json()["error"]["message"].get<std::string>().starts_with("the documents have ")) << refused.body;
}

TEST(RequestUse, ErrorsNameTheFieldAndTheReason) {
  LiveServer live;
  const std::pair<const char*, const char*> cases[] = {
      {R"("millrace": {"use": ["policy=vtc"]})",
       "millrace.use: policy=vtc: policy does not apply to a request; it applies to run, chat, batch, program, serve, "
       "replay, "
       "simulate"},
      {R"("millrace": {"use": ["sampler=min_p:min_p=2"]})",
       "millrace.use: sampler=min_p:min_p=2: min_p: must be between 0 and 1, got 2"},
      {R"("millrace": {"use": ["sampler=min_p:min_p=0.5"]}, "min_p": 0.1)",
       "millrace.use: sampler=min_p:min_p=0.5: the request's own min_p is 0.1; give only one of them"},
      {R"("millrace": {"use": "sampler=greedy"})", "millrace.use: must be array of strings, got a string"},
  };
  for (const auto& [fields, message] : cases) {
    const Response answer = post(live.port(), kCompletions, completion(std::string(", ") + fields));
    EXPECT_EQ(answer.status, 400) << fields;
    EXPECT_EQ(answer.json()["error"]["message"], message);
    EXPECT_EQ(answer.json()["error"]["param"], "millrace.use");
  }
  EXPECT_EQ(
      post(live.port(), kCompletions, completion(R"(, "millrace": {"use": ["sampler=min_p:min_p=0.5"]}, "min_p": 0.5)"))
          .status,
      200);
}

}  // namespace
}  // namespace millrace
