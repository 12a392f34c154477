#include "tensor/hadamard.h"

#include <algorithm>
#include <bit>
#include <map>

namespace millrace {
namespace {

constexpr int64_t kOrders[] = {172, 156, 140, 124, 116, 108, 60, 52, 36, 28, 20, 12};

// The first rows of Williamson's circulant matrices: bit i is set where value i is -1, and value order / 4 - i is the
// same.
struct Williamson {
  int64_t order;
  uint32_t rows[4];
};
constexpr Williamson kWilliamson[] = {
    {52, {0x1a, 0xe, 0x34, 0x5e}},
    {116, {0x116c, 0xe90, 0xb3a, 0x6b38}},
    {124, {0x7b46, 0x7b46, 0x6a3e, 0x95c0}},
    {156, {0xcdf58, 0xaf370, 0xdae98, 0x47d4e}},
    {172, {0x2450ce, 0x135e04, 0x342b28, 0x3cda1c}},
};

class Matrix {
 public:
  explicit Matrix(int64_t order) : order_(order), values_(static_cast<size_t>(order * order)) {}

  float& at(int64_t row, int64_t column) { return values_[static_cast<size_t>(row * order_ + column)]; }
  std::vector<float> values() && { return std::move(values_); }

 private:
  int64_t order_;
  std::vector<float> values_;
};

// 1 if a is a square modulo the prime p, -1 if not, 0 if p divides it.
float quadratic_character(int64_t a, int64_t p) {
  a = (a % p + p) % p;
  if (a == 0) return 0;
  for (int64_t root = 1; root < p; ++root)
    if (root * root % p == a) return 1;
  return -1;
}

std::vector<float> paley_first(int64_t order) {
  Matrix out(order);
  for (int64_t i = 0; i < order; ++i) {
    for (int64_t j = 1; j < order; ++j) out.at(i, j) = i == j ? 1 : i == 0 ? -1 : quadratic_character(i - j, order - 1);
    out.at(i, 0) = 1;
  }
  return std::move(out).values();
}

// [[C + I, C - I], [C - I, -C - I]], with the symmetric conference matrix C.
std::vector<float> paley_second(int64_t order) {
  const int64_t half = order / 2;
  Matrix out(order);
  for (int64_t i = 0; i < half; ++i)
    for (int64_t j = 0; j < half; ++j) {
      const float one = i == j ? 1 : 0;
      const float c = i == 0 || j == 0 ? 1 - one : quadratic_character(i - j, half - 1);
      out.at(i, j) = c + one;
      out.at(i, half + j) = out.at(half + i, j) = c - one;
      out.at(half + i, half + j) = -c - one;
    }
  return std::move(out).values();
}

// [[A, B, C, D], [-B, A, -D, C], [-C, D, A, -B], [-D, -C, B, A]]
std::vector<float> williamson(const Williamson& of) {
  constexpr int kBlock[4][4] = {{0, 1, 2, 3}, {1, 0, 3, 2}, {2, 3, 0, 1}, {3, 2, 1, 0}};
  constexpr float kSign[4][4] = {{1, 1, 1, 1}, {-1, 1, -1, 1}, {-1, 1, 1, -1}, {-1, -1, 1, 1}};
  const int64_t n = of.order / 4;
  Matrix out(of.order);
  for (int64_t i = 0; i < of.order; ++i)
    for (int64_t j = 0; j < of.order; ++j) {
      const int64_t distance = (j % n - i % n + n) % n;
      const uint32_t minus = of.rows[kBlock[i / n][j / n]] >> std::min(distance, n - distance) & 1;
      out.at(i, j) = kSign[i / n][j / n] * (minus ? -1.0f : 1.0f);
    }
  return std::move(out).values();
}

std::vector<float> make(int64_t order) {
  for (const Williamson& one : kWilliamson)
    if (one.order == order) return williamson(one);
  return order == 28 || order == 36 ? paley_second(order) : paley_first(order);
}

}  // namespace

const std::vector<float>& hadamard_matrix(int64_t order) {
  static const std::map<int64_t, std::vector<float>> all = [] {
    std::map<int64_t, std::vector<float>> made{{0, {}}};
    for (int64_t one : kOrders) made[one] = make(one);
    return made;
  }();
  const auto found = all.find(order);
  return found == all.end() ? all.at(0) : found->second;
}

int64_t outer_hadamard_order(int64_t n) {
  const auto power_of_two = [](int64_t m) { return m > 0 && std::has_single_bit(static_cast<uint64_t>(m)); };
  for (int64_t order : kOrders)
    if (n % order == 0) return power_of_two(n / order) ? order : 0;
  return power_of_two(n) ? 1 : 0;
}

}  // namespace millrace
