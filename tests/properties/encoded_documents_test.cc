// Documents that an encoder reads (context=cepe): tokens are those of the independent reference, bits do not depend on
// chunks, threads, blocks, other streams, drafts, preemption or on what is cached, and everything that does not fit is
// refused.
#include "run/documents/encoded_documents.h"

#include <fstream>

#include "base/json_library.h"
#include "models/draft_heads/draft_files.h"
#include "properties/document_requests.h"
#include "run/plan/kv_places.h"
#include "shared_data.h"

namespace millrace {
namespace {

using namespace testing;
namespace fs = std::filesystem;

const std::string kCepe = std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/document_encoders/cepe";

std::string cepe(const std::string& more = "", const std::string& folder = kCepe) {
  return "cepe:model=" + folder + ",piece=16,tokens=256" + more;
}

class EncodedContexts : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    model_ = load_for(kCepe, GetParam());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    documents_ = {text(1, 23), text(2, 33), text(3, 16)};
    question_ = text(4, 9);
  }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const { return make_request(seed, tokens, 1, vocab_).prompt; }
  static EngineOptions with(const std::string& context, EngineOptions o = options()) {
    o.document_context = context;
    return o;
  }
  static EngineOptions reading(EngineOptions o = options()) { return with(cepe(), o); }
  Request request() const { return document_request(documents_, question_); }
  Request plain() const { return document_request({}, question_); }
  Shown run_one(EngineCore& core, Request r, RequestId id = 1) const {
    const auto added = core.add(id, std::move(r));
    EXPECT_TRUE(added.ok()) << (added.ok() ? "" : added.error().message);
    return run_all(core, vocab_)[id];
  }
  Shown run_one(const EngineOptions& o, Request r) const { return run_one(*make_core(model_, o), std::move(r)); }

  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
  std::vector<std::vector<TokenId>> documents_;
  std::vector<TokenId> question_;
};

TEST_P(EncodedContexts, TokensAreThoseOfTheReference) {
  const auto expected = nlohmann::json::parse(read_file(fs::path(kCepe) / "expected.json"));
  ASSERT_EQ(expected["cases"].size(), 4u);
  for (const auto& one : expected["cases"]) {
    for (const char* format : {"f32", "f16"}) {
      EngineOptions o = reading();
      if (!one["start"].get<bool>()) o.document_context += ",start=false";
      o.kv_format = format;
      const auto tokens = one["tokens"].get<std::vector<TokenId>>();
      Request r = document_request(one["documents"], {tokens.begin() + 1, tokens.end()});
      r.prompt.front() = tokens.front();
      const auto greedy = one["greedy"].get<std::vector<TokenId>>();
      r.max_tokens = std::ssize(greedy);
      r.sampling.temperature = 0;
      EXPECT_EQ(run_one(o, r).tokens, greedy) << format;
    }
  }
}

TEST_P(EncodedContexts, DocumentsAreReadAndNotInThePrompt) {
  const Shown shown = run_one(reading(), request());
  EXPECT_FALSE(shown.same_bits(run_one(reading(), plain())));
  EXPECT_FALSE(shown.same_bits(run_one(options(), request())));
  auto core = make_core(model_, reading());
  ASSERT_TRUE(core->add(1, request()).ok());
  std::vector<TokenEvent> events;
  while (!core->idle()) core->step(events);
  EXPECT_EQ(events.back().timings.prompt_tokens, 1 + std::ssize(question_));
  // Without documents the layers of cross-attention do nothing.
  EXPECT_TRUE(run_one(reading(), plain()).same_bits(run_one(options(), plain())));
}

TEST_P(EncodedContexts, BitsDoNotDependOnHowTheyAreComputed) {
  const Shown expected = run_one(reading(), request());
  for (int threads : {2, 3}) EXPECT_TRUE(run_one(reading(options(threads)), request()).same_bits(expected)) << threads;
  for (int64_t chunk : {1, 3, 20}) {
    EngineOptions o = reading(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request()).same_bits(expected)) << chunk;
  }
  for (int64_t block : {1, 8, 64})
    EXPECT_TRUE(run_one(reading(options(2, 512, block)), request()).same_bits(expected)) << block;
}

