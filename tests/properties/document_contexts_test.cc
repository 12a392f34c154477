// Documents in a prompt, with every context: bits do not depend on chunks, threads, blocks, other streams, drafts,
// preemption or on what the prefix cache holds, wherever the documents stood before. What they are defined to be is in
// context_definitions_test.cc.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <set>

#include "formats/format.h"
#include "models/visible.h"
#include "properties/document_requests.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

constexpr const char* kContext = "kvlink";

struct DocumentCase {
  std::string context, model;
  const char* kv_format;
  Isa isa;
  std::string pattern = "";  // of attention
};

class DocumentContexts : public ::testing::TestWithParam<DocumentCase> {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model(GetParam().model), GetParam().isa);
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
    documents_ = {text(1, 23), text(2, 33), text(3, 16)};
    question_ = text(4, 9);
  }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const { return make_request(seed, tokens, 1, vocab_).prompt; }
  EngineOptions linked(EngineOptions o = options()) const {
    o.document_context = GetParam().context;
    o.kv_format = GetParam().kv_format;
    if (has_pattern()) o.kernels = {"attention=" + GetParam().pattern};
    return o;
  }
  Request request() const { return document_request(documents_, question_); }
  static bool has_pattern() { return !GetParam().pattern.empty(); }   // whose blocks are whole ones of the KV cache
  bool alone() const { return GetParam().context == "independent"; }  // documents do not see the start token
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

TEST_P(DocumentContexts, BitsDoNotDependOnHowTheyAreComputed) {
  const Shown expected = run_one(linked(), request());
  for (int threads : {2, 3}) EXPECT_TRUE(run_one(linked(options(threads)), request()).same_bits(expected)) << threads;
  for (int64_t chunk : {1, 7, 20}) {
    EngineOptions o = linked(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request()).same_bits(expected)) << chunk;
  }
  for (int64_t block : {1, 8, has_pattern() ? 4 : 64})
    EXPECT_TRUE(run_one(linked(options(2, 512, block)), request()).same_bits(expected)) << block;
}

TEST_P(DocumentContexts, BitsDoNotDependOnOtherStreams) {
  const Shown expected = run_one(linked(), request());
  const Shown plain = run_one(linked(), make_request(5, 30, 12, vocab_));
  auto core = make_core(model_, linked(options(2, 40)));
  ASSERT_TRUE(core->add(2, make_request(5, 30, 12, vocab_)).ok());
  ASSERT_TRUE(core->add(1, request()).ok());
  Request two = document_request({documents_[2], documents_[0]}, question_);
  ASSERT_TRUE(core->add(3, two).ok());
  auto shown = run_all(*core, vocab_);
  EXPECT_TRUE(shown[1].same_bits(expected));
  EXPECT_TRUE(shown[2].same_bits(plain));
  EXPECT_TRUE(shown[3].same_bits(run_one(linked(), two)));
}

TEST_P(DocumentContexts, ADocumentIsReusedWhereverItStands) {
  for (int64_t block : {8, has_pattern() ? 4 : 5}) {
    const EngineOptions o = linked(options(1, 512, block));
    const std::vector<std::vector<TokenId>> turned = {documents_[2], documents_[1], documents_[0]};
    const Shown cold = run_one(o, document_request(turned, question_));
    EXPECT_EQ(cold.cached, 0);
    auto core = make_core(model_, o);
    run_one(*core, request(), 1);
    const Shown warm = run_one(*core, document_request(turned, question_), 2);
    EXPECT_TRUE(warm.same_bits(cold)) << block;
    int64_t known = alone() ? 0 : 1;  // the start token, which the first document sees
    for (const auto& document : documents_) known += std::ssize(document);  // ends that fill no block, too
    EXPECT_EQ(warm.cached, known);
    EXPECT_TRUE(run_one(*core, request(), 3).same_bits(run_one(o, request())));
  }
}

