#include "compress/pruners/assignment.h"

#include <limits>

namespace millrace {

// Rows are assigned one after the other. Of each new row, the shortest path over reduced costs (Dijkstra) to a free
// column is found, along which the rows before change columns. Index 0 is the new row's column; costs are -values.
std::vector<int32_t> best_assignment(const std::vector<double>& values, int64_t n) {
  const auto size = static_cast<size_t>(n) + 1;
  std::vector<double> row_price(size), column_price(size), distance(size);
  std::vector<size_t> row_of(size), before(size);  // of a column
  for (size_t row = 1; row < size; ++row) {
    std::vector<uint8_t> done(size);
    distance.assign(size, std::numeric_limits<double>::infinity());
    row_of[0] = row;
    size_t at = 0;
    do {
      done[at] = 1;
      const size_t from = row_of[at];
      const double* line = &values[(from - 1) * static_cast<size_t>(n)];
      size_t next = 0;
      double least = std::numeric_limits<double>::infinity();
      for (size_t c = 1; c < size; ++c) {
        if (done[c]) continue;
        const double reduced = -line[c - 1] - row_price[from] - column_price[c];
        if (reduced < distance[c]) {
          distance[c] = reduced;
          before[c] = at;
        }
        if (distance[c] < least) {
          least = distance[c];
          next = c;
        }
      }
      for (size_t c = 0; c < size; ++c) {
        if (done[c]) {
          row_price[row_of[c]] += least;
          column_price[c] -= least;
        } else {
          distance[c] -= least;
        }
      }
      at = next;
    } while (row_of[at] != 0);
    for (; at != 0; at = before[at]) row_of[at] = row_of[before[at]];
  }
  std::vector<int32_t> out(static_cast<size_t>(n));
  for (size_t c = 1; c < size; ++c) out[row_of[c] - 1] = static_cast<int32_t>(c - 1);
  return out;
}

}  // namespace millrace
