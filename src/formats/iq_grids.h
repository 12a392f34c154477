// The points of the I-quants' grids. A point of eight values has eight digits of 2 bits; a point of four values has
// four digits of 4 bits. The digit of the first value is in the lowest bits. The format defines the value of a digit
// (iq_block.h).
#pragma once

#include <cstdint>

namespace millrace {

extern const uint16_t kIq2XxsGrid[256];
extern const uint16_t kIq2XsGrid[512];
extern const uint16_t kIq2SGrid[1024];
extern const uint16_t kIq3XxsGrid[256];
extern const uint16_t kIq3SGrid[512];
extern const uint16_t kIq1Grid[2048];  // IQ1_S and IQ1_M

}  // namespace millrace