// A step copies no more than it may run, so that another stream gets its tokens meanwhile.
TEST_P(DocumentContexts, CopiesAreSpreadOverSteps) {
  const EngineOptions o = linked(options(1, 16, 8));
  const Shown cold = run_one(o, request());
  const Request long_answer = make_request(9, 4, 40, vocab_);
  auto core = make_core(model_, o);
  run_one(*core, request(), 1);
  ASSERT_TRUE(core->add(2, long_answer).ok());
  std::vector<TokenEvent> events;
  core->step(events);
  ASSERT_TRUE(core->add(3, request()).ok());
  int64_t tokens = 0, steps = 0;  // of the other stream, until the documents' one has its first
  for (bool answered = false; !answered; ++steps) {
    events.clear();
    core->step(events);
    for (const TokenEvent& event : events) {
      answered |= event.request == answer_stream(3, 0);
      tokens += event.request == answer_stream(2, 0);
    }
  }
  EXPECT_EQ(tokens, steps);
  EXPECT_GE(steps, (23 + 33 + 16) / 16);
  EXPECT_LE(steps, 12);
  auto shown = run_all(*core, vocab_);
  EXPECT_TRUE(run_one(*core, request(), 4).same_bits(cold));
  EXPECT_TRUE(core->check_blocks().ok());
}

class LinkedDocuments : public DocumentContexts {};  // with kvlink

// Without a start token.
TEST_P(DocumentContexts, ADocumentAtTheBeginningIsReused) {
  const EngineOptions o = linked(options(1, 512, 8));
  const auto begin_at_once = [&](std::vector<std::vector<TokenId>> documents) {
    Request request = document_request(documents, question_);
    request.prompt.erase(request.prompt.begin());
    for (PromptDocument& document : request.documents) --document.begin, --document.end;
    return request;
  };
  const Request request = begin_at_once({documents_[1], documents_[0]});
  const Shown cold = run_one(o, request);
  auto core = make_core(model_, o);
  run_one(*core, begin_at_once({documents_[0], documents_[1]}), 1);
  const Shown warm = run_one(*core, request, 2);
  EXPECT_TRUE(warm.same_bits(cold));
  EXPECT_EQ(warm.cached, std::ssize(documents_[0]) + std::ssize(documents_[1]));
  EXPECT_TRUE(core->check_blocks().ok());
}

// What documents leave takes the place of older prefixes.
TEST_P(DocumentContexts, DocumentsAreKeptInAFullCache) {
  EngineOptions o = linked(options(1, 512, 8));
  o.kv_tokens = 256;
  auto core = make_core(model_, o);
  for (int64_t i = 0; i < 4; ++i) run_one(*core, make_request(20 + i, 100, 4, vocab_), static_cast<RequestId>(10 + i));
  const Shown cold = run_one(*core, request(), 1);
  EXPECT_EQ(cold.cached, 0);
  const Shown warm = run_one(*core, request(), 2);
  EXPECT_TRUE(warm.same_bits(cold));
  EXPECT_GT(warm.cached, 40);
  EXPECT_TRUE(core->check_blocks().ok());
}

TEST_P(DocumentContexts, APlainPromptSharesItsBlocksWithDocuments) {
  if (GetParam().context != kContext) return;
  const EngineOptions o = linked(options(1, 512, 8));
  Request plain = make_request(2, 1, 3, vocab_);
  plain.prompt = {1};
  plain.prompt.insert(plain.prompt.end(), documents_[1].begin(), documents_[1].end());
  auto core = make_core(model_, o);
  const Shown before = run_one(*core, plain, 1);
  const Shown warm = run_one(*core, request(), 2);
  EXPECT_GE(warm.cached, 31);
  EXPECT_TRUE(warm.same_bits(run_one(o, request())));
  auto other = make_core(model_, o);
  run_one(*other, request(), 1);
  const Shown after = run_one(*other, plain, 2);
  EXPECT_GE(after.cached, 32);
  EXPECT_TRUE(after.same_bits(before));
}

