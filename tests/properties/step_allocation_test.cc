// A step that only decodes allocates nothing: neither the plan, the batch, the forward pass, sampling nor the event.
// Memory is allocated when a stream is admitted and released when it ends.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "properties/stream_bits.h"

#ifdef MILLRACE_SANITIZED
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

// An engine with streams that do not end, and what its steps allocate.
struct CountedSteps {
  CountedSteps(const std::shared_ptr<const LanguageModel>& model, const EngineOptions& options,
               std::vector<Request> requests)
      : core(make_core(model, options)) {
    events.reserve(64);
    for (size_t i = 0; i < requests.size(); ++i) {
      requests[i].sampling.logprobs = -1;
      EXPECT_TRUE(core->add(static_cast<RequestId>(i + 1), std::move(requests[i])).ok());
    }
  }
  int64_t run(int steps) {
    const int64_t before = allocations.load();
    for (int i = 0; i < steps; ++i) {
      events.clear();
      core->step(events);
    }
    return allocations.load() - before;
  }

  std::unique_ptr<EngineCore> core;
  std::vector<TokenEvent> events;  // of the last step
};

// Two greedy answers to prompts that repeat `pattern`, in which -1 is another token in each.
std::vector<Request> repeating(const std::vector<TokenId>& pattern, int64_t times, int64_t tokens, int64_t vocab) {
  std::vector<Request> out;
  for (TokenId id : {1, 2}) {
    Request request = make_request(2, 6, tokens, vocab);
    request.prompt.clear();
    for (int64_t i = 0; i < times; ++i)
      for (TokenId token : pattern) request.prompt.push_back(token < 0 ? id : token);
    out.push_back(std::move(request));
  }
  return out;
}

class StepAllocation : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
    model_ = load_for(golden_model(GetParam()), *select_isa());
    ASSERT_TRUE(model_);
    vocab_ = model_->info().vocab;
  }
  std::shared_ptr<const LanguageModel> model_;
  int64_t vocab_ = 0;
};

TEST_P(StepAllocation, DecodingAllocatesNothing) {
  for (int64_t streams : {1, 3}) {
    std::vector<Request> requests;  // greedy, and drawn from the top k
    for (int64_t i = 0; i < streams; ++i) requests.push_back(make_request(i, 5 + i, 60, vocab_));
    CountedSteps steps(model_, options(2), std::move(requests));
    ASSERT_GT(steps.run(4), 0);                            // prefill, and growth of scratch memory
    EXPECT_EQ(steps.run(40), 0) << streams << " streams";  // crosses block boundaries
    EXPECT_EQ(steps.events.size(), static_cast<size_t>(streams));
  }
}

TEST_P(StepAllocation, DraftsAllocateNothing) {
  EngineOptions o = options(2);
  o.drafter = "ngram:min=1,k=3";
  CountedSteps steps(model_, o, repeating({-1}, 6, 100, vocab_));  // the first draft is as long as any
  steps.run(6);
  const int64_t drafted = steps.core->stats().drafted_tokens;
  EXPECT_EQ(steps.run(15), 0);
  EXPECT_GT(steps.core->stats().drafted_tokens, drafted);
}

// Sums up what it reads.
struct Summing final : PromptReader {
  Summing(bool wants_logits, int64_t size) : logits_(wants_logits), size_(size) {}
  bool logits() const override { return logits_; }
  bool wants(int64_t position) const override { return position % 7 != 6; }
  void read(int64_t, const float* row) override {
    float sum = 0;
    for (int64_t i = 0; i < size_; ++i) sum += row[i];
    finite += std::isfinite(sum);
  }

  std::atomic<int64_t> finite = 0;  // rows

 private:
  bool logits_;
  int64_t size_;
};

