#include "formats/e8p_codebook.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace millrace {
namespace {

constexpr int kSmallPatterns = 227;  // of a squared norm of at most 10
constexpr int kLargePatterns = kE8pPatterns - kSmallPatterns;

// The published patterns of norm 12: bit i is set where value i is 3/2.
constexpr uint8_t kLarge[kLargePatterns] = {0xf1, 0xf2, 0xf4, 0xf8, 0x37, 0x57, 0x67, 0x97, 0xa7, 0xc7,
                                            0x3b, 0x5b, 0x6b, 0x9b, 0xab, 0xcb, 0x3d, 0x5d, 0x6d, 0x9d,
                                            0xad, 0xce, 0x3e, 0x5e, 0x6e, 0x9e, 0xae, 0xec, 0x73};

struct Patterns {
  std::array<uint16_t, kE8pPatterns> digits = {};  // first value lowest
  // The same with the first value highest, which is in ascending order.
  std::array<uint16_t, kSmallPatterns> keys = {};
};

constexpr int norm_in_quarters(uint16_t digits) {
  int sum = 0;
  for (int i = 0; i < kE8pValues; ++i) {
    const int twice = 2 * (digits >> (2 * i) & 3) + 1;
    sum += twice * twice;
  }
  return sum;
}

constexpr uint16_t reversed(uint16_t digits) {
  int out = 0;
  for (int i = 0; i < kE8pValues; ++i) out = out << 2 | (digits >> (2 * i) & 3);
  return static_cast<uint16_t>(out);
}

constexpr Patterns list_patterns() {
  Patterns out;
  int count = 0;
  for (int index = 0; index < 6561; ++index) {  // 3^8, in lexicographic order
    int key = 0;
    for (int power = 2187, rest = index; power > 0; rest %= power, power /= 3) key = key << 2 | rest / power;
    if (norm_in_quarters(static_cast<uint16_t>(key)) > 40) continue;
    out.keys[static_cast<size_t>(count)] = static_cast<uint16_t>(key);
    out.digits[static_cast<size_t>(count++)] = reversed(static_cast<uint16_t>(key));
  }
  for (uint8_t large : kLarge) {
    int digits = 0;
    for (int i = 0; i < kE8pValues; ++i) digits |= (large >> i & 1) << (2 * i);
    out.digits[static_cast<size_t>(count++)] = static_cast<uint16_t>(digits);
  }
  return out;
}

constexpr Patterns kPatterns = list_patterns();
static_assert(norm_in_quarters(kPatterns.digits[0]) == 8 && kPatterns.digits[kE8pPatterns - 1] == 0x1505);

// Whether the sum of the magnitudes is odd, which is 4 and the sum of the digits.
bool odd_sum(uint16_t digits) { return std::popcount(digits & 0x5555u) % 2 != 0; }

// Where the sign of value i is in a code.
constexpr int sign_bit(int i) { return i / 2 + i % 2 * 4; }

uint16_t code_of(int pattern, uint32_t minus, bool down) {
  const uint32_t stored = minus ^ static_cast<uint32_t>(down) ^
                          static_cast<uint32_t>(odd_sum(kPatterns.digits[static_cast<size_t>(pattern)])) << 7;
  uint32_t out = static_cast<uint32_t>(pattern) << 8;
  for (int i = 0; i < kE8pValues; ++i) out |= (stored >> i & 1) << sign_bit(i);
  return static_cast<uint16_t>(out);
}

// The best of one shift: `m` are the magnitudes of what is left of x, `odd` whether their natural minus signs are odd.
struct Best {
  float score = -INFINITY;  // 2 point * m - |point|^2
  int pattern = 0;
  int flipped = -1;  // the value whose sign changes
};

// Of all patterns with the same numbers of 3/2 and 5/2, that with the larger magnitudes at the larger values is best,
// and its least magnitude, 1/2, is at the least value, whose sign is the cheapest to change.
Best best_small(const float* m, const int* order, bool odd) {
  float sum = 0;
  for (int i = 0; i < kE8pValues; ++i) sum += m[i];
  const float largest = m[order[0]], penalty = 2 * m[order[7]];
  Best best;
  int chosen = 0, least_flipped = -1;
  const auto consider = [&](float score, int threes, bool five) {
    const bool flip = odd != (threes % 2 != 0);  // 5/2 leaves the parity as it is
    if (flip) score -= penalty;
    if (!(score > best.score)) return;
    best.score = score;
    chosen = threes + (five ? 8 : 0);
    least_flipped = flip ? order[7] : -1;
  };
  float prefix = sum;
  for (int threes = 0; threes <= 4; ++threes) {
    if (threes > 0) prefix += 2 * m[order[threes - 1]];
    consider(prefix - 2 - 2 * static_cast<float>(threes), threes, false);
  }
  for (int threes = 0; threes <= 1; ++threes)
    consider(sum + 4 * largest + (threes ? 2 * m[order[1]] : 0) - 8 - 2 * static_cast<float>(threes), threes, true);

  uint32_t key = 0;
  const auto add = [&](int place, uint32_t digit) { key |= digit << (2 * (kE8pValues - 1 - order[place])); };
  const int five = chosen >= 8;
  if (five) add(0, 2);
  for (int i = 0; i < chosen % 8; ++i) add(i + five, 1);
  best.pattern = static_cast<int>(std::ranges::lower_bound(kPatterns.keys, key) - kPatterns.keys.begin());
  best.flipped = least_flipped;
  return best;
}

void try_large(const float* m, const int* order, bool odd, Best& best) {
  float sum = -12, limit = 0;
  for (int i = 0; i < kE8pValues; ++i) sum += m[i];
  for (int i = 0; i < 5; ++i) limit += 2 * m[order[i]];
  if (!(sum + limit > best.score)) return;
  for (int p = 0; p < kLargePatterns; ++p) {
    float score = sum, least = INFINITY;
    int at = 0;
    for (int i = 0; i < kE8pValues; ++i) {
      const bool three = (kLarge[p] >> i & 1) != 0;
      const float product = (three ? 3 : 1) * m[i];
      if (three) score += 2 * m[i];
      if (product < least) least = product, at = i;
    }
    const bool flip = !odd;  // five 3/2: the sum is odd, and so must be the number of minus signs
    if (flip) score -= 2 * least;
    if (score > best.score) best = {score, kSmallPatterns + p, flip ? at : -1};
  }
}

}  // namespace

