// Same request, same bits, with a KV cache that a codec encodes: whatever the threads, chunks, batch mates, block pool,
// preemptions, shared prefixes, answers, beams and drafts, and whichever groups of layers it encodes; and what such a
// cache refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "evaluate/embedder.h"
#include "evaluate/scorer.h"
#include "properties/costed_executor.h"
#include "properties/stream_bits.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct CodecCase {
  std::string model, kv_format;
  Isa isa;
  bool shares() const { return kv_format.find("residual") == std::string::npos; }
  bool windows() const { return kv_format.find("window") != std::string::npos; }
};

// Tokens and logarithms of probabilities of each answer.
using CodecAnswers = std::map<std::pair<RequestId, int64_t>, std::pair<std::vector<TokenId>, std::vector<float>>>;

CodecAnswers codec_answers_of(EngineCore& core) {
  CodecAnswers out;
  std::vector<TokenEvent> events;
  while (!core.idle()) {
    events.clear();
    core.step(events);
    for (const TokenEvent& event : events) {
      EXPECT_NE(event.finish, FinishReason::error) << event.error.message;
      if (event.token < 0) continue;
      out[{event.request, event.answer}].first.push_back(event.token);
      out[{event.request, event.answer}].second.push_back(event.logprob.logprob);
    }
    const auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
  }
  EXPECT_EQ(core.stats().states_free, core.stats().states);
  return out;
}

// Knows the answer, and drafts it with a mistake in every fourth token or so.
class MistakenDrafter final : public TextDrafter {
 public:
  explicit MistakenDrafter(std::vector<TokenId> answer) : answer_(std::move(answer)) {}
  void propose(const Sequence& stream, int64_t most, Draft& out) override {
    for (int64_t i = 0; i < most; ++i) {
      const auto at = static_cast<size_t>(stream.generated() + i);
      const bool mistake = philox_uniform(3, at, static_cast<uint64_t>(i)) < 0.25;
      out.tokens.push_back(mistake ? answer_[at] ^ 1 : answer_[at]);
    }
  }

 private:
  std::vector<TokenId> answer_;
};

class KvCodecBits : public ::testing::TestWithParam<CodecCase> {
 protected:
  void SetUp() override {
    WithIsa scope(GetParam().isa);
    auto model = LanguageModel::load(golden_model(GetParam().model),
                                     {.threads = 1, .context = GetParam().windows() ? 500 : 128});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    vocab_ = model_->info().vocab;
    alone_ = run_one(with_format(options()), request(1));
    ASSERT_EQ(alone_.tokens.size(), 20u);
  }
  EngineOptions with_format(EngineOptions o) const {
    o.kv_format = GetParam().kv_format;
    if (!GetParam().windows()) return o;
    o.context = 500;  // layers with a window have blocks of their own
    o.batch_tokens = std::min<int64_t>(o.batch_tokens, 60);
    return o;
  }
  Request request(int64_t seed, int64_t prompt = 75) const { return make_request(seed, prompt, 20, vocab_); }
  Shown run_one(const EngineOptions& o, Request r) const {
    auto core = make_core(model_, o);
    EXPECT_TRUE(core->add(1, std::move(r)).ok());
    return run_all(*core, vocab_)[1];
  }
  CodecAnswers answers(const EngineOptions& o, const Request& r) const {
    auto core = make_core(model_, with_format(o));
    EXPECT_TRUE(core->add(1, r).ok());
    return codec_answers_of(*core);
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  Shown alone_;
};

TEST_P(KvCodecBits, DifferFromRowsOfF16) {
  EngineOptions o = options();
  o.kv_format = "f16";
  EXPECT_FALSE(run_one(o, request(1)).same_bits(alone_));
  const auto codec = find_kv_codec(GetParam().kv_format).value();
  if (codec && codec->rotates()) return;
  // A prompt that fits in a block is never encoded.
  const Request shorter = make_request(3, 20, 8, vocab_);
  EXPECT_TRUE(run_one(o, shorter).same_bits(run_one(with_format(options()), shorter)));
}

TEST_P(KvCodecBits, DoNotDependOnThreadsOrChunks) {
  for (int threads : {2, 3})
    EXPECT_TRUE(run_one(with_format(options(threads)), request(1)).same_bits(alone_)) << threads;
  for (int64_t chunk : {1, 7, 32, 50}) {
    EngineOptions o = with_format(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request(1)).same_bits(alone_)) << chunk;
  }
  EXPECT_TRUE(run_one(with_format(options(1, 512, 32)), request(1)).same_bits(alone_)) << "16 is rounded up to 32";
}

