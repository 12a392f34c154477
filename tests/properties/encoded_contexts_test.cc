// Documents of a context in a KV cache that a codec encodes: bits do not depend on whether a document was computed or
// copied, on chunks, threads, other streams, drafts or preemption; where a codec leaves all rows raw they are those of
// F16; and rows that are put into a stream become the tiles that a pass which computes them makes.
#include <cmath>

#include "properties/costed_executor.h"
#include "properties/document_requests.h"
#include "properties/preempted_run.h"
#include "run/plan/kv_places.h"

namespace millrace {
namespace {

using namespace testing;

struct EncodedContextCase {
  std::string context, kv_format, model;
  Isa isa;
  std::string evictor = {};
};

class PlacedContexts : public ::testing::TestWithParam<EncodedContextCase> {
 protected:
  void SetUp() override {
    WithIsa scope(GetParam().isa);
    auto model = LanguageModel::load(golden_model(GetParam().model), {.threads = 1, .context = 256});
    ASSERT_TRUE(model.ok()) << model.error().message;
    model_ = *model;
    vocab_ = model_->info().vocab;
    documents_ = {text(1, 53), text(2, 33), text(3, 64)};
    question_ = text(4, 9);
    alone_ = run_one(encoded(), request());
    ASSERT_EQ(alone_.logits.size(), 6u);
    if (GetParam().evictor.empty()) return;
    EngineOptions all = encoded();
    all.evictor = "";
    ASSERT_FALSE(run_one(all, request()).same_bits(alone_)) << "the evictor drops nothing";
  }
  std::vector<TokenId> text(int64_t seed, int64_t tokens) const { return make_request(seed, tokens, 1, vocab_).prompt; }
  EngineOptions encoded(EngineOptions o = options()) const {
    o.context = 256;
    o.document_context = GetParam().context;
    o.kv_format = GetParam().kv_format;
    o.evictor = GetParam().evictor;
    return o;
  }
  Request request() const { return document_request(documents_, question_); }
  Request turned() const { return document_request({documents_[2], documents_[0], documents_[1]}, question_); }
  // Of the documents that are placed: what a context computes in place does not count.
  int64_t placed_tokens() const {
    int64_t tokens = 0;
    for (const auto& document : documents_) tokens += std::ssize(document);
    return tokens - (GetParam().context.starts_with("epic") ? 2 * 5 : 0);
  }
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
  Shown alone_;
};

TEST_P(PlacedContexts, BitsDoNotDependOnHowTheyAreComputed) {
  for (const int threads : {2, 3}) EXPECT_TRUE(run_one(encoded(options(threads)), request()).same_bits(alone_));
  for (const int64_t chunk : {1, 7, 33}) {
    EngineOptions o = encoded(options(1, chunk));
    o.max_streams = 1;
    EXPECT_TRUE(run_one(o, request()).same_bits(alone_)) << chunk;
  }
}

TEST_P(PlacedContexts, ADocumentIsReusedWhereverItStands) {
  const EngineOptions o = encoded(options(1, 40));
  const Shown cold = run_one(o, turned());
  EXPECT_EQ(cold.cached, 0);
  EXPECT_FALSE(cold.same_bits(alone_));
  auto core = make_core(model_, o);
  EXPECT_EQ(run_one(*core, request(), 1).cached, 0);
  const Shown warm = run_one(*core, turned(), 2);
  EXPECT_TRUE(warm.same_bits(cold));
  if (!GetParam().context.starts_with("epic")) {
    EXPECT_EQ(warm.cached, placed_tokens());
  }
  const Shown again = run_one(*core, request(), 3);  // what is kept is as it was
  EXPECT_TRUE(again.same_bits(alone_));
  EXPECT_EQ(again.cached, placed_tokens());
  Request apart = request();
  apart.cache_prompt = false;
  const Shown uncached = run_one(*core, apart, 4);
  EXPECT_TRUE(uncached.same_bits(alone_));
  EXPECT_EQ(uncached.cached, 0);
  apart = request();
  apart.tenant = "other";
  EXPECT_EQ(run_one(*core, apart, 5).cached, 0);
}

TEST_P(PlacedContexts, BitsDoNotDependOnOtherStreams) {
  EngineOptions without = encoded();
  without.document_context = "";
  const Shown plain = run_one(without, make_request(5, 90, 12, vocab_));
  auto core = make_core(model_, encoded(options(2, 40)));
  ASSERT_TRUE(core->add(2, make_request(5, 90, 12, vocab_)).ok());
  ASSERT_TRUE(core->add(1, request()).ok());
  ASSERT_TRUE(core->add(3, turned()).ok());
  auto shown = run_all(*core, vocab_);
  EXPECT_TRUE(shown[1].same_bits(alone_));
  EXPECT_TRUE(shown[2].same_bits(plain));
  EXPECT_TRUE(shown[3].same_bits(run_one(encoded(), turned())));
}

TEST_P(PlacedContexts, PreemptedStreamsHaveTheSameBits) {
  if (!GetParam().evictor.empty()) return;  // streams shrink, and none is preempted
  for (const int64_t swap : {0, 4096}) {
    EngineOptions o = encoded(options(1, 24));
    o.kv_tokens = 448;
    o.kv_tier = memory_tier(swap);
    o.max_streams = 4;
    o.policy = "fcfs:reserve=prompt";
    auto executor = CpuExecutor::create(model_, o);
    ASSERT_TRUE(executor.ok()) << executor.error().message;
    auto made = EngineCore::create(std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{1, 1e-3, 1}), o);
    ASSERT_TRUE(made.ok()) << made.error().message;
    EngineCore* const core = made->get();
    for (const RequestId id : {1, 2, 3, 4}) {
      Request r = request();
      r.max_tokens = 80;
      ASSERT_TRUE(core->add(id, r).ok());
    }
    auto shown = run_all(*core, vocab_);
    EXPECT_GT(core->stats().preemptions, 0);
    EXPECT_EQ(core->stats().swapped_out_tokens > 0, swap > 0);
    EXPECT_EQ(core->stats().states_free, core->stats().states);
    for (const RequestId id : {1, 2, 3, 4}) {
      ASSERT_EQ(shown[id].logits.size(), 80u);
      shown[id].logits.resize(6);
      shown[id].tokens.resize(6);
      EXPECT_TRUE(shown[id].same_bits(alone_)) << id;
    }
  }
}

// While documents are put, while the question is computed, and while it answers.
TEST_P(PlacedContexts, PreemptedAtAnyStageTheyContinue) {
  for (const bool swapped : {false, true})
    for (const int64_t every : {2, 5, 9}) {
      EngineOptions o = encoded(options(1, 24));
      o.kv_tier = memory_tier(swapped ? 4096 : 0);
      auto core = make_core(model_, o);
      ASSERT_TRUE(core->add(1, request()).ok());
      EXPECT_EQ(tokens_when_preempted(*core, every, swapped), alone_.tokens) << every << " " << swapped;
      EXPECT_EQ(core->stats().states_free, core->stats().states);
    }
}

// Rows of fewer documents than a prompt has: the others are computed again, with the same bits.
TEST_P(PlacedContexts, RoomForOneDocumentIsEnough) {
  EngineOptions o = encoded(options(1, 40));
  o.document_tokens = 80;
  auto core = make_core(model_, o);
  EXPECT_TRUE(run_one(*core, request(), 1).same_bits(alone_));
  ASSERT_TRUE(core->add(2, request()).ok());
  ASSERT_TRUE(core->add(3, turned()).ok());
  auto shown = run_all(*core, vocab_);
  EXPECT_TRUE(shown[2].same_bits(alone_));
  EXPECT_TRUE(shown[3].same_bits(run_one(encoded(), turned())));
}

TEST_P(PlacedContexts, CancelledStreamsLeaveNothing) {
  auto core = make_core(model_, encoded(options(1, 20)));
  ASSERT_TRUE(core->add(1, request()).ok());
  std::vector<TokenEvent> events;
  for (int i = 0; i < 4; ++i) core->step(events);
  EXPECT_TRUE(core->check_blocks().ok());
  core->cancel(1);
  while (!core->idle()) core->step(events);
  EXPECT_TRUE(core->check_blocks().ok());
  EXPECT_EQ(core->stats().states_free, core->stats().states);
  EXPECT_TRUE(run_one(*core, request(), 2).same_bits(alone_));
}

TEST_P(PlacedContexts, ARequestMayChooseForItself) {
  Request none = request(), own = request();
  none.document_context = "none";
  EngineOptions plain = encoded();
  plain.document_context = "";
  EXPECT_TRUE(run_one(encoded(), none).same_bits(run_one(plain, request())));
  own.document_context = GetParam().context;
  own.n = 2;
  EngineOptions other = encoded();
  other.document_context = "independent";
  auto core = make_core(model_, other);
  ASSERT_TRUE(core->add(1, own).ok());
  auto shown = run_all(*core, vocab_);
  for (const int64_t answer : {0, 1}) EXPECT_TRUE(shown[answer_stream(1, answer)].logits == alone_.logits) << answer;
}

TEST_P(PlacedContexts, DraftsDoNotChangeAnswers) {
  Request r = request();
  r.max_tokens = 40;
  r.sampling.temperature = 0;
  EngineOptions o = encoded();
  const Shown expected = run_one(o, r);
  o.drafter = "ngram:k=4";
  EXPECT_EQ(run_one(o, r).tokens, expected.tokens);
}

// Without a start token the first document begins at the first slot.
TEST_P(PlacedContexts, ADocumentAtTheBeginning) {
  const auto begin_at_once = [](Request request) {
    request.prompt.erase(request.prompt.begin());
    for (PromptDocument& document : request.documents) --document.begin, --document.end;
    return request;
  };
  const EngineOptions o = encoded(options(1, 16));
  const Shown cold = run_one(o, begin_at_once(turned()));
  EXPECT_TRUE(run_one(encoded(), begin_at_once(turned())).same_bits(cold));
  auto core = make_core(model_, o);
  run_one(*core, begin_at_once(request()), 1);
  EXPECT_TRUE(run_one(*core, begin_at_once(turned()), 2).same_bits(cold));
}

std::vector<EncodedContextCase> encoded_context_cases() {
  std::vector<EncodedContextCase> cases;
  for (const Isa isa : isa_levels())
    for (const char* kv : {"kivi", "kvquant:group=32", "quarot_kv:bits=3"})
      cases.push_back({"kvlink", kv, "llama3", isa});
  const Isa isa = *select_isa();
  for (const char* kv : {"kivi:bits=4,residual=20", "turboquant:bits=3", "flexgen_kv", "atom_kv:residual=20"})
    cases.push_back({"kvlink", kv, "llama3", isa});
  for (const char* model : {"gemma3", "smollm3", "phi3_longrope_short"})
    cases.push_back({"kvlink", "kivi:bits=4", model, isa});
  cases.push_back({"kvlink", "kvquant:group=32", "gemma3", isa});
  for (const char* context : {"independent", "epic:recompute=5"})
    for (const char* kv : {"kivi", "kvquant:group=32"}) cases.push_back({context, kv, "llama3", isa});
  for (const char* kv : {"kivi", "quarot_kv:bits=3"}) cases.push_back({"ape", kv, "llama3", isa});
  for (const char* kv : {"kivi:bits=4,residual=20", "kvquant:group=32"})
    cases.push_back({"entropy:top=2", kv, "llama3", isa});
  cases.push_back({"ape", "kivi:bits=4", "gemma3", isa});
  return cases;
}

std::string encoded_context_name(const ::testing::TestParamInfo<EncodedContextCase>& test) {
  std::string name = test.param.context + "_" + test.param.kv_format + "_" + test.param.model + "_";
  name += isa_label(test.param.isa);
  for (char& c : name)
    if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, PlacedContexts, ::testing::ValuesIn(encoded_context_cases()), encoded_context_name);

// With an evictor that drops tokens of the documents from encoded blocks.
INSTANTIATE_TEST_SUITE_P(
    Evicted, PlacedContexts,
    ::testing::Values(EncodedContextCase{"kvlink", "kivi:bits=4", "llama3", *select_isa(), "h2o:budget=80,slack=5"},
                      EncodedContextCase{"kvlink", "kivi", "smollm3", *select_isa(),
                                         "streamingllm:sinks=4,window=66,slack=3,prompt=evicted"},
                      EncodedContextCase{"ape:T=0.8,S=0.7", "quarot_kv:bits=3", "llama3", *select_isa(),
                                         "snapkv:budget=70,window=8,kernel=5,slack=5,scope=head"},
                      EncodedContextCase{"entropy:top=2", "kivi:bits=4,residual=20", "llama3", *select_isa(),
                                         "tova:budget=80,slack=4,scope=layer"},
                      EncodedContextCase{"kvlink", "kivi:bits=4,residual=20", "llama3", *select_isa(),
                                         "key_norm:budget=80,recent=8,slack=5"},
                      EncodedContextCase{"ape:T=0.8,S=0.7", "quarot_kv:bits=3", "smollm3", *select_isa(),
                                         "key_norm:budget=70,slack=4,scope=layer,prompt=evicted"},
                      EncodedContextCase{"epic:recompute=5", "turboquant:bits=3", "llama3", *select_isa(),
                                         "h2o:budget=70,slack=5,prompt=evicted"}),
    encoded_context_name);

struct RawCase {
  std::string context, model;
};

class RawContexts : public ::testing::TestWithParam<RawCase> {};

// With a residual as long as the prompt nothing is read encoded.
TEST_P(RawContexts, AreThoseOfF16) {
  auto loaded = LanguageModel::load(golden_model(GetParam().model), {.threads = 1, .context = 256});
  ASSERT_TRUE(loaded.ok());
  const int64_t vocab = (*loaded)->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  const Request request = document_request({text(1, 53), text(2, 33), text(3, 64)}, text(4, 9));
  EngineOptions o = options(2, 50);
  o.context = 256;
  o.document_context = GetParam().context;
  const auto run = [&](const char* format) {
    o.kv_format = format;
    auto core = make_core(*loaded, o);
    EXPECT_TRUE(core->add(1, request).ok());
    return run_all(*core, vocab)[1];
  };
  const Shown rows = run("f16");
  EXPECT_TRUE(run("kivi:bits=2,residual=256").same_bits(rows));
  EXPECT_TRUE(run("flexgen_kv:residual=256").same_bits(rows));
  EXPECT_FALSE(run("kivi:bits=2").same_bits(rows));
}

std::vector<RawCase> raw_cases() {
  std::vector<RawCase> cases;
  for (const char* context : {"kvlink", "independent", "epic:recompute=5", "ape", "entropy:top=2"})
    for (const char* model : {"llama3", "gemma3", "smollm3"}) cases.push_back({context, model});
  cases.push_back(
      {"kvlink:links=2,link_token=7", "qwen2"});  // which stand between documents, and see those before them
  return cases;
}

INSTANTIATE_TEST_SUITE_P(All, RawContexts, ::testing::ValuesIn(raw_cases()), [](const auto& test) {
  return test.param.context.substr(0, test.param.context.find(':')) + "_" + test.param.model;
});

// Documents are computed with the adapters of their request, and shared with requests that have the same.
TEST(PlacedContextAdapters, DocumentsAreThoseOfTheAdapters) {
  auto loaded = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 256});
  ASSERT_TRUE(loaded.ok());
  const int64_t vocab = (*loaded)->info().vocab;
  const auto text = [&](int64_t seed, int64_t tokens) { return make_request(seed, tokens, 1, vocab).prompt; };
  EngineOptions o = options(2, 50);
  o.context = 256;
  o.document_context = "kvlink";
  o.adapters = {"one=" + std::string(MILLRACE_SOURCE_DIR) + "/tests/golden/lora/llama3"};
  const auto run = [&](const char* format) {
    o.kv_format = format;
    std::vector<Shown> out;
    auto core = make_core(*loaded, o);
    for (const std::vector<AdapterUse>& adapters : {std::vector<AdapterUse>{}, {{"one"}}, {}, {{"one"}}}) {
      Request request = document_request({text(1, 53), text(2, 33)}, text(4, 9));
      request.adapters = adapters;
      const auto id = static_cast<RequestId>(out.size() + 1);
      EXPECT_TRUE(core->add(id, request).ok());
      out.push_back(run_all(*core, vocab)[id]);
    }
    return out;
  };
  const std::vector<Shown> rows = run("f16"), raw = run("kivi:bits=2,residual=256");
  for (size_t i = 0; i < rows.size(); ++i) EXPECT_TRUE(raw[i].same_bits(rows[i])) << i;
  EXPECT_FALSE(raw[0].same_bits(raw[1]));
  EXPECT_EQ(raw[1].cached, 0);
  EXPECT_EQ(raw[3].cached, 86);
}

