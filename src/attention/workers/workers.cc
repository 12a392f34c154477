#include "attention/workers/workers.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/cpu.h"
#include "base/enum_table.h"
#include "base/network_error.h"

namespace millrace {
namespace {

int64_t first_head(int64_t heads, int64_t worker, int64_t workers) { return heads * worker / workers; }

// The layers with the heads of one worker; states of recurrent layers stay in the engine.
KvLayout part_of(KvLayout layout, int64_t worker, int64_t workers) {
  for (KvLayer& layer : layout.layers) {
    layer.state_values = 0;
    layer.kv_heads = first_head(layer.kv_heads, worker + 1, workers) - first_head(layer.kv_heads, worker, workers);
    if (layer.kv_heads == 0) layer = {};
  }
  for (KvLayout& group : layout.windows) group = part_of(std::move(group), worker, workers);
  return layout;
}

// Refuses data that are not rows, for callers that do not check combinations.
Result<void> check(const AttentionWorkers::Sizes& sizes) {
  if (sizes.heads.empty()) return Error::unsupported("attention workers: the model has no layers with attention");
  const KvLayout& layout = sizes.layout;
  const bool latent = std::ranges::any_of(layout.layers, &KvLayer::values_in_keys);
  const bool sides = std::ranges::any_of(layout.layers, [](const KvLayer& layer) { return layer.side.has_value(); });
  if (latent || sides || layout.encodes() || layout.has_residuals() || layout.divided())
    return Error::unsupported(
        "attention workers: they hold keys and values as rows of one format; omit what stores other data");
  return {};
}

}  // namespace

struct AttentionWorkers::Worker {
  // The heads of a layer with `heads` KV heads.
  int64_t begin_of(int64_t heads) const { return first_head(heads, index, count); }
  int64_t heads_of(int64_t heads) const { return first_head(heads, index + 1, count) - begin_of(heads); }

