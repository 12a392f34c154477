// Prompts that are read in the engine's steps: rows are those of the model run alone, bit for bit, whatever the chunks,
// the other streams and preemptions; other streams' bits do not change; blocks are the engine's and come back.
#include <mutex>
#include <new>
#include <set>

#include "model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

// Keeps every row, how often a position came, and where rows were.
class Keeper final : public PromptReader {
 public:
  Keeper(bool logits, int64_t size, int64_t every) : logits_(logits), size_(size), every_(every) {}
  bool logits() const override { return logits_; }
  bool wants(int64_t position) const override { return position % every_ == 0; }
  void read(int64_t position, const float* row) override {
    std::lock_guard lock(mutex_);
    std::vector<float> now(row, row + size_);
    if (const auto before = rows.find(position); before != rows.end()) {
      ++again;
      EXPECT_EQ(before->second, now) << position;
    } else if (!logits_ && !rows.empty()) {
      EXPECT_GT(position, rows.rbegin()->first) << "in ascending order";
    }
    rows[position] = std::move(now);
    places.insert(row);
  }

  std::map<int64_t, std::vector<float>> rows;
  std::set<const float*> places;
  int64_t again = 0;

 private:
  std::mutex mutex_;
  bool logits_;
  int64_t size_, every_;
};

Request reading(int64_t seed, int64_t prompt, const std::shared_ptr<Keeper>& keeper, int64_t vocab,
                int64_t max_tokens) {
  Request request = make_request(seed, prompt, max_tokens, vocab);
  request.reader = keeper;
  return request;
}

class EngineReaders : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam()), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    width_ = model_->parts().model->spec().width;
  }
  std::shared_ptr<Keeper> keeper(bool logits, int64_t every = 1) {
    return std::make_shared<Keeper>(logits, logits ? vocab_ : width_, every);
  }
  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0, width_ = 0;
};

TEST_P(EngineReaders, RowsAreThoseOfTheModelAlone) {
  auto alone = TestRunner::load(golden_model(GetParam()), {.threads = 1, .kv_format = "f16"});
  ASSERT_TRUE(alone.ok()) << alone.error().message;
  const auto prompt = make_request(3, 50, 1, vocab_).prompt;
  const std::vector<float> logits = (*alone)->logits(prompt);
  std::vector<float> hidden;  // of the same pass
  (*alone)->runner().start();
  (*alone)->runner().begin((*alone)->blocks(), 0);
  for (int64_t i = 0; i < 50; ++i) (*alone)->runner().add(prompt[static_cast<size_t>(i)], i, true);
  (*alone)->runner().forward_hidden();
  hidden.assign((*alone)->runner().hidden(), (*alone)->runner().hidden(50));
  const std::vector<Request> others = {make_request(1, 30, 12, vocab_), make_request(2, 9, 20, vocab_)};
  std::vector<Shown> expected;
  for (const Request& request : others) {
    auto core = make_core(model_, options());
    ASSERT_TRUE(core->add(1, request).ok());
    expected.push_back(run_all(*core, vocab_)[1]);
  }
  struct Way {
    int threads;
    int64_t batch_tokens, kv_tokens, streams;
  };
  for (const Way& way : {Way{1, 512, 4096, 8}, Way{2, 11, 4096, 8}, Way{1, 24, 128, 8}, Way{2, 60, 4096, 1}}) {
    EngineOptions o = options(way.threads, way.batch_tokens, 8);
    o.kv_tokens = way.kv_tokens;
    o.max_streams = way.streams;
    o.policy = "fcfs:reserve=prompt";
    auto core = make_core(model_, o);
    const auto scores = keeper(true), states = keeper(false), some = keeper(true, 7);
    ASSERT_TRUE(core->add(1, others[0]).ok());
    ASSERT_TRUE(core->add(2, reading(3, 50, scores, vocab_, 0)).ok());
    ASSERT_TRUE(core->add(3, others[1]).ok());
    ASSERT_TRUE(core->add(4, reading(3, 50, states, vocab_, 0)).ok());
    ASSERT_TRUE(core->add(5, reading(3, 50, some, vocab_, 5)).ok());  // and answers
    auto shown = run_all(*core, vocab_);
    EXPECT_EQ(shown[1].tokens, expected[0].tokens);
    EXPECT_EQ(shown[3].tokens, expected[1].tokens);
    if (core->stats().preemptions == 0) {
      EXPECT_TRUE(shown[1].same_bits(expected[0]));
      EXPECT_TRUE(shown[3].same_bits(expected[1]));
    }
    EXPECT_EQ(shown[2].tokens.size(), 0u);
    EXPECT_EQ(shown[5].tokens.size(), 5u);
    ASSERT_EQ(scores->rows.size(), 50u);
    ASSERT_EQ(states->rows.size(), 50u);
    EXPECT_EQ(some->rows.size(), 8u);
    for (const auto& [position, row] : scores->rows)
      ASSERT_EQ(std::memcmp(row.data(), logits.data() + position * vocab_, row.size() * sizeof(float)), 0) << position;
    for (const auto& [position, row] : some->rows) ASSERT_EQ(row, scores->rows[position]) << position;
    for (const auto& [position, row] : states->rows)
      ASSERT_EQ(std::memcmp(row.data(), hidden.data() + position * width_, row.size() * sizeof(float)), 0) << position;
  }
}

