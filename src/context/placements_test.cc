// Which tokens each context computes apart, what they see, and at which positions: by hand, for three documents.
#include "context/placements.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

using Segments = std::vector<KeySegment>;

constexpr int64_t kOpen = ContextPlan::kOpenEnd;
// Ten tokens before them, five between the second and the third.
const std::vector<PromptDocument> kDocuments = {{10, 14}, {14, 20}, {25, 28}};

ContextPlan plan_of(const std::string& text, std::span<const PromptDocument> documents = kDocuments) {
  auto made = make_document_context(text);
  EXPECT_TRUE(made.ok()) << text << ": " << made.error().message;
  return made.ok() && *made ? (*made)->plan(documents) : ContextPlan();
}

struct Placed {
  int64_t begin, end, moved;
  bool operator==(const Placed&) const = default;
};
void PrintTo(const Placed& one, std::ostream* out) { *out << one.begin << " to " << one.end << " moved " << one.moved; }

std::vector<Placed> placed(const ContextPlan& plan) {
  std::vector<Placed> out;
  for (const ContextPart& part : plan.parts) out.push_back({part.begin, part.end, part.moved});
  return out;
}

TEST(ContextPlacements, MovedDocumentsSeeTheSinksAndThemselves) {
  const ContextPlan plan = moved_documents(kDocuments, 4);
  EXPECT_EQ(placed(plan), (std::vector<Placed>{{10, 14, 6}, {14, 20, 10}, {25, 28, 21}}));
  for (const ContextPart& part : plan.parts) {
    EXPECT_EQ(part.sees, (Segments{{0, 4}, {part.begin, part.end}}));
    EXPECT_FALSE(part.stays || part.refreshes());
  }
  EXPECT_EQ(plan.moved, 0);
  EXPECT_TRUE(plan.sees.empty());
}

TEST(ContextPlacements, SinksEndWhereTheFirstDocumentBegins) {
  EXPECT_EQ(placed(moved_documents(kDocuments, 64)), (std::vector<Placed>{{10, 14, 0}, {14, 20, 4}, {25, 28, 15}}));
  EXPECT_EQ(moved_documents(kDocuments, 64).parts[2].sees, (Segments{{0, 10}, {25, 28}}));
  EXPECT_EQ(placed(overlaid_documents(kDocuments, 64)), (std::vector<Placed>{{10, 14, 0}, {14, 20, 4}, {20, 28, 10}}));
}

TEST(ContextPlacements, WithoutSinksADocumentSeesItselfAlone) {
  const ContextPlan plan = moved_documents(kDocuments, 0);
  EXPECT_EQ(placed(plan), (std::vector<Placed>{{10, 14, 10}, {14, 20, 14}, {25, 28, 25}}));
  for (const ContextPart& part : plan.parts) EXPECT_EQ(part.sees, (Segments{{part.begin, part.end}}));
}

// Tokens between documents belong to the next one, and what follows is behind the longest: the third with eight tokens.
TEST(ContextPlacements, OverlaidDocumentsHaveTheSamePositions) {
  const ContextPlan plan = overlaid_documents(kDocuments, 10);
  EXPECT_EQ(placed(plan), (std::vector<Placed>{{10, 14, 0}, {14, 20, 4}, {20, 28, 10}}));
  for (const ContextPart& part : plan.parts) {
    EXPECT_TRUE(part.stays);
    EXPECT_EQ(part.sees, (Segments{{0, 10}, {part.begin, part.end}}));
  }
  EXPECT_EQ(plan.moved, 28 - (10 + 8));
}

// The tokens before the documents take positions 0 to 9, more than two sinks and a document of up to eight.
TEST(ContextPlacements, WhatFollowsIsNeverBeforeThePromptsBeginning) {
  EXPECT_EQ(overlaid_documents(kDocuments, 2).moved, 28 - 10);
  EXPECT_EQ(overlaid_documents(kDocuments, 3).moved, 28 - 11);
  const std::vector<PromptDocument> long_first = {{3, 13}, {13, 15}};
  EXPECT_EQ(overlaid_documents(long_first, 3).moved, 15 - 13);
}

TEST(ContextPlacements, WeighedDocumentsAreNumberedFromOne) {
  const ContextPlan plan = overlaid_documents(kDocuments, 10);
  EXPECT_EQ(weighed_documents(plan, 1.25f, true),
            (Segments{{0, 10}, {10, 14, 1.25f, 0, 1}, {14, 20, 1.25f, 0, 2}, {20, 28, 1.25f, 0, 3}, {28, kOpen}}));
  EXPECT_EQ(weighed_documents(plan, 2, false),
            (Segments{{0, 10}, {10, 14, 2, 0, 1}, {14, 20, 2, 0, 1}, {20, 28, 2, 0, 1}, {28, kOpen}}));
  const std::vector<PromptDocument> at_once = {{0, 5}};
  EXPECT_EQ(weighed_documents(overlaid_documents(at_once, 10), 1, true), (Segments{{0, 5, 1, 0, 1}, {5, kOpen}}));
}

