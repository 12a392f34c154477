// Engines with an attention pattern, every member: one of all blocks has the bits of none; with any other a stream has
// the bits that it has alone, whatever the chunks, its batch mates, the threads, the prefix cache, preemptions and
// drafts.
#include <gtest/gtest.h>

#include <set>

#include "pattern_texts.h"
#include "properties/stream_bits.h"
#include "run/executors/cpu_executor.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr int64_t kAnswerTokens = 60;

class AttentionPatternsInEngine : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    vocab_ = model_->info().vocab;
  }

  static EngineOptions with(const std::string& pattern, EngineOptions o) {
    o.context = 640;
    if (!pattern.empty()) o.kernels = {"attention=" + pattern};
    return o;
  }
  // Three streams behind a common beginning, and one without.
  std::vector<Request> requests() const {
    std::vector<Request> out;
    for (int64_t i = 0; i < 4; ++i) {
      out.push_back(make_request(i, 230 - 41 * i, kAnswerTokens, vocab_));
      if (i > 0 && i < 3) std::copy_n(out[0].prompt.begin(), 120, out.back().prompt.begin());
    }
    return out;
  }
  std::map<RequestId, Shown> run(const EngineOptions& o) const {
    auto core = make_core(model_, o);
    if (!core) return {};
    RequestId id = 1;
    for (Request& request : requests()) EXPECT_TRUE(core->add(id++, std::move(request)).ok());
    auto shown = run_all(*core, vocab_);
    preemptions_ = core->stats().preemptions;
    drafted_ = core->stats().drafted_tokens;
    return shown;
  }
  std::map<RequestId, Shown> alone(const std::string& pattern) const {
    std::map<RequestId, Shown> out;
    for (const Request& request : requests()) {
      auto core = make_core(model_, with(pattern, options()));
      const auto id = static_cast<RequestId>(out.size() + 1);
      EXPECT_TRUE(core->add(id, Request(request)).ok());
      out.merge(run_all(*core, vocab_));
    }
    return out;
  }
  static void expect_same(const std::map<RequestId, Shown>& actual, const std::map<RequestId, Shown>& expected) {
    ASSERT_EQ(actual.size(), expected.size());
    for (const auto& [id, shown] : expected) {
      EXPECT_EQ(std::ssize(shown.tokens), kAnswerTokens);
      EXPECT_TRUE(actual.at(id).same_bits(shown)) << "request " << id;
    }
  }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  mutable int64_t preemptions_ = 0, drafted_ = 0;
};

TEST_F(AttentionPatternsInEngine, AllBlocksHaveTheBitsOfNoPattern) {
  for (const char* format : {"f16", "bf16", "f32"}) {
    EngineOptions o = options(2);
    o.kv_format = format;
    const auto plain = run(with("", o));
    for (const PatternTexts& texts : pattern_texts()) {
      SCOPED_TRACE(std::string(format) + " " + texts.all);
      expect_same(run(with(texts.all, o)), plain);
    }
  }
}

// Of KV formats that encode blocks of 32 tokens, each pattern with one of them.
constexpr const char* kEncoding[] = {"kivi:bits=4", "kvquant:group=32", "quarot_kv:bits=3,residual=40",
                                     "progressive:format=f8_e4m3,below=0.3"};

std::vector<PatternTexts> encoded_pattern_texts() {
  std::vector<PatternTexts> out;
  for (PatternTexts texts : pattern_texts()) {
    if (texts.name == "diffuser") continue;  // refused
    for (std::string* text : {&texts.all, &texts.some})
      if (const size_t at = text->find("block=16"); at != std::string::npos) text->replace(at, 8, "block=32");
    out.push_back(texts);
  }
  return out;
}

TEST_F(AttentionPatternsInEngine, AllBlocksHaveTheBitsOfTheCodec) {
  std::map<std::string, std::map<RequestId, Shown>> plain;
  size_t number = 0;
  for (const PatternTexts& texts : encoded_pattern_texts()) {
    EngineOptions o = options(2, 100);
    o.kv_format = kEncoding[number++ % std::size(kEncoding)];
    SCOPED_TRACE(o.kv_format + " " + texts.all);
    if (!plain.contains(o.kv_format)) plain[o.kv_format] = run(with("", o));
    expect_same(run(with(texts.all, o)), plain.at(o.kv_format));
  }
}