// The head runs for as many rows at once as fit, not for as many as there are streams.
TEST_P(EngineReaders, ManyRowsAtOnceWithOneStream) {
  for (int64_t streams : {1, 2}) {
    EngineOptions o = options();
    o.max_streams = streams;
    auto core = make_core(model_, o);
    const auto scores = keeper(true);
    ASSERT_TRUE(core->add(1, reading(3, 120, scores, vocab_, 0)).ok());
    run_all(*core, vocab_);
    EXPECT_EQ(scores->rows.size(), 120u);
    EXPECT_GE(scores->places.size(), 32u) << streams << " streams";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, EngineReaders,
                         ::testing::Values("llama", "gemma3", "qwen2moe", "mamba", "falcon_h1", "qwen35moe", "gemma4_e",
                                           "gemma3n"),
                         [](const auto& one) { return one.param; });

TEST(EngineReader, ReadsAllOfAPromptThatIsCachedOrFillsTheContext) {
  auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  auto core = make_core(model, options(1, 40, 4));
  const auto keep = [&] { return std::make_shared<Keeper>(true, vocab, 1); };
  ASSERT_TRUE(core->add(1, make_request(3, 100, 4, vocab)).ok());
  run_all(*core, vocab);
  const auto cached = keep(), full = keep();
  ASSERT_TRUE(core->add(2, reading(3, 100, cached, vocab, 0)).ok());
  ASSERT_TRUE(core->add(3, reading(3, 128, full, vocab, 0)).ok());
  run_all(*core, vocab);
  EXPECT_EQ(cached->rows.size(), 100u);
  EXPECT_EQ(full->rows.size(), 128u);
  for (const auto& [position, row] : cached->rows) ASSERT_EQ(row, full->rows[position]) << position;
}

// Adapters change the head's rows too, in pieces that are not those of a step without readers.
TEST(EngineReader, LeavesAdaptersToTheirStreams) {
  auto model = load_for(golden_model("llama3"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  EngineOptions o = options(1, 24, 8);
  o.adapters = {"one=" + std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/lora/llama3"};
  Request adapted = make_request(1, 30, 12, vocab);
  adapted.adapters = {{"one"}};
  const auto run = [&](bool read) {
    auto core = make_core(model, o);
    const auto base = std::make_shared<Keeper>(true, vocab, 1), own = std::make_shared<Keeper>(true, vocab, 1);
    const bool added = !read || core->add(1, reading(3, 40, base, vocab, 0)).ok();
    EXPECT_TRUE(core->add(2, adapted).ok());
    Request both = reading(3, 40, own, vocab, 0);
    both.adapters = adapted.adapters;
    EXPECT_TRUE(added && (!read || core->add(3, both).ok()));
    auto shown = run_all(*core, vocab);
    EXPECT_EQ(base->rows == own->rows, !read);
    return shown[2];
  };
  EXPECT_TRUE(run(true).same_bits(run(false)));
}

// Layers with a window have blocks of their own; other streams drop tokens, encode blocks, or run drafts.
TEST(EngineReader, ReadsBesideWindowsEvictorsCodecsAndDrafts) {
  auto model = LanguageModel::load(golden_model("gemma3"), {.threads = 1, .context = 700});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const int64_t vocab = (*model)->info().vocab;
  struct Case {
    const char *kv_format, *evictor, *drafter;
  };
  for (const Case& one : {Case{"f16", "h2o:budget=20,prompt=evicted", ""}, Case{"kivi:window=f16", "", ""},
                          Case{"f16", "", "ngram:min=1,k=3"}}) {
    EngineOptions o = options(1, 32);
    o.context = 700;
    o.kv_format = one.kv_format;
    o.evictor = one.evictor;
    o.drafter = one.drafter;
    const auto run = [&](bool read, bool answer) {
      auto core = make_core(*model, o);
      const KvPool& pool = core->kv();
      EXPECT_TRUE(pool.gives_back());
      const auto keeper = std::make_shared<Keeper>(true, vocab, 3);
      Request request = reading(3, 300, keeper, vocab, 0);
      request.evictor = "none";
      EXPECT_TRUE(!answer || core->add(1, make_request(1, 200, 40, vocab)).ok());
      EXPECT_TRUE(!read || core->add(2, request).ok());
      auto shown = run_all(*core, vocab);
      EXPECT_EQ(core->stats().kv_blocks_cached > 0, answer && !*one.evictor);  // reads leave nothing behind
      for (int64_t g = 0; g < pool.groups() && !answer; ++g)
        EXPECT_EQ(pool.group(g).free_blocks(), pool.group(g).total_blocks()) << g;
      return std::pair(keeper->rows, shown[1]);
    };
    const auto both = run(true, true), alone = run(true, false), without = run(false, true);
    EXPECT_EQ(both.first.size(), 100u);
    EXPECT_TRUE(both.first == alone.first) << one.kv_format << " " << one.evictor << " " << one.drafter;
    EXPECT_EQ(both.second.tokens.size(), 40u);
    EXPECT_EQ(both.second.tokens, without.second.tokens);
    const bool steps_alike = !*one.drafter;  // drafts have as much room as others leave
    EXPECT_TRUE(!steps_alike || both.second.same_bits(without.second)) << one.kv_format << " " << one.evictor;
  }
}

struct Thrower final : PromptReader {
  explicit Thrower(bool wants_logits) : logits_(wants_logits) {}
  bool logits() const override { return logits_; }
  bool wants(int64_t) const override { return true; }
  void read(int64_t position, const float*) override {
    if (position == 5) throw std::bad_alloc();
  }

 private:
  bool logits_;
};

TEST(EngineReader, ThatThrowsEndsItsRequestAlone) {
  auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  auto core = make_core(model, options(2, 24, 8));
  ASSERT_TRUE(core->add(1, make_request(1, 30, 6, vocab)).ok());
  for (RequestId id : {2, 3}) {
    Request request = make_request(3, 40, 0, vocab);
    request.reader = std::make_shared<Thrower>(id == 2);
    ASSERT_TRUE(core->add(id, request).ok());
  }
  std::map<RequestId, std::string> failed;
  std::vector<TokenEvent> events;
  int64_t tokens = 0;
  while (!core->idle()) {
    events.clear();
    core->step(events);
    for (const TokenEvent& event : events) {
      tokens += event.token >= 0;
      if (event.finish == FinishReason::error) failed[event.request] = event.error.message;
    }
    ASSERT_TRUE(core->check_blocks().ok());
  }
  EXPECT_EQ(tokens, 6);
  ASSERT_EQ(failed.size(), 2u);
  for (RequestId id : {2, 3}) EXPECT_EQ(failed[id], "reader: out of memory while reading the prompt");
}

TEST(EngineReader, SurvivesPreemption) {
  auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  EngineOptions o = options(1, 24, 8);
  o.kv_tokens = 160;
  o.policy = "priority";
  auto core = make_core(model, o);
  const auto keeper = std::make_shared<Keeper>(true, vocab, 1);
  ASSERT_TRUE(core->add(1, reading(3, 120, keeper, vocab, 0)).ok());
  std::vector<TokenEvent> events;
  for (int i = 0; i < 3; ++i) core->step(events);
  Request urgent = make_request(2, 60, 20, vocab);
  urgent.priority = 5;
  ASSERT_TRUE(core->add(2, urgent).ok());
  EXPECT_EQ(run_all(*core, vocab)[2].tokens.size(), 20u);
  EXPECT_GT(core->stats().preemptions, 0);
  EXPECT_GT(keeper->again, 0);
  EXPECT_EQ(keeper->rows.size(), 120u);
}

TEST(EngineReader, RefusesWhatHasNoSinglePrompt) {
  auto model = load_for(golden_model("llama"), *select_isa());
  ASSERT_TRUE(model);
  const int64_t vocab = model->info().vocab;
  const std::string kOneAnswer =
      "a reader of the prompt does not go with more than one answer: a prompt that is read is computed once; ask for "
      "one "
      "answer";
  auto core = make_core(model, options());
  const auto refusal = [&](auto edit) {
    Request request = reading(3, 20, std::make_shared<Keeper>(true, vocab, 1), vocab, 4);
    edit(request);
    auto added = core->add(1, request);
    EXPECT_FALSE(added.ok());
    return added.ok() ? "" : added.error().message;
  };
  EXPECT_EQ(refusal([](Request& r) { r.n = 2; }), kOneAnswer);
  EXPECT_EQ(refusal([](Request& r) { r.beams = 2; }), kOneAnswer);
  EXPECT_EQ(
      refusal([&](Request& r) {
        r.embeddings = {
            {6, std::make_shared<const std::vector<float>>(static_cast<size_t>(model->parts().model->spec().width))}};
      }),
      "a reader of the prompt does not go with rows in place of tokens: prompts with rows in place of tokens are not "
      "read; send tokens");
  EXPECT_EQ(refusal([](Request& r) {
              r.documents = {{1, 5}};
              r.document_context = "kvlink";
            }),
            "a reader of position 0 of documents that end at 5 does not go with context kvlink: documents that it "
            "computes separately are not read; read positions behind the last document");
  EXPECT_EQ(refusal([&](Request& r) { r.prompt = make_request(1, 128, 1, vocab).prompt; }),
            "prompt: 128 tokens do not leave room for an answer in a context of 128; shorten it or raise the context");
}

}  // namespace
}  // namespace millrace
