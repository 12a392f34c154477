// What check_request() refuses: every rule at its last accepted and its first refused value, with the whole message.
#include "engine/request_check.h"

#include <gtest/gtest.h>

#include <functional>

#include "engine/bare_executor_test.h"
#include "formats/format.h"
#include "run/compatibility/collect.h"

namespace millrace {
namespace {

class CheckedExecutor final : public testing::BareExecutor {
 public:
  CheckedExecutor() : BareExecutor({find_format("f16"), 4, {}}) { own_limits.context = 100; }
};

// Wants one position.
class OneReader final : public PromptReader {
 public:
  explicit OneReader(int64_t position) : position_(position) {}
  bool logits() const override { return true; }
  bool wants(int64_t position) const override { return position == position_; }
  void read(int64_t, const float*) override {}

 private:
  int64_t position_;
};

class RequestCheck : public ::testing::Test {
 protected:
  RequestCheck() {
    limits_.total_blocks = 100;
    limits_.block_tokens = 4;
    request_.prompt.assign(10, 1);
    request_.max_tokens = 5;
  }
  // The error message; "" if the request is accepted.
  std::string refusal() const {
    Facts facts;
    facts.add_if(!evicts_, facts::kNoMass, "this executor");
    facts.add_if(!moves_, facts::kNoKeys, "this executor");
    facts.add_if(has_parts_, facts::kDocumentsApart, "context independent");
    const auto checked = check_request(request_, executor_, limits_, facts, rule_.get());
    return checked.ok() ? "" : checked.error().message;
  }
  void use_rule(const std::string& text, int64_t joined = 0) {
    const auto made = make_eviction_rule(text);
    ASSERT_TRUE(made.ok()) << made.error().message;
    rule_ = std::make_shared<EvictionRule>(**made);
    rule_->joined = joined;
  }

