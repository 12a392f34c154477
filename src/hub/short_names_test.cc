#include "hub/short_names.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "hub/hub_cache.h"

namespace millrace {
namespace {

// Names a file of the user for the time of a test.
class UserFile {
 public:
  explicit UserFile(const std::string& text) : path_(testing::TempDir() + "short-names.toml") {
    std::ofstream(path_) << text;
    ::setenv("MILLRACE_SHORT_NAMES", path_.c_str(), 1);
  }
  ~UserFile() {
    ::unsetenv("MILLRACE_SHORT_NAMES");
    std::filesystem::remove(path_);
  }

 private:
  std::string path_;
};

std::string model_of(std::string_view name) {
  const auto found = find_short_name(name);
  return found.ok() ? found->value_or("none") : found.error().message;
}

TEST(ShortNames, EveryEntryIsAModelOfAHubWithItsQuantization) {
  const UserFile none("");
  const auto all = short_names();
  ASSERT_TRUE(all.ok());
  EXPECT_GE(all->size(), 40u);
  std::set<std::string> names, families, latest;
  for (const ShortName& one : *all) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    const std::string family = one.name.substr(0, one.name.find(':'));
    EXPECT_NE(family, one.name);
    families.insert(family);
    if (one.latest) {
      EXPECT_TRUE(latest.insert(family).second) << one.name;
    }
    const auto hub = parse_hub_name(one.model);
    ASSERT_TRUE(hub.ok()) << one.model;
    EXPECT_FALSE(hub->wanted.empty()) << one.model;
    EXPECT_EQ(model_of(one.name), one.model);
  }
  EXPECT_EQ(families, latest);  // each name without a tag is one model
}

TEST(ShortNames, TagsMayBeLeftOutOrNameAQuantization) {
  const UserFile none("");
  EXPECT_EQ(model_of("qwen3"), model_of("qwen3:8b"));
  EXPECT_EQ(model_of("Qwen3:0.6B"), model_of("qwen3:0.6b"));
  EXPECT_EQ(model_of("qwen3:latest"), model_of("qwen3:8b"));
  EXPECT_EQ(model_of("llama3.2:1b-instruct-q8_0"), "bartowski/Llama-3.2-1B-Instruct-GGUF:Q8_0");
  EXPECT_EQ(model_of("gemma3:4b-it-fp16"), "ggml-org/gemma-3-4b-it-GGUF:F16");
  for (const char* none_of_them : {"", "llama3", "qwen3:9b", "qwen3:0.6b-fast", "a/b", "lab", "qwen3:"})
    EXPECT_EQ(model_of(none_of_them), "none") << none_of_them;
}

TEST(ShortNames, TheUsersFileAddsAndReplaces) {
  const UserFile own("# mine\n\"qwen3:8b\" = \"me/mine:Q8_0\"\nmini = 'me/small'\n");
  EXPECT_EQ(model_of("qwen3"), "me/mine:Q8_0");  // still what the name without a tag is
  EXPECT_EQ(model_of("mini"), "me/small");
  EXPECT_EQ(model_of("qwen3:0.6b"), "unsloth/Qwen3-0.6B-GGUF:Q4_K_M");
}

TEST(ShortNames, NamesAndModelsOfTheUsersFileMayHaveTheirLongForm) {
  const UserFile own(
      "\"mini:latest\" = \"me/small\"\n\"hfm:1b\" = \"hf:me/small:Q8_0\"\n\"h:1b\" = \"hf.co/me/h:F16\"\n");
  EXPECT_EQ(model_of("mini"), "me/small");
  EXPECT_EQ(model_of("mini:latest"), "me/small");
  EXPECT_EQ(model_of("hfm:1b"), "me/small:Q8_0");
  EXPECT_EQ(model_of("hfm:1b-q4_0"), "me/small:Q4_0");
  EXPECT_EQ(model_of("h:1b"), "me/h:F16");
  EXPECT_FALSE(parse_short_names("\":latest\" = \"me/small\"", "f.toml").ok());
}

TEST(ShortNames, AFileThatIsTooLargeIsRefused) {
  const UserFile full(std::string(size_t{1} << 20, '\n'));
  EXPECT_EQ(model_of("qwen3:0.6b"), "unsloth/Qwen3-0.6B-GGUF:Q4_K_M");
  const UserFile larger(std::string((size_t{1} << 20) + 1, '\n'));
  EXPECT_NE(model_of("qwen3:0.6b").find("is larger than"), std::string::npos) << model_of("qwen3:0.6b");
}

TEST(ShortNames, ErrorsNameFileAndLine) {
  for (const char* bad : {"\nnonsense\n", "\nx = unquoted/name\n", "\nx = \"no-owner\"\n", "\na/b = \"c/d\"\n"}) {
    const auto read = parse_short_names(bad, "f.toml");
    ASSERT_FALSE(read.ok()) << bad;
    EXPECT_NE(read.error().message.find("f.toml:2: "), std::string::npos) << read.error().message;
  }
  const UserFile broken("nonsense");
  EXPECT_NE(model_of("qwen3").find(":1: "), std::string::npos);
}

}  // namespace
}  // namespace millrace
