#include "kv/staged_layers.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "base/system.h"
#include "kv/pool.h"

namespace millrace {
namespace {

constexpr int64_t kMaxPieces = 32768;  // of the 65530 pieces of memory that Linux allows a process by default

bool takes_turns(const KvLayer& layer) { return layer.kv_heads > 0 && !layer.side; }

KvPart plane_part(const KvLayer& layer, int64_t plane) {
  return plane == 0 || layer.values_in_keys ? KvPart::keys : KvPart::values;
}

class MemoryFile {
 public:
  explicit MemoryFile(int64_t bytes) : fd_(make_memory_file("millrace-staged-keys")) {
    if (fd_ >= 0 && ::ftruncate(fd_, bytes) != 0) close();
  }
  ~MemoryFile() { close(); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  int fd() const { return fd_; }

 private:
  void close() {
    const int error = errno;
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
    errno = error;
  }
  int fd_;
};

}  // namespace

std::vector<int8_t> layer_turns(const KvLayout& layout) {
  std::vector<int8_t> turns;
  int64_t next = 0;
  for (const KvLayer& layer : layout.layers)
    turns.push_back(takes_turns(layer) ? static_cast<int8_t>(next++ % StagedLayers::kTurns) : int8_t{-1});
  return turns;
}

int64_t staged_multiple(const KvLayout& layout, int64_t page_bytes) {
  int64_t multiple = 1;
  for (const KvLayer& layer : layout.layers) {
    if (!takes_turns(layer)) continue;
    for (int64_t plane = 0; plane < layer.planes(); ++plane) {
      const int64_t tile = layout.tile_bytes(layer, plane_part(layer, plane));
      multiple = std::lcm(multiple, page_bytes / std::gcd(page_bytes, tile));
    }
  }
  return multiple;
}

int64_t staged_bytes(const KvLayout& layout, int64_t blocks, int64_t resident) {
  if (resident >= blocks) return blocks * layout.block_bytes();
  int64_t bytes = 0, largest = 0;
  for (const KvLayer& layer : layout.layers) {
    bytes += (takes_turns(layer) ? resident : blocks) * layout.block_bytes(layer);
    if (takes_turns(layer)) largest = std::max(largest, layout.block_bytes(layer));
  }
  return bytes + StagedLayers::kTurns * (blocks - resident) * largest;
}

Result<StagedLayers> map_staged_layers(const KvLayout& layout, int64_t blocks, int64_t resident,
                                       const std::vector<uint8_t*>& layers) {
  StagedLayers staged{resident, layer_turns(layout)};
  int64_t largest = 0, pieces = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (staged.turns[i] < 0) continue;
    largest = std::max(largest, layout.block_bytes(layout.layers[i]));
    pieces += layout.layers[i].kv_heads * layout.layers[i].planes();
  }
  if (pieces > kMaxPieces)
    return Error::unsupported(fmt::format(
        "KV tier disk: {} layers and heads are more pieces of memory than a process may map; keep all keys in memory",
        pieces));
  const int64_t others = blocks - resident, turn_bytes = others * largest;
  const MemoryFile file(StagedLayers::kTurns * turn_bytes);
  if (file.fd() < 0)
    return Error::resource(fmt::format("KV tier disk: no memory that layers share: {}", std::strerror(errno)));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (staged.turns[i] < 0) continue;
    const KvLayer& layer = layout.layers[i];
    int64_t at = staged.turns[i] * turn_bytes;
    uint8_t* plane_begin = layers[i];
    for (int64_t plane = 0; plane < layer.planes(); ++plane) {
      const int64_t tile = layout.tile_bytes(layer, plane_part(layer, plane));
      for (int64_t head = 0; head < layer.kv_heads; ++head, at += others * tile) {
        uint8_t* to = plane_begin + (head * blocks + resident) * tile;
        if (mmap(to, static_cast<size_t>(others * tile), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.fd(),
                 at) == MAP_FAILED)
          return Error::resource(
              fmt::format("KV tier disk: {} bytes cannot be mapped: {}", others * tile, std::strerror(errno)));
      }
      plane_begin += layer.kv_heads * blocks * tile;
    }
  }
  return staged;
}

}  // namespace millrace