TEST_F(AttentionPatternsInEngine, EncodedStreamsHaveTheBitsThatTheyHaveAlone) {
  size_t number = 0;
  for (const PatternTexts& texts : encoded_pattern_texts()) {
    const std::string format = kEncoding[number++ % std::size(kEncoding)], &pattern = texts.some;
    if (pattern.empty()) continue;
    SCOPED_TRACE(format + " " + pattern);
    const auto of = [&](EngineOptions o) {
      o.kv_format = format;
      return with(pattern, std::move(o));
    };
    std::map<RequestId, Shown> expected;
    for (const Request& request : requests()) {
      auto core = make_core(model_, of(options()));
      ASSERT_TRUE(core->add(static_cast<RequestId>(expected.size() + 1), Request(request)).ok());
      expected.merge(run_all(*core, vocab_));
    }
    EngineOptions all = options();
    all.kv_format = format;
    EXPECT_FALSE(expected.at(1).same_bits(run(with("", all)).at(1)));
    expect_same(run(of(options(1, 512, 32))), expected);
    expect_same(run(of(options(3, 37))), expected);
    EngineOptions narrow = of(options(2, 100));
    narrow.kv_tokens = 416;
    narrow.policy = "fcfs:reserve=prompt";
    expect_same(run(narrow), expected);
    EXPECT_GT(preemptions_, 0);
    narrow.kv_tier = memory_tier(640);
    expect_same(run(narrow), expected);
    EngineOptions drafting = of(options(2, 100));
    drafting.drafter = "ngram:n=3,min=1,k=5";
    const auto drafted = run(drafting);
    for (const auto& [id, shown] : expected) EXPECT_EQ(drafted.at(id).tokens, shown.tokens) << "request " << id;
    EXPECT_GT(drafted_, 0);
  }
}

TEST_F(AttentionPatternsInEngine, StreamsHaveTheBitsThatTheyHaveAlone) {
  const auto plain = alone("");
  for (const PatternTexts& texts : pattern_texts()) {
    const std::string& pattern = texts.some;
    if (pattern.empty()) continue;
    SCOPED_TRACE(pattern);
    const auto expected = alone(pattern);
    EXPECT_FALSE(expected.at(1).same_bits(plain.at(1)));
    expect_same(run(with(pattern, options(1, 512, 8))), expected);
    expect_same(run(with(pattern, options(3, 37, 16))), expected);
    EngineOptions narrow = with(pattern, options(2, 100));
    narrow.kv_tokens = 400;
    narrow.policy = "fcfs:reserve=prompt";
    expect_same(run(narrow), expected);
    EXPECT_GT(preemptions_, 0);
    narrow.kv_tier = memory_tier(600);
    expect_same(run(narrow), expected);
    EngineOptions drafting = with(pattern, options(2, 100));
    drafting.drafter = "ngram:n=3,min=1,k=5";
    const auto drafted = run(drafting);  // several rows of logits a step, so only tokens are compared
    for (const auto& [id, shown] : expected) EXPECT_EQ(drafted.at(id).tokens, shown.tokens) << "request " << id;
    EXPECT_GT(drafted_, 0);
  }
}

// The first answer token is of the prompt's last query.
TEST_F(AttentionPatternsInEngine, OtherPhasesSeeEveryKey) {
  const auto plain = alone("");
  for (const PatternTexts& texts : pattern_texts()) {
    if (texts.some.empty() || texts.some.starts_with("diffuser")) continue;
    SCOPED_TRACE(texts.some);
    const auto all = alone(texts.some), prompt = alone(texts.some + ",phase=prompt");
    const auto decode = alone(texts.some + ",phase=decode");
    for (const auto& [id, shown] : plain) {
      EXPECT_EQ(decode.at(id).logits.front(), shown.logits.front());
      EXPECT_EQ(prompt.at(id).logits.front(), all.at(id).logits.front());
    }
    EXPECT_NE(prompt.at(1).logits.front(), plain.at(1).logits.front());
    EXPECT_FALSE(prompt.at(1).same_bits(all.at(1)));
    EXPECT_FALSE(decode.at(1).same_bits(plain.at(1)));
    expect_same(run(with(texts.all + ",phase=prompt", options(2))), plain);
  }
}

