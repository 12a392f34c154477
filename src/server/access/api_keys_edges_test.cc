// Edge cases of keys files and of keys in requests.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "server/access/access.h"
#include "server/access/api_keys.h"

namespace millrace {
namespace {

std::string refused(const std::string& keys) {
  const auto parsed = parse_api_keys(fmt::format("{{\"keys\": [{}]}}", keys), "keys");
  return parsed.ok() ? "" : parsed.error().message;
}

std::string key(const std::string& more, const std::string& name = "a") {
  return fmt::format(R"({{"name": "{}", {}}})", name, more);
}

TEST(ApiKeyEdges, NameCharacters) {
  for (int c = 1; c < 128; ++c) {
    if (c == '"' || c == '\\' || c < ' ') continue;
    const bool good = std::isalnum(c) || c == '.' || c == '_' || c == '-';
    const std::string name(1, static_cast<char>(c));
    EXPECT_EQ(refused(key(R"("key": "k")", name)).empty(), good) << name;
    EXPECT_EQ(refused(key(R"("key": "k")", "a" + name + "b")).empty(), good) << name;
    EXPECT_EQ(refused(key(fmt::format(R"("key": "k", "cache_group": "{}")", name))).empty(), good) << name;
  }
  EXPECT_EQ(refused(key(R"("key": "k")", std::string(64, 'a'))), "");
  EXPECT_NE(refused(key(R"("key": "k")", std::string(65, 'a'))).find("key 1: name must have 1 to 64"),
            std::string::npos);
  EXPECT_EQ(refused(key(R"("key": "k", "cache_group": "")")), "") << "no group";
  EXPECT_NE(refused(R"({"name": 5, "key": "k"})").find("name must be a string"), std::string::npos);
}

TEST(ApiKeyEdges, KeyLength) {
  for (size_t size : {1, 1024})
    EXPECT_EQ(refused(key(fmt::format(R"("key": "{}")", std::string(size, 'k')))), "") << size;
  for (size_t size : {0, 1025})
    EXPECT_NE(refused(key(fmt::format(R"("key": "{}")", std::string(size, 'k')))).find("key must have 1 to 1024"),
              std::string::npos);
  EXPECT_NE(refused(key(R"("weight": 1)")).find("but not both"), std::string::npos);
}

TEST(ApiKeyEdges, DigestDigits) {
  const auto with = [](size_t at, char c) {
    std::string hex(64, '0');
    hex[at] = c;
    return key(fmt::format(R"("key_sha256": "{}")", hex));
  };
  for (size_t at : {0, 1, 62, 63})
    for (int c = ' '; c < 127; ++c)
      if (c != '"' && c != '\\') {
        EXPECT_EQ(refused(with(at, static_cast<char>(c))).empty(), std::isxdigit(c) != 0) << at << static_cast<char>(c);
      }
  for (size_t size : {63, 65, 62, 66, 0})
    EXPECT_NE(refused(key(fmt::format(R"("key_sha256": "{}")", std::string(size, '0')))).find("64 hex"),
              std::string::npos);
  const auto parsed = parse_api_keys(
      R"({"keys": [{"name": "a", "key_sha256": "0123456789abcdefABCDEF00000000000000000000000000000000000000f0a9"}]})",
      "keys");
  ASSERT_TRUE(parsed.ok());
  const KeyDigest& digest = parsed->front().digest;
  EXPECT_EQ((std::vector<int>(digest.begin(), digest.begin() + 12)),
            (std::vector<int>{0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0xab, 0xcd, 0xef, 0}));
  EXPECT_EQ(digest[30], 0xf0);
  EXPECT_EQ(digest[31], 0xa9);
}

TEST(ApiKeyEdges, CountsAndWeights) {
  for (const char* name : {"requests_per_minute", "tokens_per_minute", "tokens_per_day", "tokens_total", "streams"}) {
    for (const char* good : {"0", "1", "1125899906842624"})
      EXPECT_EQ(refused(key(fmt::format(R"("key": "k", "{}": {})", name, good))), "") << name << good;
    for (const char* bad : {"-1", "1125899906842625", "1.0", "\"5\"", "null", "true"})
      EXPECT_NE(refused(key(fmt::format(R"("key": "k", "{}": {})", name, bad)))
                    .find(std::string(name) + " must be a whole number from 0 to"),
                std::string::npos)
          << name << bad;
  }
  for (const char* good : {"0.001", "1000000", "1"})
    EXPECT_EQ(refused(key(fmt::format(R"("key": "k", "weight": {})", good))), "") << good;
  for (const char* bad : {"0.00099", "1000001", "\"1\"", "0", "-1"})
    EXPECT_NE(refused(key(fmt::format(R"("key": "k", "weight": {})", bad))).find("weight"), std::string::npos);
}

TEST(ApiKeyEdges, ErrorsNameTheKeyByPosition) {
  EXPECT_EQ(refused(key(R"("key": "k")", "a") + "," + key(R"("key": "l", "role": "x")", "b")).find("keys: key 2: role"),
            0u);
  EXPECT_EQ(refused(key(R"("key": "k")", "a") + ",5").find("keys: key 2 must be"), 0u);
  const std::string long_name(150, 'n');
  const std::string message = refused(key(fmt::format(R"("key": "k", "{}": 1)", long_name)));
  EXPECT_NE(message.find("'" + std::string(100, 'n') + "'"), std::string::npos) << message;
}

TEST(ApiKeyEdges, NumberOfKeys) {
  for (size_t count : {10000, 10001}) {
    std::string text = "{\"keys\": [";
    for (size_t i = 0; i < count; ++i) text += fmt::format(R"({}{{"name": "n{}", "key": "k{}"}})", i ? "," : "", i, i);
    const auto parsed = parse_api_keys(text + "]}", "keys");
    EXPECT_EQ(parsed.ok(), count == 10000) << (parsed.ok() ? "" : parsed.error().message);
  }
}

class KeyFile : public ::testing::Test {
 protected:
  void SetUp() override {
    path_ = testing::TempDir() + "/api_keys_edges_XXXXXX";
    file_ = ::mkstemp(path_.data());
    ASSERT_GE(file_, 0);
  }
  void TearDown() override {
    ::close(file_);
    ::unlink(path_.c_str());
  }
  std::string path_;
  int file_ = -1;
};

TEST_F(KeyFile, WarnsOfOpenPermissions) {
  std::ofstream(path_) << R"({"keys": [{"name": "a", "key": "k"}]})";
  for (int mode : {0600, 0400, 0700}) {
    ::fchmod(file_, static_cast<mode_t>(mode));
    auto read = read_api_keys(path_);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->warning, "") << mode;
    EXPECT_EQ(read->keys.size(), 1u);
  }
  for (int right : {0040, 0020, 0004, 0002}) {
    ::fchmod(file_, static_cast<mode_t>(0600 | right));
    auto read = read_api_keys(path_);
    ASSERT_TRUE(read.ok());
    EXPECT_NE(read->warning.find(fmt::format("mode {:03o}", 0600 | right)), std::string::npos) << read->warning;
  }
}

TEST_F(KeyFile, AtMostFourMebibytes) {
  const std::string text = R"({"keys": [{"name": "a", "key": "k"}]})";
  for (size_t size : {size_t{4} << 20, (size_t{4} << 20) + 1}) {
    std::ofstream(path_) << text << std::string(size - text.size(), ' ');
    const auto read = read_api_keys(path_);
    EXPECT_EQ(read.ok(), size == size_t{4} << 20);
    if (!read.ok()) {
      EXPECT_NE(read.error().message.find("is larger than 4194304 bytes"), std::string::npos) << read.error().message;
    }
  }
}

TEST(ApiKeyEdges, PlainKeyIsAdmin) {
  const ApiKey plain = plain_api_key("abc", 3);
  EXPECT_EQ(plain.name, "#3");
  EXPECT_TRUE(plain.admin);
  EXPECT_TRUE(same_digest(plain.digest, key_digest("abc")));
}

HttpRequest with(const char* name, const char* value) { return HttpRequest{.headers = {{name, value}}}; }

TEST(AccessEdges, HeadersThatCarryAKey) {
  const Access access({plain_api_key("k", 1), plain_api_key("other", 2)});
  for (const char* good : {"Bearer k", "bearer k"}) {
    ASSERT_TRUE(access.find(with("authorization", good))) << good;
    EXPECT_EQ(access.find(with("authorization", good))->key().name, "#1");
  }
  for (const char* bad : {"", "Bearer ", "Bearer", "k", "BEARER k", "Basic k", "Bearer  k", "Bearer k "})
    EXPECT_FALSE(access.find(with("authorization", bad))) << bad;
  EXPECT_TRUE(access.find(with("x-api-key", "k")));
  EXPECT_FALSE(access.find(HttpRequest{}));
  EXPECT_EQ(access.find(HttpRequest{.headers = {{"authorization", "Basic zzz"}, {"x-api-key", "other"}}})->key().name,
            "#2");
  EXPECT_FALSE(access.find(HttpRequest{.headers = {{"authorization", "Bearer zzz"}, {"x-api-key", "k"}}}))
      << "Authorization takes precedence";
  EXPECT_EQ(access.usage().size(), 2u);
}

TEST(AccessEdges, ReplacedKeyGetsNewLimitsAndRemovedKeysStopWorking) {
  ApiKey first = plain_api_key("k", 1);
  Access access({first});
  const auto account = access.find(with("x-api-key", "k"));
  first.digest = key_digest("new");
  first.admin = false;
  first.limits.streams = 3;
  access.replace({first});
  EXPECT_EQ(access.find(with("x-api-key", "new")), account);
  EXPECT_FALSE(access.find(with("x-api-key", "k")));
  EXPECT_FALSE(account->key().admin);
  EXPECT_EQ(account->usage().limits.streams, 3);
  access.replace({});
  EXPECT_TRUE(access.open());
  EXPECT_EQ(access.usage().size(), 1u) << "usage of removed keys is still reported";
}

TEST(AccessEdges, OperatorEndpointsOfOtherServersRequireAdmin) {
  const std::pair<const char*, const char*> admins[] = {{"GET", "/slots"},
                                                        {"POST", "/slots/*"},
                                                        {"POST", "/props"},
                                                        {"POST", "/lora-adapters"},
                                                        {"POST", "/v1/load_lora_adapter"},
                                                        {"POST", "/v1/unload_lora_adapter"},
                                                        {"POST", "/models/load"},
                                                        {"POST", "/models/unload"},
                                                        {"DELETE", "/v1/models/*"},
                                                        {"POST", "/api/pull"},
                                                        {"POST", "/api/push"},
                                                        {"POST", "/api/create"},
                                                        {"POST", "/api/copy"},
                                                        {"DELETE", "/api/delete"}};
  for (const auto& [method, path] : admins) {
    Endpoint endpoint{.method = method, .path = path};
    EXPECT_EQ(needed_role(&endpoint, Role::user), Role::admin) << path;
    endpoint.method = "PUT";
    EXPECT_EQ(needed_role(&endpoint, Role::user), Role::user) << path;
    endpoint.method = method;
    endpoint.path += "x";
    EXPECT_EQ(needed_role(&endpoint, Role::user), Role::user) << path;
  }
}

}  // namespace
}  // namespace millrace
