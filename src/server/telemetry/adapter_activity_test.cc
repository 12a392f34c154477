#include "server/telemetry/adapter_activity.h"

#include <gtest/gtest.h>

#include <memory>

namespace millrace {
namespace {

TEST(AdapterActivity, ListsWhatWaitsAndRuns) {
  AdapterActivity activity;
  EXPECT_EQ(activity.lists().changed, 0);
  auto first = std::make_unique<AdapterActivity::Use>(activity, std::vector<std::string>{"b", "a"});
  auto second = std::make_unique<AdapterActivity::Use>(activity, std::vector<std::string>{"b"});
  EXPECT_EQ(activity.lists().waiting, "a,b");
  first->run();
  first->run();
  EXPECT_EQ(activity.lists().waiting, "b");
  EXPECT_EQ(activity.lists().running, "a,b");
  EXPECT_GT(activity.lists().changed, 0);
  second.reset();
  EXPECT_EQ(activity.lists().waiting, "");
  first.reset();
  EXPECT_EQ(activity.lists().running, "");
}

}  // namespace
}  // namespace millrace