  CheckedExecutor executor_;
  PlannerLimits limits_;
  Request request_;
  std::shared_ptr<EvictionRule> rule_;
  bool has_parts_ = false, moves_ = true, evicts_ = true;
};

TEST_F(RequestCheck, DocumentsAreInOrderAndHaveAQuestion) {
  const auto with = [&](std::vector<PromptDocument> documents) {
    request_.documents = std::move(documents);
    return refusal();
  };
  EXPECT_EQ(with({}), "");
  EXPECT_EQ(with({{0, 1}, {1, 9}}), "");
  EXPECT_EQ(with({{2, 4}, {6, 7}}), "");
  const std::string rest = " are empty or not behind the document before";
  EXPECT_EQ(with({{0, 4}, {3, 6}}), "documents: tokens 3 to 6" + rest);
  EXPECT_EQ(with({{2, 2}}), "documents: tokens 2 to 2" + rest);
  EXPECT_EQ(with({{3, 2}}), "documents: tokens 3 to 2" + rest);
  EXPECT_EQ(with({{-1, 3}}), "documents: tokens -1 to 3" + rest);
  EXPECT_EQ(with({{0, 10}}), "documents: end at token 10 of a prompt of 10; a question must follow");
  EXPECT_EQ(with({{0, 3}, {4, 11}}), "documents: end at token 11 of a prompt of 10; a question must follow");
}

TEST_F(RequestCheck, ReadersReadOnePromptThatIsComputedOnce) {
  request_.reader = std::make_shared<OneReader>(0);
  EXPECT_EQ(refusal(), "");
  request_.best_of = 1;
  EXPECT_EQ(refusal(), "");
  const std::string once =
      "a reader of the prompt does not go with more than one answer: a prompt that is read is computed once; ask for "
      "one "
      "answer";
  request_.best_of = 2;
  EXPECT_EQ(refusal(), once);
  request_.best_of = 0;
  request_.n = 2;
  EXPECT_EQ(refusal(), once);
  request_.n = 1;
  request_.beams = 2;
  EXPECT_EQ(refusal(), once);
  request_.beams = 1;
  request_.embeddings.push_back({0, std::make_shared<const std::vector<float>>(4)});
  EXPECT_EQ(
      refusal(),
      "a reader of the prompt does not go with rows in place of tokens: prompts with rows in place of tokens are not "
      "read; send tokens");
  request_.reader = nullptr;
  EXPECT_EQ(refusal(), "");
}

TEST_F(RequestCheck, ReadersOfDocumentsReadBehindThem) {
  has_parts_ = true;
  request_.documents = {{1, 4}, {4, 8}};
  const auto reads = [&](int64_t position) {
    request_.reader = std::make_shared<OneReader>(position);
    return refusal();
  };
  EXPECT_EQ(reads(8), "");
  const std::string apart =
      " of documents that end at 8 does not go with context independent: documents that it computes separately are not "
      "read; "
      "read positions behind the last document";
  EXPECT_EQ(reads(7), "a reader of position 7" + apart);
  EXPECT_EQ(reads(0), "a reader of position 0" + apart);
  request_.embeddings.push_back({8, std::make_shared<const std::vector<float>>(4)});
  EXPECT_EQ(reads(8), "") << "rows of links";
}

TEST_F(RequestCheck, APromptThatIsOnlyReadMayFillTheContext) {
  limits_.total_blocks = 1000;
  const auto prompt_of = [&](int64_t tokens, int64_t answer) {
    request_.prompt.assign(static_cast<size_t>(tokens), 1);
    request_.max_tokens = answer;
    return refusal();
  };
  const std::string room =
      " tokens do not leave room for an answer in a context of 100; shorten it or raise the context";
  EXPECT_EQ(prompt_of(99, 0), "");
  EXPECT_EQ(prompt_of(100, 0), "prompt: 100" + room);
  request_.reader = std::make_shared<OneReader>(0);
  EXPECT_EQ(prompt_of(100, 0), "");
  EXPECT_EQ(prompt_of(100, 1), "prompt: 100" + room);
  EXPECT_EQ(prompt_of(101, 0), "prompt: 101" + room);
}

// Where positions count stored tokens, a prompt may fill the context; and exceed it, if it is evicted on the way.
TEST_F(RequestCheck, AnEvictorThatMovesKeysTakesLongerPrompts) {
  limits_.total_blocks = 1000;
  const std::string evictor = "streamingllm:sinks=4,window=28,slack=8";
  const auto takes = [&](const std::string& options, int64_t tokens) {
    use_rule(evictor + options);
    request_.prompt.assign(static_cast<size_t>(tokens), 1);
    return refusal().empty();
  };
  EXPECT_TRUE(takes(",positions=text", 99));
  EXPECT_FALSE(takes(",positions=text", 100));
  EXPECT_FALSE(takes(",positions=text,prompt=evicted", 100));
  EXPECT_TRUE(takes(",positions=cache,prompt=whole", 100));
  EXPECT_FALSE(takes(",positions=cache,prompt=whole", 101));
  EXPECT_TRUE(takes(",positions=cache,prompt=evicted", 101));
}

TEST_F(RequestCheck, AnEvictorKeepsNoMoreThanTheContext) {
  use_rule("streamingllm:sinks=4,window=28,slack=8,positions=cache,prompt=evicted");
  request_.max_tokens = 31;
  const std::string keeps =
      "evictor: keeps 32 tokens and 8 more before it chooses, which exceeds the context of 39; "
      "lower its budget";
  executor_.own_limits.context = 40;
  EXPECT_EQ(refusal(), "");
  executor_.own_limits.context = 39;
  EXPECT_EQ(refusal(), keeps);
  request_.max_tokens = 30;
  EXPECT_EQ(refusal(), keeps);
  request_.max_tokens = 29;
  EXPECT_EQ(refusal(), "") << "the stream does not exceed the context";
  request_.beams = 2;
  EXPECT_EQ(refusal(), "beam search does not go with evictor " + rule_->text +
                           ": beams share keys and values, which an evictor cannot drop; omit one of the two");
  request_.beams = 1;
  evicts_ = false;
  EXPECT_EQ(refusal(), "");
  use_rule("h2o");
  EXPECT_EQ(
      refusal(),
      "evictor h2o does not go with this executor: it computes no attention that could be observed; choose another "
      "evictor");
}

TEST_F(RequestCheck, PartsGoWithOneBudgetAndOneBeam) {
  has_parts_ = true;
  request_.documents = {{1, 4}};
  EXPECT_EQ(refusal(), "");
  request_.beams = 2;
  EXPECT_EQ(refusal(),
            "beam search does not go with context independent: beams share a prompt's blocks; use n instead");
  has_parts_ = false;
  EXPECT_EQ(refusal(), "");
  has_parts_ = true;
  request_.beams = 1;
  use_rule("h2o");
  EXPECT_EQ(refusal(), "");
  use_rule("pyramidkv:budget=8,window=2,beta=3,slack=4");
  EXPECT_EQ(
      refusal(),
      "context independent does not go with evictor pyramidkv:budget=8,window=2,beta=3,slack=4: it has budgets by "
      "layer or head, with blocks for each, and documents are copied in blocks of all layers; use an evictor with "
      "one budget, such as snapkv");
  rule_.reset();
  moves_ = false;
  EXPECT_EQ(
      refusal(),
      "context independent does not go with this executor: it computes no keys that could move; send the documents "
      "without a context");
  has_parts_ = false;
  EXPECT_EQ(refusal(), "");
}

// Documents are whole until the slack behind them has seen them.
TEST_F(RequestCheck, PartsAndTheSlackBehindThemFitTheContext) {
  const std::string evictor = "streamingllm:sinks=4,window=28,slack=8,positions=cache,prompt=evicted";
  limits_.total_blocks = 1000;
  has_parts_ = true;
  request_.prompt.assign(200, 1);
  request_.documents = {{0, 92}};
  use_rule(evictor, 92);
  EXPECT_EQ(refusal(), "");
  request_.documents = {{0, 93}};
  use_rule(evictor, 93);
  EXPECT_EQ(refusal(), "documents: end at token 93, and the 8 that evictor " + evictor +
                           " keeps behind them exceed the context of 100; shorten them or raise the context");
}

TEST_F(RequestCheck, TheCacheHoldsEveryBeam) {
  limits_.total_blocks = 10;
  request_.max_tokens = 30;
  EXPECT_EQ(refusal(), "");
  request_.max_tokens = 31;
  const std::string advice = "ask for fewer tokens or enlarge the cache";
  EXPECT_EQ(refusal(), "KV cache: 41 tokens do not fit in 10 blocks of 4; " + advice);
  limits_.most_held = 8;
  EXPECT_EQ(refusal(), "") << "every layer has a window";
  limits_.most_held = 0;
  request_.beams = 2;
  request_.max_tokens = 10;
  EXPECT_EQ(refusal(), "");
  request_.max_tokens = 11;
  EXPECT_EQ(refusal(), "KV cache: 21 tokens of 2 beams do not fit in 10 blocks of 4; " + advice);
}

TEST_F(RequestCheck, TheCacheHoldsEveryTable) {
  limits_.tables = 3;
  limits_.total_blocks = 30;
  request_.max_tokens = 30;
  EXPECT_EQ(refusal(), "");
  request_.max_tokens = 31;
  const std::string advice = "; ask for fewer tokens or enlarge the cache";
  EXPECT_EQ(refusal(),
            "KV cache: 41 tokens in each of 3 layers, on average, do not fit in 30 blocks of 4 in one layer" + advice);
  limits_.per_head_tables = true;
  EXPECT_EQ(refusal(),
            "KV cache: 41 tokens in each of 3 KV heads, on average, do not fit in 30 blocks of 4 in one "
            "KV head" +
                advice);
  request_.beams = 2;
  request_.max_tokens = 10;
  EXPECT_EQ(refusal(), "");
  request_.max_tokens = 11;
  EXPECT_EQ(refusal().find("KV cache: 21 tokens in each of 3 KV heads"), 0u);
  limits_.tables = 2;
  limits_.total_blocks = 23;
  EXPECT_NE(refusal(), "");
  limits_.total_blocks = 24;
  EXPECT_EQ(refusal(), "");
}

TEST_F(RequestCheck, BeamsRunTogether) {
  limits_.max_streams = 3;
  request_.beams = 3;
  EXPECT_EQ(refusal(), "");
  request_.beams = 4;
  EXPECT_EQ(refusal(), "beams: at most 3 streams run at once, 4 asked for");
  limits_.resident_streams = 4;
  EXPECT_EQ(refusal(), "");
}

class EncodingContext final : public DocumentContext {
 public:
  explicit EncodingContext(const EncoderChoice* choice) : choice_(choice) {}
  ContextPlan plan(std::span<const PromptDocument>) const override { return {}; }
  const EncoderChoice* encoder() const override { return choice_; }

