// The sizes of groups that codecs accept, each by its option, and how they call themselves with it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "kv/codec.h"

namespace millrace {
namespace {

TEST(CodecGroups, AreOfThreeSizes) {
  for (const std::string name : {"kivi", "flexgen_kv", "quarot_kv", "kvquant"}) {
    for (const int group : {32, 64, 128}) {
      const auto made = find_kv_codec(fmt::format("{}:group={}", name, group));
      ASSERT_TRUE(made.ok()) << made.error().message;
      EXPECT_NE((*made)->text().find(fmt::format("group={},", group)), std::string::npos) << (*made)->text();
    }
    for (const int group : {31, 33, 48, 63, 65, 96, 127}) {
      const auto made = find_kv_codec(fmt::format("{}:group={}", name, group));
      ASSERT_FALSE(made.ok()) << name << " " << group;
      EXPECT_NE(made.error().message.find("group: must be"), std::string::npos) << made.error().message;
    }
  }
}

}  // namespace
}  // namespace millrace