// ---- rows that are put into a stream ----

constexpr int64_t kRows = 100;

// A model over a pool of its own, with tables of blocks for two streams.
struct PoolRunner {
  std::unique_ptr<ModelRunner> runner;
  std::vector<BlockId> tables[2];

  PoolRunner(const LanguageModel& model, KvLayout layout) {
    auto made = ModelRunner::create(*model.parts().model, model.parts().kernels,
                                    {.threads = model.parts().threads->get(1),
                                     .layout = std::move(layout),
                                     .blocks = 2 * kRows,
                                     .limits = {.tokens = 128, .outputs = 1, .context = 256},
                                     .streams = 2});
    EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
    runner = std::move(*made);
    for (auto& table : tables)
      for (int64_t i = 0; i < runner->kv().blocks_for(kRows); ++i) table.push_back(runner->kv().allocate().value());
  }
  KvPool& kv() { return runner->kv(); }
  void begin(int stream, int64_t first, int64_t count, const std::vector<TokenId>& tokens, int64_t position = 0) {
    runner->start();
    runner->begin(tables[stream], first, nullptr, stream);
    for (int64_t i = first; i < first + count; ++i) runner->add(tokens[static_cast<size_t>(i)], position + i);
  }
  // In pieces, whose borders are not those of blocks.
  void put(int stream, PoolRunner& from, const std::vector<TokenId>& tokens, int64_t positions) {
    int64_t first = 0;
    for (const int64_t count : {1, 40, 7, 52}) {
      begin(stream, first, count, tokens);
      runner->put_keys({from.kv(), from.tables[0], first, positions});
      first += count;
    }
  }
  // Bytes of all whole blocks, or of the raw rows in the tail.
  std::vector<uint8_t> tiles(int stream) {
    std::vector<uint8_t> out;
    for (int64_t layer = 0; layer < std::ssize(kv().layout().layers); ++layer)
      for (int64_t block = 0; block < kRows / kv().layout().block_tokens; ++block)
        for (int64_t h = 0; h < kv().layout().layers[static_cast<size_t>(layer)].kv_heads; ++h)
          for (int64_t kind = 0; kind < 2; ++kind) {
            const uint8_t* tile = kv().plane(layer, tables[stream][static_cast<size_t>(block)], kind, h);
            out.insert(out.end(), tile, tile + kv().tile_bytes(layer));
          }
    return out;
  }
  std::vector<uint8_t> tail(int stream) {
    std::vector<uint8_t> out;
    for (int64_t layer = 0; layer < std::ssize(kv().layout().layers); ++layer)
      for (int64_t plane = 0; plane < 2 * kv().layout().layers[static_cast<size_t>(layer)].kv_heads; ++plane) {
        const uint8_t* rows = kv().tail(layer, stream) + plane * kv().layout().tail_tokens * kv().row_bytes(layer);
        out.insert(out.end(), rows, rows + kRows * kv().row_bytes(layer));
      }
    return out;
  }
};

