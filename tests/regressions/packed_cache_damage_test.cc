// A packed cache with a damaged byte in its weights was used as it was: with --packed-cache, 2 of 785 damaged files
// changed the answer, at exit 0. Hashes were stored but compared on request only, and the test damaged a byte of the
// rows that every start compares. This test damages every class of bytes, and every damage must be found.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/engine_core.h"
#include "run/language_model.h"
#include "test_paths.h"

namespace millrace {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPayload = size_t{2} << 20;  // its offset where the header is small
constexpr size_t kBlock = size_t{8} << 20;

std::string read_all(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Start {
  std::vector<float> logits;
  bool from_cache = false;
  std::vector<std::string> warnings;
};

class PackedCacheDamage : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("packed_cache_damage." + std::to_string(getpid()));
    fs::create_directories(folder_);
    cache_ = folder_ / "cache";
  }
  void TearDown() override { fs::remove_all(folder_); }

  void use(const char* model) {
    model_ = folder_ / "model.gguf";
    fs::copy_file(fs::path(MILLRACE_SOURCE_DIR) / model, model_, fs::copy_options::overwrite_existing);
    wanted_ = start().logits;
    ASSERT_FALSE(wanted_.empty());
    good_ = read_all(cache_);
    ASSERT_GT(good_.size(), kPayload);
    ASSERT_TRUE(start().from_cache);
  }

  Start start(bool verify = false) {
    Start out;
    LoadOptions options;
    options.threads = 2;
    options.context = 64;
    options.packed_cache = true;
    options.packed_cache_path = cache_;
    options.verify_packed_cache = verify;
    options.warn = [&](const std::string& message) { out.warnings.push_back(message); };
    auto model = LanguageModel::load(model_, options);
    if (!model.ok()) return out;
    out.from_cache = (*model)->parts().model->from_cache();
    auto core = EngineCore::create(*model, {.threads = 1, .max_streams = 1});
    Request request;
    request.prompt = {1, 5, 9};
    request.max_tokens = 2;
    request.ignore_eos = true;
    if (!core.ok() || !(*core)->add(1, request).ok()) return out;
    std::vector<TokenEvent> events;
    while (!(*core)->idle()) {
      (*core)->step(events);
      out.logits.insert(out.logits.end(), (*core)->last_logits(), (*core)->last_logits() + (*model)->info().vocab);
    }
    return out;
  }

  // Refused with one warning and rewritten, and the answer has the bits of a clean start.
  void expect_found(const std::string& altered, const std::string& what, bool verify = false) {
    ASSERT_NE(altered, good_) << what;
    std::ofstream(cache_, std::ios::binary) << altered;
    const Start seen = start(verify);
    ++tried_;
    used_ += seen.from_cache;
    wrong_ += seen.logits != wanted_;
    if (seen.from_cache || seen.warnings.size() != 1 || seen.logits != wanted_)
      said_ += what + (seen.logits != wanted_ ? ": another answer\n" : ": was used\n");
    else if (read_all(cache_) != good_)
      said_ += what + ": was not written anew\n";
  }
  void flip(size_t at, int bit = 0) {
    std::string altered = good_;
    altered[at] = static_cast<char>(altered[at] ^ 1 << bit);
    expect_found(altered, "bit " + std::to_string(bit) + " of byte " + std::to_string(at));
  }
  void expect_none() {
    EXPECT_EQ(wrong_, 0) << "of " << tried_ << " damaged caches gave another answer";
    EXPECT_EQ(used_, 0) << "of " << tried_ << " damaged caches were used";
    EXPECT_EQ(said_.substr(0, 400), "");
  }

  fs::path folder_, model_, cache_;
  std::vector<float> wanted_;
  std::string good_, said_;
  int tried_ = 0, used_ = 0, wrong_ = 0;
};

// label(once): damages each class of bytes in turn; single damages are other cases
TEST_F(PackedCacheDamage, EveryClassOfBytesIsCovered) {
  use("tests/golden/llama3/model.gguf");
  const size_t header = good_.find_last_not_of('\0', kPayload - 1) + 1;
  ASSERT_LT(header, size_t{1} << 16);
  for (size_t at = 0; at < 64; ++at) flip(at, static_cast<int>(at % 8));           // the prelude
  for (size_t at = 64; at < header; at += 61) flip(at, static_cast<int>(at % 7));  // identity
  for (size_t at = header - 8; at < header; ++at) flip(at);                        // the last hash
  for (size_t at : {header, header + 4096, kPayload - 1}) flip(at);                // zeros before the payload
  for (size_t at = kPayload; at < good_.size(); at += (good_.size() - kPayload) / 300 + 1)
    flip(at, static_cast<int>(at % 8));
  flip(good_.size() - 1);
  expect_none();
  EXPECT_GT(tried_, 350);
}

TEST_F(PackedCacheDamage, LargerDamageIsFoundToo) {
  use("tests/golden/llama3/model.gguf");
  const size_t page = kPayload + (good_.size() - kPayload) / 2 / 4096 * 4096;
  for (const size_t bytes : {size_t{512}, size_t{4096}})  // a sector, a page: lost, or replaced by another one
    for (const char fill : {'\0', '\xFF'}) expect_found(std::string(good_).replace(page, bytes, bytes, fill), "lost");
  expect_found(std::string(good_).replace(page, 4096, good_, kPayload, 4096), "a page of another place");
  for (const size_t length :
       {size_t{0}, size_t{1}, size_t{64}, size_t{5000}, kPayload - 1, kPayload, page, good_.size() - 1}) {
    if (length > 0) expect_found(good_.substr(0, length), "cut to " + std::to_string(length));
  }
  expect_found(good_ + std::string(4096, '\0'), "longer");
  expect_found(std::string(good_).replace(page, 1, 1, static_cast<char>(good_[page] ^ 4)), "with --verify-packed-cache",
               true);
  expect_none();
}

// label(once): damages each class of bytes in turn; single damages are other cases
TEST_F(PackedCacheDamage, EveryBlockOfALargerModel) {
  use("models/millrace-stories-6m.gguf");
  ASSERT_GT(good_.size(), kPayload + kBlock);
  for (size_t block = kPayload; block < good_.size(); block += kBlock) {
    flip(block, 6);
    flip(std::min(block + kBlock, good_.size()) - 1, 3);
    flip(block + std::min(kBlock, good_.size() - block) / 2, 7);
  }
  expect_none();
}

}  // namespace
}  // namespace millrace
