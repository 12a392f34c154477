#include "attention/workers/worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/cpu.h"

namespace millrace {
namespace {

Error wrong_frame(const char* what) {
  return Error::corrupt(fmt::format("attention worker: {}: a number out of range", what));
}

const BatchSpan& span_with(const std::vector<BatchSpan>& spans, int64_t token) {
  return *std::prev(std::ranges::upper_bound(spans, token, {}, &BatchSpan::begin));
}

Result<KernelTable> kernels_of(const std::string& name) {
  MILLRACE_TRY(const Isa isa, parse_isa(name));
  if (detect_isa().includes(isa)) return make_kernel_table(isa);
  return Error::unsupported(fmt::format(
      "attention worker: the engine computes with {}, and this machine has {}; start the engine with MILLRACE_ISA={}",
      name, isa_name(detect_isa()), isa_name(detect_isa())));
}

}  // namespace

Result<std::unique_ptr<AttentionWorker>> AttentionWorker::create(WorkerSetup setup, int area_file,
                                                                 const AttentionWorkerLimits& limits) {
  MILLRACE_TRY(KernelTable kernels, kernels_of(setup.isa));
  if (limits.threads > 0) setup.threads = limits.threads;
  MILLRACE_TRY_VOID(setup.layout.check());
  const int64_t bytes = setup.pool_bytes() + LaneAreas::bytes(setup);
  if (limits.memory_bytes > 0 && bytes > limits.memory_bytes)
    return Error::resource(fmt::format(
        "attention worker: the engine's keys and values need {} MB here, the limit is {} MB; lower the engine's "
        "--kv-tokens, or start more workers",
        bytes >> 20, limits.memory_bytes >> 20));
  KvPoolOptions places = setup.places;
  places.states = kStatesElsewhere;
  MILLRACE_TRY(KvPool pool, KvPool::create(setup.layout, setup.blocks, places));
  MILLRACE_TRY(LaneAreas areas, setup.shared_memory ? LaneAreas::map(setup, area_file) : LaneAreas::create(setup));
  return std::unique_ptr<AttentionWorker>(
      new AttentionWorker(std::move(setup), std::move(kernels), std::move(pool), std::move(areas)));
}

AttentionWorker::AttentionWorker(WorkerSetup setup, KernelTable kernels, KvPool pool, LaneAreas areas)
    : setup_(std::move(setup)),
      kernels_(std::move(kernels)),
      kv_(std::move(pool)),
      areas_(std::move(areas)),
      threads_(static_cast<int>(setup_.threads)),
      lanes_(static_cast<size_t>(setup_.lanes)),
      pointers_(static_cast<size_t>(
          attention_scratch_pointers(threads_.threads(), setup_.context, setup_.layout.block_tokens))) {
  for (Lane& lane : lanes_) {
    lane.stored.resize(static_cast<size_t>(kv_.groups()));
    lane.batch.window_tables.resize(static_cast<size_t>(kv_.groups() - 1));
  }
}

const KvLayer* AttentionWorker::layer_at(int64_t layer) const {
  if (layer >= std::ssize(setup_.layout.layers)) return nullptr;
  const KvPool& group = kv_.group(kv_.group_of(layer));
  const KvLayer& found = group.layout().layers[static_cast<size_t>(layer)];
  return found.kv_heads > 0 ? &found : nullptr;
}

// Per group: its table, and the spans with their slots there.
Result<void> AttentionWorker::begin(int64_t at, FrameReader words) {
  Lane& lane = lanes_[static_cast<size_t>(at)];
  lane.tokens = words.number(1, setup_.tokens);
  for (int64_t g = 0; g < kv_.groups(); ++g) {
    std::vector<int32_t>& table =
        g == 0 ? lane.batch.block_tables : lane.batch.window_tables[static_cast<size_t>(g - 1)];
    words.numbers(INT32_MAX, kv_.group(g).ids(), table);
    words.spans({lane.tokens, std::ssize(table), setup_.context, setup_.layout.block_tokens},
                lane.stored[static_cast<size_t>(g)]);
  }
  if (words.complete()) return {};
  lane.tokens = 0;
  return wrong_frame("begin");
}

Result<int64_t> AttentionWorker::floats_of(FrameKind kind, FrameReader words) const {
  if (kind != FrameKind::store && kind != FrameKind::attend) return 0;
  const int64_t index = words.number(0, std::ssize(setup_.layout.layers));
  const KvLayer* layer = layer_at(index);
  const int64_t tokens = words.number(1, setup_.tokens);
  if (!layer || !words.good()) return wrong_frame("layer");
  const int64_t kv_width = layer->kv_heads * layer->head_dim;
  if (kind == FrameKind::store)
    return kv_width <= setup_.kv_width ? 2 * tokens * kv_width : Result<int64_t>(wrong_frame("keys"));
  const int64_t heads = words.number(1, setup_.q_width / layer->head_dim);
  const bool sinks = words.number(0, 1) != 0;
  if (!words.good()) return wrong_frame("queries");
  return tokens * heads * layer->head_dim + (sinks ? heads : 0);
}

Result<void> AttentionWorker::store(int64_t at, FrameReader words) {
  Lane& lane = lanes_[static_cast<size_t>(at)];
  const int64_t index = words.number(0, std::ssize(setup_.layout.layers));
  const int64_t tokens = words.number(1, setup_.tokens);
  const KvLayer* layer = layer_at(index);
  if (!words.complete() || !layer || tokens != lane.tokens) return wrong_frame("store");
  const int64_t group = kv_.group_of(index), heads = layer->kv_heads, dim = layer->head_dim, width = heads * dim;
  KvPool& pool = kv_.group(group);
  const RowCodec& key_codec = *kernels_.find_codec(pool.layout().format);
  const RowCodec& value_codec = *kernels_.find_codec(pool.layout().values());
  const int64_t block_tokens = pool.layout().block_tokens;
  const std::vector<int32_t>& table = lane.batch.tables(group);
  const float *keys = areas_.keys(at), *values = keys + tokens * width;
  threads_.parallel_for(tokens, [&](int64_t t, int) {
    const BatchSpan& span = span_with(lane.stored[static_cast<size_t>(group)], t);
    const int64_t slot = span.first_slot + t - span.begin, within = slot % block_tokens;
    const BlockId block = table[static_cast<size_t>(span.table + slot / block_tokens)];
    for (int64_t h = 0; h < heads; ++h) {
      key_codec.encode(keys + t * width + h * dim, pool.keys(index, block, h) + within * pool.row_bytes(index), dim);
      value_codec.encode(values + t * width + h * dim,
                         pool.values(index, block, h) + within * pool.value_row_bytes(index), dim);
    }
  });
  return {};
}

Result<AttentionLayer> AttentionWorker::read_layer(FrameReader& words) const {
  AttentionLayer out;
  out.layer = words.number(0, std::ssize(setup_.layout.layers));
  words.number(1, setup_.tokens);
  const KvLayer* layer = layer_at(out.layer);
  if (!words.good() || !layer) return wrong_frame("attend");
  out.kv_heads = layer->kv_heads;
  out.head_dim = layer->head_dim;
  out.group = kv_.group_of(out.layer);
  out.heads = words.number(1, setup_.q_width / layer->head_dim);
  words.number(0, 1);
  out.window = words.number(0, INT64_MAX);
  out.softcap = words.real();
  out.switches.unify = words.number(0, 1) != 0;
  out.switches.unified_max = words.real();
  if (!words.good() || out.heads % out.kv_heads != 0) return wrong_frame("attend");
  return out;
}

Result<int64_t> AttentionWorker::attend(int64_t at, FrameReader words) {
  Lane& lane = lanes_[static_cast<size_t>(at)];
  FrameReader first = words;
  first.number(0, INT64_MAX);
  const int64_t tokens = first.number(1, setup_.tokens);
  first.number(0, INT64_MAX);
  const bool sinks = first.number(0, 1) != 0;
  MILLRACE_TRY(AttentionLayer layer, read_layer(words));
  words.spans({tokens, std::ssize(lane.batch.tables(layer.group)), setup_.context, setup_.layout.block_tokens},
              lane.batch.spans);
  if (!words.complete() || lane.tokens == 0) return wrong_frame("attend");
  const float* q = areas_.queries(at);
  if (sinks) layer.sinks = std::exchange(q, q + layer.heads);
  const int64_t floats = attention_scratch_floats(threads_.threads(), setup_.context, layer.heads / layer.kv_heads,
                                                  layer.head_dim, layer.kv_heads);
  if (std::ssize(scratch_) < floats) scratch_.resize(static_cast<size_t>(floats));
  millrace::attend(lane.batch, layer, kernels_, threads_, kv_.group(layer.group), q, areas_.outputs(at), setup_.context,
                   scratch_.data(), pointers_.data());
  return tokens * layer.heads * layer.head_dim;
}

namespace {

// One connection. The engine reads the error of a failed request, and then the end of the connection.
class Connection {
 public:
  Connection(WorkerLink& link, int area_file, const AttentionWorkerLimits& limits)
      : link_(link), area_file_(area_file), limits_(limits) {}

