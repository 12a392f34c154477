#include "step_timer.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "base/philox.h"
#include "kv/tiers/ssd_store.h"
#include "run/executors/cpu_executor.h"
#include "run/language_model.h"

namespace millrace {
namespace {

using StepClock = std::chrono::steady_clock;
double seconds_since(StepClock::time_point start) {
  return std::chrono::duration<double>(StepClock::now() - start).count();
}

// A temporary file with a unique name; the destructor deletes it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& folder)
      : path_((std::filesystem::path(folder.empty() ? "." : folder) / "millrace-disk-XXXXXX").string()) {
    const int fd = ::mkstemp(path_.data());
    made_ = fd >= 0;
    if (made_) ::close(fd);
  }
  ~TemporaryFile() {
    if (made_) ::unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  bool made() const { return made_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool made_ = false;
};

}  // namespace

StepShape shape_of(const StepDesign& design) {
  StepShape shape;
  for (const PlannedChunk& chunk : design) shape.add(chunk.first, chunk.count, chunk.sample);
  return shape;
}

StepTimer::~StepTimer() = default;

Result<std::unique_ptr<StepTimer>> StepTimer::create(std::shared_ptr<const LanguageModel> model,
                                                     const EngineOptions& options, const StepTimerLimits& limits) {
  auto timer = std::unique_ptr<StepTimer>(new StepTimer());
  EngineOptions sized = options;
  sized.kv_tokens =
      limits.kv_tokens + (options.max_streams + 1) * options.block_tokens;  // each stream is rounded up to whole blocks
  sized.keep_window_keys = true;  // streams are made here, with blocks of one group
  timer->model_ = model;
  MILLRACE_TRY(timer->executor_, CpuExecutor::create(std::move(model), sized));
  const auto vocab = static_cast<double>(timer->model_->info().vocab);
  for (int64_t i = 0; i < options.max_streams; ++i) {
    auto stream = std::make_unique<LiveStream>();
    Sequence& s = stream->sequence;
    s.id = static_cast<RequestId>(i + 1);
    s.request.prompt = {0};
    s.request.ignore_eos = true;
    s.request.sampling.temperature = 0;
    s.prompt_tokens = 1;
    if (timer->executor_->home().kv().states().any()) s.kv.state = static_cast<StateId>(i);
    for (int64_t at = 0; at < limits.stream_tokens; ++at)
      s.tokens.push_back(
          static_cast<TokenId>(philox_uniform(1, static_cast<uint64_t>(i), static_cast<uint64_t>(at)) * vocab));
    MILLRACE_TRY_VOID(timer->executor_->chooser().begin(stream->ref()));
    timer->streams_.push_back(std::move(stream));
  }
  MILLRACE_TRY_VOID(timer->fill());
  return timer;
}

// Fills the blocks as a prompt would: memory that was never written is a single page of zeros, which fits in a cache.
Result<void> StepTimer::fill() {
  KvPool& kv = executor_->home().kv();
  for (int64_t i = 0; i < kv.total_blocks(); ++i) {
    MILLRACE_TRY(BlockId block, kv.allocate());
    blocks_.push_back(block);
  }
  const int64_t block_tokens = kv.layout().block_tokens;
  const int64_t some = std::min(
      {executor_->limits().tokens, executor_->limits().context, 4 * block_tokens, kv.total_blocks() * block_tokens});
  MILLRACE_TRY_VOID(run({{0, 0, std::min(some, streams_[0]->sequence.size()), false}}));
  const auto computed =
      static_cast<size_t>(std::max<int64_t>(1, std::min(some, streams_[0]->sequence.size()) / block_tokens));
  for (size_t i = computed; i < blocks_.size(); ++i) kv.copy(blocks_[i % computed], blocks_[i]);
  return {};
}

Result<double> StepTimer::run(const StepDesign& design) {
  const KvPool& kv = executor_->home().kv();
  input_.clear();
  std::vector<LiveStream*> sampled;
  auto next = blocks_.begin();
  for (const PlannedChunk& chunk : design) {
    LiveStream& stream = *streams_.at(static_cast<size_t>(chunk.request));
    const int64_t needed = kv.blocks_for(chunk.first + chunk.count);
    if (needed > blocks_.end() - next || chunk.first + chunk.count > stream.sequence.size())
      return Error::internal(fmt::format("step: {} + {} tokens exceed the timer's limits", chunk.first, chunk.count));
    stream.sequence.kv.blocks.assign(next, next + needed);
    stream.sequence.computed = chunk.first;
    next += needed;
    add_chunk(stream.source(), chunk, input_);
    if (chunk.sample) sampled.push_back(&stream);
  }
  const auto start = StepClock::now();
  executor_->forward(input_, output_);
  int64_t row = 0;
  for (LiveStream* stream : sampled) {
    TokenEvent event;
    MILLRACE_TRY_VOID(executor_->chooser().choose(stream->ref(), row++, event));
  }
  return seconds_since(start);
}

Result<SwapSpeed> StepTimer::swap_speed(int64_t tokens) {
  KvPool& kv = executor_->home().kv();
  const int64_t blocks = std::clamp<int64_t>(kv.blocks_for(tokens), 1, kv.total_blocks());
  tokens = blocks * kv.layout().block_tokens;
  MILLRACE_TRY(auto tier, executor_->home().make_tier(tokens));
  const std::span<const BlockId> moved(blocks_.data(), static_cast<size_t>(blocks));
  std::vector<double> times;
  auto finish = [&](TierTicket ticket) {
    while (tier->poll(ticket) == TierState::busy) {
    }
    return tier->poll(ticket) == TierState::ready;
  };
  for (int i = 0; i < 5; ++i) {
    const auto start = StepClock::now();
    MILLRACE_TRY(const TierTicket ticket, tier->put(moved, tokens));
    bool good = finish(ticket);
    MILLRACE_TRY_VOID(tier->get(ticket, moved));
    good = good && finish(ticket);
    times.push_back(seconds_since(start) / 2);
    tier->erase(ticket);
    if (!good) return Error::internal("KV tier: a move failed");
  }
  std::ranges::sort(times);
  const auto each = static_cast<double>(kv.layout().bytes_per_token());
  return SwapSpeed{each, static_cast<double>(tokens) * each / times[times.size() / 2]};
}

Result<DiskSpeed> StepTimer::disk_speed(const std::string& folder, int64_t tokens) {
  constexpr int kLoads = 7;
  KvPool& kv = executor_->home().kv();
  const int64_t block_tokens = kv.layout().block_tokens,
                blocks = std::clamp<int64_t>(kv.blocks_for(tokens), 1, kv.total_blocks());
  if (blocks < 2) return Error::user("calibrate: measuring a disk requires at least two blocks");
  const TemporaryFile file(folder);
  if (!file.made())
    return Error::user(fmt::format("calibrate: cannot write a file in {}; choose another folder with --calibrate-disk",
                                   folder.empty() ? "." : folder));
  constexpr int64_t kAnyBytes = int64_t{1} << 50;
  MILLRACE_TRY(const StoreGeometry one, StoreGeometry::create(kv.layout(), kAnyBytes));
  const SsdStoreOptions options{.path = file.path(),
                                .bytes = kStorePage + blocks * (one.record_bytes + one.slot_bytes),
                                .identity_text = "calibration"};
  std::vector<TokenId> ids(static_cast<size_t>(blocks * block_tokens));
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i);
  const auto chain = prefix_chain(ids, block_tokens, 0);
  {
    MILLRACE_TRY(auto store, make_ssd_store(kv, options));
    for (int64_t i = 0; i < blocks; ++i)
      store->put(chain[static_cast<size_t>(i)], blocks_[static_cast<size_t>(i)], true);
  }  // waits for all writes
  MILLRACE_TRY(auto store, make_ssd_store(kv, options));
  std::vector<std::pair<double, double>> seen;
  for (int i = 0; i < kLoads; ++i) {
    for (const int64_t count : {int64_t{1}, blocks}) {
      const auto some = std::span(chain).first(static_cast<size_t>(count));
      if (store->find(some) < count) return Error::resource("calibrate: blocks written to the disk are missing");
      const TierTicket ticket = store->load(some, std::span(blocks_).first(static_cast<size_t>(count)));
      LoadProgress progress;
      do {
        store->wait_layer(ticket, one.layers() - 1, PrefixStore::kNoDeadline);
        progress = store->poll(ticket);
      } while (progress.state == TierState::busy);
      store->erase(ticket);
      if (progress.blocks < count) return Error::resource("calibrate: reading blocks from the disk failed");
      seen.emplace_back(static_cast<double>(count * block_tokens * kv.layout().bytes_per_token()), progress.seconds);
    }
  }
  return fit_disk_speed(seen);
}

}  // namespace millrace
