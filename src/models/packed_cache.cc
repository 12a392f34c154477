#include "models/packed_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/cpu.h"
#include "base/pending_file.h"
#include "base/system.h"

namespace millrace {
namespace {

constexpr char kMagic[8] = {'M', 'I', 'L', 'L', 'P', 'A', 'C', 'K'};  // frozen
constexpr int64_t kIdentityBytesOfFile = 1 << 20;  // hashed at the start of each model file: mostly its header
constexpr size_t kMatricesTried = 32;
constexpr int64_t kBlockBytes = int64_t{1} << 20;  // frozen; read and hashed at once

struct Prelude {  // frozen
  char magic[8];
  uint32_t version;
  uint32_t blocks;
  uint64_t identity_bytes;
  uint64_t payload_at;  // a multiple of the huge page size, so that the mapping can use huge pages
  uint64_t payload_bytes;
  uint64_t reserved[2];
  uint64_t hash;  // XXH3-64 of all bytes before the payload, this field taken as 0
};
static_assert(sizeof(Prelude) == 64);

std::string describe_files(const ModelFiles& files) {
  std::string out;
  for (const auto& file : files.files) {
    const std::span<const uint8_t> bytes = file->bytes();
    const XXH128_hash_t hash = XXH3_128bits(bytes.data(), std::min<size_t>(bytes.size(), kIdentityBytesOfFile));
    out += fmt::format("file {} bytes, modified {}, begins {:016x}{:016x}\n", bytes.size(), file->modified_ns(),
                       hash.high64, hash.low64);
  }
  return out;
}

int64_t payload_at(size_t header_bytes) {
  return (static_cast<int64_t>(header_bytes) + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
}

// Describes the first line in which two texts differ.
std::string first_difference(std::string_view wanted, std::string_view found) {
  const auto [a, b] = std::ranges::mismatch(wanted, found);
  const auto line = [](std::string_view text, size_t at) {
    const size_t begin = at == 0 ? 0 : text.rfind('\n', at - 1) + 1;
    return std::string(text.substr(begin, std::min(text.find('\n', begin), begin + 200) - begin));
  };
  return fmt::format("it says '{}', this start has '{}'", line(found, static_cast<size_t>(b - found.begin())),
                     line(wanted, static_cast<size_t>(a - wanted.begin())));
}

// The blocks of all matrices, in the order of the file; zeros behind a matrix belong to its last block.
std::vector<WeightPiece> cut_blocks(const WeightPacker& packer) {
  std::vector<int64_t> begins;
  for (const auto& planned : packer.planned())
    if (planned.bytes > 0) begins.push_back(planned.offset);
  std::ranges::sort(begins);
  begins.push_back(packer.packed_bytes());
  std::vector<WeightPiece> out;
  for (size_t i = 0; i + 1 < begins.size(); ++i)
    for (int64_t at = begins[i]; at < begins[i + 1]; at += kBlockBytes)
      out.push_back({at, std::min(kBlockBytes, begins[i + 1] - at)});
  return out;
}

// Bytes [at, at + bytes) of a file, mapped to be written. They get disk space first: a full disk must not end the
// process.
class WritableRange {
 public:
  WritableRange(const PendingFile& file, int64_t at, int64_t bytes) : bytes_(bytes) {
    if (!file.created()) return;
    if (!reserve_file_space(file.fd(), at + bytes, true)) return;
    void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, MAP_SHARED, file.fd(), at);
    if (mapped != MAP_FAILED) data_ = static_cast<uint8_t*>(mapped);
  }
  ~WritableRange() {
    if (data_) ::munmap(data_, static_cast<size_t>(bytes_));
  }
  WritableRange(const WritableRange&) = delete;

  uint8_t* data() const { return data_; }  // null: it cannot be had, for the reason in errno

 private:
  int64_t bytes_;
  uint8_t* data_ = nullptr;
};

}  // namespace

PackedCache::PackedCache(std::string path, const ModelFiles& files, Isa isa, const WeightPacker& packer)
    : path_(std::move(path)), files_(files), packer_(packer) {
  identity_ = fmt::format("millrace packed weights\ninstruction set {}\n{}", isa_name(isa), describe_files(files));
  for (const auto& planned : packer.planned()) {
    if (!planned.weight) continue;
    const Weight& weight = *planned.weight;
    const std::string from = planned.converted() ? fmt::format(" from {}", planned.stored->format->name) : "";
    identity_ += fmt::format("matrix {} {}{} {} {} x {} at {}: {} bytes\n", weight.name, weight.format->name, from,
                             weight.kernel->layout, weight.rows, weight.cols, planned.offset, planned.bytes);
    ++matrices_;
  }
  blocks_ = cut_blocks(packer);
}

const uint8_t* PackedCache::stored_hashes(const MappedFile& file) const {
  return file.bytes().data() + sizeof(Prelude) + identity_.size();
}

// Everything before the payload; `hashes` holds one for each block.
std::string PackedCache::header(const uint8_t* hashes) const {
  const size_t hash_bytes = blocks_.size() * sizeof(uint64_t);
  Prelude prelude = {};
  std::memcpy(prelude.magic, kMagic, sizeof kMagic);
  prelude.version = kPackedCacheVersion;
  prelude.blocks = static_cast<uint32_t>(blocks_.size());
  prelude.identity_bytes = identity_.size();
  prelude.payload_at = static_cast<uint64_t>(payload_at(sizeof prelude + identity_.size() + hash_bytes));
  prelude.payload_bytes = static_cast<uint64_t>(packer_.packed_bytes());
  std::string out(reinterpret_cast<const char*>(&prelude), sizeof prelude);
  out += identity_;
  out.append(reinterpret_cast<const char*>(hashes), hash_bytes);
  out.resize(prelude.payload_at);
  prelude.hash = XXH3_64bits(out.data(), out.size());
  std::memcpy(out.data(), &prelude, sizeof prelude);
  return out;
}

Result<void> PackedCache::check_header(const MappedFile& file) const {
  const std::span<const uint8_t> bytes = file.bytes();
  Prelude prelude;
  if (bytes.size() < sizeof prelude) return Error::corrupt(fmt::format("{}: has only {} bytes", path_, bytes.size()));
  std::memcpy(&prelude, bytes.data(), sizeof prelude);
  if (std::memcmp(prelude.magic, kMagic, sizeof kMagic) != 0)
    return Error::corrupt(fmt::format("{}: is not a packed cache", path_));
  if (prelude.version != kPackedCacheVersion)
    return Error::corrupt(
        fmt::format("{}: has version {}, this build uses {}", path_, prelude.version, kPackedCacheVersion));
  const uint64_t rest = bytes.size() - sizeof prelude;
  if (prelude.identity_bytes > rest || prelude.blocks > (rest - prelude.identity_bytes) / sizeof(uint64_t))
    return Error::corrupt(fmt::format("{}: the header does not fit in {} bytes", path_, bytes.size()));
  const auto at =
      static_cast<uint64_t>(payload_at(sizeof prelude + prelude.identity_bytes + prelude.blocks * sizeof(uint64_t)));
  if (at > bytes.size())
    return Error::corrupt(fmt::format("{}: is cut off in the header, after {} bytes", path_, bytes.size()));
  std::string header(reinterpret_cast<const char*>(bytes.data()), at);
  std::memset(header.data() + offsetof(Prelude, hash), 0, sizeof prelude.hash);
  if (XXH3_64bits(header.data(), header.size()) != prelude.hash)
    return Error::corrupt(fmt::format("{}: the header is damaged", path_));
  const std::string_view identity = std::string_view(header).substr(sizeof prelude, prelude.identity_bytes);
  if (identity != identity_)
    return Error::corrupt(
        fmt::format("{}: is for another model or machine: {}", path_, first_difference(identity_, identity)));
  // The identity contains the matrices and their offsets: the prelude can only agree with it.
  const auto payload = static_cast<uint64_t>(packer_.packed_bytes());
  if (prelude.blocks != blocks_.size() || prelude.payload_at != at || prelude.payload_bytes != payload ||
      bytes.size() != at + payload)
    return Error::corrupt(fmt::format("{}: has {} bytes, must have {}", path_, bytes.size(), at + payload));
  return {};
}

// Packs the first tile of some matrices, or all of every matrix, and compares: detects a changed layout of the same
// name, and a model file that was modified in place.
Result<void> PackedCache::check_rows(const uint8_t* packed, bool all) const {
  std::vector<uint8_t> again;
  const size_t step = all ? 1 : std::max<size_t>(1, matrices_ / kMatricesTried);
  size_t index = 0;
  for (const auto& planned : packer_.planned()) {
    if (!planned.weight || index++ % step != 0) continue;
    const Weight& weight = *planned.weight;
    const int64_t rows = all ? weight.rows : std::min<int64_t>(weight.rows, weight.kernel->row_tile);
    again.assign(static_cast<size_t>(packed_bytes(weight, rows)), 0);
    WeightPacker::pack_rows(planned, 0, rows, again.data());
    const uint8_t* const stored = planned.stored->data;
    const int64_t read = planned.converted() ? rows * stored_row_bytes(*planned.stored) : std::ssize(again);
    files_.release(stored, stored + read);  // at least a huge page if mapped in huge pages
    if (std::memcmp(again.data(), packed + planned.offset, again.size()) != 0)
      return Error::corrupt(fmt::format("{}: {} does not match the model's file", path_, weight.name));
  }
  return {};
}

// Reads every block and compares its hash with the header's.
Result<void> PackedCache::check_blocks(const MappedFile& file, const uint8_t* packed, ThreadPool& pool,
                                       const std::function<void(double)>& progress, bool release) const {
  const uint8_t* stored = stored_hashes(file);
  const auto first = static_cast<size_t>(packed - file.bytes().data());
  const auto count = std::ssize(blocks_);
  std::atomic<int64_t> damaged{count};  // the first one
  pool.parallel_for(count, [&](int64_t i, int worker) {
    const auto block = static_cast<size_t>(i);
    const auto begin = static_cast<size_t>(blocks_[block].begin), bytes = static_cast<size_t>(blocks_[block].bytes);
    uint64_t wanted;
    std::memcpy(&wanted, stored + block * sizeof wanted, sizeof wanted);
    file.populate(first + begin, bytes);
    if (XXH3_64bits(packed + begin, bytes) != wanted) {
      for (int64_t seen = damaged; i < seen && !damaged.compare_exchange_weak(seen, i);) {
      }
    }
    if (release) file.release(first + begin, bytes);
    if (worker == 0 && progress) progress(static_cast<double>(i + 1) / static_cast<double>(count));
  });
  if (damaged == count) return {};
  const WeightPiece& block = blocks_[static_cast<size_t>(damaged.load())];
  const int64_t at = static_cast<int64_t>(first) + block.begin;
  return Error::corrupt(
      fmt::format("{}: the packed weights are damaged between bytes {} and {}", path_, at, at + block.bytes));
}

WeightFile PackedCache::weight_file(const Opened& opened) const {
  WeightFile out{.mapped = opened.file, .payload = opened.packed - opened.file->bytes().data(), .pieces = blocks_};
  const uint8_t* stored = stored_hashes(*opened.file);
  for (WeightPiece& piece : out.pieces) {
    piece.begin += out.payload;
    std::memcpy(&piece.hash, stored, sizeof piece.hash);
    stored += sizeof piece.hash;
  }
  return out;
}

Result<PackedCache::Opened> PackedCache::open(ThreadPool& pool, const Check& check,
                                              const std::function<void(double)>& progress) const {
  std::error_code ignored;
  if (!std::filesystem::exists(path_, ignored)) return Opened{};
  MILLRACE_TRY(auto file, MappedFile::open(path_));
  MILLRACE_TRY_VOID(check_header(*file));
  const uint8_t* packed = file->bytes().data() + file->bytes().size() - packer_.packed_bytes();
  MILLRACE_TRY_VOID(check_rows(packed, check.verify));
  if (check.blocks) MILLRACE_TRY_VOID(check_blocks(*file, packed, pool, progress, check.release));
  if (check.release) file->release(0, file->bytes().size());  // of check_rows()
  return Opened{std::move(file), packed};
}

// `release`: of a mapped file, whose blocks leave this process's memory.
std::vector<uint64_t> PackedCache::hashes(ThreadPool& pool, const uint8_t* packed, bool release) const {
  std::vector<uint64_t> out(blocks_.size());
  pool.parallel_for(std::ssize(out), [&](int64_t i, int) {
    const WeightPiece& block = blocks_[static_cast<size_t>(i)];
    const auto bytes = static_cast<size_t>(block.bytes);
    out[static_cast<size_t>(i)] = XXH3_64bits(packed + block.begin, bytes);
    if (release) advise_pages(packed + block.begin, bytes, PageAdvice::drop);
  });
  return out;
}

Error PackedCache::cannot_write() const {
  return Error::resource(fmt::format("{}: cannot write the packed cache: {}", path_, std::strerror(errno)));
}

Result<void> PackedCache::pack(ThreadPool& pool, const std::function<void(double)>& progress, int64_t window) const {
  const int64_t at = payload_at(sizeof(Prelude) + identity_.size() + blocks_.size() * sizeof(uint64_t));
  PendingFile file(path_);
  const WritableRange packed(file, at, packer_.packed_bytes());
  if (!packed.data()) return cannot_write();
  MILLRACE_TRY_VOID(packer_.pack_into(packed.data(), pool, progress, window));
  const std::vector<uint64_t> sums = hashes(pool, packed.data(), true);
  const std::string head = header(reinterpret_cast<const uint8_t*>(sums.data()));
  if (!file.write(head.data(), std::ssize(head), 0) || !file.commit()) return cannot_write();
  return {};
}

Result<void> PackedCache::write(ThreadPool& pool, const uint8_t* packed) const {
  const std::vector<uint64_t> sums = hashes(pool, packed, false);
  const std::string head = header(reinterpret_cast<const uint8_t*>(sums.data()));
  PendingFile file(path_);
  const bool written = file.created() && file.write(head.data(), std::ssize(head), 0) &&
                       file.write(packed, packer_.packed_bytes(), payload_at(head.size())) && file.commit();
  if (!written) return cannot_write();
  return {};
}

}  // namespace millrace
