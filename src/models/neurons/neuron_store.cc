#include "models/neurons/neuron_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/storage_error.h"

namespace millrace {
namespace {

constexpr int64_t kSlotAlignment = 64;
constexpr int64_t kMaxReadBytes = int64_t{64} << 10;

int64_t aligned(int64_t bytes) { return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment; }
int64_t page_begin(int64_t at) { return at / kNeuronPage * kNeuronPage; }
int64_t page_end(int64_t at) { return (at + kNeuronPage - 1) / kNeuronPage * kNeuronPage; }

// Bytes of one read in flight: at least those of one neuron, wherever it begins in a page.
int64_t read_bytes(const NeuronShape& shape) {
  return std::max(kMaxReadBytes, page_end(shape.bundle_bytes()) + kNeuronPage);
}

}  // namespace

int64_t NeuronStore::slot_bytes(const NeuronShape& shape, bool gates) {
  return aligned(shape.bundle_bytes() - (gates ? 0 : shape.up_at()));
}

int64_t NeuronStore::fixed_bytes(const NeuronShape& shape, bool gates, int64_t depth) {
  return shape.hidden * slot_bytes(shape, gates) + depth * read_bytes(shape);
}

NeuronStore::~NeuronStore() {
  io_.reset();
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<NeuronStore>> NeuronStore::create(const NeuronFile& file, Options options) {
  auto store = std::unique_ptr<NeuronStore>(new NeuronStore(file));
  MILLRACE_TRY_VOID(store->open(std::move(options)));
  return store;
}

Result<void> NeuronStore::open(Options options) {
  window_ = options.window;
  skipped_ = options.gates ? 0 : shape_.up_at();
  stored_ = shape_.bundle_bytes() - skipped_;
  slot_bytes_ = slot_bytes(shape_, options.gates);
  fd_ = ::open(file_.path().c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return storage_error(fmt::format("{}: cannot open: {}", file_.path(), std::strerror(errno)));
  const int64_t depth = std::max<int64_t>(1, options.depth);
  io_ = options.io ? options.io(fd_, depth) : make_block_io(fd_, depth, true);
  MILLRACE_TRY(pages_, AlignedBuffer::allocate(io_->depth() * read_bytes(shape_), "reads of neurons"));
  figures_.direct = try_direct_io(fd_, pages_.data(), file_.bundle_at(0, 0));
  layers_.resize(static_cast<size_t>(shape_.layers));
  bool all_hot = true;
  for (int64_t l = 0; l < shape_.layers; ++l) {
    const std::vector<int32_t>& hot =
        options.hot.empty() ? std::vector<int32_t>() : options.hot[static_cast<size_t>(l)];
    all_hot = all_hot && std::ssize(hot) == shape_.hidden;
    MILLRACE_TRY_VOID(make_layer(l, hot, options.slots));
    figures_.kept_bytes += std::ssize(hot) * slot_bytes_;
  }
  if (!all_hot) {
    MILLRACE_TRY(spill_, AlignedBuffer::reserve(shape_.hidden * slot_bytes_, "neurons of a layer", false));
  }
  figures_ = {.io = io_->name(),
              .direct = figures_.direct,
              .kept_bytes = figures_.kept_bytes,
              .cache_bytes = shape_.layers * options.slots * slot_bytes_};
  return {};
}

Result<void> NeuronStore::make_layer(int64_t index, std::span<const int32_t> hot, int64_t slots) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  layer.capacity = std::min(shape_.hidden, std::ssize(hot) + slots);
  layer.slot_of.assign(static_cast<size_t>(shape_.hidden), -1);
  layer.neuron_of.assign(static_cast<size_t>(layer.capacity), -1);
  layer.last_used.assign(static_cast<size_t>(shape_.hidden), 0);
  if (layer.capacity == 0) return {};
  MILLRACE_TRY(layer.slots, AlignedBuffer::reserve(layer.capacity * slot_bytes_, "slots of neurons", false));
  if (hot.empty()) return {};
  want(index, hot);
  if (auto read = read_wanted(index); !read.ok()) return read;
  layer.hot = layer.used;
  return {};
}

uint8_t* NeuronStore::slot(Layer& layer, int64_t index) const { return layer.slots.data() + index * slot_bytes_; }

// Deletes the neurons that the window's tokens did not use: the last one of the matrix takes the place of each.
void NeuronStore::delete_unused(Layer& layer) const {
  for (int64_t i = layer.hot; i < layer.used;) {
    const int32_t neuron = layer.neuron_of[static_cast<size_t>(i)];
    if (layer.tokens - layer.last_used[static_cast<size_t>(neuron)] < window_) {
      ++i;
      continue;
    }
    layer.slot_of[static_cast<size_t>(neuron)] = -1;
    const int64_t last = --layer.used;
    if (last == i) return;
    const int32_t moved = layer.neuron_of[static_cast<size_t>(last)];
    std::memcpy(slot(layer, i), slot(layer, last), static_cast<size_t>(stored_));
    layer.neuron_of[static_cast<size_t>(i)] = moved;
    layer.slot_of[static_cast<size_t>(moved)] = static_cast<int32_t>(i);
  }
}

// Lists the neurons that are not in memory, with the place that each takes: a slot while there is one.
void NeuronStore::want(int64_t index, std::span<const int32_t> neurons) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  wanted_.clear();
  int64_t spilled = 0;
  for (int32_t neuron : neurons) {
    int32_t& at = layer.slot_of[static_cast<size_t>(neuron)];
    if (at >= 0) continue;
    if (layer.used < layer.capacity) {
      at = static_cast<int32_t>(layer.used++);
      layer.neuron_of[static_cast<size_t>(at)] = neuron;
      wanted_.push_back({neuron, slot(layer, at)});
    } else {
      wanted_.push_back({neuron, spill_.data() + spilled++ * slot_bytes_});
    }
  }
}

// After a failed read: the slots of all wanted neurons are free again. They are the last ones.
void NeuronStore::forget(Layer& layer) {
  for (const Wanted& one : wanted_) {
    int32_t& at = layer.slot_of[static_cast<size_t>(one.neuron)];
    if (at < 0) continue;
    layer.used = std::min<int64_t>(layer.used, at);
    at = -1;
  }
}

void NeuronStore::cut_runs(int64_t layer) {
  runs_.clear();
  const int64_t most = read_bytes(shape_);
  for (size_t i = 0; i < wanted_.size(); ++i) {
    const int64_t begin = file_.bundle_at(layer, wanted_[i].neuron) + skipped_;
    const int64_t from = page_begin(begin), to = page_end(begin + stored_);
    if (!runs_.empty()) {
      Run& last = runs_.back();
      if (from <= last.at + last.bytes && to - last.at <= most) {
        last.end = i + 1;
        last.bytes = to - last.at;
        continue;
      }
    }
    runs_.push_back({i, i + 1, from, to - from});
  }
}

Error NeuronStore::read_error(int64_t layer, const Run& run) const {
  return storage_error(fmt::format(
      "{}: cannot read neurons {} to {} of layer {}, bytes {} to {}: the disk reports an "
      "error, or the file was cut off while in use",
      file_.path(), wanted_[run.begin].neuron, wanted_[run.end - 1].neuron, layer, run.at, run.at + run.bytes));
}

// Copies the neurons of a read to their places, and compares their hashes.
std::optional<Error> NeuronStore::take_run(int64_t layer, const Run& run, const uint8_t* data) {
  const NeuronTables tables = file_.tables(layer);
  const int64_t others = shape_.up_at() - skipped_;  // where the parts behind the gate row begin
  for (size_t i = run.begin; i < run.end; ++i) {
    const Wanted& one = wanted_[i];
    const auto n = static_cast<size_t>(one.neuron);
    const uint8_t* const from = data + (file_.bundle_at(layer, one.neuron) + skipped_ - run.at);
    if ((others > 0 && bundle_hash(from, others) != tables.gate_hashes[n]) ||
        bundle_hash(from + others, stored_ - others) != tables.hashes[n])
      return Error::corrupt(
          fmt::format("{}: neuron {} of layer {} is damaged; make the file again with millrace "
                      "offload-train",
                      file_.path(), one.neuron, layer));
    std::memcpy(one.to, from, static_cast<size_t>(stored_));
  }
  const int64_t useful = static_cast<int64_t>(run.end - run.begin) * stored_;
  figures_.bytes_read += run.bytes;
  figures_.wasted_bytes += run.bytes - useful;
  figures_.reads += static_cast<int64_t>(run.end - run.begin);
  return {};
}

Result<void> NeuronStore::read_wanted(int64_t layer) {
  if (wanted_.empty()) return {};
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  cut_runs(layer);
  std::vector<uint64_t> free;
  for (int64_t i = io_->depth(); i-- > 0;) free.push_back(static_cast<uint64_t>(i));
  std::vector<size_t> run_of(free.size());
  std::optional<Error> error;
  const auto buffer = [&](uint64_t tag) { return pages_.data() + static_cast<int64_t>(tag) * read_bytes(shape_); };
  for (size_t next = 0; next < runs_.size() || std::ssize(free) < io_->depth();) {
    for (; !error && next < runs_.size() && !free.empty(); ++next) {
      const uint64_t tag = free.back();
      free.pop_back();
      run_of[tag] = next;
      io_->start({.at = runs_[next].at, .data = buffer(tag), .bytes = runs_[next].bytes, .tag = tag});
    }
    if (error) next = runs_.size();
    IoDone one;
    if (std::ssize(free) == io_->depth() || io_->wait({&one, 1}) == 0) continue;
    const Run& run = runs_[run_of[one.tag]];
    auto taken = one.ok ? take_run(layer, run, buffer(one.tag)) : std::optional(read_error(layer, run));
    if (taken && !error) error = std::move(taken);
    free.push_back(one.tag);
  }
  const int64_t ns = std::chrono::nanoseconds(Clock::now() - begin).count();
  figures_.read_ns += ns;
  figures_.wait_ns += ns;
  if (!error) return {};
  ++figures_.failed;
  forget(layers_[static_cast<size_t>(layer)]);
  return Error::internal(error->message);  // no fault of a request
}

Result<void> NeuronStore::acquire(int64_t index, std::span<const int32_t> neurons, int64_t tokens,
                                  std::vector<const uint8_t*>& at) {
  Layer& layer = layers_[static_cast<size_t>(index)];
  layer.tokens += tokens;
  for (int32_t neuron : neurons) layer.last_used[static_cast<size_t>(neuron)] = layer.tokens;
  delete_unused(layer);
  want(index, neurons);
  figures_.hits += std::ssize(neurons) - std::ssize(wanted_);
  figures_.misses += std::ssize(wanted_);
  if (auto read = read_wanted(index); !read.ok()) return read;
  at.clear();
  int64_t spilled = 0;
  for (int32_t neuron : neurons) {
    const int32_t held = layer.slot_of[static_cast<size_t>(neuron)];
    at.push_back(held >= 0 ? slot(layer, held) : spill_.data() + spilled++ * slot_bytes_);
  }
  return {};
}

}  // namespace millrace
