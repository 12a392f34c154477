#include "kv/codecs/normal_codes.h"

#include <cmath>
#include <numbers>

#include "kernels/kernel_table.h"
#include "tensor/half.h"

namespace millrace {
namespace {

double density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double probability(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }

struct Codebook {
  std::array<double, 16> code{}, share{};  // share of all values that are nearest to a code
  size_t count;
};

// Lloyd's iteration: a code is the mean of the values that are nearest to it.
Codebook fitted(int bits) {
  Codebook book{.count = size_t{1} << bits};
  const size_t count = book.count;
  auto& code = book.code;
  for (size_t i = 0; i < count; ++i) code[i] = (static_cast<double>(i) + 0.5) * 4 / static_cast<double>(count) - 2;
  for (int round = 0; round < 2000; ++round) {
    const std::array<double, 16> old = code;
    for (size_t i = 0; i < count; ++i) {
      const double low = i > 0 ? (old[i - 1] + old[i]) / 2 : -40;
      const double high = i + 1 < count ? (old[i] + old[i + 1]) / 2 : 40;
      book.share[i] = probability(high) - probability(low);
      code[i] = (density(low) - density(high)) / book.share[i];
    }
  }
  for (size_t i = 0; i < count / 2; ++i) {
    code[count - 1 - i] = (code[count - 1 - i] - code[i]) / 2;
    code[i] = -code[count - 1 - i];
  }
  return book;
}

// Rounded to f16, which is coarser than what libraries' functions may differ by.
NormalCodes unit_codes_of(const Codebook& book) {
  NormalCodes out{};
  for (size_t i = 0; i < book.count; ++i)
    out[i] = f16_to_f32(f32_to_f16(static_cast<float>(book.code[i] / book.code[book.count - 1])));
  return out;
}

WholeCodes whole_codes_of(const Codebook& book) {
  WholeCodes best;
  double least = 1e9;
  for (int top = kMaxCode / 2; top <= kMaxCode; ++top) {
    WholeCodes one;
    double products = 0, squares = 0, loss = 0;
    for (size_t i = 0; i < book.count; ++i) {
      const double whole = std::round(book.code[i] / book.code[book.count - 1] * top);
      one.codes[i] = static_cast<float>(whole);
      products += book.share[i] * whole * book.code[i];
      squares += book.share[i] * whole * whole;
    }
    one.step = f16_to_f32(f32_to_f16(static_cast<float>(products / squares)));
    for (size_t i = 0; i < book.count; ++i)
      loss += book.share[i] * std::pow(one.codes[i] * static_cast<double>(one.step) - book.code[i], 2);
    if (loss >= least) continue;
    least = loss;
    best = one;
  }
  return best;
}

template <typename Codes>
std::array<Codes, 3> of_all_bits(Codes (*make)(const Codebook&)) {
  return {make(fitted(2)), make(fitted(3)), make(fitted(4))};
}

}  // namespace

const NormalCodes& unit_codes(int bits) {
  static const std::array<NormalCodes, 3> all = of_all_bits(unit_codes_of);
  return all[static_cast<size_t>(bits - 2)];
}

const WholeCodes& whole_codes(int bits) {
  static const std::array<WholeCodes, 3> all = of_all_bits(whole_codes_of);
  return all[static_cast<size_t>(bits - 2)];
}

}  // namespace millrace