TEST_P(DocumentContexts, PreemptedStreamsHaveTheSameBits) {
  const Shown expected = run_one(linked(), request());
  for (const int64_t swap : {0, 4096}) {
    EngineOptions o = linked(options(1, 16, 8));
    o.kv_tokens = 200;
    o.kv_tier = memory_tier(swap);
    o.max_streams = 4;
    auto core = make_core(model_, o);
    for (RequestId id : {1, 2, 3, 4}) {
      Request r = request();
      r.max_tokens = 20;
      ASSERT_TRUE(core->add(id, r).ok());
    }
    auto shown = run_all(*core, vocab_);
    for (RequestId id : {1, 2, 3, 4}) {
      ASSERT_EQ(shown[id].logits.size(), 20u);
      shown[id].logits.resize(6);
      shown[id].tokens.resize(6);
      EXPECT_TRUE(shown[id].same_bits(expected)) << id;
    }
  }
}

// A document that follows the start token sees what it would see anyway, and its keys stay.
TEST_P(LinkedDocuments, OneDocumentAtTheBeginningIsAPlainPrompt) {
  const Shown linked_one = run_one(linked(), document_request({documents_[0]}, question_));
  EngineOptions o = linked();
  o.document_context = "";
  EXPECT_TRUE(linked_one.same_bits(run_one(o, document_request({documents_[0]}, question_))));
}

TEST_P(DocumentContexts, ARequestMayChooseForItself) {
  EngineOptions plain = linked();
  plain.document_context = "";
  const Shown unlinked = run_one(plain, request()), expected = run_one(linked(), request());
  EXPECT_FALSE(unlinked.same_bits(expected));
  Request none = request(), own = request();
  none.document_context = "none";
  own.document_context = GetParam().context;
  EXPECT_TRUE(run_one(linked(), none).same_bits(unlinked));
  EXPECT_TRUE(run_one(plain, own).same_bits(expected));
  own.n = 2;
  auto core = make_core(model_, plain);
  ASSERT_TRUE(core->add(1, own).ok());
  auto shown = run_all(*core, vocab_);
  for (int64_t answer : {0, 1})  // both are greedy
    EXPECT_TRUE(shown[answer_stream(1, answer)].logits == expected.logits) << answer;
}

// Verified tokens are at the positions, and see the documents, that they would without drafts.
TEST_P(DocumentContexts, DraftsDoNotChangeAnswers) {
  Request r = request();
  r.max_tokens = 20;
  r.sampling.temperature = 0;
  const Shown expected = run_one(linked(), r);
  for (const char* drafter : {"ngram:k=4", has_pattern() ? "ngram:k=2" : "lookahead"}) {  // which drafts trees
    EngineOptions o = linked();
    o.drafter = drafter;
    EXPECT_EQ(run_one(o, r).tokens, expected.tokens) << drafter;
  }
}

// Whatever the documents' own keys and values were.
TEST_P(LinkedDocuments, ComputingAllAgainIsAPlainPrompt) {
  EngineOptions o = linked();
  const Shown linked_only = run_one(o, request());
  o.document_context = "";
  const Shown plain = run_one(o, request());
  EXPECT_FALSE(linked_only.same_bits(plain));
  for (const char* context : {"epic:recompute=1024", "cacheblend:ratio=1"}) {
    o.document_context = context;
    auto core = make_core(model_, o);
    EXPECT_TRUE(run_one(*core, request()).same_bits(plain)) << context;
    const Shown warm = run_one(*core, request(), 2);
    EXPECT_TRUE(warm.same_bits(plain)) << context;
    EXPECT_GT(warm.cached, 40);
  }
}