TEST_F(AttentionPatternsInEngine, PhasesHaveTheBitsThatTheyHaveAlone) {
  for (const char* text : {"sink_window:block=16,window=2", "minference:block=16,heads=v1+1.b2,last=2",
                           "h2o_blocks:block=16,top=2,window=2,tracked=4"})
    for (const char* phase : {",phase=prompt", ",phase=decode"}) {
      const std::string pattern = std::string(text) + phase;
      SCOPED_TRACE(pattern);
      const auto expected = alone(pattern);
      expect_same(run(with(pattern, options(3, 37, 16))), expected);
      EngineOptions narrow = with(pattern, options(2, 100));
      narrow.kv_tokens = 400;
      narrow.policy = "fcfs:reserve=prompt";
      expect_same(run(narrow), expected);
      EXPECT_GT(preemptions_, 0);
      EngineOptions drafting = with(pattern, options(2, 100));
      drafting.drafter = "ngram:n=3,min=1,k=5";
      const auto drafted = run(drafting);
      for (const auto& [id, shown] : expected) EXPECT_EQ(drafted.at(id).tokens, shown.tokens) << "request " << id;
    }
}

// Tokens of an answer have other keys than the same tokens in a prompt.
TEST_F(AttentionPatternsInEngine, AnswersOfAnotherPhaseAreNoPrefixes) {
  for (const bool apart : {true, false}) {
    const std::string pattern = apart ? "sink_window:block=16,window=2,phase=prompt" : "sink_window:block=16,window=2";
    auto core = make_core(model_, with(pattern, options()));
    Request first = requests()[0];
    EXPECT_TRUE(core->add(1, Request(first)).ok());
    const auto answer = run_all(*core, vocab_).at(1).tokens;
    Request second = first;
    second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
    second.prompt.push_back(7);
    EXPECT_TRUE(core->add(2, Request(second)).ok());
    const auto again = run_all(*core, vocab_).at(2);
    EXPECT_EQ(again.cached, apart ? 224 : 288);
    auto fresh = make_core(model_, with(pattern, options()));
    EXPECT_TRUE(fresh->add(2, Request(second)).ok());
    EXPECT_TRUE(again.same_bits(run_all(*fresh, vocab_).at(2)));
    // Nor does a stream that lost its blocks take those of a prompt for its answer.
    Request longer = first;
    longer.max_tokens = 40;
    EngineOptions narrow = with(pattern, options(1, 100));
    narrow.kv_tokens = 640;
    narrow.policy = "fcfs:reserve=prompt";
    auto crowded = make_core(model_, narrow);
    EXPECT_TRUE(crowded->add(3, Request(second)).ok());
    run_all(*crowded, vocab_);
    EXPECT_TRUE(crowded->add(4, Request(longer)).ok());
    EXPECT_TRUE(crowded->add(5, requests()[3]).ok());
    EXPECT_TRUE(crowded->add(6, requests()[2]).ok());
    auto alone_again = make_core(model_, with(pattern, options()));
    EXPECT_TRUE(alone_again->add(4, std::move(longer)).ok());
    EXPECT_TRUE(run_all(*crowded, vocab_).at(4).same_bits(run_all(*alone_again, vocab_).at(4)));
  }
}

TEST_F(AttentionPatternsInEngine, PhasesAreRefusedByName) {
  const auto message = [](const char* text) {
    const auto made = make_attention_pattern(text);
    return made.ok() ? "" : made.error().message;
  };
  EXPECT_EQ(message("bigbird:phase=prompt"), "");
  EXPECT_EQ(message("diffuser:hops=1,phase=prompt"), "");
  EXPECT_EQ(message("bigbird:phase=never"), "attention bigbird: phase: must be all, prompt or decode, got 'never'");
  EXPECT_EQ(message("diffuser:phase=prompt"),
            "attention diffuser: phase: must be all where values go several hops, which tokens of the other phase "
            "would not pass on");
}

TEST_F(AttentionPatternsInEngine, SharedPrefixesOfTheSamePatternAreCached) {
  for (const std::string pattern :
       {"bigbird:block=16,window=2,global=1,random=1", "minference:block=32,top=1", "sinkhorn:block=16,top=1",
        "h2o_blocks:block=16,top=1,window=1,tracked=2", "diffuser:block=32,window=1,global=1,random=0,alpha=0.5"}) {
    SCOPED_TRACE(pattern);
    auto core = make_core(model_, with(pattern, options()));
    const auto expected = alone(pattern);
    RequestId id = 1;
    for (Request& request : requests()) {
      EXPECT_TRUE(core->add(id, std::move(request)).ok());
      auto shown = run_all(*core, vocab_);
      EXPECT_TRUE(shown.at(id).same_bits(expected.at(id))) << id;
      EXPECT_EQ(shown.at(id).cached, id == 2 || id == 3 ? 112 : 0);
      ++id;
    }
  }
}

