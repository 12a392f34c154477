#include "models/weight_units/moving_pages.h"

#include <unistd.h>

#include <algorithm>

#include "base/move_pages.h"
#include "base/system.h"

namespace millrace {
namespace {

constexpr int64_t kSmallPage = 4096;                // units are whole multiples of it
constexpr int64_t kAreaBytes = 4 * kHugePageBytes;  // allocated at once, under the lock of a store
constexpr size_t kRunsForPlace = 8;                 // beyond this, a unit receives new pages

// Returns true if the system moves a page and keeps its contents (Linux 5.7).
bool system_moves_pages() {
  if (sysconf(_SC_PAGESIZE) != kSmallPage) return false;
  auto memory = AlignedBuffer::reserve(2 * kSmallPage, "addresses of weights", false);
  if (!memory.ok()) return false;
  memory->data()[0] = 1;
  return move_pages(memory->data(), kSmallPage, memory->data() + kSmallPage) && memory->data()[kSmallPage] == 1;
}

// The parts of `places` that are in none of `runs`, which are inside of them.
std::vector<PageRun> gaps_of(std::span<const PageRun> places, std::vector<PageRun> runs) {
  std::ranges::sort(runs, {}, &PageRun::begin);
  std::vector<PageRun> gaps;
  for (const PageRun& place : places) {
    uint8_t* at = place.begin;
    uint8_t* const end = place.begin + place.bytes;
    for (const PageRun& run : runs) {
      if (run.begin < at || run.begin >= end) continue;
      if (run.begin > at) gaps.push_back({at, run.begin - at});
      at = run.begin + run.bytes;
    }
    if (at < end) gaps.push_back({at, end - at});
  }
  return gaps;
}

}  // namespace

MovingPages::MovingPages(int64_t capacity)
    : unallocated_(capacity / kSmallPage * kSmallPage), moves_(system_moves_pages()) {}

void MovingPages::take(std::span<const PageRun> places, std::vector<PageRun>& runs) {
  const size_t most = kRunsForPlace * places.size();
  const auto free_again = [&](std::vector<PageRun>& some) {  // many small pieces: new pages are in one piece
    free_.insert(free_.end(), some.begin(), some.end());
    drop_free();
    some.clear();
  };
  take_own(places, runs);
  if (runs.size() > most) free_again(runs);
  const std::vector<PageRun> gaps = gaps_of(places, runs);
  int64_t bytes = 0;
  for (const PageRun& gap : gaps) bytes += gap.bytes;
  std::vector<PageRun> picked;
  if (moves_ && !pick(bytes, picked)) stop_moving();
  if (moves_ && picked.size() > most) {
    free_again(picked);
    if (!pick(bytes, picked)) stop_moving();
  }
  move(picked, gaps, runs);
}

// Takes the free pages that are at these places already. Others may not move there: they would replace them.
void MovingPages::take_own(std::span<const PageRun> places, std::vector<PageRun>& runs) {
  for (const PageRun& place : places) {
    const auto elsewhere = [&](const PageRun& run) {
      return run.begin < place.begin || run.begin >= place.begin + place.bytes;
    };
    const auto own = std::ranges::stable_partition(free_, elsewhere);
    runs.insert(runs.end(), own.begin(), own.end());
    free_.erase(own.begin(), own.end());
  }
}

// Moves pages to the gaps, in this order. Pages that the system does not move are freed, and the gaps' own are
// allocated when they are written.
void MovingPages::move(std::vector<PageRun>& pages, std::span<const PageRun> gaps, std::vector<PageRun>& runs) {
  size_t next = 0;
  for (PageRun gap : gaps) {
    while (gap.bytes > 0) {
      PageRun part = gap;
      if (moves_) {
        PageRun& from = pages[next];
        part.bytes = std::min(gap.bytes, from.bytes);
        if (move_pages(from.begin, static_cast<size_t>(part.bytes), part.begin)) {
          leave_area({from.begin, part.bytes});
          from.begin += part.bytes;
          from.bytes -= part.bytes;
          if (from.bytes == 0) ++next;
        } else {
          free_.insert(free_.end(), pages.begin() + static_cast<int64_t>(next), pages.end());
          stop_moving();
          part.bytes = gap.bytes;
        }
      }
      runs.push_back(part);
      gap.begin += part.bytes;
      gap.bytes -= part.bytes;
    }
  }
}

void MovingPages::put_back(std::vector<PageRun>& runs) {
  free_.insert(free_.end(), runs.begin(), runs.end());
  runs.clear();
  if (!moves_) drop_free();
}

void MovingPages::stop_moving() {
  moves_ = false;
  drop_free();
}

void MovingPages::drop_free() {
  for (const PageRun& run : free_) {
    advise_pages(run.begin, static_cast<size_t>(run.bytes), PageAdvice::drop);
    unallocated_ += run.bytes;
    leave_area(run);
  }
  free_.clear();
}

// Chooses free pages for `bytes` bytes, and allocates new ones while the capacity allows it. A run of exactly this size
// comes first, then the smallest larger one, then the largest one. Returns false if pages cannot be allocated.
bool MovingPages::pick(int64_t bytes, std::vector<PageRun>& picked) {
  while (bytes > 0) {
    const auto fits = [&](const PageRun& run) { return run.bytes >= bytes; };
    if (unallocated_ > 0 && std::ranges::none_of(free_, fits) && !grow(bytes)) break;
    const auto better = [&](const PageRun& a, const PageRun& b) {
      if (fits(a) != fits(b)) return fits(a);
      return fits(a) ? a.bytes < b.bytes : a.bytes > b.bytes;
    };
    const auto best = std::ranges::min_element(free_, better);
    if (best == free_.end()) break;
    const PageRun part{best->begin, std::min(bytes, best->bytes)};
    picked.push_back(part);
    bytes -= part.bytes;
    best->begin += part.bytes;
    best->bytes -= part.bytes;
    if (best->bytes == 0) free_.erase(best);
  }
  if (bytes == 0) return true;
  free_.insert(free_.end(), picked.begin(), picked.end());
  picked.clear();
  return false;
}

// Allocates pages for `bytes` bytes and some more, but not beyond the capacity.
bool MovingPages::grow(int64_t bytes) {
  const int64_t whole = (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const int64_t size = std::min(unallocated_, std::max(whole, kAreaBytes));
  auto area = AlignedBuffer::reserve(size, "addresses of weights", true);
  if (!area.ok()) return false;
  for (int64_t at = 0; at < size; at += kSmallPage) *static_cast<volatile uint8_t*>(area->data() + at) = 0;
  advise_pages(area->data(), static_cast<size_t>(size), PageAdvice::small);  // later pages of these addresses
  unallocated_ -= size;
  free_.push_back({area->data(), size});
  areas_.push_back({std::move(*area), size});
  return true;
}

// The pages of `run` no longer have these addresses, which are given up with the last page of their area.
void MovingPages::leave_area(const PageRun& run) {
  const auto has = [&](const Area& area) {
    return run.begin >= area.addresses.data() && run.begin < area.addresses.data() + area.addresses.bytes();
  };
  const auto area = std::ranges::find_if(areas_, has);
  if (area != areas_.end() && (area->left -= run.bytes) == 0) areas_.erase(area);
}

}  // namespace millrace