TEST_P(EncodedContexts, BitsDoNotDependOnOtherStreams) {
  const Shown expected = run_one(reading(), request());
  const Shown other = run_one(options(), make_request(5, 30, 12, vocab_));
  Request two = document_request({documents_[2], documents_[0]}, question_);
  Request linked = request();
  linked.document_context = "kvlink";
  auto core = make_core(model_, reading(options(2, 40)));
  ASSERT_TRUE(core->add(2, make_request(5, 30, 12, vocab_)).ok());
  ASSERT_TRUE(core->add(1, request()).ok());
  ASSERT_TRUE(core->add(3, two).ok());
  ASSERT_TRUE(core->add(4, linked).ok());
  auto shown = run_all(*core, vocab_);
  EXPECT_TRUE(shown[1].same_bits(expected));
  EXPECT_TRUE(shown[2].same_bits(other));
  EXPECT_TRUE(shown[3].same_bits(run_one(reading(), two)));
  EXPECT_TRUE(shown[4].same_bits(run_one(with("kvlink"), request())));
}

// An evictor drops tokens of the prompt and the answer, and no documents: they are in no slot.
TEST_P(EncodedContexts, EvictorsDropNoDocuments) {
  Request longer = request();
  longer.max_tokens = 40;
  const Shown whole = run_one(reading(), longer);
  for (const char* evictor : {"streamingllm:sinks=2,window=12,slack=4", "h2o:budget=16,slack=4"}) {
    const auto evicting = [&](EngineOptions o) {
      o = reading(o);
      o.evictor = evictor;
      return o;
    };
    const Shown expected = run_one(evicting(options()), longer);
    EXPECT_FALSE(expected.same_bits(whole)) << evictor;
    EXPECT_FALSE(expected.same_bits(run_one(evicting(options()), [&] {
      Request none = longer;
      none.document_context = "none";
      return none;
    }())));
    EngineOptions chunked = evicting(options(2, 5, 4));
    chunked.max_streams = 1;
    EXPECT_TRUE(run_one(chunked, longer).same_bits(expected)) << evictor;
    auto core = make_core(model_, evicting(options(2, 40)));
    ASSERT_TRUE(core->add(2, make_request(5, 30, 30, vocab_)).ok());
    ASSERT_TRUE(core->add(1, longer).ok());
    EXPECT_TRUE(run_all(*core, vocab_)[1].same_bits(expected)) << evictor;
    EXPECT_GT(core->stats().evicted_tokens, 40);
  }
  Request kept = longer;
  kept.evictor = "snapkv:budget=60";
  EXPECT_TRUE(run_one(reading(), kept).same_bits(whole));
}

// Which are not in the prompt: nothing of one request may reach another through the prefix cache.
TEST_P(EncodedContexts, PromptsWithOtherDocumentsShareNothing) {
  question_ = text(4, 60);
  const EngineOptions o = reading(options(1, 512, 8));
  auto core = make_core(model_, o);
  const Shown first = run_one(*core, request(), 1), second = run_one(*core, plain(), 2);
  const Shown third = run_one(*core, document_request({documents_[1]}, question_), 3),
              again = run_one(*core, request(), 4);
  EXPECT_TRUE(first.same_bits(again));
  EXPECT_TRUE(second.same_bits(run_one(o, plain())));
  EXPECT_TRUE(third.same_bits(run_one(o, document_request({documents_[1]}, question_))));
}

TEST_P(EncodedContexts, PreemptedStreamsHaveTheSameBits) {
  Request longer = request();
  longer.max_tokens = 40;
  const Shown expected = run_one(reading(), longer);
  for (const int64_t swap : {0, 4096}) {
    EngineOptions o = reading(options(1, 16, 8));
    o.kv_tokens = 96;
    o.kv_tier = memory_tier(swap);
    o.max_streams = 4;
    o.policy = "fcfs:reserve=prompt";
    auto core = make_core(model_, o);
    for (RequestId id : {1, 2, 3, 4}) ASSERT_TRUE(core->add(id, longer).ok());
    auto shown = run_all(*core, vocab_);
    EXPECT_GT(core->stats().preemptions, 0);
    for (RequestId id : {1, 2, 3, 4}) EXPECT_TRUE(shown[id].same_bits(expected)) << id;
  }
}

