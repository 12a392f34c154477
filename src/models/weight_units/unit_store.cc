#include "models/weight_units/unit_store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/start_thread.h"
#include "base/storage_error.h"
#include "base/system.h"
#include "tensor/locked_memory.h"

namespace millrace {
namespace {

constexpr int64_t kFilePage = 4096;  // of the file: matrices begin at multiples of it

int64_t whole_pages(int64_t bytes) { return (bytes + kFilePage - 1) / kFilePage * kFilePage; }

}  // namespace

int64_t UnitStore::bytes_of(const std::vector<WeightRange>& ranges) {
  int64_t bytes = 0;
  for (const WeightRange& range : ranges) bytes += whole_pages(range.bytes);
  return bytes;
}

UnitStore::UnitStore(WeightFile file, const Options& options, std::unique_ptr<KeepOrder> order)
    : file_(std::move(file)),
      options_(options),
      depth_(options.depth),
      pages_(options.capacity),
      order_(std::move(order)) {}

UnitStore::~UnitStore() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  io_.reset();
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<UnitStore>> UnitStore::create(WeightFile file, std::vector<Unit> units, const Options& options,
                                                     std::unique_ptr<KeepOrder> order) {
  auto store = std::unique_ptr<UnitStore>(new UnitStore(std::move(file), options, std::move(order)));
  MILLRACE_TRY_VOID(store->open());
  for (Unit& unit : units) store->add(std::move(unit));
  MILLRACE_TRY(store->thread_, start_thread("weight reader", [raw = store.get()] { raw->loop(); }));
  MILLRACE_TRY_VOID(store->read_kept());
  if (options.lock) MILLRACE_TRY_VOID(store->lock_kept());
  return store;
}

Result<void> UnitStore::open() {
  const std::string& path = file_.mapped->path();
  fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd_ < 0) return storage_error(fmt::format("{}: cannot open: {}", path, std::strerror(errno)));
  const int64_t bytes = static_cast<int64_t>(file_.mapped->bytes().size()) - file_.payload;
  MILLRACE_TRY(memory_, AlignedBuffer::reserve(bytes, "addresses of weights", false));
  direct_ = try_direct_io(fd_, memory_.data(), file_.payload);
  memory_.give_back(0, kFilePage);
  const int64_t depth = depth_.max();
  io_ = file_.io ? file_.io(fd_, depth) : make_block_io(fd_, depth, true);
  flights_.resize(static_cast<size_t>(io_->depth()));
  for (size_t i = flights_.size(); i-- > 0;) free_tags_.push_back(i);
  return {};
}

