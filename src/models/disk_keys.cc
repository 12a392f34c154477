#include "models/disk_keys.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "attention/full.h"
#include "base/storage_error.h"
#include "base/system.h"
#include "flow/batch.h"
#include "kv/tiers/unnamed_file.h"

namespace millrace {
namespace {

int64_t page_bytes() { return static_cast<int64_t>(sysconf(_SC_PAGESIZE)); }

// Bytes of one block of the layer's keys and values.
int64_t layer_block_bytes(const KvLayout& layout, int64_t layer) {
  return layout.block_bytes(layout.layers[static_cast<size_t>(layer)]);
}

}  // namespace

std::vector<int64_t> disk_key_layers(const KvLayout& layout, double share) {
  std::vector<int64_t> with_keys, out;
  for (int64_t i = 0; i < std::ssize(layout.layers); ++i)
    if (layer_block_bytes(layout, i) > 0) with_keys.push_back(i);
  const auto all = std::ssize(with_keys);
  const auto count = std::llround(std::clamp(share, 0.0, 1.0) * static_cast<double>(all));
  for (int64_t i = 0; i < all; ++i)
    if ((i + 1) * count / all > i * count / all) out.push_back(with_keys[static_cast<size_t>(i)]);
  return out;
}

double key_memory_share(const KvLayout& layout, double share) {
  double all = 0, moved = 0, largest = 0;
  for (int64_t i = 0; i < std::ssize(layout.layers); ++i) all += static_cast<double>(layer_block_bytes(layout, i));
  for (const int64_t layer : disk_key_layers(layout, share)) {
    const auto bytes = static_cast<double>(layer_block_bytes(layout, layer));
    moved += bytes;
    largest = std::max(largest, bytes);
  }
  return all > 0 ? std::min(1.0, (all - moved + 2 * largest) / all) : 1;
}

Result<std::shared_ptr<DiskKeys>> DiskKeys::create(KvPool& kv, double share, const std::string& folder) {
  const KvLayout& layout = kv.layout();
  if (kv.committed_blocks() != kv.total_blocks() || kv.divided() || layout.has_residuals() || kv.groups() > 1)
    return Error::unsupported(
        "keys on the disk go with a paged pool whose layers share one block table; give weights=flexgen:keys=memory");
  auto made = std::shared_ptr<DiskKeys>(new DiskKeys(kv));
  int64_t at = 0;
  const int64_t page = page_bytes();
  for (const int64_t index : disk_key_layers(layout, share)) {
    uint8_t* const begin = kv.keys(index, 0, 0);
    const int64_t bytes = (layer_block_bytes(layout, index) * kv.ids() + page - 1) / page * page;
    if (reinterpret_cast<uintptr_t>(begin) % static_cast<uintptr_t>(page) != 0)
      return Error::internal("keys on the disk: a layer does not begin at a page");
    made->layers_.push_back({index, begin, bytes, at});
    at += bytes;
  }
  if (!made->layers_.empty()) MILLRACE_TRY_VOID(made->map(folder));
  return made;
}

DiskKeys::~DiskKeys() {
  if (fd_ >= 0) ::close(fd_);
}

// The pool unmaps the pages with its buffers.
Result<void> DiskKeys::map(const std::string& folder) {
  fd_ = open_unnamed_file(folder);
  if (fd_ < 0) return storage_error(fmt::format("{}: cannot create a file for keys: {}", folder, std::strerror(errno)));
  const int64_t bytes = layers_.back().at + layers_.back().bytes;
  // A page without space on the disk would end the process when it is written.
  if (!reserve_file_space(fd_, bytes, true))
    return storage_error(fmt::format("{}: no room for {} bytes of keys: {}", folder, bytes, std::strerror(errno)));
  for (const Layer& layer : layers_) {
    void* const mapped = ::mmap(layer.begin, static_cast<size_t>(layer.bytes), PROT_READ | PROT_WRITE,
                                MAP_SHARED | MAP_FIXED, fd_, layer.at);
    if (mapped == MAP_FAILED)
      return storage_error(fmt::format("{}: cannot map the file of keys: {}", folder, std::strerror(errno)));
  }
  return {};
}

// Called for each layer that attends, in order. When a layer of the file attends, the one before it has done so and
// leaves memory, and the next one is read.
void DiskKeys::queries(const AttentionInput& input) {
  const auto own = std::ranges::find(layers_, input.layer.layer, &Layer::index);
  if (own == layers_.end()) return;
  const auto index = static_cast<size_t>(own - layers_.begin());
  if (index != last_) release(layers_[last_]);
  last_ = index;
  prefetch(layers_[(index + 1) % layers_.size()], input.batch, input.layer.group);
}

// A plane holds the blocks of a head one after the other; the batch's blocks are between the smallest and the largest.
void DiskKeys::prefetch(const Layer& layer, const Batch& batch, int64_t group) const {
  const std::vector<int32_t>& tables = batch.tables(group);
  if (tables.empty()) return;
  const auto [low, high] = std::ranges::minmax_element(tables);
  const auto first = static_cast<BlockId>(*low);
  const int64_t blocks = *high - *low + 1, page = page_bytes();
  const int64_t heads = kv_.layout().layers[static_cast<size_t>(layer.index)].kv_heads;
  for (int64_t kind = 0; kind < kv_.planes(layer.index); ++kind) {
    for (int64_t head = 0; head < heads; ++head) {
      uint8_t* const from = kv_.plane(layer.index, first, kind, head);
      const int64_t skipped = (from - layer.begin) % page;
      advise_pages(from - skipped, static_cast<size_t>(skipped + blocks * kv_.plane_tile_bytes(layer.index, kind)),
                   PageAdvice::prefetch);
    }
  }
}

// The system starts to write what changed, and drops from its cache what it has written.
void DiskKeys::release(const Layer& layer) const {
  advise_pages(layer.begin, static_cast<size_t>(layer.bytes), PageAdvice::drop);
  drop_cached_pages(fd_, layer.at, layer.bytes);
}

}  // namespace millrace