// Keys and values in files belong to the pattern.
TEST_F(AttentionPatternsInEngine, KeysBelongToThePattern) {
  std::set<std::string> identities;
  for (const char* pattern : {"", "sink_window", "sink_window:window=8"}) {
    auto executor = CpuExecutor::create(model_, with(pattern, options()));
    ASSERT_TRUE(executor.ok());
    const auto identity = (*executor)->home().kv_identity();
    ASSERT_TRUE(identity.ok());
    identities.insert(*identity);
  }
  EXPECT_EQ(identities.size(), 3u);
}

TEST_F(AttentionPatternsInEngine, IsRefusedWhereItDoesNotWork) {
  const auto refusal = [&](EngineOptions o) -> std::string {
    const auto made = EngineCore::create(model_, with("sink_window", std::move(o)));
    return made.ok() ? "" : made.error().message;
  };
  EngineOptions o = options();
  EXPECT_EQ(refusal(o), "");
  o.drafter = "ngram:branches=2";
  EXPECT_EQ(
      refusal(o),
      "drafter ngram does not go with attention sink_window: a pattern has no rule for the branches of a tree; use a "
      "drafter of chains, such as ngram without branches, or none");
  o = options();
  o.kv_format = "kivi";
  EXPECT_EQ(refusal(o), "");
  for (const auto& [format, reason] :
       {std::pair{"kivi", "encodes whole blocks, and values of hops are rows"},
        std::pair{"progressive:format=f8_e4m3", "values of hops are stored without residuals"}}) {
    EngineOptions hops = options();
    hops.kv_format = format;
    const auto made = EngineCore::create(model_, with("diffuser", std::move(hops)));
    ASSERT_FALSE(made.ok());
    EXPECT_NE(made.error().message.find(reason), std::string::npos) << made.error().message;
  }
  o = options(1, 512, 24);
  EXPECT_EQ(refusal(o), "attention sink_window: block: must be a multiple of the 24 tokens of a KV block, is 64");
  o = options();
  o.kv_format = "f16:values=q8_0";
  o.kernels = {"attention=quest"};
  const auto mixed = EngineCore::create(model_, with("", std::move(o)));
  ASSERT_FALSE(mixed.ok());
  EXPECT_EQ(mixed.error().message,
            "attention quest does not go with KV format f16:values=q8_0: rows next to the keys need keys and values of "
            "one format; "
            "use one format");
  o = options();
  o.drafter = "draft:model=" + golden_model("llama3");
  o.kernels = {"attention=quest"};
  const auto drafted = EngineCore::create(model_, with("", std::move(o)));
  ASSERT_FALSE(drafted.ok());
  EXPECT_EQ(
      drafted.error().message,
      "drafter draft does not go with attention quest: both store layers of their own behind those of the model; use a "
      "drafter without, such as ngram, or none");
  o = options();
  o.kernels = {"attention=full"};
  auto two = with("", std::move(o));
  two.kernels.emplace_back("attention=bigbird");
  const auto made = EngineCore::create(model_, two);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().message, "attention: only one pattern can be chosen");

  const auto recurrent = LanguageModel::load(golden_model("mamba"), {.threads = 1, .context = 128});
  ASSERT_TRUE(recurrent.ok());
  EngineOptions plain = options();
  plain.kernels = {"attention=full"};
  const auto refused = EngineCore::create(*recurrent, plain);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message,
            "attention full does not go with this model: it has recurrent layers, which see no single tokens; omit the "
            "pattern");

  const auto sinks = LanguageModel::load(golden_model("gpt_oss"), {.threads = 1, .context = 128});
  ASSERT_TRUE(sinks.ok());
  plain.kernels = {"attention=diffuser:hops=2"};
  const auto hops = EngineCore::create(*sinks, plain);
  ASSERT_FALSE(hops.ok());
  EXPECT_EQ(
      hops.error().message,
      "attention diffuser:hops=2 does not go with this model: its heads give weight to a sink, which has no value "
      "that could diffuse; use hops=1");
}

}  // namespace
}  // namespace millrace
