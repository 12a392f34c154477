// UnitStore: the thread that reads, and the room that units are read into.
#include <fmt/format.h>
#include <sys/stat.h>
#include <xxhash.h>

#include <algorithm>

#include "base/storage_error.h"
#include "base/system.h"
#include "models/weight_units/unit_store.h"

namespace millrace {

// Pieces are started and checked without the lock: only this thread uses io_, flights_ and free_tags_. One piece is
// checked at a time, because a disk often completes all reads in flight together: it would be idle while they all are
// checked.
void UnitStore::loop() {
  std::vector<uint64_t> starts;
  std::unique_lock lock(mutex_);
  for (;;) {
    const bool idle = free_tags_.size() == flights_.size();
    starts.clear();
    const auto in_flight = [&] { return std::ssize(flights_) - std::ssize(free_tags_); };
    for (Flight flight; !stop_ && !free_tags_.empty() && in_flight() < depth_.now() && next_flight(flight);) {
      starts.push_back(free_tags_.back());
      free_tags_.pop_back();
      flights_[starts.back()] = flight;
    }
    if (idle && starts.empty()) {
      if (stop_) return;
      work_.wait(lock);
      continue;
    }
    if (idle) busy_since_ = Clock::now();
    lock.unlock();
    for (uint64_t tag : starts) {
      const WeightPiece& piece = file_.pieces[flights_[tag].piece];
      io_->start({.at = piece.begin,
                  .data = memory_.data() + (piece.begin - file_.payload),
                  .bytes = piece.bytes,
                  .tag = tag});
    }
    IoDone done;
    const bool any = io_->wait({&done, 1}) > 0;
    const Flight flight = any ? flights_[done.tag] : Flight{};
    std::optional<Error> error = any ? check(flight, done.ok) : std::nullopt;
    lock.lock();
    if (!any) continue;
    complete(flight, std::move(error));
    free_tags_.push_back(done.tag);
    const auto now = Clock::now();
    const int64_t ns = std::chrono::nanoseconds(now - std::exchange(busy_since_, now)).count();
    figures_.read_ns += ns;
    depth_.was_read(file_.pieces[flight.piece].bytes, ns);
  }
}

// The next piece to start: of a unit that a pass waits for, then of one that is expected.
bool UnitStore::next_flight(Flight& out) {
  while (!demands_.empty() && start_unit(demands_.front(), true)) demands_.pop_front();
  for (bool more = true; more;) {
    for (size_t u : reading_) {
      Held& unit = units_[u];
      if (unit.failing || unit.started == unit.pieces.size()) continue;
      out = {u, unit.pieces[unit.started++]};
      return true;
    }
    more = demands_.empty() && !expected_.empty() && start_unit(expected_.front(), false);
    if (more) expected_.pop_front();
  }
  return false;
}

// Returns false if there is no room for the unit yet.
bool UnitStore::start_unit(size_t u, bool demanded) {
  Held& unit = units_[u];
  if (unit.state != State::absent) return true;
  if (!unit.kept && !make_room(u, demanded)) return false;
  take_pages(unit);
  unit.state = State::reading;
  unit.started = unit.completed = 0;
  unit.failing.reset();
  unit.expected = !demanded;
  unit.expected_at = expectations_;
  if (!demanded) ++figures_.prefetched;
  if (!demanded) {
    reading_.push_back(u);
    return true;
  }
  // Behind the demanded units that are being read, before the expected ones.
  const auto expected = [&](size_t other) { return units_[other].expected && units_[other].leases == 0; };
  reading_.insert(std::ranges::find_if(reading_, expected), u);
  return true;
}

bool UnitStore::make_room(size_t incoming, bool demanded) {
  const int64_t bytes = units_[incoming].bytes;
  while (used_ + bytes > options_.capacity) {
    size_t victim = units_.size();
    double least = 0;
    for (size_t u = 0; u < units_.size(); ++u) {
      const Held& unit = units_[u];
      if (unit.state != State::ready || unit.kept || unit.leases > 0 || unit.bytes == 0) continue;
      if (!demanded && unit.expected && unit.expected_at + 1 >= expectations_) continue;  // may be about to be used
      if (const double worth = order_->worth(u); victim == units_.size() || worth < least) victim = u, least = worth;
    }
    if (victim == units_.size() || (!demanded && !order_->may_replace(victim, incoming))) return false;
    evict(victim);
  }
  used_ += bytes;
  return true;
}

void UnitStore::evict(size_t u) {
  Held& unit = units_[u];
  unit.state = State::absent;
  if (std::exchange(unit.expected, false)) right_ = (1 - kNewShare) * right_;
  used_ -= unit.bytes;
  give_back_pages(unit);
  order_->evicted(u);
}

void UnitStore::take_pages(Held& unit) {
  if (unit.kept) return;
  std::vector<PageRun> places;
  for (const Extent& extent : unit.extents) places.push_back({memory_.data() + extent.begin, extent.bytes});
  pages_.take(places, unit.pages);
}

void UnitStore::give_back_pages(Held& unit) {
  pages_.put_back(unit.pages);
  for (const Extent& extent : unit.extents)
    if (unit.kept) memory_.give_back(extent.begin, extent.bytes);
}

std::optional<Error> UnitStore::check(const Flight& flight, bool read) const {
  const WeightPiece& piece = file_.pieces[flight.piece];
  const Held& unit = units_[flight.unit];  // its name and extents never change
  if (!read) return read_error(unit, piece);
  if (XXH3_64bits(memory_.data() + (piece.begin - file_.payload), static_cast<size_t>(piece.bytes)) == piece.hash)
    return {};
  return Error::corrupt(
      fmt::format("{}: {} is damaged between bytes {} and {}; remove the file, and the next start packs it again",
                  file_.mapped->path(), unit.name, piece.begin, piece.begin + piece.bytes));
}

Error UnitStore::read_error(const Held& unit, const WeightPiece& piece) const {
  struct stat info {};
  const int64_t end = piece.begin + piece.bytes;
  std::string why;
  if (::fstat(fd_, &info) == 0 && info.st_size < end)
    why = fmt::format("the file has only {} bytes now, it was cut off while in use", info.st_size);
  else
    why = "the disk reports an error, see the system's log";
  return storage_error(
      fmt::format("{}: cannot read {}, bytes {} to {}: {}", file_.mapped->path(), unit.name, piece.begin, end, why));
}

// The unit is ready, or has failed, once all pieces that were started are complete.
void UnitStore::complete(const Flight& flight, std::optional<Error> error) {
  Held& unit = units_[flight.unit];
  ++unit.completed;
  if (error && !unit.failing) unit.failing = std::move(error);
  if (unit.completed < (unit.failing ? unit.started : unit.pieces.size())) return;
  std::erase(reading_, flight.unit);
  ++figures_.reads;
  if (unit.failing) {
    ++figures_.failed;
    unit.state = State::absent;
    if (!unit.kept) used_ -= unit.bytes;
    give_back_pages(unit);
    // If no pass waits, the one that will need the unit tries again.
    if (unit.leases > 0 || unit.kept) unit.error = std::move(unit.failing);
    unit.failing.reset();
  } else {
    unit.state = State::ready;
    figures_.bytes_read += unit.bytes;
    order_->loaded(flight.unit);
    for (const Extent& extent : unit.extents)
      if (!direct_) drop_cached_pages(fd_, file_.payload + extent.begin, extent.bytes);
  }
  changed_.notify_all();
}

}  // namespace millrace
