// MovingPages: the memory that units of weights share, as pages that move. When a unit leaves memory, its pages are not
// freed: the next unit takes them to its own addresses (mremap). So a read finds its pages allocated, and the system
// neither zeroes nor accounts them again, which takes longer than a fast disk needs to fill them.
//
//   addresses  | unit 0 | unit 1 | unit 2 | unit 3 | ...   every unit has its own
//   pages          A        B                              unit 0 is freed, unit 2 takes its pages:
//   pages                   B        A
//
// Pages are allocated as huge ones where the system has them, in areas of 8 MiB or of a unit. Units begin
// anywhere, so that pages move as small ones, but 2 MiB at a time stay together in memory, and a read has few parts.
//
// If the system refuses to move pages, they are freed and allocated again. In both cases units never have more than
// `capacity` bytes. Not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tensor/aligned_buffer.h"

namespace millrace {

// Pages of one mapping: whole pages of the system.
struct PageRun {
  uint8_t* begin = nullptr;
  int64_t bytes = 0;
};

class MovingPages {
 public:
  // `capacity`: bytes that all units may have together.
  explicit MovingPages(int64_t capacity);
  // "moved", or "allocated" if the system refuses to move pages.
  std::string_view name() const { return moves_ ? "moved" : "allocated"; }
  // Backs the addresses `places` of a unit, whole pages of private memory. `runs`: in: empty; out: what put_back()
  // receives. The pages' contents are undefined. All units together must have at most `capacity` bytes. A unit has the
  // same places each time, and no other unit has them.
  void take(std::span<const PageRun> places, std::vector<PageRun>& runs);
  // Frees the unit's pages for the next unit; `runs` becomes empty.
  void put_back(std::vector<PageRun>& runs);
  // Frees the pages that no unit has. From now on pages are allocated when they are written, and never move.
  void stop_moving();
  int64_t free_runs() const { return std::ssize(free_); }

 private:
  struct Area {  // where pages are allocated
    AlignedBuffer addresses;
    int64_t left = 0;  // bytes whose pages have not moved away
  };
  bool grow(int64_t bytes);
  void take_own(std::span<const PageRun> places, std::vector<PageRun>& runs);
  void move(std::vector<PageRun>& pages, std::span<const PageRun> gaps, std::vector<PageRun>& runs);
  bool pick(int64_t bytes, std::vector<PageRun>& picked);
  void leave_area(const PageRun& run);
  void drop_free();

  int64_t unallocated_;
  bool moves_;
  std::vector<PageRun> free_;
  std::vector<Area> areas_;
};

}  // namespace millrace