  Result<void> run() {
    for (;;) {
      if (auto read = read_header(); !read.ok()) return ended_ ? Result<void>() : read;
      if (auto done = answer(); !done.ok()) return refuse(done.error());
    }
  }

 private:
  Result<void> read_header() {
    auto header = link_.receive_header();
    if (!header.ok()) {
      ended_ = true;
      return header.error();
    }
    header_ = *header;
    words_.resize(header_.words);
    return link_.receive(words_.data(), words_.size() * sizeof(int64_t));
  }

  Result<void> refuse(const Error& error) {
    FrameWriter text;
    text.add(static_cast<int64_t>(error.kind));
    text.add_text(std::string_view(error.message).substr(0, FrameHeader::kMaxText));
    MILLRACE_TRY_VOID(link_.send({.kind = FrameKind::failed, .sequence = header_.sequence}, text.words(), {}));
    return error;
  }

  Result<void> reply(FrameKind kind, int64_t floats = 0) {
    const bool inline_rows = floats > 0 && !worker_->setup().shared_memory;
    const float* rows = worker_->areas().outputs(header_.lane);
    return link_.send(
        {.kind = kind, .sequence = header_.sequence, .lane = header_.lane, .floats = static_cast<uint64_t>(floats)}, {},
        inline_rows ? std::span(rows, static_cast<size_t>(floats)) : std::span<const float>());
  }