// Adjacent matrices become one extent, so that pages of any size leave memory with the unit.
void UnitStore::add(Unit unit) {
  Held held;
  held.kept = unit.kept;
  held.name = std::move(unit.name);
  std::ranges::sort(unit.ranges, {}, &WeightRange::begin);
  for (const WeightRange& range : unit.ranges) {
    const int64_t end = range.begin + whole_pages(range.bytes);
    auto piece = std::ranges::lower_bound(file_.pieces, range.begin, {}, &WeightPiece::begin);
    for (; piece != file_.pieces.end() && piece->begin < end; ++piece)
      held.pieces.push_back(static_cast<uint32_t>(piece - file_.pieces.begin()));
    const int64_t at = range.begin - file_.payload;
    if (!held.extents.empty() && held.extents.back().begin + held.extents.back().bytes == at)
      held.extents.back().bytes += end - range.begin;
    else
      held.extents.push_back({at, end - range.begin});
    held.bytes += end - range.begin;
  }
  if (held.pieces.empty()) held.state = State::ready;
  // Kept units have huge pages where the whole page is theirs.
  for (const Extent& extent : held.extents) {
    const int64_t first = (extent.begin + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    const int64_t last = (extent.begin + extent.bytes) / kHugePageBytes * kHugePageBytes;
    if (held.kept && first < last)
      advise_pages(memory_.data() + first, static_cast<size_t>(last - first), PageAdvice::huge);
  }
  (held.kept ? figures_.kept_bytes : figures_.cache_bytes) += held.bytes;
  figures_.cache_bytes = std::min(figures_.cache_bytes, options_.capacity);
  units_.push_back(std::move(held));
}

Result<void> UnitStore::read_kept() {
  std::unique_lock lock(mutex_);
  for (size_t u = 0; u < units_.size(); ++u)
    if (units_[u].kept && units_[u].state == State::absent) demands_.push_back(u);
  work_.notify_one();
  const auto done = [&](const Held& unit) { return !unit.kept || unit.state == State::ready; };
  const auto failed = [](const Held& unit) { return unit.error.has_value(); };
  changed_.wait(lock, [&] { return std::ranges::any_of(units_, failed) || std::ranges::all_of(units_, done); });
  const auto first = std::ranges::find_if(units_, failed);
  if (first != units_.end()) return *first->error;
  const auto [kept, cache] = std::pair(figures_.kept_bytes, figures_.cache_bytes);
  depth_.choose();
  figures_ = {.io = io_->name(), .direct = direct_, .kept_bytes = kept, .cache_bytes = cache};
  return {};
}

Result<void> UnitStore::lock_kept() {
  for (const Held& unit : units_) {
    for (const Extent& extent : unit.extents) {
      const uint8_t* const begin = memory_.data() + extent.begin;
      if (unit.kept) MILLRACE_TRY_VOID(lock_memory({begin, static_cast<size_t>(extent.bytes)}));
    }
  }
  return {};
}

size_t UnitStore::count_group(std::span<const size_t> units) const {
  size_t count = 0;
  for (int64_t bytes = 0; count < units.size(); ++count) {
    const Held& unit = units_[units[count]];
    bytes += unit.kept ? 0 : unit.bytes;
    if (count > 0 && bytes > options_.group_bytes) break;
  }
  return count;
}

void UnitStore::expect(std::span<const size_t> rest, std::span<const size_t> next) {
  expected_.clear();
  ++expectations_;
  for (const auto list : {rest, next})
    for (size_t u : list)
      if (units_[u].state == State::absent) expected_.push_back(u);
  if (!expected_.empty()) work_.notify_one();
}

Result<int64_t> UnitStore::begin(std::span<const size_t> all, std::span<const size_t> next) {
  const auto until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options_.timeout));
  std::unique_lock lock(mutex_);
  const size_t count = count_group(all);
  const auto units = all.first(count);
  for (size_t u : units) {
    const bool present = units_[u].state == State::ready;
    order_->used(u, present);
    ++(present ? figures_.hits : figures_.misses);
  }
  const auto ready = [&](size_t u) { return units_[u].state == State::ready; };
  std::unique_lock<std::timed_mutex> turn(turn_, std::defer_lock);
  if (!std::ranges::all_of(units, ready)) {
    lock.unlock();
    if (!turn.try_lock_until(until))
      return Error::internal(fmt::format("{}: another pass has waited {:g} s for weights; the disk is too slow",
                                         file_.mapped->path(), options_.timeout));
    lock.lock();
  }
  for (size_t u : units) ++units_[u].leases;
  if (turn.owns_lock()) {
    for (size_t u : units) {
      units_[u].error.reset();
      if (units_[u].state == State::absent) demands_.push_back(u);
      if (units_[u].state != State::reading) continue;
      std::erase(reading_, u);
      reading_.push_front(u);
    }
    work_.notify_one();
  }
  expect(all.subspan(count), next);
  if (turn.owns_lock()) MILLRACE_TRY_VOID(wait_for(units, lock, until));
  for (size_t u : units) {
    if (!std::exchange(units_[u].expected, false)) continue;
    ++figures_.prefetched_used;
    right_ = (1 - kNewShare) * right_ + kNewShare;
  }
  return static_cast<int64_t>(count);
}

Result<void> UnitStore::wait_for(std::span<const size_t> units, std::unique_lock<std::mutex>& lock,
                                 Clock::time_point until) {
  const auto start = Clock::now();
  const auto ready = [&](size_t u) { return units_[u].state == State::ready; };
  const auto failed = [&](size_t u) { return units_[u].error.has_value(); };
  const bool ended = changed_.wait_until(
      lock, until, [&] { return std::ranges::any_of(units, failed) || std::ranges::all_of(units, ready); });
  figures_.wait_ns += std::chrono::nanoseconds(Clock::now() - start).count();
  const auto bad = std::ranges::find_if(units, failed);
  if (ended && bad == units.end()) return {};
  const std::string why = bad != units.end()
                              ? units_[*bad].error->message
                              : fmt::format("{}: weights of {} were not read within {:g} s; the disk is too slow",
                                            file_.mapped->path(), units_[units.front()].name, options_.timeout);
  demands_.clear();  // of this pass alone: only one waits
  for (size_t u : units) {
    units_[u].error.reset();
    --units_[u].leases;
  }
  work_.notify_one();
  return Error::internal(why);
}

void UnitStore::end(size_t unit) {
  const std::lock_guard lock(mutex_);
  if (--units_[unit].leases == 0 && (!demands_.empty() || !expected_.empty())) work_.notify_one();
}

WeightFigures UnitStore::figures() const {
  const std::lock_guard lock(mutex_);
  WeightFigures out = figures_;
  out.depth = std::min(depth_.now(), std::ssize(flights_));
  out.pages = pages_.name();
  return out;
}

}  // namespace millrace
