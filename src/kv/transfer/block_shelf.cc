#include "kv/transfer/block_shelf.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>

#include "base/system.h"

namespace millrace {
namespace {

constexpr size_t kMaxLeases = 4096;
constexpr uint64_t kUnknownTenant = ~uint64_t{0};

uint64_t random_number() {
  std::random_device source;
  return (static_cast<uint64_t>(source()) << 32 | source()) | 1;  // never 0
}

}  // namespace

Result<std::unique_ptr<BlockShelf>> BlockShelf::create(const Options& options) {
  auto shelf = std::unique_ptr<BlockShelf>(new BlockShelf(options));
  MILLRACE_TRY_VOID(shelf->map());
  return shelf;
}

Result<void> BlockShelf::map() {
  file_ = make_memory_file("millrace-blocks");
  if (file_ < 0) return Error::resource(fmt::format("memory for blocks: {}", std::strerror(errno)));
  const auto bytes = static_cast<size_t>(options_.bytes);
  if (::ftruncate(file_, options_.bytes) != 0)
    return Error::resource(fmt::format("memory for blocks, {} bytes: {}", bytes, std::strerror(errno)));
  void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED)
    return Error::resource(fmt::format("memory for blocks, {} bytes: {}", bytes, std::strerror(errno)));
  memory_ = static_cast<uint8_t*>(mapped);
  gaps_[0] = options_.bytes;
  stats_.free = options_.bytes;
  return {};
}

BlockShelf::~BlockShelf() {
  if (memory_) ::munmap(memory_, static_cast<size_t>(options_.bytes));
  if (file_ >= 0) ::close(file_);
}

BlockShelf::Clock::time_point BlockShelf::lease_end() const {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.lease_seconds));
}

// ---- Memory -----------------------------------------------------------------------------------------------------

// The first gap that is large enough; -1: none.
int64_t BlockShelf::take(int64_t bytes) {
  for (auto gap = gaps_.begin(); gap != gaps_.end(); ++gap) {
    if (gap->second < bytes) continue;
    const auto [offset, room] = *gap;
    gaps_.erase(gap);
    if (room > bytes) gaps_[offset + bytes] = room - bytes;
    return offset;
  }
  return -1;
}

// Joins the gap with its neighbours.
void BlockShelf::give(int64_t offset, int64_t bytes) {
  auto next = gaps_.lower_bound(offset);
  if (next != gaps_.end() && next->first == offset + bytes) {
    bytes += next->second;
    next = gaps_.erase(next);
  }
  if (next != gaps_.begin())
    if (const auto before = std::prev(next); before->first + before->second == offset) {
      before->second += bytes;
      return;
    }
  gaps_[offset] = bytes;
}

uint64_t BlockShelf::tenant_of(const ShelfBlock& block, const PrefixKey& parent) const {
  if (parent.high == 0) return parent.low;  // root_key(): the scope, without an identity
  const auto before = entries_.find({block.identity, parent});
  return before == entries_.end() ? kUnknownTenant : before->second.tenant;
}

void BlockShelf::erase(const ShelfBlock& block) {
  const auto found = entries_.find(block);
  const Entry& entry = found->second;
  give(entry.offset, entry.bytes);
  stats_.free += entry.bytes;
  stats_.idle -= entry.bytes;
  if (const auto tenant = tenants_.find(entry.tenant); (tenant->second -= entry.bytes) == 0) tenants_.erase(tenant);
  order_.erase(entry.place);
  entries_.erase(found);
}

// Evicts the least recently used block that no lease holds. `tenant`: only one of this tenant; null: of any.
bool BlockShelf::evict(const uint64_t* tenant) {
  const auto found = std::ranges::find_if(order_, [&](const ShelfBlock& block) {
    const Entry& entry = entries_.find(block)->second;
    return entry.holds == 0 && (!tenant || entry.tenant == *tenant);
  });
  if (found == order_.end()) return false;
  erase(ShelfBlock(*found));
  ++stats_.evicted_blocks;
  return true;
}

bool BlockShelf::make_room(int64_t bytes, uint64_t tenant, int64_t& offset) {
  const auto share = static_cast<int64_t>(options_.tenant_share * static_cast<double>(options_.bytes));
  const auto used = [&] {
    const auto found = tenants_.find(tenant);
    return found == tenants_.end() ? 0 : found->second;
  };
  while (used() + bytes > share)
    if (used() == 0 || !evict(&tenant)) return false;
  while ((offset = take(bytes)) < 0)
    if (!evict(nullptr)) return false;
  return true;
}

bool BlockShelf::put(const ShelfBlock& block, const PrefixKey& parent, int64_t bytes,
                     const std::function<void(std::span<uint8_t>)>& fill) {
  std::lock_guard lock(mutex_);
  expire();
  if (const auto found = entries_.find(block); found != entries_.end()) {
    order_.splice(order_.end(), order_, found->second.place);
    return true;
  }
  const uint64_t tenant = tenant_of(block, parent);
  int64_t offset = -1;
  if (bytes <= 0 || !make_room(bytes, tenant, offset)) {
    ++stats_.refused_blocks;
    return false;
  }
  fill({memory_ + offset, static_cast<size_t>(bytes)});
  Entry& entry = entries_[block];
  entry = {offset, bytes, parent, tenant, 0, order_.insert(order_.end(), block)};
  tenants_[tenant] += bytes;
  stats_.free -= bytes;
  stats_.idle += bytes;
  ++stats_.stored_blocks;
  return true;
}