TEST_P(KvCodecBits, DoNotDependOnBatchMates) {
  for (int64_t mates = 1; mates <= 7; mates += 3) {
    auto core = make_core(model_, with_format(options(2, 48)));
    for (int64_t i = 0; i < mates; ++i) {
      if (i == mates / 2) {
        ASSERT_TRUE(core->add(1, request(1)).ok());
      }
      ASSERT_TRUE(core->add(static_cast<RequestId>(100 + i), request(50 + i, 3 + 14 * i)).ok());
    }
    EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(alone_)) << mates;
    EXPECT_EQ(core->stats().states_free, core->stats().states);
  }
}

TEST_P(KvCodecBits, DoNotDependOnSharedPrefixes) {
  auto core = make_core(model_, with_format(options()));
  for (RequestId id : {1, 2}) {
    ASSERT_TRUE(core->add(id, request(1)).ok());
    const Shown shown = run_all(*core, vocab_)[id];
    EXPECT_TRUE(shown.same_bits(alone_));
    EXPECT_EQ(shown.cached, id == 1 || !GetParam().shares() ? 0 : 64) << "two whole blocks of 75 tokens";
  }
  Request other = request(1);  // shares the first 40 tokens, while the first one runs
  for (size_t i = 40; i < other.prompt.size(); ++i)
    other.prompt[i] = static_cast<TokenId>((other.prompt[i] + 1) % vocab_);
  auto both = make_core(model_, with_format(options(2, 24)));
  ASSERT_TRUE(both->add(1, request(1)).ok());
  ASSERT_TRUE(both->add(2, other).ok());
  ASSERT_TRUE(both->add(3, request(1)).ok());
  auto shown = run_all(*both, vocab_);
  EXPECT_TRUE(shown[1].same_bits(alone_));
  EXPECT_TRUE(shown[3].same_bits(alone_));
  EXPECT_TRUE(shown[2].same_bits(run_one(with_format(options()), other)));
  EXPECT_EQ(shown[3].cached, GetParam().shares() ? 64 : 0);
}

TEST_P(KvCodecBits, DoNotDependOnPreemptions) {
  for (int64_t swap_tokens : {0, 4096}) {
    EngineOptions o = with_format(options(2, 40));
    o.kv_tokens = 256;  // of six streams with up to 100 tokens
    o.max_streams = 4;
    o.kv_tier = memory_tier(swap_tokens);
    o.policy = "fcfs:reserve=prompt";
    auto executor = CpuExecutor::create(model_, o);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    auto made = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{1, 1e-3, 1}), o);
    ASSERT_TRUE(made.ok());
    std::map<RequestId, Request> requests;
    for (RequestId id = 1; id <= 6; ++id)
      requests[id] = make_request(static_cast<int64_t>(id), 20 + 5 * static_cast<int64_t>(id), 50, vocab_);
    for (const auto& [id, one] : requests) ASSERT_TRUE((*made)->add(id, one).ok());
    auto shown = run_all(**made, vocab_);
    EXPECT_GT((*made)->stats().preemptions, 0);
    EXPECT_EQ((*made)->stats().swapped_out_tokens > 0, swap_tokens > 0);
    EXPECT_EQ((*made)->stats().states_free, (*made)->stats().states);
    for (const auto& [id, one] : requests) EXPECT_TRUE(shown[id].same_bits(run_one(with_format(options()), one))) << id;
  }
}