TEST_P(LinkedDocuments, WeightsOfOneAndChoicesOfAllChangeNothing) {
  const auto run = [&](const char* context) {
    EngineOptions o = linked();
    o.document_context = context;
    return run_one(o, request());
  };
  const Shown shared = run("entropy:top=0");
  EXPECT_TRUE(run("entropy:top=3").same_bits(shared));
  EXPECT_TRUE(run("ape:T=1,S=1").same_bits(shared));
  EXPECT_TRUE(run("independent").same_bits(run("ape:T=1,S=1,prefix=0")));
  EXPECT_FALSE(run("entropy:top=1").same_bits(shared));
  EXPECT_FALSE(run("ape:T=0.9,S=1").same_bits(shared));
  EXPECT_FALSE(run("ape:T=1,S=0.9").same_bits(shared));
}

// Every document, and what follows.
TEST_P(DocumentContexts, APatternOfAllBlocksChangesNothing) {
  EngineOptions o = linked();
  o.kernels.clear();
  const Shown plain = run_one(o, request());
  if (has_pattern()) {
    EXPECT_FALSE(run_one(linked(), request()).same_bits(plain));
  }
  for (const char* all : {"full:block=16", "sink_window:block=16,window=20", "longformer:block=32,window=10"}) {
    o.kernels = {std::string("attention=") + all};
    EXPECT_TRUE(run_one(o, request()).same_bits(plain)) << all;
  }
}

// Link tokens are those that a prompt may have between its documents anyway.
TEST_P(LinkedDocuments, LinkTokensFollowEveryDocument) {
  Request explicit_links = document_request({}, {});
  TokenId link = 7;
  for (const auto& document : documents_) {
    const int64_t begin = std::ssize(explicit_links.prompt);
    explicit_links.prompt.insert(explicit_links.prompt.end(), document.begin(), document.end());
    explicit_links.documents.push_back({begin, std::ssize(explicit_links.prompt)});
    for (int64_t i = 0; i < 2; ++i) explicit_links.prompt.push_back(link++);
  }
  explicit_links.prompt.insert(explicit_links.prompt.end(), question_.begin(), question_.end());
  EngineOptions o = linked();
  const Shown expected = run_one(o, explicit_links);
  EXPECT_FALSE(run_one(o, request()).same_bits(expected));
  o.document_context = "kvlink:links=2,link_token=7";
  auto core = make_core(model_, o);
  EXPECT_TRUE(core->check(request()).ok());
  EXPECT_TRUE(run_one(*core, request()).same_bits(expected));
  const Shown warm = run_one(*core, request(), 2);
  EXPECT_TRUE(warm.same_bits(expected));
  EXPECT_GT(warm.cached, 40);
}

// Embeddings of links from a file, here the model's own: those of tokens from 7 on.
TEST_P(LinkedDocuments, RowsOfAFileAreLinksLikeTokens) {
  const std::vector<std::vector<TokenId>> turned = {documents_[2], documents_[0], documents_[1]};
  EngineOptions o = linked(options(1, 20, 8));
  o.document_context = "kvlink:links=2,link_token=7";
  const Shown expected = run_one(o, request()), expected_turned = run_one(o, document_request(turned, question_));
  const std::string folder = std::filesystem::path(golden_model(GetParam().model)).parent_path();
  for (const std::string& file : {folder + "/model.gguf", folder + "/model.safetensors", folder}) {
    if (!std::filesystem::exists(file)) continue;
    o.document_context = "kvlink:links=2,link_token=7,link_embeddings=" + file;
    auto core = make_core(model_, o);
    EXPECT_TRUE(run_one(*core, request(), 1).same_bits(expected)) << file;
    const Shown warm = run_one(*core, document_request(turned, question_), 2);
    EXPECT_TRUE(warm.same_bits(expected_turned)) << file;
    EXPECT_GT(warm.cached, 60) << file;  // whatever rows stand between them
    Request own = request();             // names the engine's file
    own.document_context = o.document_context;
    EXPECT_TRUE(run_one(*core, own, 3).same_bits(expected)) << file;
  }
}

