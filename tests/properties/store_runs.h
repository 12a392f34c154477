// Random requests over a prefix store in too little memory: a stream's results have the same bits as alone, and every
// block is accounted for after every step.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <functional>

#include "properties/costed_executor.h"
#include "properties/stream_bits.h"

namespace millrace::testing {

struct StoreAnswer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::none;
  int64_t left_out = 0;
};

class StoreRuns {
 protected:
  explicit StoreRuns(uint64_t seed) : seed_(seed) {}

  int64_t draw(int64_t n) { return static_cast<int64_t>(philox_uniform(seed_, 6, draws_++) * static_cast<double>(n)); }
  static EngineOptions tight_options() {
    EngineOptions o = options(1, 48, 8);
    o.max_streams = 3;
    o.kv_tokens = 208;
    o.policy = "fcfs:reserve=prompt";
    return o;
  }

  std::unique_ptr<EngineCore> open(const EngineOptions& o, double load_seconds) {
    auto executor = CpuExecutor::create(model_, o);
    EXPECT_TRUE(executor.ok());
    auto core = EngineCore::create(
        std::make_unique<CostedExecutor>(std::move(*executor), FixedSeconds{.load = load_seconds}), o);
    EXPECT_TRUE(core.ok()) << (core.ok() ? "" : core.error().message);
    return core.ok() ? std::move(*core) : nullptr;
  }

  // One of a few common prefixes, of any length, and a suffix of its own.
  Request random_request() {
    const int64_t vocab = model_->info().vocab;
    Request request = make_request(draw(6), 16 + draw(70), 1 + draw(16), vocab);
    const Request own = make_request(100 + draw(1000), draw(12), 1, vocab);
    request.prompt.insert(request.prompt.end(), own.prompt.begin(), own.prompt.end());
    request.tenant = draw(4) ? "" : "other";
    return request;
  }

  const StoreAnswer& alone(const Request& request) {
    auto [found, fresh] = alone_.try_emplace({request.prompt, request.max_tokens, request.sampling.seed});
    if (!fresh) return found->second;
    auto core = make_core(model_, options());
    EXPECT_TRUE(core->add(1, request).ok());
    std::vector<TokenEvent> events;
    while (!core->idle()) core->step(events);
    for (const auto& event : events) take(found->second, event);
    return found->second;
  }

  static void take(StoreAnswer& answer, const TokenEvent& event) {
    if (event.token >= 0) {
      answer.tokens.push_back(event.token);
      answer.logprobs.push_back(event.logprob.logprob);
    }
    if (event.finish == FinishReason::none) return;
    answer.finish = event.finish;
    answer.left_out = event.timings.left_out_tokens;
  }

  // Flips a bit in one of `every` pages of a store's file after the header, on average.
  void damage(const std::string& path, int64_t every = 3) {
    const int fd = ::open(path.c_str(), O_RDWR);
    ASSERT_GE(fd, 0);
    const int64_t size = ::lseek(fd, 0, SEEK_END);
    for (int64_t page = 4096; page < size; page += 4096) {
      if (draw(every) != 0) continue;
      const int64_t at = page + draw(256);
      uint8_t byte = 0;
      ASSERT_EQ(::pread(fd, &byte, 1, at), 1);
      byte ^= static_cast<uint8_t>(1 << draw(8));
      ASSERT_EQ(::pwrite(fd, &byte, 1, at), 1);
    }
    ::close(fd);
  }

  // Requests arrive, some are cancelled. Calls `each_step` before every step with its number.
  void run(EngineCore& core, const std::function<void(int64_t step)>& each_step) {
    std::map<RequestId, std::pair<Request, StoreAnswer>> streams;
    std::vector<TokenEvent> events;
    RequestId next = 1;
    for (int64_t step = 0; next <= 14 || !core.idle(); ++step) {
      ASSERT_LT(step, 100'000);
      if (next <= 14 && draw(3) == 0) {
        Request request = random_request();
        ASSERT_TRUE(core.add(next, request).ok());
        streams[next++].first = std::move(request);
      }
      if (next > 1 && draw(25) == 0) core.cancel(1 + static_cast<RequestId>(draw(static_cast<int64_t>(next) - 1)));
      each_step(step);
      events.clear();
      core.step(events);
      for (const auto& event : events) take(streams[event.request].second, event);
      auto blocks = core.check_blocks();
      ASSERT_TRUE(blocks.ok()) << (blocks.ok() ? "" : blocks.error().message);
    }
    for (auto& [id, stream] : streams) {
      StoreAnswer expected = alone(stream.first);
      const StoreAnswer& answer = stream.second;
      if (answer.left_out > 0) {
        ++went_without_;
        continue;
      }
      if (answer.finish == FinishReason::cancelled) {
        ASSERT_LE(answer.tokens.size(), expected.tokens.size());
        expected.tokens.resize(answer.tokens.size());
        expected.logprobs.resize(answer.tokens.size());
      } else {
        EXPECT_EQ(answer.finish, FinishReason::length) << id;
      }
      EXPECT_EQ(answer.tokens, expected.tokens) << id;
      EXPECT_EQ(answer.logprobs, expected.logprobs) << id;
    }
    const KvStoreStats store = core.stats().store;
    hits_ += store.hit_tokens;
    failed_ += store.failed_tokens;
    corrupt_ += store.corrupt_blocks;
    left_out_ += store.left_out_tokens;
  }

  const uint64_t seed_;
  std::shared_ptr<const LanguageModel> model_;
  uint64_t draws_ = 0;
  std::map<std::tuple<std::vector<TokenId>, int64_t, uint64_t>, StoreAnswer> alone_;
  int64_t hits_ = 0, failed_ = 0, corrupt_ = 0, left_out_ = 0, went_without_ = 0;
};

}  // namespace millrace::testing