TEST_P(KvCodecBits, DoNotDependOnDrafts) {
  for (int64_t seed : {2, 4}) {  // greedy
    Request repeats = make_request(seed, 6, 110, vocab_);
    repeats.prompt.assign(6, static_cast<TokenId>(seed));
    const CodecAnswers plain = answers(options(), repeats);
    for (const char* drafter : {"ngram:min=1,k=3", "ngram:min=1,k=8", "ngram:min=1,k=40"}) {
      EngineOptions o = with_format(options(2));
      o.drafter = drafter;
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, repeats).ok());
      EXPECT_EQ(codec_answers_of(*core), plain) << drafter;
      EXPECT_GT(core->stats().drafted_tokens, 0);
    }
  }
}

TEST_P(KvCodecBits, DoNotDependOnRejectedDrafts) {
  const Request longest = make_request(2, 10, 110, vocab_);
  const CodecAnswers plain = answers(options(), longest);
  for (int64_t drafted : {2, 7, 40}) {
    EngineOptions o = with_format(options(2));
    o.drafter = "ngram:k=" + std::to_string(drafted);  // the tail is as long as its drafts need
    auto executor = CpuExecutor::create(model_, o);
    ASSERT_TRUE(executor.ok());
    auto core = EngineCore::create(
        std::move(*executor), o, nullptr, nullptr,
        text_drafter({.longest = drafted}, std::make_unique<MistakenDrafter>(plain.at({1, 0}).first)));
    ASSERT_TRUE(core.ok());
    ASSERT_TRUE((*core)->add(1, longest).ok());
    EXPECT_EQ(codec_answers_of(**core), plain) << drafted;
    EXPECT_GT((*core)->stats().accepted_tokens, 0);
    EXPECT_GT((*core)->stats().drafted_tokens, (*core)->stats().accepted_tokens + 10);
  }
}

TEST_P(KvCodecBits, AnswersAndBeams) {
  Request one = make_request(1, 70, 20, vocab_), three = one;
  three.n = 3;
  Request beams = make_request(2, 50, 30, vocab_);
  beams.beams = 3;
  const CodecAnswers single = answers(options(), one), searched = answers(options(1, 16), beams);
  auto core = make_core(model_, with_format(options(2)));
  ASSERT_TRUE(core->add(1, three).ok());
  ASSERT_TRUE(core->add(2, beams).ok());
  CodecAnswers shown = codec_answers_of(*core);
  EXPECT_EQ(shown.at({1, 0}), single.at({1, 0}));
  EXPECT_EQ(shown.at({2, 0}), searched.at({1, 0}));
  EXPECT_EQ(answers(options(1, 24), three).at({1, 2}), shown.at({1, 2}));
}

std::vector<CodecCase> codec_cases() {
  std::vector<CodecCase> out;
  // One of each kind of kernel: even levels by channel, levels with outliers, rotated even levels, a codebook.
  for (Isa isa : isa_levels())
    for (const char* kv :
         {"kivi", "kivi:bits=4,residual=20", "kvquant:group=32", "quarot_kv:bits=3", "turboquant:bits=3"})
      out.push_back({"llama3", kv, isa});
  for (const char* kv : {"flexgen_kv", "atom_kv:residual=20"}) out.push_back({"llama3", kv, *select_isa()});
  out.push_back({"gemma2", "turboquant:window=quarot_kv", *select_isa()});
  for (const char* model : {"gemma2", "gemma3", "qwen3moe"}) out.push_back({model, "kivi:bits=4", *select_isa()});
  out.push_back({"gemma2", "kivi:bits=2,window=f16", *select_isa()});
  out.push_back({"gemma3", "kivi:bits=4,residual=20,window=f16", *select_isa()});
  out.push_back({"gemma3", "f16:window=kivi:bits=4", *select_isa()});
  out.push_back({"gemma2", "kivi:bits=2,window=kivi:bits=4/residual=40", *select_isa()});
  return out;
}

INSTANTIATE_TEST_SUITE_P(All, KvCodecBits, ::testing::ValuesIn(codec_cases()), [](const auto& test) {
  std::string name = test.param.model + "_" + test.param.kv_format + "_" + isa_label(test.param.isa);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
});