std::vector<DocumentCase> linked_cases() {
  std::vector<DocumentCase> cases;
  for (Isa isa : isa_levels()) {
    for (const char* model : {"llama3", "gemma3", "phi3_longrope_short", "smollm3", "deepseek2"})
      cases.push_back({"kvlink", model, "f16", isa});
    cases.push_back({"kvlink", "llama_yarn", "f32", isa});
  }
  for (const char* model : {"smollm3", "gemma3"})
    cases.push_back({"kvlink", model, "f16", isa_levels().back(), "sink_window:block=16,sinks=0,window=2"});
  return cases;
}

std::vector<DocumentCase> document_cases() {
  std::vector<DocumentCase> cases = linked_cases();
  cases.push_back({"kvlink", "llama3", "progressive:below=0.2,format=f8_e4m3", isa_levels().back()});
  for (const char* context : {"independent", "ape", "entropy:top=2", "epic:recompute=5"})
    for (const char* model : {"llama3", "gemma3", "deepseek2"})
      cases.push_back({context, model, "f16", isa_levels().back()});
  // Its measure is in the second layer: a model of two, such as llama3, computes everything again.
  for (const char* model : {"smollm3", "gemma3", "deepseek2"})
    cases.push_back({"cacheblend:ratio=0.3", model, "f16", isa_levels().back()});
  for (const char* context : {"independent", "ape", "entropy:top=2", "epic:recompute=5", "cacheblend:ratio=0.3"})
    cases.push_back({context, "smollm3", "f16", isa_levels().back(), "bigbird:block=16,window=1,global=0,random=1"});
  for (const char* context : {"kvlink", "independent", "epic:recompute=5", "cacheblend:ratio=0.3"})
    cases.push_back(
        {context, "smollm3", "f16", isa_levels().back(), "quest:block=16,top=1,sinks=0,window=1,first=0,phase=decode"});
  return cases;
}

std::string document_case_name(const ::testing::TestParamInfo<DocumentCase>& test) {
  const DocumentCase& of = test.param;
  const std::string format(of.kv_format);
  return of.context.substr(0, of.context.find(':')) + "_" + of.model + "_" + format.substr(0, format.find(':')) + "_" +
         isa_label(of.isa) + (of.pattern.empty() ? "" : "_" + of.pattern.substr(0, of.pattern.find(':')));
}

INSTANTIATE_TEST_SUITE_P(Models, DocumentContexts, ::testing::ValuesIn(document_cases()), document_case_name);
INSTANTIATE_TEST_SUITE_P(Models, LinkedDocuments, ::testing::ValuesIn(linked_cases()), document_case_name);

// Tokens that are computed again are spans of their own, and those of a pass read the partitions before them together.
TEST(DocumentPasses, SharedReadingHasTheSameBits) {
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
  ASSERT_TRUE(model.ok());
  const int64_t vocab = (*model)->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  const auto run = [&](EngineOptions o) {
    o.context = 640;
    auto core = make_core(*model, o);
    EXPECT_TRUE(core->add(1, document_request({text(1, 270), text(2, 120), text(3, 90)}, text(4, 9))).ok());
    return run_all(*core, vocab)[1];
  };
  for (const char* context : {"epic:recompute=20", "cacheblend:ratio=0.3"}) {
    EngineOptions o = options(2);
    o.document_context = context;
    const Shown expected = run(o);
    for (int64_t batch : {70, 1}) {
      EngineOptions other = options(1, batch, 8);
      other.max_streams = 1;
      other.document_context = context;
      EXPECT_TRUE(run(other).same_bits(expected)) << context << " " << batch;
    }
  }
}

// A document's stored keys, decoded, in `format`: computed from position `from` on, then moved by `positions`.
struct KeysAtPositions {
  static constexpr int64_t kTokens = 30;
  std::vector<std::vector<float>> rows;  // of all heads, one layer after the other
  float largest = 0;

