// Attention in worker processes: every stream has the bits of attention in place, and a worker that ends takes the
// streams whose keys it held, and nothing else. The program of the workers is millrace, next to this test.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>

#include "attention/workers/workers.h"
#include "base/system.h"
#include "models/model_runner.h"
#include "properties/stream_bits.h"

namespace millrace {
namespace {

using namespace testing;

// Workers are processes of the program, which not every build of these tests has.
bool has_program() { return std::filesystem::exists(std::filesystem::path(program_path()).parent_path() / "millrace"); }

#define MILLRACE_NEEDS_PROGRAM() \
  if (!has_program()) GTEST_SKIP() << "the program millrace is not next to this one"

EngineOptions with_workers(const std::string& how, EngineOptions o) {
  o.kernels = {"fastdecode:" + how};
  return o;
}

// Streams of several lengths at once, then one whose prompt begins with a cached one.
std::map<RequestId, Shown> run_mixed(const std::shared_ptr<const LanguageModel>& model, const EngineOptions& options) {
  const int64_t vocab = model->info().vocab;
  auto core = make_core(model, options);
  for (int64_t i = 0; i < 5; ++i)
    EXPECT_TRUE(core->add(static_cast<RequestId>(i), make_request(i, 3 + 20 * i, 10, vocab)).ok());
  auto shown = run_all(*core, vocab);
  Request again = make_request(4, 83, 10, vocab);
  EXPECT_TRUE(core->add(9, std::move(again)).ok());
  shown.merge(run_all(*core, vocab));
  return shown;
}

void expect_equal(const std::map<RequestId, Shown>& a, const std::map<RequestId, Shown>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [id, shown] : a) {
    EXPECT_EQ(shown.tokens.size(), 10u);
    EXPECT_TRUE(shown.same_bits(b.at(id))) << id;
    EXPECT_EQ(shown.cached, b.at(id).cached) << id;
  }
}

class WorkerModels : public ::testing::TestWithParam<const char*> {};

TEST_P(WorkerModels, SameBitsAsInPlace) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model(GetParam()), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto in_place = run_mixed(*model, options(2));
  ASSERT_EQ(in_place.size(), 6u);
  for (const char* how : {"count=1", "count=1,transport=socket,threads=2", "count=1,batches=2"}) {
    SCOPED_TRACE(how);
    expect_equal(run_mixed(*model, with_workers(how, options(2))), in_place);
  }
}

// Grouped heads; one matrix of queries, keys and values; norms of heads, and experts; windows; sinks; keys of earlier
// layers; a mixer next to attention; gates of attention.
INSTANTIATE_TEST_SUITE_P(Models, WorkerModels,
                         ::testing::Values("llama3", "phi3", "qwen3moe", "gemma3", "gpt_oss", "gemma3n", "falcon_h1",
                                           "qwen35"));

// Two workers have a KV head each; prompts run in chunks that end within blocks.
TEST(AttentionWorkers, SameBitsForAnyWorkersChunksAndFormats) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok()) << model.error().message;
  for (const char* format : {"f32", "f16", "bf16"}) {
    SCOPED_TRACE(format);
    EngineOptions plain = options(1);
    plain.kv_format = format;
    const auto in_place = run_mixed(*model, plain);
    for (const int64_t chunk : {7, 512}) {
      plain.batch_tokens = std::max<int64_t>(chunk, plain.max_streams);
      for (const char* how : {"count=2,batches=2", "count=2,transport=socket,batches=2"}) {
        SCOPED_TRACE(how);
        expect_equal(run_mixed(*model, with_workers(how, plain)), in_place);
      }
    }
  }
}

// More than a partition of keys, and drafts, whose rejected tokens are stored again.
TEST(AttentionWorkers, SameBitsOfLongStreamsAndDrafts) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 640});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const int64_t vocab = (*model)->info().vocab;
  const auto run = [&](EngineOptions o) {
    o.context = 640;
    auto core = make_core(*model, o);
    for (int64_t i = 0; i < 3; ++i)
      EXPECT_TRUE(core->add(static_cast<RequestId>(i), make_request(2 * i, 300 + 110 * i, 10, vocab)).ok());
    return run_all(*core, vocab);
  };
  const auto in_place = run(options(2));
  ASSERT_EQ(in_place.size(), 3u);
  expect_equal(run(with_workers("count=2,threads=2,batches=2", options(2))), in_place);
  EngineOptions drafts = with_workers("count=2", options(2));
  drafts.drafter = "ngram";
  auto core = make_core(*model, [&] {
    drafts.context = 640;
    return drafts;
  }());
  for (int64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(core->add(static_cast<RequestId>(i), make_request(2 * i, 300 + 110 * i, 10, vocab)).ok());
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::vector<TokenEvent> events;
  while (!core->idle()) {
    events.clear();
    core->step(events);
    for (const auto& event : events)
      if (event.token >= 0) tokens[event.request].push_back(event.token);
  }
  for (const auto& [id, shown] : in_place) EXPECT_EQ(tokens[id], shown.tokens) << id;
}

// Processes whose parent is this one and that run workers.
std::vector<pid_t> worker_processes() {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream stat(entry.path() / "stat"), arguments(entry.path() / "cmdline");
    std::string line, command;
    if (!std::getline(stat, line) || !std::getline(arguments, command)) continue;
    const size_t end = line.rfind(')');
    if (end == std::string::npos || command.find("attention-worker") == std::string::npos) continue;
    if (std::stol(line.substr(end + 4)) == getpid()) found.push_back(std::stoi(entry.path().filename().string()));
  }
  return found;
}