  // Takes the rows of the frame into the lane's area.
  Result<void> take_rows() {
    MILLRACE_TRY(const int64_t floats, worker_->floats_of(header_.kind, FrameReader(words_)));
    if (static_cast<uint64_t>(floats) != header_.floats) return wrong_frame("rows");
    if (floats == 0 || worker_->setup().shared_memory) return {};
    const LaneAreas& areas = worker_->areas();
    float* to = header_.kind == FrameKind::store ? areas.keys(header_.lane) : areas.queries(header_.lane);
    return link_.receive(to, static_cast<size_t>(floats) * sizeof(float));
  }

  Result<void> greet() {
    FrameReader words(words_);
    MILLRACE_TRY(WorkerSetup setup, read_setup(words));
    if (header_.floats != 0) return wrong_frame("hello");
    if (setup.shared_memory && area_file_ < 0)
      return Error::unsupported("attention worker: no shared memory with this engine; use transport=socket");
    MILLRACE_TRY(worker_, AttentionWorker::create(std::move(setup), area_file_, limits_));
    return reply(FrameKind::ready);
  }

  Result<void> answer() {
    if ((header_.kind == FrameKind::hello) != (worker_ == nullptr)) return wrong_frame("order of frames");
    if (header_.kind == FrameKind::hello) return greet();
    if (header_.lane >= static_cast<uint64_t>(worker_->setup().lanes)) return wrong_frame("lane");
    MILLRACE_TRY_VOID(take_rows());
    const FrameReader words(words_);
    switch (header_.kind) {
      case FrameKind::begin: return worker_->begin(header_.lane, words);
      case FrameKind::store: return worker_->store(header_.lane, words);
      case FrameKind::attend: {
        MILLRACE_TRY(const int64_t floats, worker_->attend(header_.lane, words));
        return reply(FrameKind::attended, floats);
      }
      case FrameKind::flush: return reply(FrameKind::flushed);
      default: return wrong_frame("kind of frame");
    }
  }

  WorkerLink& link_;
  int area_file_;
  AttentionWorkerLimits limits_;
  std::unique_ptr<AttentionWorker> worker_;
  FrameHeader header_;
  std::vector<int64_t> words_;
  bool ended_ = false;
};

}  // namespace

Result<void> serve_attention(WorkerLink& link, int area_file, const AttentionWorkerLimits& limits) {
  return Connection(link, area_file, limits).run();
}

}  // namespace millrace
