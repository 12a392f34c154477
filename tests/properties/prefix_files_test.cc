// Prefixes in files: an engine that loads what another one saved computes only the rest, with the same bits; files of
// other models, formats and adapters are refused, and a full cache takes what fits.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "engine/engine_core.h"
#include "millrace/engine.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;
namespace fs = std::filesystem;

class PrefixFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    path_ = (fs::temp_directory_path() / fmt::format("prefix_files.{}", getpid())).string();
  }
  void TearDown() override { fs::remove(path_); }

  Shown run_one(EngineCore& core, const Request& request) {
    const RequestId id = next_++;
    EXPECT_TRUE(core.add(id, request).ok());
    return run_all(core, vocab_)[id];
  }
  // Runs and saves; returns what the stream showed.
  Shown save(const Request& request, int64_t tokens, const EngineOptions& o) {
    auto core = make_core(model_, o);
    const Shown shown = run_one(*core, request);
    auto saved = core->save_prefix(request, path_);
    EXPECT_TRUE(saved.ok()) << (saved.ok() ? "" : saved.error().message);
    if (saved.ok()) {
      EXPECT_EQ(*saved, tokens);
    }
    EXPECT_TRUE(core->check_blocks().ok());
    return shown;
  }
  std::string refusal(EngineCore& core, const Request& request) {
    auto loaded = core.load_prefix(request, path_);
    EXPECT_FALSE(loaded.ok());
    std::string message = loaded.ok() ? "" : loaded.error().message;
    if (message.starts_with(path_)) message.erase(0, path_.size());
    return message;
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  std::string path_;
  RequestId next_ = 1;
};

TEST_F(PrefixFiles, LoadedIsComputed) {
  for (const char* format : {"f32", "f16", "bf16"}) {
    for (const int64_t block_tokens : {4, 10}) {
      EngineOptions o = options(2, 16, block_tokens);
      o.kv_format = format;
      Request request = make_request(1, 61, 12, vocab_);
      const Shown want = save(request, 60, o);
      auto core = make_core(model_, o);
      run_one(*core, make_request(5, 20, 4, vocab_));  // other blocks are in use first
      auto loaded = core->load_prefix(request, path_);
      ASSERT_TRUE(loaded.ok()) << format << " " << block_tokens << ": " << loaded.error().message;
      EXPECT_EQ(*loaded, 60);
      EXPECT_TRUE(core->check_blocks().ok());
      const Shown got = run_one(*core, request);
      EXPECT_TRUE(got.same_bits(want)) << format << " " << block_tokens;
      EXPECT_EQ(got.cached, 60);
      // While streams run.
      auto busy = make_core(model_, o);
      std::vector<TokenEvent> events;
      ASSERT_TRUE(busy->add(900, make_request(7, 30, 20, vocab_)).ok());
      for (int i = 0; i < 4; ++i) busy->step(events);
      ASSERT_TRUE(busy->load_prefix(request, path_).ok());
      ASSERT_TRUE(busy->add(901, request).ok());
      auto shown = run_all(*busy, vocab_);
      EXPECT_TRUE(shown[901].same_bits(want)) << format << " " << block_tokens;
      EXPECT_EQ(shown[901].cached, 60);
    }
  }
}

// Whose probe needs several passes, and a tail where all belong to streams.
TEST_F(PrefixFiles, TilesOfACodecWhileStreamsRun) {
  EngineOptions o = options(2, 24);
  o.kv_format = "kivi";
  o.max_streams = 2;
  const Request request = make_request(1, 70, 12, vocab_);
  const Shown want = save(request, 64, o);
  for (const int64_t others : {1, 2}) {
    std::map<RequestId, Shown> alone;
    auto busy = make_core(model_, o);
    std::vector<TokenEvent> events;
    for (int64_t i = 0; i < others; ++i) {
      const Request other = make_request(7 + i, 10, 60, vocab_);
      alone[static_cast<RequestId>(900 + i)] = run_one(*make_core(model_, o), other);
      ASSERT_TRUE(busy->add(static_cast<RequestId>(900 + i), other).ok());
    }
    for (int i = 0; i < 20; ++i) {
      busy->step(events);
      auto loaded = busy->load_prefix(request, path_);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ(*loaded, 64);
    }
    ASSERT_TRUE(busy->add(950, request).ok());
    auto shown = run_all(*busy, vocab_);
    EXPECT_TRUE(shown[950].same_bits(want));
    EXPECT_EQ(shown[950].cached, 64);
    for (const TokenEvent& event : events) EXPECT_NE(event.finish, FinishReason::error);
    for (const auto& [id, one] : alone) {
      ASSERT_GE(one.tokens.size(), shown[id].tokens.size());
      EXPECT_TRUE(std::ranges::equal(std::span(one.tokens).last(shown[id].tokens.size()), shown[id].tokens)) << id;
    }
  }
}

