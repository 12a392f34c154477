// The texts that short flags make choose the same members as texts that users write, with any path.
#include "run/plan/kv_places.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

TEST(KvPlaces, TextsOfShortFlags) {
  EXPECT_EQ(memory_tier(0), "");
  EXPECT_EQ(SsdStoreFlags().text(), "");
  const auto tier = choose_tier(memory_tier(500));
  ASSERT_TRUE(tier.ok());
  EXPECT_EQ(tier->label, kMemoryTierLabel);
  EXPECT_EQ(tier->options.integer("tokens"), 500);
  for (const char* path : {"/var/a", "/var/a,order=b:c=d", "/var/a\\,b\\\\", "\\", ",", "a,path=b,"}) {
    const auto store = choose_store(SsdStoreFlags{path, 123456789, "importance", 0.25}.text());
    ASSERT_TRUE(store.ok()) << path << ": " << store.error().message;
    EXPECT_EQ(store->label, kSsdStoreLabel);
    EXPECT_EQ(store->options.text("path"), path);
    EXPECT_EQ(store->options.text("size"), "123456789");
    EXPECT_TRUE(by_importance(*store));
    EXPECT_EQ(fetched_fraction(*store), 0.25);
  }
  EXPECT_EQ(fetched_fraction(*choose_store("ssd:path=a")), 1);
  EXPECT_FALSE(by_importance(*choose_store("ssd:path=a")));
}

TEST(KvPlaces, Errors) {
  EXPECT_EQ(choose_tier("tape").error().message, "KV tier: unknown 'tape'; available: memory, disk");
  EXPECT_EQ(choose_tier("memory:tokens=-1").error().message.find("KV tier memory: tokens: must be between 0 and"), 0u);
  EXPECT_EQ(choose_store("ssd:path=a,fetch=0.5").error().message,
            "KV store: to fetch a part of a prompt its blocks must be in order of importance");
  for (const char* fetch : {"0", "-0.5", "1.001", "nan"})
    EXPECT_EQ(choose_store(std::string("ssd:path=a,order=importance,fetch=") + fetch)
                  .error()
                  .message.find("KV store ssd: fetch: "),
              0u)
        << fetch;
}

}  // namespace
}  // namespace millrace
