// The middles between ascending codes, by which a value's nearest one is found (kernels/column_levels.h).
#pragma once

#include <array>

namespace millrace {

struct CodeMiddles {
  std::array<float, 15> all{};
  int count = 0;
  bool symmetric = true;  // the codes are, about zero

  CodeMiddles(int bits, const float* codes) : count((1 << bits) - 1) {
    for (int i = 0; i < count; ++i) {
      all[static_cast<size_t>(i)] = (codes[i] + codes[i + 1]) / 2;
      symmetric &= codes[i] == -codes[count - i];
    }
  }
  const float* upper() const { return all.data() + (count + 1) / 2; }
};

}  // namespace millrace
