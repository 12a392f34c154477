#include "server/generation/response_store.h"

#include <gtest/gtest.h>

namespace millrace {
namespace {

StoredResponse of(const std::string& text) { return {{{"text", text}}, Json::array({Json{{"role", "user"}}})}; }

TEST(ResponseStore, EvictsLeastRecentlyUsedByCount) {
  ResponseStore store(2, 1 << 20);
  store.put("t", "a", of("1"));
  store.put("t", "b", of("2"));
  EXPECT_EQ(store.get("a")->response["text"], "1");
  store.put("t", "c", of("3"));  // b is the least recently used
  EXPECT_FALSE(store.get("b"));
  EXPECT_TRUE(store.get("a"));
  EXPECT_EQ(store.get("c")->messages.size(), 1u);
  store.put("t", "c", of("4"));
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
    store.put("t", std::to_string(i), of(std::string(1000, 'x')));
    EXPECT_LE(store.bytes(), 4096);
  }
  EXPECT_TRUE(store.get("49"));
  EXPECT_FALSE(store.get("0"));
  store.put("t", "large", of(std::string(5000, 'x')));
  EXPECT_FALSE(store.get("large"));
  ResponseStore none(0, 4096);
  none.put("t", "a", of("1"));
  EXPECT_FALSE(none.keeps());
  EXPECT_FALSE(none.get("a"));
}

TEST(ResponseStore, ATenantLosesNothingToAnother) {
  for (const bool by_bytes : {false, true}) {
    ResponseStore store(by_bytes ? 1000 : 8, by_bytes ? 16 << 10 : 1 << 20);
    for (int i = 0; i < 2; ++i) store.put("alice", "alice " + std::to_string(i), of(std::string(1000, 'a')));
    for (int i = 0; i < 100; ++i) store.put("bob", "bob " + std::to_string(i), of(std::string(1000, 'b')));
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(store.get("alice " + std::to_string(i))) << by_bytes;
    EXPECT_TRUE(store.get("bob 99"));
    EXPECT_FALSE(store.get("bob 0"));
    // A tenant alone uses all; tenants that come later get a share of it.
    for (int i = 0; i < 100; ++i)
      for (const char* name : {"carol", "dan"}) store.put(name, name + std::to_string(i), of(std::string(1000, 'c')));
    for (const char* name : {"alice 0", "alice 1", "carol99", "dan99", "bob 99"})
      EXPECT_TRUE(store.get(name)) << name << by_bytes;
  }
}

TEST(ResponseStore, AmongEqualTenantsTheLeastRecentlyUsedIsEvicted) {
  ResponseStore store(3, 1 << 20);
  for (const char* name : {"a", "b", "c"}) store.put(name, name, of(name));
  EXPECT_TRUE(store.get("a"));
  store.put("d", "d", of("d"));
  EXPECT_FALSE(store.get("b"));
  for (const char* name : {"a", "c", "d"}) EXPECT_TRUE(store.get(name)) << name;
}

}  // namespace
}  // namespace millrace