  int64_t index = 0, count = 1;
  WorkerSetup setup;
  WorkerProcess process;
  std::unique_ptr<WorkerLink> link;
  LaneAreas areas;
  // Requests and answers of each lane. One of the waiting threads reads for all.
  std::mutex mutex;
  std::condition_variable answered;
  bool reading = false;
  struct Lane {
    uint64_t expected = 0, done = 0;
    FrameKind kind = FrameKind::attended;
    uint64_t floats = 0;
  };
  std::vector<Lane> lanes;
};

AttentionWorkers::AttentionWorkers(AttentionWorkerOptions options, Sizes sizes)
    : options_(std::move(options)), sizes_(std::move(sizes)), unanswered_(static_cast<size_t>(options_.batches), 0) {}

AttentionWorkers::~AttentionWorkers() = default;

KvLayout AttentionWorkers::without_rows(KvLayout layout) {
  for (KvLayer& layer : layout.layers) {
    if (layer.kv_heads == 0) continue;
    layer.head_dim = 0;
    layer.simulated = true;
  }
  for (KvLayout& group : layout.windows) group = without_rows(std::move(group));
  return layout;
}

WorkerSetup AttentionWorkers::setup_of(int64_t index) const {
  const int64_t count = options_.count;
  WorkerSetup setup{.isa = isa_name(sizes_.isa),
                    .layout = part_of(sizes_.layout, index, count),
                    .blocks = sizes_.blocks,
                    .places = sizes_.places,
                    .lanes = options_.batches,
                    .tokens = sizes_.tokens,
                    .context = sizes_.context,
                    .threads = options_.threads,
                    .shared_memory = options_.hosts.empty() &&
                                     options_.transport == AttentionWorkerOptions::Transport::shared_memory};
  for (const Heads& one : sizes_.heads) {
    const int64_t own = first_head(one.kv_heads, index + 1, count) - first_head(one.kv_heads, index, count);
    setup.q_width = std::max(setup.q_width, one.heads / one.kv_heads * own * one.head_dim);
    setup.kv_width = std::max(setup.kv_width, own * one.head_dim);
  }
  return setup;
}

int64_t AttentionWorkers::row_bytes(const AttentionWorkerOptions& options, const Sizes& sizes) {
  const AttentionWorkers plan(options, sizes);
  int64_t bytes = 0;
  for (int64_t i = 0; i < options.count; ++i) bytes += LaneAreas::bytes(plan.setup_of(i));
  return bytes;
}

Result<std::unique_ptr<AttentionWorkers>> AttentionWorkers::start(const AttentionWorkerOptions& options, Sizes sizes) {
  MILLRACE_TRY_VOID(check(sizes));
  int64_t fewest = INT64_MAX;
  for (const Heads& one : sizes.heads) fewest = std::min(fewest, one.kv_heads);
  if (options.count > fewest)
    return Error::user(fmt::format(
        "attention workers: {} workers share the KV heads of a layer, and the model has layers with {}; choose at most "
        "count={}",
        options.count, fewest, fewest));
  auto workers = std::unique_ptr<AttentionWorkers>(new AttentionWorkers(options, std::move(sizes)));
  if (options.hosts.empty()) {
    MILLRACE_TRY(workers->program_, WorkerProcess::find_program(options.program));
  }
  MILLRACE_TRY_VOID(workers->start_all());
  workers->starts_ = 0;
  return workers;
}

Result<void> AttentionWorkers::start_all() {
  workers_.clear();
  std::ranges::fill(unanswered_, 0);
  for (int64_t i = 0; i < options_.count; ++i) MILLRACE_TRY_VOID(start_one(i));
  return {};
}

Result<void> AttentionWorkers::start_one(int64_t index) {
  auto worker = std::make_unique<Worker>();
  worker->index = index;
  worker->count = options_.count;
  worker->setup = setup_of(index);
  worker->lanes.resize(static_cast<size_t>(options_.batches));
  int socket = -1;
  if (!options_.hosts.empty()) {
    MILLRACE_TRY(socket, WorkerLink::connect(options_.hosts[static_cast<size_t>(index)], options_.timeout_seconds));
    MILLRACE_TRY(worker->areas, LaneAreas::create(worker->setup));
  } else if (worker->setup.shared_memory) {
    MILLRACE_TRY(const int file, LaneAreas::create_file(worker->setup));
    auto areas = LaneAreas::map(worker->setup, file);
    auto process = WorkerProcess::start(program_, file, socket);
    close(file);
    if (!process.ok()) return process.error();
    worker->process = *std::move(process);
    worker->link = std::make_unique<WorkerLink>(socket, options_.timeout_seconds);
    if (!areas.ok()) return areas.error();
    worker->areas = *std::move(areas);
  } else {
    MILLRACE_TRY(worker->process, WorkerProcess::start(program_, -1, socket));
    MILLRACE_TRY(worker->areas, LaneAreas::create(worker->setup));
  }
  if (!worker->link) worker->link = std::make_unique<WorkerLink>(socket, options_.timeout_seconds);
  ++starts_;
  words_.clear();
  write_setup(worker->setup, words_);
  MILLRACE_TRY_VOID(worker->link->send({.kind = FrameKind::hello}, words_.words(), {}));
  MILLRACE_TRY(const FrameHeader header, worker->link->receive_header());
  worker->lanes[0].kind = FrameKind::ready;
  MILLRACE_TRY_VOID(check_answer(*worker, header));
  workers_.push_back(std::move(worker));
  return {};
}

void AttentionWorkers::fail(const Error& error) {
  const std::lock_guard lock(error_mutex_);
  if (failed_.exchange(true)) return;
  error_ = error;
  for (const auto& worker : workers_) worker->link->shut();  // no other lane waits for an answer that will not come
}

void AttentionWorkers::send(Worker& worker, FrameHeader header, std::span<const int64_t> words,
                            std::span<const float> floats, int64_t outputs) {
  if (failed_) return;
  header.sequence = ++sequence_;
  header.floats = floats.size();
  Worker::Lane& lane = worker.lanes[header.lane];
  if (header.kind == FrameKind::attend || header.kind == FrameKind::flush) {
    const std::lock_guard lock(worker.mutex);
    lane.expected = header.sequence;
    lane.kind = header.kind == FrameKind::attend ? FrameKind::attended : FrameKind::flushed;
    lane.floats = static_cast<uint64_t>(outputs);
  }
  sent_bytes_ += static_cast<int64_t>(sizeof(header) + words.size_bytes() + floats.size_bytes());
  const auto rows = worker.setup.shared_memory ? std::span<const float>() : floats;
  if (auto sent = worker.link->send(header, words, rows); !sent.ok()) fail(sent.error());
}

void AttentionWorkers::begin(int64_t lane, const Batch& batch) {
  if (failed_) return;
  if (workers_.empty()) {
    if (auto started = start_all(); !started.ok()) return fail(started.error());
  }
  words_.clear();
  words_.add(batch.size());
  for (int64_t g = 0; g <= std::ssize(batch.window_tables); ++g) {
    words_.add_numbers(batch.tables(g));
    words_.add_spans(batch.spans_of(g));
  }
  for (const auto& worker : workers_)
    send(*worker, {.kind = FrameKind::begin, .lane = static_cast<uint32_t>(lane)}, words_.words(), {});
}

// Workers may still read the rows of the last store of the lane.
void AttentionWorkers::flush(int64_t lane) {
  if (!std::exchange(unanswered_[static_cast<size_t>(lane)], uint8_t{0})) return;
  for (const auto& worker : workers_)
    send(*worker, {.kind = FrameKind::flush, .lane = static_cast<uint32_t>(lane)}, {}, {});
  for (const auto& worker : workers_) wait_for(*worker, lane);
}

void AttentionWorkers::store(int64_t lane, int64_t layer, int64_t tokens, const float* k, const float* v) {
  if (failed_) return;
  flush(lane);
  const KvLayout& first = sizes_.layout;
  const KvLayer* sizes = &first.layers[static_cast<size_t>(layer)];
  for (const KvLayout& group : first.windows)
    if (sizes->kv_heads == 0) sizes = &group.layers[static_cast<size_t>(layer)];
  const int64_t dim = sizes->head_dim, heads = sizes->kv_heads;
  words_.clear();
  words_.add(layer);
  words_.add(tokens);
  for (const auto& worker : workers_) {
    const int64_t at = worker->begin_of(heads) * dim, width = worker->heads_of(heads) * dim;
    float* to = worker->areas.keys(lane);
    for (const float* from : {k, v})
      for (int64_t t = 0; t < tokens; ++t, to += width) std::copy_n(from + t * heads * dim + at, width, to);
    const float* rows = worker->areas.keys(lane);
    send(*worker, {.kind = FrameKind::store, .lane = static_cast<uint32_t>(lane)}, words_.words(),
         {rows, static_cast<size_t>(2 * tokens * width)});
  }
  unanswered_[static_cast<size_t>(lane)] = 1;
}

void AttentionWorkers::attend(int64_t lane, const Batch& batch, const AttentionLayer& layer, const float* q,
                              float* out) {
  const int64_t tokens = batch.size(), each = layer.group_heads() * layer.head_dim, width = layer.q_width();
  for (const auto& worker : workers_) {
    if (failed_) break;
    const int64_t begin = worker->begin_of(layer.kv_heads), heads = worker->heads_of(layer.kv_heads);
    words_.clear();
    words_.add(layer.layer);
    words_.add(tokens);
    words_.add(heads * layer.group_heads());
    words_.add(layer.sinks ? 1 : 0);
    words_.add(layer.window);
    words_.add_float(layer.softcap);
    words_.add(layer.switches.unify ? 1 : 0);
    words_.add_float(layer.switches.unified_max);
    words_.add_spans(batch.spans_of(layer.group));
    float* to = worker->areas.queries(lane);
    if (layer.sinks) to = std::copy_n(layer.sinks + begin * layer.group_heads(), heads * layer.group_heads(), to);
    for (int64_t t = 0; t < tokens; ++t) to = std::copy_n(q + t * width + begin * each, heads * each, to);
    const float* rows = worker->areas.queries(lane);
    send(*worker, {.kind = FrameKind::attend, .lane = static_cast<uint32_t>(lane)}, words_.words(), {rows, to},
         tokens * heads * each);
  }
  unanswered_[static_cast<size_t>(lane)] = 0;  // workers answer in order
  const auto start = std::chrono::steady_clock::now();
  if (turns_) baton_.unlock();
  for (const auto& worker : workers_) wait_for(*worker, lane);
  if (turns_) baton_.lock();
  waited_ns_ += std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
  if (failed_) {
    std::fill_n(out, tokens * width, 0.0f);
    return;
  }
  for (const auto& worker : workers_) {
    const int64_t begin = worker->begin_of(layer.kv_heads), heads = worker->heads_of(layer.kv_heads);
    const float* from = worker->areas.outputs(lane);
    for (int64_t t = 0; t < tokens; ++t, from += heads * each)
      std::copy_n(from, heads * each, out + t * width + begin * each);
  }
}

// One of the threads that wait for this worker reads its answers, for every lane; they arrive in the order of requests.
void AttentionWorkers::wait_for(Worker& worker, int64_t at) {
  std::unique_lock lock(worker.mutex);
  const Worker::Lane& lane = worker.lanes[static_cast<size_t>(at)];
  while (lane.done != lane.expected && !failed_) {
    if (worker.reading) {
      worker.answered.wait(lock);
      continue;
    }
    worker.reading = true;
    lock.unlock();
    const Result<void> read = read_answer(worker);
    if (!read.ok()) fail(read.error());
    lock.lock();
    worker.reading = false;
    worker.answered.notify_all();
  }
}

Result<void> AttentionWorkers::read_answer(Worker& worker) {
  MILLRACE_TRY(const FrameHeader header, worker.link->receive_header());
  MILLRACE_TRY_VOID(check_answer(worker, header));
  received_bytes_ += static_cast<int64_t>(sizeof(header) + header.floats * sizeof(float));
  if (header.floats > 0 && !worker.setup.shared_memory)
    MILLRACE_TRY_VOID(worker.link->receive(worker.areas.outputs(header.lane), header.floats * sizeof(float)));
  const std::lock_guard lock(worker.mutex);
  worker.lanes[header.lane].done = header.sequence;
  return {};
}

// Errors that a worker reports keep their kind and text.
Result<void> AttentionWorkers::check_answer(Worker& worker, const FrameHeader& header) {
  if (header.kind == FrameKind::failed) {
    std::vector<int64_t> words(std::min<uint64_t>(header.words, FrameHeader::kMaxText));
    MILLRACE_TRY_VOID(worker.link->receive(words.data(), words.size() * sizeof(int64_t)));
    FrameReader text(words);
    const auto kind = find_enumerator<ErrorKind>(text.number(0, INT32_MAX));
    return Error{kind.value_or(ErrorKind::internal), text.text(FrameHeader::kMaxText)};
  }
  const Error wrong = Error::corrupt("attention worker: an answer that was not asked for");
  if (header.lane >= worker.lanes.size() || header.words != 0) return wrong;
  const std::lock_guard lock(worker.mutex);
  const Worker::Lane& lane = worker.lanes[header.lane];
  if (header.kind != lane.kind || header.sequence != lane.expected || header.floats != lane.floats) return wrong;
  return {};
}

Result<void> AttentionWorkers::take_failure() {
  for (int64_t lane = 0; lane < options_.batches && !failed_; ++lane) flush(lane);
  if (!failed_) return {};
  workers_.clear();
  lost_ = true;
  failed_ = false;
  const Error error = *std::exchange(error_, {});
  return Error::internal(error.message +
                         "; keys and values that workers held are lost, and new requests start new workers");
}

bool AttentionWorkers::take_loss() {
  if (std::ranges::any_of(workers_, [](const auto& worker) { return worker->link->closed(); })) {
    workers_.clear();
    lost_ = true;
  }
  return std::exchange(lost_, false);
}

AttentionWorkerFigures AttentionWorkers::figures() const {
  int64_t bytes = 0;
  for (int64_t i = 0; i < options_.count; ++i) bytes += setup_of(i).pool_bytes();
  return {.workers = options_.count,
          .starts = starts_,
          .bytes = bytes,
          .sent_bytes = sent_bytes_,
          .received_bytes = received_bytes_,
          .wait_seconds = static_cast<double>(waited_ns_) * 1e-9};
}

}  // namespace millrace