  KeysAtPositions(TestRunner& runner, const char* format, int64_t from, int64_t positions) {
    const auto tokens = make_request(3, kTokens, 1, runner.model().spec().vocab).prompt;
    runner.runner().start();
    runner.runner().begin(runner.blocks(), 0);
    for (int64_t i = 0; i < kTokens; ++i) runner.runner().add(tokens[static_cast<size_t>(i)], from + i);
    runner.runner().forward();
    if (positions != 0) runner.model().move_keys({runner.blocks(), 0, kTokens, positions}, runner.context());
    const StoredRows stored(runner, 0, kTokens);
    const Format& of = *find_format(format);
    for (size_t row = 0; row < stored.rows.size(); row += 2) {  // a key, then its value
      auto& key = rows.emplace_back(stored.rows[row].size() / static_cast<size_t>(of.block_bytes));
      of.decode(stored.rows[row].data(), key.data(), std::ssize(key));
      for (const float value : key) largest = std::max(largest, std::abs(value));
    }
  }
};

// Beside those of a document that was computed where they are moved to, in parts of the largest key. In f16, the layers
// behind the first one read keys that were rounded at other positions, and their own differ by more than by a move.
TEST(MovedKeys, AreThoseOfTheirNewPositions) {
  struct Precision {
    const char* format;
    double tolerance;
  };
  std::set<RopeStyle> styles;
  for (const char* name :
       {"llama3", "llama_linear", "llama_yarn", "gemma3", "qwen3", "phi3_longrope_short", "deepseek2", "deepseek3"})
    for (const auto& [format, tolerance] : {Precision{"f32", 1e-5}, Precision{"f16", 1e-3}}) {
      auto loaded = TestRunner::load(golden_model(name), {.context = 128, .kv_format = format});
      ASSERT_TRUE(loaded.ok());
      TestRunner& runner = **loaded;
      styles.insert(runner.model().spec().rope_style);
      for (const auto& [from, positions] : {std::pair<int64_t, int64_t>{0, 40}, {1, 97}, {90, -90}}) {
        const KeysAtPositions there(runner, format, from + positions, 0), moved(runner, format, from, positions);
        ASSERT_EQ(there.rows.size(), moved.rows.size());
        double furthest = 0;
        const auto first_layer =
            static_cast<size_t>(runner.kv().layout().layers[0].kv_heads * KeysAtPositions::kTokens);
        const size_t exact = std::string(format) == "f32" ? there.rows.size() : first_layer;
        for (size_t row = 0; row < exact; ++row)
          for (size_t i = 0; i < there.rows[row].size(); ++i)
            furthest = std::max(furthest, std::abs(double{there.rows[row][i]} - moved.rows[row][i]));
        EXPECT_LE(furthest, tolerance * there.largest) << name << " " << format << " by " << positions;
      }
    }
  EXPECT_EQ(styles.size(), 2u) << "pairs of halves, and of neighbours";
}

std::string document_error(const std::string& model, EngineOptions o, const Request& request) {
  o.context = 64;
  auto loaded = LanguageModel::load(golden_model(model), {.threads = 1, .context = o.context});
  if (!loaded.ok()) return loaded.error().message;
  const auto added = make_core(*loaded, o)->add(1, request);
  return added.ok() ? "" : added.error().message;
}

