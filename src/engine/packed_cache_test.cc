// The packed cache: starting from it produces the same stream, and a damaged one only causes a warning.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/cpu.h"
#include "engine/engine_core.h"
#include "run/language_model.h"
#include "run/plan/packed_cache_path.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_all(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

class PackedCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("packed_cache_test." + std::to_string(getpid()));
    fs::create_directories(folder_);
    model_ = folder_ / "model.gguf";
    fs::copy_file(fs::path(MILLRACE_SOURCE_DIR) / "tests/golden/llama3/model.gguf", model_);
    cache_ = folder_ / "model.gguf.millrace-packed";
  }
  void TearDown() override { fs::remove_all(folder_); }

  struct Start {
    std::vector<TokenId> tokens;
    std::vector<float> logits;
    bool from_cache = false;
    std::vector<std::string> warnings;
  };

  Start start(bool cached, bool verify = false, const std::string& path = "") {
    Start out;
    LoadOptions options;
    options.threads = 2;
    options.context = 64;
    options.packed_cache = cached;
    options.packed_cache_path = path;
    options.verify_packed_cache = verify;
    options.warn = [&](const std::string& message) { out.warnings.push_back(message); };
    auto model = LanguageModel::load(model_.string(), options);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    if (!model.ok()) return out;
    out.from_cache = (*model)->parts().model->from_cache();
    auto core = EngineCore::create(*model, {.threads = 1, .max_streams = 1});
    EXPECT_TRUE(core.ok());
    Request request;
    request.prompt = {1, 5, 9};
    request.max_tokens = 4;
    request.ignore_eos = true;
    EXPECT_TRUE((*core)->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!(*core)->idle()) {
      (*core)->step(events);
      out.logits.insert(out.logits.end(), (*core)->last_logits(), (*core)->last_logits() + (*model)->info().vocab);
    }
    for (const TokenEvent& event : events) out.tokens.push_back(event.token);
    return out;
  }

  // Tokens and logits that every start must produce.
  void expect_same(const Start& start) {
    EXPECT_EQ(start.tokens, plain().tokens);
    EXPECT_EQ(start.logits, plain().logits);
  }
  const Start& plain() {
    if (plain_.logits.empty()) plain_ = start(false);
    return plain_;
  }

  // The altered cache is rejected with a warning that contains `word`, and rewritten.
  void expect_refused(const std::string& altered, const std::string& word, bool verify = false) {
    const std::string good = read_all(cache_);
    write_all(cache_, altered);
    const Start refused = start(true, verify);
    EXPECT_FALSE(refused.from_cache);
    ASSERT_EQ(refused.warnings.size(), 1u) << word;
    EXPECT_NE(refused.warnings[0].find(word), std::string::npos) << refused.warnings[0];
    expect_same(refused);
    EXPECT_EQ(read_all(cache_), good) << word;
  }

  fs::path folder_, model_, cache_;
  Start plain_;
};

TEST_F(PackedCacheTest, SecondStartMapsItWithIdenticalResults) {
  const Start first = start(true);
  EXPECT_FALSE(first.from_cache);
  EXPECT_TRUE(first.warnings.empty());
  expect_same(first);
  ASSERT_TRUE(fs::exists(cache_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 2) << "no temporary file is left";
  for (bool verify : {false, true}) {
    const Start second = start(true, verify);
    EXPECT_TRUE(second.from_cache);
    EXPECT_TRUE(second.warnings.empty());
    expect_same(second);
  }
  EXPECT_FALSE(start(false).from_cache);
}

TEST_F(PackedCacheTest, ExplicitPath) {
  const std::string path = (folder_ / "elsewhere").string();
  EXPECT_FALSE(start(true, false, path).from_cache);
  EXPECT_TRUE(start(true, false, path).from_cache);
  EXPECT_FALSE(fs::exists(cache_));
  const Start refused = start(true, false, (folder_ / "no such folder" / "cache").string());
  ASSERT_EQ(refused.warnings.size(), 1u);
  EXPECT_NE(refused.warnings[0].find("cannot write"), std::string::npos);
  expect_same(refused);
}

TEST_F(PackedCacheTest, DamageIsDetected) {
  start(true);
  const std::string good = read_all(cache_);
  ASSERT_GT(good.size(), size_t{2} << 20);
  for (size_t length : {size_t{1}, size_t{63}, size_t{64}, size_t{500}, size_t{2} << 20, good.size() - 1})
    expect_refused(good.substr(0, length), "");
  expect_refused(good + "x", "bytes");
  const size_t header = good.find_last_not_of('\0', (size_t{2} << 20) - 1) + 1;
  ASSERT_LT(header, size_t{1} << 16);
  for (size_t at = 0; at < header; at += at < 64 ? 5 : 211) {
    std::string altered = good;
    altered[at] = static_cast<char>(altered[at] ^ 0x10);
    expect_refused(altered, at < 8 ? "not a packed cache" : at < 12 ? "version" : "");
  }
}

TEST_F(PackedCacheTest, DamagedWeightsAreFoundInFirstRowsOrByVerification) {
  start(true);
  const std::string good = read_all(cache_);
  std::string altered = good;
  altered[size_t{2} << 20] = static_cast<char>(altered[size_t{2} << 20] ^ 1);
  expect_refused(altered, "does not match the model's file");
  altered = good;
  const size_t last = good.find_last_not_of('\0');  // followed by padding
  altered[last] = static_cast<char>(altered[last] ^ 1);
  expect_refused(altered, "", true);
}

TEST_F(PackedCacheTest, OtherModelOrMachineIsRejected) {
  start(true);
  fs::last_write_time(model_, fs::last_write_time(model_) + std::chrono::seconds(1));
  Start touched = start(true);
  EXPECT_FALSE(touched.from_cache);
  ASSERT_EQ(touched.warnings.size(), 1u);
  EXPECT_NE(touched.warnings[0].find("another model"), std::string::npos) << touched.warnings[0];
  EXPECT_TRUE(start(true).from_cache);
  if (*select_isa() == Isa::ref) return;  // there is no lower instruction set
  const char* isa = getenv("MILLRACE_ISA");
  const std::string before = isa ? isa : "";
  setenv("MILLRACE_ISA", "ref", 1);
  const Start ref = start(true);
  EXPECT_FALSE(ref.from_cache);
  ASSERT_EQ(ref.warnings.size(), 1u);
  EXPECT_NE(ref.warnings[0].find("instruction set"), std::string::npos) << ref.warnings[0];
  EXPECT_TRUE(start(true).from_cache);
  if (isa)
    setenv("MILLRACE_ISA", before.c_str(), 1);
  else
    unsetenv("MILLRACE_ISA");
}

TEST_F(PackedCacheTest, DefaultPaths) {
  EXPECT_EQ(default_packed_cache_path(model_.string()), cache_.string());
  EXPECT_EQ(default_packed_cache_path(folder_.string() + "/"),
            (folder_ / (folder_.filename().string() + ".millrace-packed")).string());
}

}  // namespace
}  // namespace millrace