// A prompt that is read in chunks, beside a stream that decodes.
TEST_P(StepAllocation, ReadingAPromptAllocatesNothing) {
  for (bool logits : {true, false}) {
    EngineOptions o = options(2, 9);
    o.max_streams = 2;
    const auto reader = std::make_shared<Summing>(logits, logits ? vocab_ : model_->parts().model->spec().width);
    Request read = make_request(3, 120, 0, vocab_);
    read.reader = reader;
    CountedSteps steps(model_, o, {make_request(2, 5, 100, vocab_), read});
    steps.run(4);
    const int64_t before = reader->finite;
    EXPECT_GT(before, 0);
    EXPECT_EQ(steps.run(8), 0) << (logits ? "logits" : "states");
    EXPECT_GT(reader->finite, before + 40);
    steps.run(8);
    EXPECT_EQ(reader->finite, 120 - 17);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocation,
                         ::testing::Values("llama", "gemma3", "qwen3moe", "mamba", "deepseek2", "falcon_h1",
                                           "qwen3next"),
                         [](const auto& one) { return one.param; });

// Streams give blocks back, and take others; and drop tokens of the layers that see all.
TEST(StepAllocationOfWindows, GivingBlocksBackAllocatesNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  struct Case {
    const char *model, *kv_format, *evictor;
  };
  for (const auto& [name, kv_format, evictor] :
       {Case{"gemma3", "f16", ""}, Case{"mistral", "f16", ""}, Case{"gemma3", "f16", "h2o:budget=20,prompt=evicted"},
        Case{"gemma3", "kivi:window=f32", ""}}) {
    auto model = LanguageModel::load(golden_model(name), {.threads = 1, .context = 700});
    ASSERT_TRUE(model.ok());
    EngineOptions o = options(2, 32);
    o.context = 700;
    o.kv_format = kv_format;
    o.evictor = evictor;
    const int64_t vocab = (*model)->info().vocab;
    CountedSteps steps(*model, o, {make_request(1, 20, 600, vocab), make_request(2, 90, 600, vocab)});
    ASSERT_TRUE(steps.core->kv().gives_back());
    steps.run(8);
    EXPECT_EQ(steps.run(300), 0) << name << " " << kv_format << " " << evictor;
    EXPECT_EQ(steps.events.size(), 2u);
  }
}

using StepAllocationOfCodecs = StepAllocation;

// Blocks become complete and are encoded.
TEST_P(StepAllocationOfCodecs, EncodingAllocatesNothing) {
  EngineOptions o = options(2);
  o.kv_format = "kivi";
  CountedSteps steps(model_, o, {make_request(1, 20, 100, vocab_), make_request(2, 20, 100, vocab_)});
  steps.run(4);
  EXPECT_EQ(steps.run(80), 0);
  EXPECT_EQ(steps.events.size(), 2u);
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocationOfCodecs, ::testing::Values("llama3"),
                         [](const auto& one) { return one.param; });

using StepAllocationOfLlama = StepAllocation;

TEST_P(StepAllocationOfLlama, TreesAllocateNothing) {
  for (const char* drafter : {"ngram:min=1,k=3,branches=3", "lookahead:w=4,n=3,g=3"}) {
    EngineOptions o = options(2);
    o.drafter = drafter;
    CountedSteps steps(model_, o, repeating({1, -1, 3, 1, -1, 4, 1, -1}, 1, 120, vocab_));
    steps.run(8);
    const int64_t drafted = steps.core->stats().drafted_tokens;
    int64_t allocated = 0;
    for (int i = 0; i < 8 && steps.core->stats().running == 2; ++i) allocated += steps.run(1);
    EXPECT_EQ(allocated, 0) << drafter;
    EXPECT_GT(steps.core->stats().drafted_tokens, drafted) << drafter;
  }
}

TEST_P(StepAllocationOfLlama, ADraftModelAllocatesNothing) {
  const std::string model = ",model=" + golden_model("llama3");
  for (const std::string& drafter : {"draft:k=2" + model, "cascade:k=2,tail=1" + model, "staged:k=2,nodes=5" + model,
                                     std::string("self:k=2,mlp=1,p=0.3")}) {
    EngineOptions o = options(2);
    o.drafter = drafter;
    CountedSteps steps(model_, o, {make_request(1, 5, 100, vocab_), make_request(2, 9, 100, vocab_)});
    steps.run(4);
    const int64_t drafted = steps.core->stats().drafted_tokens;
    EXPECT_EQ(steps.run(20), 0) << drafter;
    EXPECT_GT(steps.core->stats().drafted_tokens, drafted) << drafter;
  }
}

// Once its budget is reached, a stream that drops tokens at every fourth step allocates nothing, with drafts or
// without.
TEST_P(StepAllocationOfLlama, DecisionsOfAnEvictorAllocateNothing) {
  using Case = std::pair<const char*, const char*>;
  for (const auto& [evictor, drafter] :
       {Case{"h2o:budget=12,slack=4", ""}, Case{"h2o:budget=12,slack=4", "ngram:min=1,k=3"},
        Case{"key_norm:budget=12,slack=4", "ngram:min=1,k=3"}, Case{"key_norm:budget=12,slack=4,skip=1", ""},
        Case{"pyramidkv:budget=12,window=4,slack=4", ""},
        Case{"pyramidkv:budget=12,window=4,slack=4", "ngram:min=1,k=3"},
        Case{"snapkv:budget=12,window=4,slack=4,heads=1.5.2.4", ""},
        Case{"scissorhands:budget=12,recent=4,slack=4,heads=1.5.2.4", "ngram:min=1,k=3"},
        Case{"spatten:keep=14,final=10,recent=4,slack=4", ""},
        Case{"spatten:keep=14,final=10,recent=4,slack=4", "ngram:min=1,k=3"},
        Case{"spatten:keep=14,final=10,recent=4,slack=4,heads=0.5", "ngram:min=1,k=3"}}) {
    EngineOptions o = options(2);
    o.evictor = evictor;
    o.drafter = drafter;
    CountedSteps steps(model_, o, repeating({-1}, 6, 110, vocab_));
    steps.run(16);
    const int64_t evicted = steps.core->stats().evicted_tokens;
    EXPECT_EQ(steps.run(10), 0) << evictor << " " << drafter;
    EXPECT_GT(steps.core->stats().evicted_tokens, evicted) << evictor << " " << drafter;
  }
}

TEST(StepAllocationOfGates, ChoosingAllocatesNothing) {
  if (!MILLRACE_OWN_NEW) GTEST_SKIP() << "the sanitizer brings its own operator new";
  auto model = LanguageModel::load(golden_model("gates"), {.threads = 1, .context = 128});
  ASSERT_TRUE(model.ok());
  const int64_t vocab = (*model)->info().vocab;
  for (const char* evictor : {"adaptively_sparse:slack=4", "seqboat:slack=4", "seqboat:window=9,slack=4"}) {
    EngineOptions o = options(2);
    o.evictor = evictor;
    CountedSteps steps(*model, o, {make_request(1, 20, 100, vocab), make_request(2, 30, 100, vocab)});
    steps.run(6);
    const int64_t evicted = steps.core->stats().evicted_tokens;
    EXPECT_EQ(steps.run(60), 0) << evictor;
    EXPECT_GT(steps.core->stats().evicted_tokens, evicted) << evictor;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepAllocationOfLlama, ::testing::Values("llama", "llama3"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace millrace
