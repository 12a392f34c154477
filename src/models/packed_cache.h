// The packed cache: a file with a model's packed weights, so that the next start maps it instead of packing again.
//
//   | prelude: 64 bytes | identity text | one XXH3-64 per block | zeros to 2 MiB | packed weights of WeightPacker |
//                                                                                | block | block | ...            |
//
// A block is at most 1 MiB of one matrix, so that the matrices of a layer or of an expert can be read and checked
// alone.
//
// The identity lists line by line what the payload depends on: instruction set, the size, time and first bytes of each
// of the model's files, and name, format, layout, shape and offset of each matrix. A cache is used only if its identity
// equals the current one exactly and all hashes match: the prelude's hash everything before the payload, and each
// block's hash the block. In addition, the first rows of some matrices are packed again and must match the cached
// bytes. Every byte of the file is covered by a hash. If all weights are mapped, each block is read once before the
// first answer, and later changes are not detected. Sources that check their reads (`checks_reads`) compare a block's
// hash whenever they read it.
//
// Written under a temporary name, synced, then renamed: a crash leaves the old file or none. Everything on disk is
// little-endian and frozen; any change requires a new kPackedCacheVersion.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/kernel_table.h"
#include "loader/model_files.h"
#include "models/weight_packer.h"
#include "models/weight_source.h"

namespace millrace {

// Version 1 had one hash per matrix, verified only on request; version 2 had blocks of 8 MiB that matrices shared.
inline constexpr uint32_t kPackedCacheVersion = 3;

class PackedCache {
 public:
  // `packer` is arranged, and its weights still have their stored data. All must outlive the cache.
  PackedCache(std::string path, const ModelFiles& files, Isa isa, const WeightPacker& packer);

  struct Opened {
    std::shared_ptr<const MappedFile> file;
    const uint8_t* packed = nullptr;
  };
  struct Check {
    bool verify = false;   // also packs every matrix again and compares
    bool blocks = true;    // reads every block; false: the weight source checks a block when it reads it
    bool release = false;  // pages are released from this process's memory after they were read
  };
  // Maps the file, reads it and checks every hash; `file` is null if it does not exist. Errors: corrupt (damaged, or of
  // another model, machine or version; the message says which), resource.
  Result<Opened> open(ThreadPool& pool, const Check& check, const std::function<void(double)>& progress) const;
  // The opened file for a weight source.
  WeightFile weight_file(const Opened& opened) const;

  // Errors: resource (the disk is full, the folder cannot be written).
  Result<void> write(ThreadPool& pool, const uint8_t* packed) const;
  // Packs the weights into the file, without memory for all of them. Errors: as write() and WeightPacker::pack().
  Result<void> pack(ThreadPool& pool, const std::function<void(double)>& progress, int64_t window) const;

  const std::string& path() const { return path_; }

 private:
  std::string header(const uint8_t* hashes) const;
  Result<void> check_header(const MappedFile& file) const;
  Result<void> check_rows(const uint8_t* packed, bool all) const;
  Result<void> check_blocks(const MappedFile& file, const uint8_t* packed, ThreadPool& pool,
                            const std::function<void(double)>& progress, bool release) const;
  std::vector<uint64_t> hashes(ThreadPool& pool, const uint8_t* packed, bool release) const;
  Error cannot_write() const;
  const uint8_t* stored_hashes(const MappedFile& file) const;

  std::string path_;
  const ModelFiles& files_;
  const WeightPacker& packer_;
  std::string identity_;
  std::vector<WeightPiece> blocks_;  // blocks of the payload, placed from its beginning; without hashes
  size_t matrices_ = 0;
};

}  // namespace millrace