// ---- evaluation, the store, refusals ----
class KvCodecUse : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("llama3"), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  std::string refused(const EngineOptions& o) const {
    auto core = EngineCore::create(model_, o);
    return core.ok() ? "" : core.error().message;
  }
  // Logits of every token but the first of windows of the text.
  static std::vector<float> scores(std::shared_ptr<const LanguageModel> model, const std::vector<TokenId>& text,
                                   int64_t batch_tokens, const std::string& kv_format) {
    std::vector<float> out;
    auto scorer =
        Scorer::create(model, {.threads = 2, .context = 100, .batch_tokens = batch_tokens, .kv_format = kv_format});
    EXPECT_TRUE(scorer.ok()) << (scorer.ok() ? "" : scorer.error().message);
    const auto sink = [&](std::span<const ScoredRow> rows) -> Result<void> {
      for (const ScoredRow& row : rows) out.insert(out.end(), row.logits, row.logits + (*scorer)->vocab());
      return {};
    };
    EXPECT_TRUE((*scorer)->run(text, strided_windows(std::ssize(text), 100, 45), -1, sink).ok());
    return out;
  }
  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_F(KvCodecUse, ScoresDoNotDependOnTheBatch) {
  const std::vector<TokenId> text = make_request(5, 300, 1, vocab_).prompt;
  for (const char* kv : {"kivi", "kivi:bits=4,residual=32"}) {
    const auto all = scores(model_, text, 512, kv);
    ASSERT_FALSE(all.empty());
    EXPECT_NE(all, scores(model_, text, 512, "f16"));
    for (int64_t batch : {33, 77, 130}) EXPECT_EQ(scores(model_, text, batch, kv), all) << kv << " " << batch;
  }
}

// Groups of layers with formats of their own: each of them matters, equal ones are those of one group, and scores are
// what the engine samples from.
TEST_F(KvCodecUse, ScoresOfGroupsAreTheEngines) {
  auto gemma = LanguageModel::load(golden_model("gemma3"), {.threads = 1, .context = 500});
  ASSERT_TRUE(gemma.ok());
  const int64_t vocab = (*gemma)->info().vocab;
  const std::vector<TokenId> text = make_request(5, 145, 1, vocab).prompt;
  std::map<std::string, std::vector<float>> all;
  for (const char* kv : {"f16", "kivi", "kivi:window=f16", "f16:window=kivi", "kivi:window=kivi:bits=4/group=64"}) {
    all[kv] = scores(*gemma, text, 300, kv);
    for (int64_t batch : {33, 130}) EXPECT_EQ(scores(*gemma, text, batch, kv), all[kv]) << kv << " " << batch;
    EngineOptions o = options(1, 40);
    o.context = 500;
    o.kv_format = kv;
    auto core = make_core(*gemma, o);
    EXPECT_EQ(core->kv().groups(), 2);
    Request r;
    r.prompt.assign(text.begin(), text.begin() + 99);
    r.max_tokens = 1;
    ASSERT_TRUE(core->add(1, r).ok());
    const Shown shown = run_all(*core, vocab)[1];
    const auto row = std::span(all[kv]).subspan(static_cast<size_t>(44 * vocab), static_cast<size_t>(vocab));
    EXPECT_TRUE(std::ranges::equal(row, shown.logits[0], [](float a, float b) { return a == b || b == -INFINITY; }))
        << kv;
  }
  EXPECT_EQ(scores(*gemma, text, 300, "kivi:window=kivi"), all["kivi"]);
  for (auto a = all.begin(); a != all.end(); ++a)
    for (auto b = all.begin(); b != a; ++b) EXPECT_NE(a->second, b->second) << a->first << " " << b->first;
}

TEST_F(KvCodecUse, EmbeddingsDoNotDependOnTheBatch) {
  std::vector<std::vector<TokenId>> texts;
  for (int64_t i = 0; i < 30; ++i) texts.push_back(make_request(i, 1 + i * 37 % 90, 1, vocab_).prompt);
  const auto embed = [&](int64_t batch_tokens) {
    std::vector<std::vector<float>> out;
    auto embedder =
        Embedder::create(model_, {.threads = 2, .context = 100, .batch_tokens = batch_tokens, .kv_format = "kivi"});
    EXPECT_TRUE(embedder.ok());
    const auto sink = [&](size_t, std::vector<float> values) -> Result<void> {
      out.push_back(std::move(values));
      return {};
    };
    EXPECT_TRUE((*embedder)->run(texts, Pooling::mean, sink).ok());
    return out;
  };
  const auto all = embed(512);
  ASSERT_EQ(all.size(), texts.size());
  for (int64_t batch : {1, 50}) EXPECT_EQ(embed(batch), all) << batch;
}