class PutRows : public ::testing::Test {
 protected:
  void SetUp() override {
    model_ = load_for(golden_model("smollm3"), *select_isa());  // some of whose layers do not rotate
    ASSERT_TRUE(model_);
    tokens_ = make_request(3, kRows, 1, model_->info().vocab).prompt;
  }
  KvLayout rows() const { return {find_format("f16"), 16, model_->parts().model->kv_layers()}; }
  KvLayout encoded(const char* codec) const {
    KvLayout layout = rows();
    layout.encode_with(find_kv_codec(codec).value());
    return layout;
  }
  std::shared_ptr<const LanguageModel> model_;
  std::vector<TokenId> tokens_;
};

// With a residual that leaves all rows raw, a pass computes the same keys and values as in F16.
TEST_F(PutRows, BecomeTheTilesOfAPassThatComputesThem) {
  PoolRunner from(*model_, rows());
  from.begin(0, 0, kRows, tokens_);
  from.runner->forward();
  for (const char* codec :
       {"kivi:residual=128", "kivi:bits=4,residual=128", "kvquant:group=32,residual=128", "flexgen_kv:residual=128"}) {
    PoolRunner to(*model_, encoded(codec));
    to.begin(0, 0, kRows, tokens_);
    to.runner->forward();
    to.put(1, from, tokens_, 0);
    EXPECT_EQ(to.tiles(0), to.tiles(1)) << codec;
    EXPECT_EQ(to.tail(0), to.tail(1)) << codec;
  }
}

