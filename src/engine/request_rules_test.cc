// Requests whose documents an encoder reads or whose evictor moves positions: what goes together and what is refused.
#include <gtest/gtest.h>

#include "engine/request_check.h"

namespace millrace {
namespace {

std::string encoded_refusal(const Request& request) {
  const auto checked = check_encoded(request, {}, nullptr);
  return checked.ok() ? "" : checked.error().message;
}

TEST(RequestRules, EncodedDocumentsGoWithOneBeamAndPlainPrompts) {
  Request request;
  request.prompt = {1, 2, 3};
  request.document_context = "cepe";
  EXPECT_EQ(encoded_refusal(request), "");
  request.n = 3;
  EXPECT_EQ(encoded_refusal(request), "");
  request.n = 1;
  request.beams = 2;
  EXPECT_EQ(encoded_refusal(request), "context cepe: not with beam search; use n instead");
  request.beams = 1;
  request.document_context = "cepe:encoder=x";
  EXPECT_EQ(encoded_refusal(request),
            "context cepe: its options are those of the engine; a request names it without, context=cepe");
}

TEST(RequestRules, MovedPositionsAreOfTheContextOrTheEvictor) {
  const auto text = make_eviction_rule("h2o"), cache = make_eviction_rule("h2o:positions=cache");
  ASSERT_TRUE(text.ok() && cache.ok());
  ContextPlan plan;
  EXPECT_TRUE(check_evicted_parts(plan, **text).ok());
  EXPECT_TRUE(check_evicted_parts(plan, **cache).ok());
  plan.moved = 1;
  EXPECT_TRUE(check_evicted_parts(plan, **text).ok());
  const auto refused = check_evicted_parts(plan, **cache);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_NE(refused.error().message.find("evictor h2o:positions=cache"), std::string::npos);
}

}  // namespace
}  // namespace millrace