// 5 + 3 blocks of 16 for each of four requests, 12 in the pool: they take turns.
TEST_P(EncodedContexts, RequestsWaitForRoomForTheirDocuments) {
  EngineOptions o = with("cepe:model=" + kCepe + ",piece=16,tokens=192", options(1, 64));
  std::vector<Request> requests;
  for (int64_t i = 0; i < 4; ++i) requests.push_back(document_request({text(10 + i, 70), text(20 + i, 41)}, question_));
  auto core = make_core(model_, o);
  for (size_t i = 0; i < requests.size(); ++i) ASSERT_TRUE(core->add(i + 1, requests[i]).ok());
  auto shown = run_all(*core, vocab_);
  for (size_t i = 0; i < requests.size(); ++i) EXPECT_TRUE(shown[i + 1].same_bits(run_one(o, requests[i]))) << i;
  // One that can never have it is refused at once.
  const auto refused = core->add(9, document_request({text(10, 120), text(11, 80)}, question_));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::resource);
  EXPECT_NE(refused.error().message.find("take 14 blocks of 16, there are 12"), std::string::npos)
      << refused.error().message;
}

// A step encodes no more than it may run; the stream waits meanwhile, others do not.
TEST_P(EncodedContexts, LongDocumentsDoNotHoldUpOtherStreams) {
  EngineOptions o = reading(options(1, 20));
  auto core = make_core(model_, o);
  ASSERT_TRUE(core->add(1, document_request({text(30, 100)}, question_)).ok());
  ASSERT_TRUE(core->add(2, make_request(5, 4, 20, vocab_)).ok());
  std::vector<TokenEvent> events;
  int64_t others = 0, steps = 0;
  while (std::ranges::none_of(events, [](const TokenEvent& event) { return event.request == 1; })) {
    core->step(events);
    ++steps;
  }
  others = std::ranges::count(events, RequestId{2}, &TokenEvent::request);
  EXPECT_GE(steps, 4);  // seven pieces, at most two in a step
  EXPECT_GE(others, 3);
}

TEST_P(EncodedContexts, DraftsDoNotChangeAnswers) {
  Request r = request();
  r.max_tokens = 40;
  r.sampling.temperature = 0;
  const Shown expected = run_one(reading(), r);
  for (const char* drafter : {"ngram:k=4", "lookahead"}) {
    EngineOptions o = reading();
    o.drafter = drafter;
    EXPECT_EQ(run_one(o, r).tokens, expected.tokens) << drafter;
  }
}

TEST_P(EncodedContexts, AnswersOfOneRequestReadTheSameDocuments) {
  const Shown expected = run_one(reading(), request());
  Request r = request();
  r.n = 2;
  auto core = make_core(model_, reading());
  ASSERT_TRUE(core->add(1, r).ok());
  auto shown = run_all(*core, vocab_);
  for (int64_t answer : {0, 1})  // both are greedy
    EXPECT_TRUE(shown[answer_stream(1, answer)].logits == expected.logits) << answer;
}

TEST_P(EncodedContexts, RecordedPlansReplay) {
  const EngineOptions o = reading(options(1, 24, 8));
  auto first = make_core(model_, o), second = make_core(model_, o);
  for (RequestId id : {1, 2, 3}) {
    const Request r = id == 2 ? make_request(5, 30, 12, vocab_) : document_request({text(id, 40)}, question_);
    ASSERT_TRUE(first->add(id, r).ok());
    ASSERT_TRUE(second->add(id, r).ok());
  }
  std::vector<TokenEvent> recorded, replayed;
  while (!first->idle()) {
    const std::string plan = first->step(recorded).to_string();
    const auto same = second->replay(StepPlan::parse(plan).value(), replayed);
    ASSERT_TRUE(same.ok()) << same.error().message;
  }
  ASSERT_EQ(recorded.size(), replayed.size());
  for (size_t i = 0; i < recorded.size(); ++i) EXPECT_EQ(recorded[i].token, replayed[i].token);
}

TEST_P(EncodedContexts, ARequestMayChooseForItself) {
  const Shown expected = run_one(reading(), request());
  Request none = request(), own = request();
  none.document_context = "none";
  own.document_context = "cepe";
  EXPECT_TRUE(run_one(reading(), none).same_bits(run_one(options(), request())));
  EXPECT_TRUE(run_one(reading(), own).same_bits(expected));
  own.document_context = cepe();
  EXPECT_TRUE(run_one(reading(), own).same_bits(expected));
  auto core = make_core(model_, reading());
  own.document_context = cepe(",start=false");
  EXPECT_EQ(core->add(1, own).error().message,
            "context cepe: its options are those of the engine; a request names it without, context=cepe");
}

