// Evictors whose tokens the gates of a checkpoint choose, in the engine: the same bits whatever else is in the batch
// and however soon memory is given back, plain ones where every gate is open, and memory that follows what the gates
// keep. tests/properties/gate_reference_test.cc compares them with an independent reference.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "kv/token_eviction.h"
#include "loader/model_files.h"
#include "properties/evictor_runs.h"

namespace millrace {
namespace {

using namespace testing;

class GateEvictors : public EvictorRuns {
 protected:
  // With these options, which change memory alone, in place of its own.
  std::string with(const std::string& rest) const {
    std::string evictor = GetParam().evictor;
    if (const size_t own = evictor.find("slack="); own != std::string::npos) evictor.resize(own - 1);
    return evictor + (evictor.find(':') == std::string::npos ? ":" : ",") + rest;
  }
};

TEST_P(GateEvictors, ChangeTheAnswer) { change_the_answer(); }

TEST_P(GateEvictors, ThreadsBlocksAndChunksDoNotShow) { threads_blocks_and_chunks_do_not_show(); }

TEST_P(GateEvictors, BatchMatesDoNotShow) {
  mates_do_not_show({"", "none", "streamingllm:sinks=1,window=7,slack=3", "h2o:budget=9,slack=2,scope=head",
                     "spatten:keep=12,final=5,slack=2", "adaptively_sparse:slack=3", "seqboat:window=4"});
}

TEST_P(GateEvictors, EachAnswerIsThatOfItsOwnRequest) { each_answer_is_that_of_its_own_request(); }

TEST_P(GateEvictors, DraftsDoNotShow) { drafts_do_not_show({"ngram:n=2,min=1,k=2", "ngram:n=2,min=1,k=9"}); }

TEST_P(GateEvictors, PreemptedAtAnyStageTheyContinue) { preempted_at_any_stage_they_continue(); }

TEST_P(GateEvictors, ScoringSeesThem) { scoring_sees_them(101); }

// What gates have ended is not seen, whether or not it is still stored.
TEST_P(GateEvictors, WhenMemoryIsGivenBackDoesNotShow) {
  const Shown alone = run_one(evicting(options()), request(1));
  for (const char* rest : {"slack=1", "slack=100", "slack=1,prompt=evicted", "slack=7,prompt=evicted"})
    EXPECT_TRUE(run_one(evicting(options(2, 33, 4), with(rest)), request(1)).same_bits(alone)) << rest;
}

// Blocks of one token: after a decision a stream holds no more than stays.
TEST_P(GateEvictors, DroppedTokensGiveBackTheirBlocks) {
  auto core = make_core(model_, evicting(options(1, 16, 1), with("slack=1,prompt=evicted")));
  ASSERT_TRUE(core->add(1, request(1)).ok());
  std::vector<TokenEvent> events;
  int64_t held = 0;
  while (!core->idle()) {
    core->step(events);
    ASSERT_TRUE(core->check_blocks().ok());
    const EngineSnapshot snapshot = core->snapshot();
    if (snapshot.streams.empty()) break;
    held = core->kv().total_blocks() - core->kv().free_blocks();
    EXPECT_EQ(snapshot.streams[0].blocks, held);
  }
  const RequestTimings& timings = events.back().timings;
  EXPECT_EQ(timings.kept_tokens + timings.evicted_tokens, 109);
  EXPECT_GT(timings.evicted_tokens, 10);
  EXPECT_LE(held, (timings.kept_tokens + 1) * layers_);
  EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
}

// Streams of every kind in little memory: preempted, computed again, and with the bits of each one alone.
TEST_P(GateEvictors, PreemptionsDoNotShow) {
  std::map<RequestId, Request> requests;
  std::map<RequestId, Shown> alone;
  for (int64_t i = 1; i <= 7; ++i) {
    Request r = request(20 + i, 4 + 9 * i, 50);
    if (i % 4 == 2) r.evictor = "none";
    const auto id = static_cast<RequestId>(i);
    alone[id] = run_one(evicting(options()), r);
    requests[id] = std::move(r);
  }
  EngineOptions o = evicting(options(2, 40, 4));
  o.kv_tokens = 124;
  o.policy = "fcfs:reserve=prompt";
  auto core = make_core(model_, o);
  for (const auto& [id, r] : requests) ASSERT_TRUE(core->add(id, r).ok());
  const auto shown = run_all(*core, vocab_);
  for (const auto& [id, r] : requests) EXPECT_TRUE(shown.at(id).same_bits(alone.at(id))) << id;
  EXPECT_GT(core->stats().preemptions, 0);
  EXPECT_EQ(core->kv().free_blocks(), core->kv().total_blocks());
}

INSTANTIATE_TEST_SUITE_P(Members, GateEvictors,
                         ::testing::Values(EvictorCase{"adaptively_sparse", "gates"},
                                           EvictorCase{"adaptively_sparse:slack=5,prompt=evicted", "gates"},
                                           EvictorCase{"seqboat", "gates"},
                                           EvictorCase{"seqboat:window=9,slack=6,prompt=evicted", "gates"}),
                         case_name);

// The model with other numbers in the tensors of these names.
class ChangedGates : public ::testing::Test {
 protected:
  std::shared_ptr<const LanguageModel> changed(const std::map<std::string, std::vector<float>>& values) {
    namespace fs = std::filesystem;
    const std::string path = ::testing::TempDir() + "/changed_gates.gguf";
    fs::copy_file(golden_model("gates"), path, fs::copy_options::overwrite_existing);
    const auto files = open_model_files(golden_model("gates"));
    EXPECT_TRUE(files.ok());
    std::fstream out(path, std::ios::in | std::ios::out | std::ios::binary);
    for (int64_t layer = 0; layer < 3; ++layer)
      for (const auto& [name, numbers] : values) {
        const StoredTensor* tensor = files->find(fmt::format("blk.{}.{}", layer, name));
        EXPECT_EQ(tensor->tensor.bytes, std::ssize(numbers) * 4);
        out.seekp(static_cast<std::streamoff>(tensor->offset));
        out.write(reinterpret_cast<const char*>(numbers.data()), tensor->tensor.bytes);
      }
    out.close();
    auto model = load_for(path, *select_isa());
    fs::remove(path);
    return model;
  }
  static Shown run(const std::shared_ptr<const LanguageModel>& model, const std::string& evictor, const Request& r,
                   int64_t* evicted = nullptr) {
    EngineOptions o = options(2, 20);
    o.evictor = evictor;
    auto core = make_core(model, o);
    EXPECT_TRUE(core->add(1, r).ok());
    Shown shown = run_all(*core, model->info().vocab)[1];
    if (evicted) *evicted = core->stats().evicted_tokens;
    EXPECT_EQ(core->kv().free_blocks() + core->stats().kv_blocks_cached, core->kv().total_blocks());
    return shown;
  }
};

TEST_F(ChangedGates, OpenOnesArePlain) {
  const auto open = changed({{"attn_int.bias", {1e6f}}, {"attn_select.bias", {0, 1e6f}}});
  ASSERT_TRUE(open);
  const Request r = make_request(1, 50, 60, open->info().vocab);
  const Shown plain = run(open, "", r);
  for (const char* evictor :
       {"adaptively_sparse", "adaptively_sparse:slack=3,prompt=evicted", "seqboat", "seqboat:window=109,slack=3"}) {
    int64_t evicted = 1;
    EXPECT_TRUE(run(open, evictor, r, &evicted).same_bits(plain)) << evictor;
    EXPECT_EQ(evicted, 0) << evictor;
  }
}

// With closed gates a token sees itself alone, or nothing at all, so that an answer depends on the last token only.
TEST_F(ChangedGates, ClosedOnesForgetTheText) {
  const auto closed = changed({{"attn_int.bias", {-1e6f}}, {"attn_select.bias", {0, -1e6f}}});
  ASSERT_TRUE(closed);
  for (const char* evictor : {"adaptively_sparse:slack=4", "seqboat:slack=4,prompt=evicted", "seqboat:window=3"}) {
    Request r = make_request(1, 50, 20, closed->info().vocab);
    int64_t evicted = 0;
    const Shown one = run(closed, evictor, r, &evicted);
    EXPECT_GT(evicted, 50) << evictor;
    for (size_t i = 0; i + 1 < r.prompt.size(); ++i) r.prompt[i] ^= 1;
    EXPECT_TRUE(run(closed, evictor, r).same_bits(one)) << evictor;
  }
}

// Whatever of a checkpoint's gates is missing, not finite or not alike, the model is not loaded.
TEST(BrokenGates, AreRefusedByName) {
  namespace fs = std::filesystem;
  const std::string path = ::testing::TempDir() + "/broken_gates.gguf";
  const auto refusal = [&](auto&& edit) {
    std::ifstream in(golden_model("gates"), std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    edit(bytes);
    std::ofstream(path, std::ios::binary) << bytes;
    const auto model = LanguageModel::load(path, {.threads = 1});
    return model.ok() ? std::string() : model.error().message.substr(path.size());
  };
  const auto rename = [](std::string& bytes, std::string_view from, char last) {
    const size_t at = bytes.find(from);
    ASSERT_NE(at, std::string::npos);
    bytes[at + from.size() - 1] = last;
  };
  EXPECT_EQ(refusal([](std::string&) {}), "");
  EXPECT_EQ(refusal([&](std::string& bytes) { rename(bytes, "blk.1.attn_int_k.weight", 'x'); }),
            ": tensor blk.1.attn_int_k.weight is missing");
  EXPECT_EQ(refusal([&](std::string& bytes) { rename(bytes, "blk.2.attn_select.weight", 'x'); }),
            ": tensor blk.2.attn_select.weight is missing");
  EXPECT_EQ(refusal([&](std::string& bytes) {
              for (const char* name : {"blk.2.attn_int_q.weight", "blk.2.attn_int_k.weight", "blk.2.attn_int.bias"})
                rename(bytes, name, 'x');
            }),
            ": layers 0 and 2 have gates of different kinds or sizes; all need the same");
  const auto files = open_model_files(golden_model("gates"));
  ASSERT_TRUE(files.ok());
  const StoredTensor* bias = files->find("blk.0.attn_int.bias");
  const std::string nan = refusal([&](std::string& bytes) { bytes.replace(bias->offset, 4, "\x00\x00\xc0\x7f", 4); });
  EXPECT_NE(nan.find("blk.0.attn_int.bias"), std::string::npos) << nan;
  EXPECT_NE(nan.find("holds NaN or infinity"), std::string::npos) << nan;
  fs::remove(path);
}

// The selected tokens, which a window bounds: a pool for what the layers store, no more.
TEST(GateEvictorMemory, AWindowBoundsWhatAStreamStores) {
  const auto model = load_for(golden_model("gates"), *select_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options(1, 16, 4);
  o.evictor = "seqboat:window=9,slack=6,prompt=evicted";
  o.kv_tokens = 0;
  o.max_streams = 1;
  auto core = make_core(model, o);
  EXPECT_EQ(core->kv().total_blocks(), 3 * 4);  // of each of three layers: 16 tokens in blocks of 4
  const Request r = make_request(1, 50, 60, model->info().vocab);
  ASSERT_TRUE(core->add(1, r).ok());
  ASSERT_TRUE(core->add(2, r).ok());
  const auto shown = run_all(*core, model->info().vocab);
  EXPECT_EQ(shown.at(1).tokens.size(), 60u);
  EXPECT_TRUE(shown.at(2).same_bits(shown.at(1)));
  EXPECT_EQ(core->stats().preemptions, 0);
}

TEST(GateEvictorRefusals, NameTheReason) {
  const auto refusal = [&](const char* model, auto&& edit) {
    EngineOptions o = options();
    o.evictor = "adaptively_sparse";
    edit(o);
    const auto core = EngineCore::create(load_for(golden_model(model), *select_isa()), o);
    return core.ok() ? std::string() : core.error().message;
  };
  const auto none = [](EngineOptions&) {};
  EXPECT_EQ(refusal("gates", none), "");
  EXPECT_EQ(refusal("llama3", none),
            "evictor adaptively_sparse does not go with this model: it has no gates between tokens (attn_int_q, "
            "attn_int_k and attn_int of "
            "each layer), which must be trained with it; choose another evictor");
  EXPECT_EQ(refusal("llama3", [](EngineOptions& o) { o.evictor = "seqboat:window=3"; }),
            "evictor seqboat:window=3 does not go with this model: it has no gates that select tokens (attn_select of "
            "each layer), which "
            "must be trained with it; choose another evictor");
  EXPECT_EQ(refusal("gates", [](EngineOptions& o) { o.drafter = "self:k=3,mlp=1,p=0"; }),
            "evictor adaptively_sparse does not go with drafter self: gates choose in whole passes, and its drafts "
            "skip layers; "
            "use ngram, or no drafter");
  const auto scorer =
      Scorer::create(load_for(golden_model("llama3"), *select_isa()), {.context = 64, .evictor = "seqboat"});
  ASSERT_FALSE(scorer.ok());
  EXPECT_NE(scorer.error().message.find("no gates that select tokens"), std::string::npos);
  // A request may choose them in an engine whose layers have blocks of their own.
  const auto model = load_for(golden_model("gates"), *select_isa());
  EngineOptions o = options();
  o.evictor = "spatten:keep=20,final=10";
  Request r = make_request(2, 10, 10, model->info().vocab);
  r.evictor = "seqboat:window=4";
  EXPECT_TRUE(make_core(model, o)->check(r).ok());
  o.evictor = "h2o:budget=20";
  EXPECT_FALSE(make_core(model, o)->check(r).ok());
}

}  // namespace
}  // namespace millrace
