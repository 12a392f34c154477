// Moves pages of private memory to other addresses. Defined in system.cc.
#pragma once

#include <cstddef>

namespace millrace {

// Moves the pages of [from, from + bytes), which are in one mapping, to `to`, where they replace what was mapped. The
// old addresses stay mapped and have no pages. All are multiples of the page size. Returns false if the system refuses,
// and then nothing has changed. Linux 5.7 or later.
bool move_pages(void* from, size_t bytes, void* to);

}  // namespace millrace