bool BlockShelf::holds(const ShelfBlock& block) const {
  std::lock_guard lock(mutex_);
  return entries_.contains(block);
}

// ---- Leases -----------------------------------------------------------------------------------------------------

void BlockShelf::hold_entry(Lease& lease, const ShelfBlock& block, Entry& entry) {
  if (lease.every && lease.held.empty()) lease.until = lease_end();
  if (!lease.held.insert_or_assign(block, lease_end()).second || entry.holds++ > 0) return;
  stats_.held += entry.bytes;
  stats_.idle -= entry.bytes;
}

void BlockShelf::let_go(const ShelfBlock& block) {
  Entry& entry = entries_.find(block)->second;
  if (--entry.holds > 0) return;
  stats_.held -= entry.bytes;
  stats_.idle += entry.bytes;
}

void BlockShelf::release(Lease& lease) {
  for (const auto& [block, until] : lease.held) let_go(block);
  lease.held.clear();
}

// Lets the blocks go whose time is over.
void BlockShelf::release_late(Lease& lease, Clock::time_point now) {
  lease.until = Clock::time_point::max();
  for (auto one = lease.held.begin(); one != lease.held.end();) {
    if (one->second > now) {
      lease.until = std::min(lease.until, one->second);
      ++one;
      continue;
    }
    let_go(one->first);
    one = lease.held.erase(one);
  }
}

void BlockShelf::expire() {
  const auto now = Clock::now();
  for (auto one = leases_.begin(); one != leases_.end();) {
    if (one->second.until > now) {
      ++one;
      continue;
    }
    if (one->second.every) {
      release_late((one++)->second, now);
      continue;
    }
    ++stats_.expired_leases;
    release(one->second);
    one = leases_.erase(one);
  }
}

uint64_t BlockShelf::lease(std::span<const PrefixKey> keys) {
  std::lock_guard lock(mutex_);
  expire();
  if (leases_.size() >= kMaxLeases) return 0;
  const uint64_t number = random_number();
  Lease& lease = leases_[number];
  lease.until = lease_end();
  lease.keys.insert(keys.begin(), keys.end());
  for (auto& [block, entry] : entries_)
    if (lease.keys.contains(block.key) || lease.keys.contains(entry.parent)) hold_entry(lease, block, entry);
  return number;
}

uint64_t BlockShelf::open_lease() {
  std::lock_guard lock(mutex_);
  expire();
  if (leases_.size() >= kMaxLeases) return 0;
  const uint64_t number = random_number();
  leases_[number] = {.every = true, .keys = {}, .held = {}, .until = lease_end()};
  return number;
}

// The block, if it is there and the lease covers it; renews the lease.
BlockShelf::Entry* BlockShelf::covered(uint64_t lease, const ShelfBlock& block) {
  expire();
  const auto found = leases_.find(lease);
  const auto entry = entries_.find(block);
  if (entry == entries_.end()) return nullptr;
  Lease* given = found == leases_.end() ? nullptr : &found->second;
  if (!given || !(given->every || given->keys.contains(block.key) || given->keys.contains(entry->second.parent))) {
    ++stats_.refused_reads;
    return nullptr;
  }
  if (!given->every) given->until = lease_end();
  hold_entry(*given, block, entry->second);
  order_.splice(order_.end(), order_, entry->second.place);
  return &entry->second;
}

bool BlockShelf::hold(uint64_t lease, const ShelfBlock& block) {
  std::lock_guard lock(mutex_);
  return covered(lease, block) != nullptr;
}

bool BlockShelf::read(uint64_t lease, const ShelfBlock& block,
                      const std::function<void(std::span<const uint8_t>, uint64_t)>& read) {
  std::lock_guard lock(mutex_);
  const Entry* entry = covered(lease, block);
  if (!entry) return false;
  read({memory_ + entry->offset, static_cast<size_t>(entry->bytes)}, static_cast<uint64_t>(entry->offset));
  ++stats_.read_blocks;
  stats_.read_bytes += entry->bytes;
  return true;
}

void BlockShelf::done(uint64_t lease, const ShelfBlock& block) {
  std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  if (found->second.held.erase(block) > 0) let_go(block);
}

void BlockShelf::end(uint64_t lease) {
  std::lock_guard lock(mutex_);
  const auto found = leases_.find(lease);
  if (found == leases_.end()) return;
  release(found->second);
  leases_.erase(found);
}

ShelfStats BlockShelf::stats() {
  std::lock_guard lock(mutex_);
  expire();
  ShelfStats out = stats_;
  out.capacity = options_.bytes;
  out.blocks = std::ssize(entries_);
  out.leases = std::ssize(leases_);
  return out;
}

}  // namespace millrace
