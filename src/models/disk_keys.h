// DiskKeys: keys and values of some layers of a pool are in a file, as FlexGen places them (Sheng et al., 2023; its
// tensors on the disk are mapped files, too). The pages of these layers' buffers are mapped to the file, at the
// addresses that they had, so that nothing that reads or writes the pool knows of it.
//
//   layer attends       i (memory)     j (file)      k (memory)     l (file)
//   from the disk       j is read      l is read ahead ...
//   to the disk                                      j is written, and its pages leave this process's memory
//
// At any time the pages of about two such layers are in memory. Bits do not change. Not thread-safe: called by passes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kv/pool.h"
#include "models/forward_hooks.h"

namespace millrace {

// The layers whose keys are in a file: `share` of those that have keys, spread evenly.
std::vector<int64_t> disk_key_layers(const KvLayout& layout, double share);
// The share of the pool's bytes that stays in memory.
double key_memory_share(const KvLayout& layout, double share);

class DiskKeys final : public ForwardObserver {
 public:
  // `kv` has been created, and nothing is stored there; it must outlive the object. `folder`: where the file is; it has
  // no name there. Errors: unsupported (virtual pools, block tables by layer or head, residuals), storage.
  static Result<std::shared_ptr<DiskKeys>> create(KvPool& kv, double share, const std::string& folder);
  ~DiskKeys() override;
  DiskKeys(const DiskKeys&) = delete;

  int64_t layers() const { return std::ssize(layers_); }

  void queries(const AttentionInput& input) override;

 private:
  struct Layer {
    int64_t index = 0;  // in the pool
    uint8_t* begin = nullptr;
    int64_t bytes = 0, at = 0;  // in memory, and where they begin in the file
  };

  explicit DiskKeys(KvPool& kv) : kv_(kv) {}
  Result<void> map(const std::string& folder);
  void prefetch(const Layer& layer, const Batch& batch, int64_t group) const;
  void release(const Layer& layer) const;

  KvPool& kv_;
  int fd_ = -1;
  std::vector<Layer> layers_;
  size_t last_ = 0;  // the one that attended last
};

}  // namespace millrace