TEST(ContextPlacements, ApeWeighsByTemperatureAndScale) {
  const ContextPlan plan = plan_of("ape:T=0.5,S=0.8");
  ASSERT_EQ(plan.sees.size(), 5u);
  for (size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(plan.sees[i].scale, 2.0f);
    EXPECT_EQ(plan.sees[i].document, 1);
  }
  EXPECT_EQ(plan.documents, (DocumentWeights{.power = 0.4f}));
  EXPECT_EQ(plan_of("ape:T=1,S=0.5").documents.power, 0.5f);
  EXPECT_EQ(plan_of("ape:T=0.5,S=1").documents.power, 0.5f);
  EXPECT_TRUE(plan_of("ape:T=1,S=1").sees.empty());
  EXPECT_EQ(plan_of("ape:T=1,S=1").documents, DocumentWeights());
  EXPECT_EQ(placed(plan_of("ape:prefix=7")), placed(overlaid_documents(kDocuments, 7)));
}

TEST(ContextPlacements, EntropyChoosesWhereThereIsAChoice) {
  const ContextPlan plan = plan_of("entropy:sinks=3,top=2");
  EXPECT_EQ(placed(plan), placed(overlaid_documents(kDocuments, 3)));
  EXPECT_EQ(plan.sees, weighed_documents(plan, 1, true));
  EXPECT_EQ(plan.documents, (DocumentWeights{.most = 2}));
  for (const char* all : {"entropy:top=3", "entropy:top=4", "entropy:top=0"}) {
    EXPECT_TRUE(plan_of(all).sees.empty()) << all;
    EXPECT_EQ(plan_of(all).documents, DocumentWeights()) << all;
  }
}

// A document that did not move has seen all before it: nothing of it is computed again.
TEST(ContextPlacements, DocumentsThatMovedAreComputedAgainInPart) {
  const auto first = [](const ContextPlan& plan) {
    std::vector<int64_t> out;
    for (const ContextPart& part : plan.parts) out.push_back(part.fresh_first);
    return out;
  };
  EXPECT_EQ(first(plan_of("epic:sinks=10,recompute=5")), (std::vector<int64_t>{0, 5, 3}));
  EXPECT_EQ(first(plan_of("epic:sinks=9,recompute=5")), (std::vector<int64_t>{4, 5, 3}));
  const ContextPlan shares = plan_of("cacheblend:sinks=10,ratio=0.25");
  EXPECT_EQ(shares.parts[0].fresh_share, 0);
  EXPECT_EQ(shares.parts[1].fresh_share, 0.25);
  EXPECT_FALSE(shares.parts[0].refreshes());
  EXPECT_TRUE(shares.parts[2].refreshes());
}

TEST(ContextPlacements, IndependentDocumentsSeeNothingElse) {
  const ContextPlan plan = plan_of("independent");
  EXPECT_EQ(placed(plan), (std::vector<Placed>{{10, 14, 10}, {14, 20, 14}, {20, 28, 20}}));
  for (const ContextPart& part : plan.parts) EXPECT_EQ(part.sees, (Segments{{part.begin, part.end}}));
}

// What every member's plan must keep (document_context.h), for documents that touch, have gaps, and come first.
TEST(ContextPlacements, PartsOfEveryContextCoverTheirDocuments) {
  const std::vector<std::vector<PromptDocument>> prompts = {
      kDocuments, {{0, 1}}, {{0, 3}, {3, 4}, {9, 30}}, {{5, 6}, {8, 9}}};
  for (const auto& entry : document_contexts().entries()) {
    const std::string& name = entry.info.name;
    if (name == "cepe") continue;  // its documents leave the prompt
    for (const auto& documents : prompts) {
      const ContextPlan plan = plan_of(name, documents);
      ASSERT_EQ(plan.parts.size(), documents.size()) << name;
      int64_t before = 0;
      for (size_t i = 0; i < documents.size(); ++i) {
        const ContextPart& part = plan.parts[i];
        EXPECT_GE(part.begin, before) << name;
        EXPECT_LE(part.begin, documents[i].begin) << name;
        EXPECT_EQ(part.end, documents[i].end) << name;
        EXPECT_EQ(part.sees.back(), (KeySegment{part.begin, part.end})) << name;
        EXPECT_LE(part.moved, part.begin) << name;
        before = part.end;
      }
      EXPECT_TRUE(plan.sees.empty() || plan.sees.back() == (KeySegment{before, kOpen})) << name;
      EXPECT_FALSE(plan.empty() || plan.behind(before - 1)) << name;
      EXPECT_TRUE(plan.behind(before)) << name;
    }
  }
}

}  // namespace
}  // namespace millrace
