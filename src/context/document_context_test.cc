#include "context/document_context.h"

#include <gtest/gtest.h>

#include "contains.h"

namespace millrace {
namespace {

using Tokens = std::vector<TokenId>;

std::shared_ptr<const DocumentContext> context_of(const std::string& text) {
  auto made = make_document_context(text);
  EXPECT_TRUE(made.ok()) << text << ": " << made.error().message;
  return made.ok() ? *made : nullptr;
}

// The prompt is 0 to 9.
Request ten_tokens(std::vector<PromptDocument> documents) {
  Request request;
  for (TokenId token = 0; token < 10; ++token) request.prompt.push_back(token);
  request.documents = std::move(documents);
  return request;
}

std::vector<std::pair<int64_t, int64_t>> bounds(const Request& request) {
  std::vector<std::pair<int64_t, int64_t>> out;
  for (const PromptDocument& one : request.documents) out.emplace_back(one.begin, one.end);
  return out;
}

// Out of order, overlapping, empty, turned around, beyond the prompt.
const std::vector<std::vector<PromptDocument>> kWrong = {
    {{4, 6}, {1, 3}}, {{1, 4}, {3, 6}}, {{2, 2}}, {{5, 3}}, {{1, 3}, {8, 11}}};

TEST(DocumentContext, LinksStandBehindEachDocument) {
  Request request = ten_tokens({{1, 4}, {4, 6}});
  add_links(*context_of("kvlink:links=2,link_token=100"), request);
  EXPECT_EQ(request.prompt, (Tokens{0, 1, 2, 3, 100, 101, 4, 5, 102, 103, 6, 7, 8, 9}));
  EXPECT_EQ(bounds(request), (std::vector<std::pair<int64_t, int64_t>>{{1, 4}, {6, 8}}));
}

TEST(DocumentContext, LinksFollowADocumentThatEndsThePrompt) {
  Request request = ten_tokens({{0, 1}, {9, 10}});
  add_links(*context_of("kvlink:links=1,link_token=50"), request);
  EXPECT_EQ(request.prompt, (Tokens{0, 50, 1, 2, 3, 4, 5, 6, 7, 8, 9, 51}));
  EXPECT_EQ(bounds(request), (std::vector<std::pair<int64_t, int64_t>>{{0, 1}, {10, 11}}));
}

TEST(DocumentContext, WithoutLinksThePromptIsTheSame) {
  Request request = ten_tokens({{1, 4}, {5, 10}});
  add_links(*context_of("kvlink"), request);
  EXPECT_EQ(request.prompt, ten_tokens({}).prompt);
  EXPECT_EQ(bounds(request), (std::vector<std::pair<int64_t, int64_t>>{{1, 4}, {5, 10}}));
}

TEST(DocumentContext, DocumentsOutOfOrderAreLeftAsTheyAre) {
  for (const auto& wrong : kWrong) {
    Request linked = ten_tokens(wrong), taken = ten_tokens(wrong);
    const auto before = bounds(linked);
    add_links(*context_of("kvlink:links=1,link_token=50"), linked);
    EXPECT_EQ(linked.prompt, ten_tokens({}).prompt) << wrong.front().begin;
    EXPECT_EQ(bounds(linked), before);
    EXPECT_TRUE(take_documents(taken).empty()) << wrong.front().begin;
    EXPECT_EQ(taken.prompt, ten_tokens({}).prompt);
    EXPECT_EQ(bounds(taken), before);
  }
}

TEST(DocumentContext, TakenDocumentsLeaveThePrompt) {
  Request request = ten_tokens({{1, 4}, {4, 5}, {6, 9}});
  EXPECT_EQ(take_documents(request), (DocumentTokens{{1, 2, 3}, {4}, {6, 7, 8}}));
  EXPECT_EQ(request.prompt, (Tokens{0, 5, 9}));
  EXPECT_TRUE(request.documents.empty());
  Request without_question = ten_tokens({{1, 4}, {6, 10}});
  EXPECT_TRUE(take_documents(without_question).empty());
  EXPECT_EQ(without_question.documents.size(), 2u);
}

TEST(DocumentContext, RowsInAFileStandInForLinks) {
  const auto context = context_of("kvlink:links=3,link_token=7,link_embeddings=/a/rows.gguf");
  ASSERT_NE(context->link_rows(), nullptr);
  EXPECT_EQ(*context->link_rows(), (LinkRowsChoice{"/a/rows.gguf", 7, 3}));
  EXPECT_EQ(context->links(1), (Tokens{0, 0, 0}));
  EXPECT_EQ(context_of("kvlink:links=3,link_token=7")->link_rows(), nullptr);
  EXPECT_EQ(context_of("kvlink:links=3,link_token=7")->links(2), (Tokens{13, 14, 15}));
}

TEST(DocumentContext, LinksNeedTheirTokens) {
  const std::pair<const char*, const char*> cases[] = {
      {"kvlink:links=2", "links and link_token: give both"},
      {"kvlink:link_token=2", "links and link_token: give both"},
      {"kvlink:link_embeddings=/a", "link_embeddings: give links too"},
      {"kvlink:link_embeddings=/a,links=0", "link_embeddings: give links too"}};
  for (const auto& [text, says] : cases) {
    auto made = make_document_context(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::user);
    EXPECT_CONTAINS(made.error().message, says);
    EXPECT_CONTAINS(made.error().message, "kvlink");
  }
  EXPECT_TRUE(make_document_context("kvlink:link_embeddings=/a,links=1").ok());
}

TEST(DocumentContext, NoneIsNoContextAndUnknownOnesAreErrors) {
  EXPECT_EQ(context_of(""), nullptr);
  EXPECT_EQ(context_of("none"), nullptr);
  for (const char* text : {"nones", "kvlink:sink=1", "entropy:top=17", "ape:T=0"}) {
    auto made = make_document_context(text);
    ASSERT_FALSE(made.ok()) << text;
    EXPECT_EQ(made.error().kind, ErrorKind::user) << text;
  }
}

TEST(DocumentContext, AnEncoderTakesTheDocuments) {
  const auto context = context_of("cepe:model=/a/folder,piece=64,tokens=512,start=false");
  ASSERT_NE(context->encoder(), nullptr);
  EXPECT_EQ(*context->encoder(), (EncoderChoice{"/a/folder", 64, 512, false}));
  EXPECT_FALSE(*context->encoder() == (EncoderChoice{"/a/folder", 64, 512, true}));
  EXPECT_EQ(context_of("kvlink")->encoder(), nullptr);
}

ContextPlan two_parts() {
  return {.parts = {{.begin = 2, .end = 6, .fresh_first = 3}, {.begin = 8, .end = 9, .fresh_first = 1}}};
}

TEST(ContextPlan, FindsThePartOfAToken) {
  const ContextPlan plan = two_parts();
  const std::vector<int> which = {-1, -1, 0, 0, 0, 0, -1, -1, 1, -1, -1};
  for (size_t token = 0; token < which.size(); ++token) {
    const ContextPart* part = part_of(plan, static_cast<int64_t>(token));
    EXPECT_EQ(part, which[token] < 0 ? nullptr : &plan.parts[static_cast<size_t>(which[token])]) << token;
    EXPECT_EQ(plan.behind(static_cast<int64_t>(token)), token >= 9) << token;
  }
  EXPECT_FALSE(ContextPlan().behind(5));
}

TEST(ContextPlan, BordersAreWherePartsBeginAndEnd) {
  ContextPlan plan = two_parts();
  const std::vector<int64_t> next = {2, 2, 6, 6, 6, 6, 8, 8, 9, -1, -1};
  for (size_t done = 0; done < next.size(); ++done)
    EXPECT_EQ(next_border(plan, static_cast<int64_t>(done)), next[done]) << done;
  plan.placed = true;
  const std::vector<int64_t> of_placed = {2, 2, 2, 3, 4, 5, 8, 8, 8, -1, -1};
  for (size_t done = 0; done < of_placed.size(); ++done)
    EXPECT_EQ(next_border(plan, static_cast<int64_t>(done)), of_placed[done]) << done;
}

// The stream computes the first tokens of a part, which would otherwise be computed again. A part of such tokens alone
// is dropped.
TEST(ContextPlan, PlacedPartsBeginBehindWhatIsComputedAgain) {
  const ContextPlan plan = place_parts(two_parts());
  EXPECT_TRUE(plan.placed);
  ASSERT_EQ(plan.parts.size(), 1u);
  EXPECT_EQ(plan.parts[0].begin, 5);
  EXPECT_EQ(plan.parts[0].end, 6);
  EXPECT_EQ(plan.parts[0].skipped, 3);
  EXPECT_FALSE(plan.parts[0].refreshes());
}

}  // namespace
}  // namespace millrace
