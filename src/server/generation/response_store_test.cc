#include "server/generation/response_store.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

StoredResponse of(const std::string& text) { return {{{"text", text}}, Json::array({Json{{"role", "user"}}})}; }

TEST(ResponseStore, EvictsLeastRecentlyUsedByCount) {
  ResponseStore store(2, 1 << 20);
  store.put("a", of("1"));
  store.put("b", of("2"));
  EXPECT_EQ(store.get("a")->response["text"], "1");
  store.put("c", of("3"));  // b is the least recently used
  EXPECT_FALSE(store.get("b"));
  EXPECT_TRUE(store.get("a"));
  EXPECT_EQ(store.get("c")->messages.size(), 1u);
  store.put("c", of("4"));
  EXPECT_EQ(store.count(), 2);
  EXPECT_EQ(store.get("c")->response["text"], "4");
  EXPECT_TRUE(store.erase("a"));
  EXPECT_FALSE(store.erase("a"));
  EXPECT_TRUE(store.erase("c"));
  EXPECT_EQ(store.bytes(), 0);
}

TEST(ResponseStore, EvictsByBytes) {
  ResponseStore store(100, 4096);
  for (int i = 0; i < 50; ++i) {
    store.put(std::to_string(i), of(std::string(1000, 'x')));
    EXPECT_LE(store.bytes(), 4096);
  }
  EXPECT_TRUE(store.get("49"));
  EXPECT_FALSE(store.get("0"));
  store.put("large", of(std::string(5000, 'x')));
  EXPECT_FALSE(store.get("large"));
  ResponseStore none(0, 4096);
  none.put("a", of("1"));
  EXPECT_FALSE(none.keeps());
  EXPECT_FALSE(none.get("a"));
}

}  // namespace
}  // namespace millrace