TEST_F(PutRows, KeysMoveBeforeTheyAreEncoded) {
  for (const char* codec : {"kivi", "kvquant:group=32", "atom_kv"}) {
    PoolRunner from(*model_, rows()), to(*model_, encoded(codec));
    from.begin(0, 0, kRows, tokens_);
    from.runner->forward();
    to.put(0, from, tokens_, 40);
    from.runner->move_keys(from.tables[0], 0, kRows, 40);
    to.put(1, from, tokens_, 0);
    EXPECT_EQ(to.tiles(0), to.tiles(1)) << codec;
    to.put(1, from, tokens_, 40);
    EXPECT_NE(to.tiles(0), to.tiles(1)) << codec;
  }
}

// Beside keys that were computed at the new positions: half a level, and what a move in F16 costs. In the first layer;
// the others read keys that were rounded at other positions.
TEST_F(PutRows, AreOneRoundingFromKeysOfTheirPositions) {
  constexpr int64_t kMoved = 40;
  PoolRunner from(*model_, rows()), there(*model_, rows()), to(*model_, encoded("kivi:bits=4"));
  from.begin(0, 0, kRows, tokens_);
  from.runner->forward();
  there.begin(0, 0, kRows, tokens_, kMoved);
  there.runner->forward();
  to.put(0, from, tokens_, kMoved);
  const KvLayer& layer = to.kv().layout().layers[0];
  const int64_t block_tokens = to.kv().layout().block_tokens, dim = layer.head_dim;
  const KernelTable& kernels = model_->parts().kernels;
  const RowCodec& f16 = *kernels.find_codec(find_format("f16"));
  std::vector<uint8_t> halves(static_cast<size_t>(2 * block_tokens * dim));
  std::vector<float> loaded(static_cast<size_t>(block_tokens * dim)), exact = loaded;
  for (int64_t block = 0; block < kRows / block_tokens; ++block)
    for (int64_t h = 0; h < layer.kv_heads; ++h) {
      to.kv().layout().codec->load(KvPart::keys, kernels, to.kv().keys(0, to.tables[0][static_cast<size_t>(block)], h),
                                   block_tokens, dim, halves.data());
      f16.decode(halves.data(), loaded.data(), block_tokens * dim);
      float largest = 0;
      for (int64_t i = 0; i < block_tokens; ++i) {
        const int64_t slot = block * block_tokens + i;
        const BlockId id = there.tables[0][static_cast<size_t>(slot / 16)];
        f16.decode(there.kv().keys(0, id, h) + slot % 16 * there.kv().row_bytes(0), exact.data() + i * dim, dim);
      }
      for (const float value : exact) largest = std::max(largest, std::abs(value));
      for (int64_t d = 0; d < dim; ++d) {
        float low = INFINITY, high = -INFINITY, furthest = 0;
        for (int64_t i = 0; i < block_tokens; ++i) {
          const auto at = static_cast<size_t>(i * dim + d);
          low = std::min(low, exact[at]), high = std::max(high, exact[at]);
          furthest = std::max(furthest, std::abs(exact[at] - loaded[at]));
        }
        EXPECT_LE(furthest, (high - low) / 30 + 4e-3 * largest) << block << " " << h << " " << d;
      }
    }
}

}  // namespace
}  // namespace millrace
