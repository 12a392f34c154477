// Prompts with documents, step by step: no chunk crosses a document, what is kept of one is found in another order, and
// which requests are refused. The executor compares every stored key with its token.
#include "engine/scripted_engine_test.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions document_options() {
  EngineOptions o = scripted_options(30);
  o.document_context = "kvlink:sinks=1";
  return o;
}
Script context_script() {
  Script script;
  script.has_contexts = true;
  return script;
}

// A start of one token, documents of six and four, and a question of two.
Request document_request(bool swapped = false, int64_t answer = 2) {
  Request request = scripted_request(1000, 13, answer);
  request.documents = {{1, 7}, {7, 11}};
  if (!swapped) return request;
  request.prompt = {1000, 1007, 1008, 1009, 1010, 1001, 1002, 1003, 1004, 1005, 1006, 1011, 1012};
  request.documents = {{1, 5}, {5, 11}};
  return request;
}

TEST(DocumentsSteps, EachDocumentIsComputedOnce) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  e.add(1, document_request());
  EXPECT_EQ(e.watch(), (Lines{"admit 1; 1:[0+1] | 1 runs 1/13 1", "1:[1+6] | 1 runs 7/13 2", "1:[7+4] | 1 runs 11/13 3",
                              "1:[11+2]* | 1 runs 13/14 4", "1:[13+1]* | "}));
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 4) << "two blocks for each document, and none of the prompt";
  EXPECT_EQ(e.script.key_moves, (Lines{"move 4 from 7 by 6"}));
  e.script.key_moves.clear();
  e.add(2, document_request(true));
  EXPECT_EQ(e.watch(), (Lines{"admit 2; 2:[11+2]* | 2 runs 13/14 4 +11", "2:[13+1]* | "}));
  EXPECT_EQ(e.script.key_moves, (Lines{"move 6 from 5 by 4"}));
  EXPECT_EQ(e.figures(), "steps 7 prompt 15 cached 11 generated 4 preempted 0 again 0 out 0 in 0");
}

TEST(DocumentsSteps, PlansFromOutsideDoNotCrossADocument) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  e.add(1, document_request());
  EXPECT_FALSE(e.core->replay(StepPlan::parse("admit 1; 1:[0+2]").value(), e.events).ok());
  EXPECT_TRUE(e.core->replay(StepPlan::parse("1:[0+1]").value(), e.events).ok());
  EXPECT_FALSE(e.core->replay(StepPlan::parse("1:[1+7]").value(), e.events).ok());
  EXPECT_TRUE(e.core->replay(StepPlan::parse("1:[1+6]").value(), e.events).ok());
}

TEST(DocumentsSteps, APreemptedStreamTakesItsDocumentsAgain) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  e.add(1, document_request());
  for (int i = 0; i < 2; ++i) e.step();
  StepPlan away;
  away.preempted = {{1, false}};
  ASSERT_TRUE(e.core->replay(away, e.events).ok());
  EXPECT_EQ(e.streams(), "1 waits 0/13 0 !1");
  EXPECT_EQ(e.watch(),
            (Lines{"admit 1; 1:[7+4] | 1 runs 11/13 3 !1", "1:[11+2]* | 1 runs 13/14 4 !1", "1:[13+1]* | "}));
}

// A step copies no more tokens than it may run.
TEST(DocumentsSteps, LongPromptsAreCopiedInSeveralSteps) {
  EngineOptions o = document_options();
  o.batch_tokens = 8;
  ScriptedEngine e(o, nullptr, context_script());
  e.add(1, document_request());
  e.run();
  e.add(2, document_request(true));
  EXPECT_EQ(e.watch(), (Lines{"admit 2; | 2 runs 8/13 2 +8", "2:[11+2]* | 2 runs 13/14 4 +11", "2:[13+1]* | "}));
}

TEST(DocumentsSteps, AnswersShareNothingButTheirDocuments) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  Request request = document_request();
  request.n = 2;
  e.add(1, request);
  EXPECT_EQ(e.step(), "admit 1 1.1; 1:[0+1] 1.1:[0+1]");
  e.run();
  EXPECT_EQ(e.core->stats().generated_tokens, 4);
}

TEST(DocumentsSteps, LinksStandBehindEveryDocument) {
  EngineOptions o = document_options();
  o.document_context = "kvlink:sinks=1,links=2,link_token=500";
  ScriptedEngine e(o, nullptr, context_script());
  std::vector<TokenId> tokens;
  e.script.forwarded = [&](const StepInput&, auto streams) { tokens = streams[0]->tokens; };
  e.add(1, document_request());
  e.step();
  EXPECT_EQ(tokens, (std::vector<TokenId>{1000, 1001, 1002, 1003, 1004, 1005, 1006, 500, 501, 1007, 1008, 1009, 1010,
                                          502, 503, 1011, 1012}));
}

// A request may name another context, or none.
TEST(DocumentsSteps, ARequestNamesItsContext) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  Request plain = document_request();
  plain.document_context = "none";
  e.add(1, plain);
  EXPECT_EQ(e.watch(1), (Lines{"admit 1; 1:[0+13]* | 1 runs 13/14 4"}));
  e.run();
  EXPECT_EQ(e.script.key_moves, Lines{});
  EXPECT_EQ(e.core->stats().kv_blocks_cached, 3) << "a prompt like any other";
}

TEST(DocumentsSteps, RefusedRequestsWithDocuments) {
  ScriptedEngine e(document_options(), nullptr, context_script());
  const auto refused = [&](const std::function<void(Request&)>& change) {
    Request request = document_request();
    change(request);
    const auto checked = e.core->check(request);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(refused([](Request&) {}), "");
  EXPECT_EQ(refused([](Request& r) {
              r.embeddings.push_back({0, std::make_shared<const std::vector<float>>(1)});
            }),
            "context kvlink does not go with rows in place of tokens: prompts with rows in place of tokens have no "
            "parts; send "
            "tokens");
  EXPECT_EQ(refused([](Request& r) { r.document_context = "cepe"; }), "context cepe: this executor has no encoder");
  EXPECT_EQ(refused([](Request& r) { r.beams = 2; }),
            "beam search does not go with context kvlink: beams share a prompt's blocks; use n instead");
  EXPECT_NE(refused([](Request& r) { r.document_context = "nobody"; }), "");
  EXPECT_EQ(
      refused([](Request& r) { r.document_context = "ape"; }),
      "context ape does not go with attention quest: answers weigh the documents' keys again, and would see all of "
      "them; use a static pattern, or another context");
}

}  // namespace
}  // namespace millrace