TEST(DocumentErrors, SayWhatIsWrong) {
  const std::string kName = std::string(kContext).substr(0, std::string(kContext).find(':'));
  const std::string kBeamsApart =
      "beam search does not go with context " + kName + ": beams share a prompt's blocks; use n instead";
  const std::string kLearned = "context " + kName +
                               " does not go with this model: it adds learned positions to its tokens, so that their "
                               "keys cannot be moved; send the documents without a context";
  EngineOptions o = options();
  o.document_context = kContext;
  const Request good = document_request({{3, 4, 5}, {6, 7}}, {8, 9});
  EXPECT_EQ(document_error("llama3", o, good), "");
  Request r = good;
  r.documents = {{1, 4}, {3, 5}};
  EXPECT_EQ(document_error("llama3", o, r), "documents: tokens 3 to 5 are empty or not behind the document before");
  r.documents = {{2, 2}};
  EXPECT_EQ(document_error("llama3", o, r), "documents: tokens 2 to 2 are empty or not behind the document before");
  r.documents = {{1, 8}};
  EXPECT_EQ(document_error("llama3", o, r), "documents: end at token 8 of a prompt of 8; a question must follow");
  r = good;
  r.beams = 2;
  EXPECT_EQ(document_error("llama3", o, r), kBeamsApart);
  r = good;
  r.evictor = "streamingllm";
  EXPECT_EQ(document_error("llama3", o, r), "");
  EXPECT_EQ(document_error("gpt2", o, good), kLearned);
  for (const char* recurrent : {"mamba", "falcon_h1", "qwen35"})
    EXPECT_EQ(document_error(recurrent, o, good),
              "context " + kName +
                  " does not go with this model: it has recurrent layers, whose state is of every token before "
                  "it; send the documents without a context");
  r = good;
  r.embeddings = {{6, std::make_shared<const std::vector<float>>(64)}};
  EXPECT_EQ(document_error("llama3", o, r),
            "context " + kName +
                " does not go with rows in place of tokens: prompts with rows in place of tokens have no parts; "
                "send tokens");
  EngineOptions encoded = o;
  encoded.kv_format = "kivi";
  EXPECT_EQ(document_error("llama3", encoded, good), "");
  EXPECT_EQ(document_error("gpt2", encoded, good), kLearned);
  r = good;
  r.document_context = "cacheblend";
  EXPECT_EQ(document_error("llama3", encoded, r),
            "context cacheblend does not go with KV format kivi: it computes tokens in the middle of a document again, "
            "whose rows are encoded with others; use epic, or a format of rows such as q8_0");
  encoded.kernels = {"attention=quest:block=32,phase=decode"};
  EXPECT_EQ(document_error("llama3", encoded, good),
            "context " + kName +
                " does not go with KV format kivi: documents are kept as rows, without those of the "
                "pattern; use a static pattern, or f16 or another format of rows");
  encoded.kernels.clear();
  encoded.document_tokens = 1;
  EXPECT_EQ(
      document_error("llama3", encoded, document_request({std::vector<TokenId>(16, 3)}, {8})),
      "context: a document of 17 tokens, with those that it sees, does not fit in the 16 that are kept; start with "
      "more, --document-tokens N");
  encoded.document_context = "";
  r.document_context = "kvlink";
  EXPECT_EQ(
      document_error("llama3", encoded, r),
      "context kvlink does not go with KV format kivi: it encodes whole blocks, and documents are kept as rows next to "
      "them; "
      "start the engine with a context (--use context=NAME), which takes memory for them, or use f16 or another format "
      "of rows");
  EngineOptions choosing = o;
  choosing.kernels = {"attention=quest:block=16"};
  EXPECT_EQ(
      document_error("llama3", choosing, good),
      "context " + kName +
          " does not go with attention quest:block=16: it stores rows of its own next to the keys, "
          "which do not move to where a document stands; use a static pattern, or a dynamic one with phase=decode");
  choosing.kernels = {"attention=minference:block=16,heads=v,phase=decode"};
  EXPECT_EQ(document_error("llama3", choosing, good),
            "context " + kName +
                " does not go with attention minference:block=16,heads=v,phase=decode: lines are found "
                "by queries of a prompt in order; use heads=b or a");
  choosing.kernels = {"attention=quest:block=16,phase=decode"};
  EXPECT_EQ(document_error("llama3", choosing, good), "");
  r = good;
  r.document_context = "ape";
  EXPECT_EQ(
      document_error("llama3", choosing, r),
      "context ape does not go with attention quest:block=16,phase=decode: answers weigh the documents' keys again, "
      "and would see all of them; use a static pattern, or another context");
  r = good;
  r.document_context = "kvlink:links=1,link_token=9999999";
  EXPECT_EQ(document_error("llama3", o, r).substr(0, 23), "prompt: token 9999999 i");
  r.document_context = "kvlink:links=2";
  EXPECT_EQ(
      document_error("llama3", o, r),
      "context kvlink: links and link_token: give both, for a model that was trained with link tokens, or neither");
  r = good;
  for (const char* context : {"kvlink:links=2,link_embeddings=/etc/hostname", "kvlink:links=1,link_embeddings=none"}) {
    r.document_context = context;  // not opened
    EXPECT_EQ(document_error("llama3", o, r),
              "context kvlink: link_embeddings: is an option of the engine; start it with "
              "context=kvlink:links=N,link_embeddings=FILE");
  }
  r.document_context = "kvlnk";
  EXPECT_EQ(document_error("llama3", o, r), "context: unknown 'kvlnk'; available: " + document_contexts().names());
}

