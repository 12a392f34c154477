// An engine that could not be created for another reason than its default drafter, such as a store that cannot be
// opened, was reported as "no drafts: ...".
#include <gtest/gtest.h>

#include "server/models/model_loader.h"

namespace millrace {
namespace {

TEST(DrafterBlame, OnlyADrafterThatIsInTheWayIsLeftOut) {
  std::vector<std::string> warnings;
  ModelConfig config{.name = "m", .path = "stories"};
  config.load.threads = 1;
  config.load.warn = [&](const std::string& text) { warnings.push_back(text); };
  config.engine.threads = 1;
  config.engine.drafter = "ngram";
  config.engine.drafter_if_possible = true;
  config.engine.kv_store = "ssd:path=/nonexistent/folder/store";
  const auto served = load_served_model(config, nullptr, [] { return false; });
  ASSERT_FALSE(served.ok());
  for (const std::string& text : warnings) EXPECT_EQ(text.find("/nonexistent"), std::string::npos) << text;
}

}  // namespace
}  // namespace millrace