TEST_F(KvCodecUse, BlocksOfTheStoreAreThoseOfTheCodec) {
  const std::string path = (std::filesystem::temp_directory_path() / "millrace_kv_codecs_test.kv").string();
  std::filesystem::remove(path);
  EngineOptions o = options();
  o.kv_format = "kivi:bits=4";
  o.kv_store = SsdStoreFlags{path, 16 << 20}.text();
  const auto run = [&](const EngineOptions& with) {
    auto core = make_core(model_, with);
    EXPECT_TRUE(core->add(1, make_request(1, 100, 8, vocab_)).ok());
    return run_all(*core, vocab_)[1];
  };
  const Shown first = run(o), again = run(o);
  EXPECT_EQ(first.cached, 0);
  EXPECT_EQ(again.cached, 96);
  EXPECT_TRUE(again.same_bits(first));
  o.kv_format = "kivi:bits=2";
  EXPECT_EQ(run(o).cached, 0) << "other tiles: the file is created anew";
  std::filesystem::remove(path);
}

TEST_F(KvCodecUse, Refusals) {
  EngineOptions o = options();
  o.kv_format = "kivi:bits=5";
  EXPECT_NE(refused(o), "");
  o.kv_format = "kivi";
  auto core = make_core(model_, o);
  Request evicting = make_request(1, 20, 4, vocab_);
  evicting.evictor = "streamingllm:window=20,positions=cache";
  EXPECT_FALSE(core->add(1, evicting).ok());
  core.reset();
  o.prefix_evict = "importance";
  EXPECT_EQ(
      refused(o),
      "prefix evictor importance does not go with KV format kivi: the importance of encoded blocks is not observed; "
      "use another prefix evictor, and order arrival in the KV store");
  o.prefix_evict = "lru";
  o.kv_pool = "virtual";
  EXPECT_NE(refused(o).find("choose paged"), std::string::npos);
  o.kv_pool = "paged";
  o.kv_format = "kivi:residual=32";
  o.kv_store = "ssd:path=/nonexistent/file";
  EXPECT_EQ(
      refused(o),
      "KV store ssd does not go with KV format kivi:residual=32: blocks without the raw rows of their newest tokens "
      "cannot be shared; use residual=0");
  o.kv_store.clear();
  o.kv_format = "kivi:values=f16";
  EXPECT_EQ(refused(o), "KV format kivi: values: no such option; known: bits, group, residual, window, window_values");
  o.kv_format = "f16:window=kivi:bits=5";
  EXPECT_EQ(refused(o), "KV format f16: window: KV format kivi: bits: must be between 2 and 4, got 5");
  o.kv_format = "f16:window=kivi,window_values=f16";
  EXPECT_EQ(refused(o), "KV format f16: window: a codec has no window formats of its own");
  o.kv_format = "kivi:window_values=f16";
  EXPECT_EQ(refused(o), "KV format kivi: window_values: needs window, the format of keys, with a codec");
  o.kv_format = "kivi:residual=32";
  o.drafter = "ngram:branches=2";
  EXPECT_EQ(
      refused(o),
      "drafter ngram does not go with KV format kivi:residual=32: it encodes whole blocks, in which tokens of a tree "
      "cannot move; use a drafter of chains, such as ngram without branches, or f16 or another format of rows");
  o.drafter.clear();
  auto mamba = load_for(golden_model("mamba"), *select_isa());
  ASSERT_TRUE(mamba);
  auto recurrent = EngineCore::create(mamba, o);
  ASSERT_FALSE(recurrent.ok());
  EXPECT_EQ(recurrent.error().message,
            "KV format kivi:residual=32 does not go with this model: it has recurrent layers, whose states are not "
            "encoded; use f16");
  EXPECT_EQ(recurrent.error().kind, ErrorKind::unsupported);
}

}  // namespace
}  // namespace millrace