uint16_t e8p_digits(int pattern) { return kPatterns.digits[static_cast<size_t>(pattern)]; }

uint32_t e8p_signs(uint16_t code) {
  uint32_t minus = 0;
  for (int i = 0; i < kE8pValues; ++i) minus |= (static_cast<uint32_t>(code) >> sign_bit(i) & 1) << i;
  const auto down = static_cast<uint32_t>(std::popcount(minus) & 1);
  minus ^= down;
  minus ^= static_cast<uint32_t>(odd_sum(e8p_digits(code >> 8))) << 7;
  return minus | down << 8;
}

void e8p_values(uint16_t code, int8_t* quarters) {
  const uint16_t digits = e8p_digits(code >> 8);
  const uint32_t signs = e8p_signs(code);
  const int shift = (signs >> 8) != 0 ? -1 : 1;
  for (int i = 0; i < kE8pValues; ++i) {
    const int magnitude = 4 * (digits >> (2 * i) & 3) + 2;
    quarters[i] = static_cast<int8_t>(((signs >> i & 1) != 0 ? -magnitude : magnitude) + shift);
  }
}

E8pChoice nearest_e8p(const float* x) {
  E8pChoice out;
  out.error = INFINITY;
  for (bool down : {true, false}) {
    float m[kE8pValues], norm = 0;
    int order[kE8pValues];
    uint32_t minus = 0;
    for (int i = 0; i < kE8pValues; ++i) {
      const float left = x[i] + (down ? kE8pUnit : -kE8pUnit);
      minus |= static_cast<uint32_t>(left < 0) << i;
      m[i] = std::fabs(left);
      norm += left * left;
      int at = i;  // descending; of equal ones the first
      for (; at > 0 && m[order[at - 1]] < m[i]; --at) order[at] = order[at - 1];
      order[at] = i;
    }
    const bool odd = std::popcount(minus) % 2 != 0;
    Best best = best_small(m, order, odd);
    try_large(m, order, odd, best);
    const float error = norm - best.score;
    if (!(error < out.error)) continue;
    if (best.flipped >= 0) minus ^= 1u << best.flipped;
    out = {code_of(best.pattern, minus, down), error};
  }
  out.error = std::max(out.error, 0.0f);
  return out;
}

}  // namespace millrace