TEST_F(PrefixFiles, AFullCacheTakesWhatFits) {
  const Request request = make_request(1, 61, 4, vocab_);
  const Shown want = save(request, 60, options(1, 512, 4));
  EngineOptions o = options(1, 512, 4);
  o.kv_tokens = 128;
  auto core = make_core(model_, o);
  run_one(*core, make_request(3, 110, 8, vocab_));  // leaves the pool full of cached blocks, which make room
  auto loaded = core->load_prefix(request, path_);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(*loaded, 60);
  EXPECT_TRUE(run_one(*core, request).same_bits(want));
}

TEST_F(PrefixFiles, OthersAreRefused) {
  Request request = make_request(1, 33, 4, vocab_);
  auto empty = make_core(model_, options(1, 512, 4));
  EXPECT_EQ(empty->save_prefix(request, path_).error().message,
            "KV file: none of the prompt's blocks of 4 tokens are in the prefix cache");
  save(request, 32, options(1, 512, 4));
  EngineOptions other = options(1, 512, 4);
  other.kv_format = "f32";
  auto core = make_core(model_, other);
  EXPECT_NE(refusal(*core, request).find("another model or machine"), std::string::npos);
  core = make_core(model_, options(1, 512, 8));
  EXPECT_NE(refusal(*core, request).find(" it has "), std::string::npos);
  core = make_core(load_for(golden_model("llama"), *select_isa()), options(1, 512, 4));
  EXPECT_NE(refusal(*core, request).find("another model or machine"), std::string::npos);
  EngineOptions off = options(1, 512, 4);
  off.prefix_cache = false;
  core = make_core(model_, off);
  EXPECT_EQ(refusal(*core, request), "KV file: the prefix cache is off; switch it on");
  Request soft = request;
  soft.embeddings = {
      {0, std::make_shared<std::vector<float>>(static_cast<size_t>(model_->parts().model->spec().width))}};
  core = make_core(model_, options(1, 512, 4));
  EXPECT_NE(refusal(*core, soft).find("another model or machine: it has 'rows '"), std::string::npos);
  // A tenant's file is for the tenant that loads it.
  ASSERT_TRUE(core->load_prefix(request, path_).ok());
  Request tenant = request;
  tenant.tenant = "b";
  EXPECT_EQ(run_one(*core, tenant).cached, 0);
  EXPECT_EQ(run_one(*core, request).cached, 32);
  std::ofstream(path_, std::ios::app) << "x";
  EXPECT_NE(refusal(*core, request).find("do not agree with its header"), std::string::npos);
}

TEST_F(PrefixFiles, ThroughTheEnginesThread) {
  const Request request = make_request(1, 33, 4, vocab_);
  for (int64_t cached : {0, 32}) {
    auto engine = Engine::create(model_, options(1, 512, 4));
    ASSERT_TRUE(engine.ok());
    if (cached > 0) {
      auto loaded = (*engine)->load_prefix(request, path_);
      ASSERT_TRUE(loaded.ok()) << loaded.error().message;
      EXPECT_EQ(*loaded, cached);
    }
    auto stream = (*engine)->submit(request);
    ASSERT_TRUE(stream.ok());
    TokenEvent last;
    while (auto event = (*stream)->next()) last = *event;
    EXPECT_EQ(last.timings.cached_tokens, cached);
    auto saved = (*engine)->save_prefix(request, path_);
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(*saved, 32);
  }
}

}  // namespace
}  // namespace millrace