struct StreamEnds {
  std::map<RequestId, FinishReason> reasons;
  std::map<RequestId, std::vector<TokenId>> tokens;
  std::string error;
};

// Steps until the core is idle, or `steps` times.
void step_some(EngineCore& core, int64_t steps, StreamEnds& ends) {
  std::vector<TokenEvent> events;
  for (int64_t i = 0; i < steps && !core.idle(); ++i) {
    events.clear();
    core.step(events);
    for (const auto& event : events) {
      if (event.token >= 0) ends.tokens[event.request].push_back(event.token);
      if (event.finish == FinishReason::none) continue;
      ends.reasons[event.request] = event.finish;
      if (event.finish == FinishReason::error) ends.error = event.error.message;
    }
    auto blocks = core.check_blocks();
    EXPECT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
  }
}

class WorkerDeaths : public ::testing::TestWithParam<const char*> {};

TEST_P(WorkerDeaths, EndTheStreamsThatTheyHeldAndNewOnesRun) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const int64_t vocab = (*model)->info().vocab;
  auto core = make_core(*model, with_workers(GetParam(), options(1)));
  StreamEnds ends;
  const Request request = make_request(0, 40, 30, vocab);
  EXPECT_TRUE(core->add(1, Request(request)).ok());
  step_some(*core, 1000, ends);
  EXPECT_EQ(ends.reasons[1], FinishReason::length);
  const std::vector<TokenId> expected = ends.tokens[1];

  for (const RequestId id : {2, 3}) EXPECT_TRUE(core->add(id, Request(request)).ok());
  step_some(*core, 5, ends);
  const std::vector<pid_t> workers = worker_processes();
  ASSERT_EQ(workers.size(), 2u);
  kill(workers[1], SIGKILL);
  step_some(*core, 1000, ends);
  for (const RequestId id : {2, 3}) EXPECT_EQ(ends.reasons[id], FinishReason::error) << id;
  EXPECT_NE(ends.error.find(" lost"), std::string::npos) << ends.error;

  // Its prompt was in the prefix cache; the next one computes it again, with the same bits.
  EXPECT_TRUE(core->add(4, Request(request)).ok());
  step_some(*core, 1000, ends);
  EXPECT_EQ(ends.reasons[4], FinishReason::length);
  EXPECT_EQ(ends.tokens[4], expected);

  // A worker that ends while no stream runs costs none.
  const pid_t idle = worker_processes().at(0);
  kill(idle, SIGKILL);
  siginfo_t ended;  // WNOWAIT: the engine takes its status; all its files are closed by now
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(idle), &ended, WEXITED | WNOWAIT), 0);
  EXPECT_TRUE(core->add(5, Request(request)).ok());
  step_some(*core, 1000, ends);
  EXPECT_EQ(ends.reasons[5], FinishReason::length);
  EXPECT_EQ(ends.tokens[5], expected);
}

INSTANTIATE_TEST_SUITE_P(Ways, WorkerDeaths,
                         ::testing::Values("count=2", "count=2,batches=2", "count=2,transport=socket"));

// A stopped worker does not answer, and is killed after the limit.
TEST(AttentionWorkers, AWorkerThatAnswersLateCountsAsDead) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto core = make_core(*model, with_workers("timeout=0.5", options(1)));
  StreamEnds ends;
  EXPECT_TRUE(core->add(1, make_request(0, 40, 30, (*model)->info().vocab)).ok());
  step_some(*core, 3, ends);
  const std::vector<pid_t> workers = worker_processes();
  ASSERT_EQ(workers.size(), 1u);
  kill(workers[0], SIGSTOP);
  step_some(*core, 1000, ends);
  EXPECT_EQ(ends.reasons[1], FinishReason::error);
  EXPECT_NE(ends.error.find("no answer in time"), std::string::npos) << ends.error;
  EXPECT_TRUE(worker_processes().empty());
}

// Members that need data which workers do not hold are refused by both names, before a process starts.
TEST(AttentionWorkers, CombinationsThatTheyLackAreRefused) {
  MILLRACE_NEEDS_PROGRAM();
  const auto model = LanguageModel::load(golden_model("llama3"), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok()) << model.error().message;
  const auto refused = [&](const auto& change) {
    EngineOptions o = with_workers("count=1", options(1));
    change(o);
    auto core = EngineCore::create(*model, o);
    EXPECT_FALSE(core.ok());
    EXPECT_TRUE(worker_processes().empty());
    return core.ok() ? "" : core.error().message;
  };
  EXPECT_NE(refused([](EngineOptions& o) { o.kv_format = "kivi:bits=2"; }).find("KV format kivi"), std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.evictor = "streamingllm:budget=64"; }).find("evictor streamingllm"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernels.push_back("shared_prefix"); }).find("shared_prefix"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernels = {"fastdecode:count=64"}; }).find("at most count="),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernels = {"fastdecode:transport=pigeon"}; }).find("shm or socket"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernels = {"fastdecode:hosts=nowhere"}; }).find("HOST:PORT"),
            std::string::npos);
  EXPECT_NE(refused([](EngineOptions& o) { o.kernels = {"fastdecode:program=/no/such"}; }).find("/no/such"),
            std::string::npos);
}

}  // namespace
}  // namespace millrace