// Cross-attention that adds nothing: the zeros that training begins with.
TEST_P(EncodedContexts, ZeroOutputProjectionsAreTheModelWithoutDocuments) {
  const fs::path folder = fs::path(::testing::TempDir()) / ("millrace_zero_" + std::to_string(::getpid()));
  fs::remove_all(folder);
  fs::copy(kCepe, folder, fs::copy_options::recursive);
  std::string bytes = read_file(folder / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const auto tensors = nlohmann::json::parse(bytes.substr(8, header));
  for (const char* layer : {"1", "2"}) {
    const auto at = tensors[std::string("model.layers.") + layer + ".cross_attn.o_proj.weight"]["data_offsets"];
    std::fill(bytes.begin() + 8 + header + at[0].get<int64_t>(), bytes.begin() + 8 + header + at[1].get<int64_t>(), 0);
  }
  std::ofstream(folder / "model.safetensors", std::ios::binary) << bytes;
  const EngineOptions o = with(cepe("", folder.string()));
  EXPECT_TRUE(run_one(o, request()).same_bits(run_one(options(), plain())));
  fs::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Isas, EncodedContexts, ::testing::ValuesIn(isa_levels()),
                         [](const auto& test) { return isa_label(test.param); });

// ---- what is kept
// ----------------------------------------------------------------------------------------------------
class EncodedPieces : public ::testing::Test {
 protected:
  std::unique_ptr<EncodedDocuments> load(const EncoderChoice& choice) const {
    auto made = EncodedDocuments::load(choice, *model_, model_->parts().threads->get(1),
                                       find_kv_formats(options().kv_format, model_->parts().kernels).value(), 64);
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    return made.ok() ? std::move(*made) : nullptr;
  }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const {
    return make_request(seed, tokens, 1, model_->info().vocab).prompt;
  }
  std::shared_ptr<const LanguageModel> model_ = load_for(kCepe, *select_isa());
};

TEST_F(EncodedPieces, AreFoundAgainWhereverTheyStand) {
  const auto kept = load({kCepe, 16, 256, true});
  const DocumentTokens some = {text(1, 20), text(2, 10)}, turned = {some[1], some[0], some[1]};
  std::shared_ptr<DocumentLease> first, second;
  int64_t budget = 1000;
  EXPECT_TRUE(kept->hold(some, first, budget));
  EXPECT_EQ(kept->encoded_tokens(), 16 + 6 + 11);  // with a start token each
  EXPECT_EQ(budget, 1000 - 33);
  EXPECT_TRUE(kept->hold(turned, second, budget));
  EXPECT_EQ(kept->encoded_tokens(), 33);
  EXPECT_EQ(kept->pool().free_blocks(), 16 - 3);
  first.reset();
  second.reset();
  EXPECT_TRUE(kept->hold(some, first, budget));
  EXPECT_EQ(kept->encoded_tokens(), 33);
}

TEST_F(EncodedPieces, GiveWayToOthersWhenNobodyHoldsThem) {
  const auto kept = load({kCepe, 16, 64, true});  // four blocks
  std::shared_ptr<DocumentLease> a, b, c;
  int64_t budget = 1000;
  const DocumentTokens one = {text(1, 15)}, two = {text(2, 30)}, three = {text(3, 45)};
  EXPECT_TRUE(kept->hold(one, a, budget));
  EXPECT_TRUE(kept->hold(two, b, budget));
  EXPECT_FALSE(kept->hold(three, c, budget));  // three blocks, one is free
  EXPECT_FALSE(c);
  EXPECT_EQ(kept->pool().free_blocks(), 1);
  a.reset();
  EXPECT_FALSE(kept->hold(three, c, budget));
  b.reset();
  EXPECT_TRUE(kept->hold(three, c, budget));
  const int64_t before = kept->encoded_tokens();
  c.reset();
  EXPECT_TRUE(kept->hold(two, b, budget));  // its second piece was released last, and is still there
  EXPECT_EQ(kept->encoded_tokens() - before, 16);
}

TEST_F(EncodedPieces, AreEncodedWithinABudget) {
  const auto kept = load({kCepe, 16, 256, false});
  std::shared_ptr<DocumentLease> lease, other;
  const DocumentTokens some = {text(1, 50)};
  int64_t budget = 17;
  EXPECT_FALSE(kept->hold(some, lease, budget));
  EXPECT_EQ(kept->encoded_tokens(), 32);
  budget = 1000;
  EXPECT_TRUE(kept->hold(some, lease, budget));
  EXPECT_EQ(kept->encoded_tokens(), 50);
  // What a stream that ends has not encoded leaves nothing behind.
  budget = 1;
  EXPECT_FALSE(kept->hold({text(2, 50)}, other, budget));
  other.reset();
  EXPECT_EQ(kept->pool().free_blocks(), 16 - 4 - 1);
}

// ---- errors
// ----------------------------------------------------------------------------------------------------------
std::string start_error(const EngineOptions& o, const std::string& model = kCepe) {
  auto loaded = LanguageModel::load(model, {.threads = 1, .context = 128});
  if (!loaded.ok()) return loaded.error().message;
  const auto core = EngineCore::create(*loaded, o);
  return core.ok() ? "" : core.error().message;
}

TEST(EncoderErrors, SayWhatIsWrong) {
  EngineOptions o = options();
  o.document_context = "cepe";
  EXPECT_EQ(start_error(o), "context cepe: model: must name the folder of a checkpoint, model=PATH");
  o.document_context = "cepe:model=/nowhere";
  EXPECT_EQ(start_error(o), "context cepe: /nowhere: no such file or folder");
  o.document_context = "cepe:piece=600,model=" + kCepe;
  EXPECT_EQ(start_error(o),
            "context cepe: piece: the encoder of " + kCepe + " reads up to 512 tokens at once, 600 asked for");
  o.document_context = "cepe:model=" + kCepe;
  EXPECT_EQ(start_error(o), "");
  o.document_context = cepe();
  EXPECT_EQ(start_error(o), "");
  EXPECT_EQ(start_error(o, golden_model("llama3")).substr(0, 13), "context cepe:");
  o.kv_format = "kivi";
  EXPECT_NE(start_error(o).find("encodes whole blocks of streams"), std::string::npos) << start_error(o);
  o.kv_format = "f16";
  o.document_context = "cepe:model=" + kCepe + ",piece=16,tokens=8";
  EXPECT_EQ(start_error(o), "context cepe: tokens: 8 are fewer than one piece of 16");
}

TEST(EncoderErrors, MemoryIsBounded) {
  auto model = LanguageModel::load(kCepe, {.threads = 1, .context = 128, .memory = int64_t{640} << 20});
  ASSERT_TRUE(model.ok()) << model.error().message;
  EngineOptions o = options();
  o.document_context = cepe();
  EXPECT_TRUE(EngineCore::create(*model, o).ok());
  o.document_context = "cepe:model=" + kCepe + ",piece=16,tokens=16000000";
  const auto core = EngineCore::create(*model, o);
  ASSERT_FALSE(core.ok());
  EXPECT_EQ(core.error().kind, ErrorKind::resource);
  EXPECT_NE(core.error().message.find("documents"), std::string::npos) << core.error().message;
}

TEST(EncoderErrors, RequestsThatDoNotFit) {
  const auto model = load_for(kCepe, *select_isa());
  EngineOptions o = options();
  o.document_context = cepe();
  const auto core = make_core(model, o), without = make_core(model, options());
  const Request good = document_request({{3, 4, 5}, {6, 7}}, {8, 9});
  const auto refusal = [](EngineCore& by, const Request& r) {
    const auto checked = by.check(r);
    return checked.ok() ? "" : checked.error().message;
  };
  EXPECT_EQ(refusal(*core, good), "");
  Request r = good;
  r.document_context = "cepe";
  EXPECT_EQ(refusal(*without, r),
            "context cepe: the engine has no encoder; start it with one, context=cepe:model=FOLDER, or choose another "
            "context");
  r.document_context = "cepe:model=/etc";
  EXPECT_EQ(refusal(*without, r),
            "context cepe: its options are those of the engine; a request names it without, context=cepe");
  r = good;
  r.beams = 2;
  EXPECT_EQ(refusal(*core, r),
            "context cepe does not go with beam search: beams do not share encoded documents; use n instead");
  r = good;
  r.evictor = "streamingllm";
  EXPECT_EQ(refusal(*core, r), "");
  r = good;
  r.documents = {{1, 4}, {3, 5}};
  EXPECT_EQ(refusal(*core, r), "documents: tokens 3 to 5 are empty or not behind the document before");
  r.documents = {{1, 8}};
  EXPECT_EQ(refusal(*core, r), "documents: end at token 8 of a prompt of 8; a question must follow");
  r = good;
  r.prompt[2] = 5000;
  EXPECT_EQ(refusal(*core, r), "context cepe: the encoder has no token 5000");
  EngineOptions drafting = o;
  drafting.drafter = "draft:model=" + golden_model("llama3");
  const auto drafts = make_core(model, drafting);
  ASSERT_TRUE(drafts);
  EXPECT_EQ(refusal(*drafts, good),
            "context cepe does not go with drafter draft: it does not see the documents; use ngram, or no drafter");
}

}  // namespace
}  // namespace millrace
