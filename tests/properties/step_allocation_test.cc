// A step that only decodes allocates nothing: neither the plan, the batch, the forward pass, sampling nor the event.
// Memory is allocated when a stream is admitted and released when it ends.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "properties/stream_bits.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MILLRACE_OWN_NEW 0  // sanitizers have their own
#else
#define MILLRACE_OWN_NEW 1
#endif

namespace {
std::atomic<int64_t> allocations{0};
}  // namespace

#if MILLRACE_OWN_NEW
[[gnu::noinline]] void* operator new(size_t bytes) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* memory = std::malloc(bytes ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, std::align_val_t alignment) {
  allocations.fetch_add(1, std::memory_order_relaxed);
  const auto align = static_cast<size_t>(alignment);
  if (void* memory = std::aligned_alloc(align, (bytes + align - 1) / align * align)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif

namespace millrace {
namespace {

using namespace testing;

class StepAllocation : public ::testing::TestWithParam<std::string> {};

TEST_P(StepAllocation, DecodingAllocatesNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = load_for(golden_model(GetParam()), detect_isa());
  ASSERT_TRUE(model);
  for (int64_t streams : {1, 3}) {
    auto core = make_core(model, options(2));
    for (int64_t i = 0; i < streams; ++i) {
      Request request = make_request(i, 5 + i, 60, model->info().vocab);  // greedy, and drawn from the top k
      request.sampling.logprobs = -1;
      ASSERT_TRUE(core->add(static_cast<RequestId>(i + 1), std::move(request)).ok());
    }
    std::vector<TokenEvent> events;
    auto step = [&] {
      events.clear();
      core->step(events);
    };
    for (int i = 0; i < 4; ++i) step();  // prefill, and growth of scratch memory
    const int64_t before = allocations.load();
    ASSERT_GT(before, 0);
    for (int i = 0; i < 40; ++i) step();  // crosses block boundaries
    EXPECT_EQ(allocations.load() - before, 0) << streams << " streams";
    EXPECT_EQ(events.size(), static_cast<size_t>(streams));
  }
}

// Blocks become complete and are encoded.
TEST(StepAllocationOfCodecs, EncodingAllocatesNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = load_for(golden_model("llama3"), detect_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options(2);
  o.kv_format = "kivi";
  auto core = make_core(model, o);
  for (RequestId id : {1, 2}) {
    Request request = make_request(static_cast<int64_t>(id), 20, 100, model->info().vocab);
    request.sampling.logprobs = -1;
    ASSERT_TRUE(core->add(id, std::move(request)).ok());
  }
  std::vector<TokenEvent> events;
  int64_t before = 0;
  for (int i = 0; i < 84; ++i) {
    if (i == 4) before = allocations.load();
    events.clear();
    core->step(events);
  }
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_EQ(events.size(), 2u);
}

TEST_P(StepAllocation, DraftsAllocateNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = load_for(golden_model(GetParam()), detect_isa());
  ASSERT_TRUE(model);
  EngineOptions o = options(2);
  o.drafter = "ngram:min=1,k=3";
  auto core = make_core(model, o);
  for (RequestId id : {1, 2}) {
    Request request = make_request(2, 6, 100, model->info().vocab);
    request.prompt.assign(6, static_cast<TokenId>(id));  // repeats itself, and the first draft is as long as any
    request.sampling.logprobs = -1;
    ASSERT_TRUE(core->add(id, std::move(request)).ok());
  }
  std::vector<TokenEvent> events;
  events.reserve(16);
  auto step = [&] {
    events.clear();
    core->step(events);
  };
  for (int i = 0; i < 6; ++i) step();
  const int64_t before = allocations.load(), drafted = core->stats().drafted_tokens;
  for (int i = 0; i < 15; ++i) step();
  EXPECT_EQ(allocations.load() - before, 0);
  EXPECT_GT(core->stats().drafted_tokens, drafted);
}

TEST(StepAllocationTrees, TreesAllocateNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = load_for(golden_model("llama"), detect_isa());
  ASSERT_TRUE(model);
  for (const char* drafter : {"ngram:min=1,k=3,branches=3", "lookahead:w=4,n=3,g=3"}) {
    EngineOptions o = options(2);
    o.drafter = drafter;
    auto core = make_core(model, o);
    for (RequestId id : {1, 2}) {
      Request request = make_request(2, 6, 120, model->info().vocab);
      request.prompt = {1, static_cast<TokenId>(id), 3, 1, static_cast<TokenId>(id), 4, 1, static_cast<TokenId>(id)};
      request.sampling.logprobs = -1;
      ASSERT_TRUE(core->add(id, std::move(request)).ok());
    }
    std::vector<TokenEvent> events;
    events.reserve(64);
    auto step = [&] {
      events.clear();
      core->step(events);
    };
    for (int i = 0; i < 8; ++i) step();
    const int64_t before = allocations.load(), drafted = core->stats().drafted_tokens;
    for (int i = 0; i < 8 && core->stats().running == 2; ++i) step();
    EXPECT_EQ(allocations.load() - before, 0) << drafter;
    EXPECT_GT(core->stats().drafted_tokens, drafted) << drafter;
  }
}

// Once its budget is reached, a stream that drops tokens at every fourth step allocates nothing, with drafts or
// without.
TEST(StepAllocationEvicting, DecisionsAllocateNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = load_for(golden_model("llama"), detect_isa());
  ASSERT_TRUE(model);
  for (const char* drafter : {"", "ngram:min=1,k=3"}) {
    EngineOptions o = options(2);
    o.evictor = "h2o:budget=12,slack=4";
    o.drafter = drafter;
    auto core = make_core(model, o);
    for (RequestId id : {1, 2}) {
      Request request = make_request(2, 6, 110, model->info().vocab);
      request.prompt.assign(6, static_cast<TokenId>(id));  // repeats itself
      request.sampling.logprobs = -1;
      ASSERT_TRUE(core->add(id, std::move(request)).ok());
    }
    std::vector<TokenEvent> events;
    events.reserve(16);
    auto step = [&] {
      events.clear();
      core->step(events);
    };
    for (int i = 0; i < 16; ++i) step();
    const int64_t before = allocations.load(), evicted = core->stats().evicted_tokens;
    for (int i = 0; i < 10; ++i) step();
    EXPECT_EQ(allocations.load() - before, 0) << drafter;
    EXPECT_GT(core->stats().evicted_tokens, evicted) << drafter;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocation, ::testing::Values("llama", "gemma3", "qwen3moe", "mamba"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
