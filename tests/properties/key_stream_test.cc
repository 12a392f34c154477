// Keys of running streams in a file (KV tier disk): answers have the same bits as with all keys in memory, for any
// chunks, threads, other streams, preemptions, shared prefixes and answers that share a prompt; a stream whose keys
// cannot be read ends with an error, and the others do not notice.
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "contains.h"
#include "properties/key_streams.h"

namespace millrace {
namespace {

using namespace testing;

EngineOptions streamed_options(int threads, int64_t batch_tokens) {
  EngineOptions o = options(threads, batch_tokens, 16);
  o.kv_format = "f32";
  o.kv_tokens = 1024;
  return o;
}

class KeyStream : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto loaded = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 128});
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    model_ = *loaded;
    vocab_ = model_->info().vocab;
  }
  int64_t least_memory(const EngineOptions& o) const { return least_stream_memory(model_, o); }
  EngineOptions little(EngineOptions o, bool ahead = true) const {
    o.kv_tier = stream_tier(least_memory(o), ahead);
    return o;
  }
  std::map<RequestId, Shown> answers(EngineCore& core, int64_t count = 5) const {
    for (RequestId id = 1; id <= static_cast<RequestId>(count); ++id)
      EXPECT_TRUE(core.add(id, request(static_cast<int64_t>(id))).ok());
    return run_all(core, vocab_);
  }
  Request request(int64_t id) const {
    const int64_t prompts[] = {100, 41, 77, 16, 90, 3};
    return make_request(id, prompts[id % 6], 18 + id, vocab_);
  }
  static void expect_streams(const EngineCore& core) {
    const KeyStreamStats stats = core.stats().key_stream;
    EXPECT_GT(stats.blocks, stats.resident_blocks);
    EXPECT_GT(stats.layer_blocks_read, 0);
    EXPECT_GT(stats.read_bytes, 0);
    EXPECT_GT(stats.written_bytes, 0);
    EXPECT_EQ(stats.failed_blocks, 0);
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_P(KeyStream, SameBitsAsWithAllKeysInMemory) {
  auto plain = make_core(model_, streamed_options(1, 512));
  const auto expected = answers(*plain);
  EXPECT_EQ(plain->stats().key_stream.blocks, 0);
  for (const auto& [threads, batch, ahead] :
       {std::tuple(1, 512, true), {2, 512, false}, {2, 23, true}, {1, 9, false}}) {
    auto core = make_core(model_, little(streamed_options(threads, batch), ahead));
    const auto streamed = answers(*core);
    for (const auto& [id, shown] : expected)
      EXPECT_TRUE(shown.same_bits(streamed.at(id))) << id << ", batch " << batch << ", ahead " << ahead;
    expect_streams(*core);
    EXPECT_EQ(core->stats().key_stream.layer_blocks_ahead > 0, ahead);
    EXPECT_LT(core->stats().kv_bytes, plain->stats().kv_bytes);
  }
}

TEST_P(KeyStream, PreemptedStreamsAndSharedPrefixesKeepTheBits) {
  auto plain = make_core(model_, streamed_options(1, 512));
  const auto expected = answers(*plain);
  EngineOptions narrow = streamed_options(2, 64);
  narrow.kv_tokens = 256;
  narrow.policy = "fcfs:reserve=prompt";
  auto core = make_core(model_, little(narrow));
  for (int round = 0; round < 2; ++round) {
    const auto streamed = answers(*core);
    for (const auto& [id, shown] : expected) EXPECT_TRUE(shown.same_bits(streamed.at(id))) << id << ", " << round;
  }
  EXPECT_GT(core->stats().preemptions, 0);
  expect_streams(*core);

  auto wide = make_core(model_, little(streamed_options(1, 512)));
  answers(*wide);
  const auto again = answers(*wide);
  for (const auto& [id, shown] : expected) EXPECT_TRUE(shown.same_bits(again.at(id))) << id;
  EXPECT_GT(again.at(1).cached + again.at(2).cached, 0);
}

TEST_P(KeyStream, AnswersThatShareAPromptAndBeamsKeepTheirTokens) {
  for (const bool beams : {false, true}) {
    const auto tokens = [&](const EngineOptions& o) {
      auto core = make_core(model_, o);
      for (RequestId id = 1; id <= 2; ++id) {
        Request several = make_request(static_cast<int64_t>(2 * id + 1), 45, 20, vocab_);
        several.n = 3;
        if (beams) several.beams = 3;
        EXPECT_TRUE(core->add(id, several).ok());
      }
      std::vector<TokenEvent> events;
      while (!core->idle()) core->step(events);
      std::map<std::pair<RequestId, int64_t>, std::vector<TokenId>> out;
      for (const TokenEvent& event : events) {
        EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
        if (event.token >= 0) out[{event.request, event.answer}].push_back(event.token);
      }
      return out;
    };
    EXPECT_EQ(tokens(little(streamed_options(1, 512))), tokens(streamed_options(1, 512))) << beams;
  }
}

TEST_P(KeyStream, DraftsKeepTheTokens) {
  EngineOptions drafting = little(streamed_options(2, 64));
  drafting.drafter = "ngram:n=2,min=1,k=4";
  Request repeats = make_request(2, 70, 30, vocab_);
  repeats.sampling.allowed_tokens = {repeats.prompt[3], repeats.prompt[4]};
  const auto tokens = [&](const EngineOptions& o, int64_t* drafted) {
    auto core = make_core(model_, o);
    for (RequestId id = 1; id <= 3; ++id) EXPECT_TRUE(core->add(id, repeats).ok());
    auto shown = run_all(*core, vocab_);
    *drafted = core->stats().drafted_tokens;
    return shown[3].tokens;
  };
  int64_t drafted = 0, none = 0;
  EXPECT_EQ(tokens(drafting, &drafted), tokens(streamed_options(1, 512), &none));
  EXPECT_GT(drafted, 0);
}

// The file has no name; its descriptor is one of this process.
int open_stream_file() {
  DIR* folder = ::opendir("/proc/self/fd");
  int found = -1;
  while (const dirent* entry = folder ? ::readdir(folder) : nullptr) {
    char target[4096] = {};
    const std::string link = std::string("/proc/self/fd/") + entry->d_name;
    if (::readlink(link.c_str(), target, sizeof target - 1) > 0 && std::strstr(target, "millrace-keys-"))
      found = ::open(link.c_str(), O_RDWR | O_CLOEXEC);
  }
  if (folder) ::closedir(folder);
  return found;
}

void damage_file() {
  const int fd = open_stream_file();
  ASSERT_GE(fd, 0);
  struct stat info;
  ASSERT_EQ(::fstat(fd, &info), 0);
  const std::vector<uint8_t> other(static_cast<size_t>(info.st_size), 0x5a);
  ASSERT_EQ(::pwrite(fd, other.data(), other.size(), 0), info.st_size);
  ASSERT_EQ(::fsync(fd), 0);
  ::close(fd);
}

TEST_P(KeyStream, AStreamWhoseKeysAreDamagedEndsAndOthersLive) {
  if (access("/proc/self/fd", R_OK) != 0) GTEST_SKIP() << "needs /proc";
  auto plain = make_core(model_, streamed_options(1, 512));
  const Request first = make_request(2, 20, 30, vocab_), second = make_request(5, 100, 25, vocab_);
  ASSERT_TRUE(plain->add(1, first).ok());
  ASSERT_TRUE(plain->add(2, second).ok());
  const auto expected = run_all(*plain, vocab_);

  EngineOptions o = streamed_options(1, 512);
  std::unique_ptr<EngineCore> core;
  int64_t memory = least_memory(o);
  for (; !core || core->stats().key_stream.resident_blocks < 4; memory += 1024) {
    o.kv_tier = stream_tier(memory, true);
    core = make_core(model_, o);
  }
  ASSERT_TRUE(core->add(1, first).ok());  // takes resident blocks: 50 tokens
  std::vector<TokenEvent> events;
  core->step(events);
  ASSERT_TRUE(core->add(2, second).ok());
  for (int step = 0; step < 5; ++step) core->step(events);
  damage_file();
  std::map<RequestId, std::vector<TokenId>> tokens;
  while (!core->idle()) {
    core->step(events);
    ASSERT_TRUE(core->check_blocks().ok());
  }
  std::string error;
  for (const TokenEvent& event : events) {
    if (event.token >= 0) tokens[event.request].push_back(event.token);
    if (event.finish != FinishReason::error) continue;
    EXPECT_EQ(event.request, 2u);
    error = event.error.message;
  }
  EXPECT_CONTAINS(error, "could not be read back from its file");
  EXPECT_EQ(tokens[1], expected.at(1).tokens);
  EXPECT_GT(core->stats().key_stream.failed_blocks, 0);
  // No prefix has blocks of the stream that ended: its prompt is computed again, with the same bits.
  ASSERT_TRUE(core->add(3, second).ok());
  const auto again = run_all(*core, vocab_);
  EXPECT_EQ(again.at(3).tokens, expected.at(2).tokens);
}

TEST_P(KeyStream, SaysWhatMemoryItNeeds) {
  EngineOptions o = streamed_options(1, 512);
  const auto refusal = [&](const std::string& tier) {
    o.kv_tier = tier;
    const auto core = EngineCore::create(model_, o);
    return core.ok() ? std::string() : core.error().message;
  };
  EXPECT_CONTAINS(refusal(stream_tier(1, true)), "for keys and values of two layers");
  EXPECT_CONTAINS(refusal("disk:memory=1G"), "path=FOLDER");
  EXPECT_CONTAINS(refusal("disk:path=" + ::testing::TempDir()), "how much memory may keys take?");
  EXPECT_CONTAINS(refusal("disk:path=/nonexistent/folder,memory=" + std::to_string(least_memory(o))),
                  "no file can be created in /nonexistent/folder");
  // If all keys fit, none are in a file.
  o.kv_tier = stream_tier(int64_t{256} << 20, true);
  auto core = make_core(model_, o);
  answers(*core, 2);
  EXPECT_EQ(core->stats().key_stream.blocks, 0);
}

// Three layers or more, so that some have the same turn. gemma3 and gpt_oss have layers with a window; layers of
// gemma3n read the keys of others; deepseek2 has latent attention, and falcon_h1_norm recurrent states.
INSTANTIATE_TEST_SUITE_P(Models, KeyStream,
                         ::testing::Values("smollm3", "gemma3", "gemma3n", "gpt_oss", "deepseek2", "falcon_h1_norm"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace millrace