// A safetensors file of one tensor of F32 values.
class RowsFile {
 public:
  RowsFile(const std::string& shape, const std::vector<float>& values)
      : path_(::testing::TempDir() + "link_rows.safetensors") {
    const uint64_t bytes = values.size() * sizeof(float);
    std::string header =
        fmt::format(R"({{"links":{{"dtype":"F32","shape":[{}],"data_offsets":[0,{}]}}}})", shape, bytes);
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    std::ofstream file(path_, std::ios::binary);
    file.write(reinterpret_cast<const char*>(&length), sizeof length) << header;
    file.write(reinterpret_cast<const char*>(values.data()), static_cast<std::streamsize>(bytes));
  }
  ~RowsFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

TEST(LinkRowsFile, ErrorsSayWhatIsWrong) {
  auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 64});
  ASSERT_TRUE(model.ok());
  const int64_t width = (*model)->parts().model->spec().width;
  const auto error = [&](const std::string& file, const std::string& more = "links=2") {
    EngineOptions o = options();
    o.context = 64;
    o.document_context = "kvlink:" + more + ",link_embeddings=" + file;
    auto core = EngineCore::create(*model, o);
    if (!core.ok()) return core.error().message;
    const auto added = (*core)->add(1, document_request({{3, 4}, {5, 6}, {7, 8}}, {9}));
    return added.ok() ? "" : added.error().message;
  };
  const std::string what = "context kvlink: link_embeddings: ";
  const auto rows = [&](int64_t count) { return std::vector<float>(static_cast<size_t>(count * width), 0.1f); };
  const auto shape = [&](int64_t count) { return fmt::format("{},{}", count, width); };
  {
    const RowsFile file(shape(6), rows(6));
    EXPECT_EQ(error(file.path()), "");
    EXPECT_EQ(error(file.path(), "links=3"), what + file.path() + " has rows for 2 documents, the prompt has 3");
    EXPECT_EQ(error(file.path(), "links=2,link_token=5"),
              what + "tensor links of " + file.path() + " has 6 rows; one document needs rows 5 to 6");
    EXPECT_EQ(error(file.path(), "sinks=1"),
              "context kvlink: link_embeddings: give links too, the rows behind each document");
  }
  {
    const RowsFile file(fmt::format("6,{}", width / 2), rows(3));
    EXPECT_EQ(error(file.path()),
              what + fmt::format("tensor links of {} has rows of {} values; the model's are {} wide", file.path(),
                                 width / 2, width));
  }
  {
    auto values = rows(6);
    values[static_cast<size_t>(3 * width)] = NAN;
    const RowsFile file(shape(6), values);
    EXPECT_EQ(error(file.path()),
              what + "tensor links of " + file.path() + ": the rows of document 1 hold NaN or infinity");
  }
  EXPECT_NE(error("/nowhere/rows.safetensors"), "");
  EXPECT_NE(error("/nowhere/rows.gguf"), "");
}

}  // namespace
}  // namespace millrace
