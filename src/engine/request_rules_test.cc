// Requests whose documents an encoder reads or whose evictor moves positions: what goes together and what is refused.
#include <gtest/gtest.h>

#include "engine/request_check.h"
#include "run/compatibility/collect.h"
#include "run/compatibility/rules.h"

namespace millrace {
namespace {

std::string encoded_refusal(const Request& request) {
  const auto checked = check_encoded(request, {}, nullptr);
  return checked.ok() ? "" : checked.error().message;
}

TEST(RequestRules, TheOptionsOfAnEncoderAreThoseOfTheEngine) {
  Request request;
  request.prompt = {1, 2, 3};
  request.document_context = "cepe";
  EXPECT_EQ(encoded_refusal(request), "");
  request.document_context = "cepe:encoder=x";
  EXPECT_EQ(encoded_refusal(request),
            "context cepe: its options are those of the engine; a request names it without, context=cepe");
}

TEST(RequestRules, MovedPositionsAreOfTheContextOrTheEvictor) {
  const auto text = make_eviction_rule("h2o"), cache = make_eviction_rule("h2o:positions=cache");
  ASSERT_TRUE(text.ok() && cache.ok());
  ContextPlan plan;
  const auto resolved = [&](const EvictionRule& rule) {
    Facts facts;
    add_parts(plan, "independent:sinks=1", facts);
    add_evictor(rule, facts);
    return resolve(facts);
  };
  EXPECT_TRUE(resolved(**text).ok());
  EXPECT_TRUE(resolved(**cache).ok());
  plan.moved = 1;
  EXPECT_TRUE(resolved(**text).ok());
  const auto refused = resolved(**cache);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
  EXPECT_EQ(
      refused.error().message,
      "context independent does not go with evictor h2o:positions=cache: documents share positions, and "
      "positions=cache makes positions of slots; use positions=text, or a context that moves keys, such as kvlink");
}

}  // namespace
}  // namespace millrace