 private:
  const EncoderChoice* choice_;
};

TEST(RequestRules, AnEncoderIsThatOfTheEngine) {
  Request request;
  request.prompt = {1, 2, 3};
  const EncoderChoice chosen{"x", 256, 1000, true};
  EncoderChoice other = chosen;
  other.piece = 128;
  const EncodingContext same(&chosen), differs(&other), none(nullptr);
  const auto refused = [&](const DocumentContext* own) {
    const auto checked = check_encoded(request, chosen, own);
    return checked.ok() ? "" : checked.error().message;
  };
  const std::string options =
      "context cepe: its options are those of the engine; a request names it without, context=cepe";
  const DocumentContext* const engines[] = {&same, &differs};
  for (const DocumentContext* own : engines) {
    request.document_context = "cepe";
    EXPECT_EQ(refused(own), "") << "without options it is the engine's";
    request.document_context = "cepe:model=x";
    EXPECT_EQ(refused(own), own == &same ? "" : options);
  }
  EXPECT_EQ(refused(&none), options);
  EXPECT_EQ(refused(nullptr), options);
  request.document_context = "";
  EXPECT_EQ(refused(nullptr), "");
}

TEST_F(RequestCheck, EncodedDocumentsGoWithOneBeamAndPlainPrompts) {
  Facts facts;
  add_encoded("cepe:model=x", facts);
  const auto refused = [&] {
    const auto checked = check_request(request_, executor_, limits_, facts);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(refused(), "");
  request_.n = 3;
  EXPECT_EQ(refused(), "");
  request_.n = 1;
  request_.beams = 2;
  EXPECT_EQ(refused(),
            "context cepe does not go with beam search: beams do not share encoded documents; use n instead");
  request_.beams = 1;
  request_.reader = std::make_shared<OneReader>(0);
  EXPECT_EQ(
      refused(),
      "context cepe does not go with a reader of the prompt: prompts with documents that an encoder reads are not "
      "read; omit one of the two");
  request_.embeddings.push_back({0, std::make_shared<const std::vector<float>>(4)});
  EXPECT_EQ(refused(), "context cepe does not go with rows in place of tokens: an encoder reads tokens; send tokens");
}

TEST(RequestRules, HowLongAStreamMayBecome) {
  const auto longest = [](int64_t prompt, int64_t answer, const EvictionRule* rule) {
    Request request;
    request.prompt.assign(static_cast<size_t>(prompt), 1);
    request.max_tokens = answer;
    return longest_stream(request, 100, rule);
  };
  const auto text = make_eviction_rule("h2o:positions=text"), cache = make_eviction_rule("h2o:positions=cache");
  ASSERT_TRUE(text.ok() && cache.ok());
  for (const EvictionRule* rule : {static_cast<const EvictionRule*>(nullptr), text->get()}) {
    EXPECT_EQ(longest(10, -1, rule), 100);
    EXPECT_EQ(longest(10, 0, rule), 10);
    EXPECT_EQ(longest(10, 5, rule), 15);
    EXPECT_EQ(longest(10, 91, rule), 100);
  }
  EXPECT_EQ(longest(10, -1, cache->get()), 100);
  EXPECT_EQ(longest(99, -1, cache->get()), 100);
  EXPECT_EQ(longest(100, -1, cache->get()), 200);
  EXPECT_EQ(longest(10, 0, cache->get()), 10);
  EXPECT_EQ(longest(10, 500, cache->get()), 510);
  EXPECT_EQ(longest(10, INT32_MAX, cache->get()), INT32_MAX);
  EXPECT_EQ(longest(10, INT64_MAX, cache->get()), INT32_MAX);
}

TEST(RequestRules, OptionsAtTheirLimits) {
  const auto refused = [](const std::function<void(EngineOptions&)>& change) {
    EngineOptions options;
    change(options);
    const auto checked = check_options(options);
    return checked.ok() ? "" : checked.error().message;
  };
  using Options = EngineOptions;
  EXPECT_EQ(refused([](Options&) {}), "");
  for (const int64_t tokens : {int64_t{0}, int64_t{1} << 40})
    EXPECT_EQ(refused([&](Options& o) { o.document_tokens = tokens; }), "");
  for (const int64_t tokens : {int64_t{-1}, (int64_t{1} << 40) + 1})
    EXPECT_EQ(refused([&](Options& o) { o.document_tokens = tokens; }).find("document tokens: must be between"), 0u);
  for (const char* length : {"fixed", "auto"}) EXPECT_EQ(refused([&](Options& o) { o.draft_length = length; }), "");
  EXPECT_EQ(refused([](Options& o) { o.draft_length = "long"; }), "draft length: must be fixed or auto, got long");
  const auto unknown = [](const EngineOptions& options) {
    return !EnginePlan::create(options, make_kernel_table(Isa::ref)).ok();
  };
  EXPECT_FALSE(unknown({}));
  EXPECT_TRUE(unknown({.evictor = "unknown"}));
  EXPECT_TRUE(unknown({.document_context = "unknown"}));
}

}  // namespace
}  // namespace millrace
