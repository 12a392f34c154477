// The short names of tiers and stores choose the same members, with any path.
#include "run/plan/kv_places.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(KvPlaces, ShortNames) {
  EngineOptions options;
  EXPECT_FALSE(has_tier(options) || has_store(options));
  options.swap_tokens = 500;
  options.kv_ssd = "/var/a,order=b:c=d";
  options.kv_ssd_size = 123456789;
  options.kv_ssd_order = "importance";
  EXPECT_TRUE(has_tier(options) && has_store(options));
  const auto tier = chosen_tier(options);
  ASSERT_TRUE(tier.ok());
  EXPECT_EQ(tier->options.integer("tokens"), 500);
  EXPECT_EQ(tier->member.make, kv_tiers().find("memory")->member.make);
  const auto store = chosen_store(options);
  ASSERT_TRUE(store.ok());
  EXPECT_EQ(store->options.text("path"), options.kv_ssd);
  EXPECT_EQ(store->options.text("size"), "123456789");
  EXPECT_EQ(store->options.text("order"), "importance");
  EXPECT_EQ(store->member.make, kv_stores().find("ssd")->member.make);
}

TEST(KvPlaces, ByNameAndNotBoth) {
  EngineOptions options;
  options.kv_tier = "memory:tokens=64";
  options.kv_store = "ssd:path=/var/a,size=1G";
  EXPECT_EQ(chosen_tier(options)->options.integer("tokens"), 64);
  EXPECT_EQ(chosen_store(options)->options.text("path"), "/var/a");
  options.swap_tokens = 1;
  options.kv_ssd = "/var/b";
  EXPECT_EQ(chosen_tier(options).error().message,
            "KV tier: swap tokens are short for memory:tokens=...; give only one of them");
  EXPECT_EQ(chosen_store(options).error().message,
            "KV store: a file alone is short for ssd:path=...; give only one of them");
  options.swap_tokens = 0;
  options.kv_tier = "tape";
  EXPECT_EQ(chosen_tier(options).error().message, "KV tier: unknown 'tape'; available: memory");
}

}  // namespace
}  // namespace millrace
