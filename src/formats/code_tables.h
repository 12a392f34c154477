// The codebooks of NF4 and of the 4-bit floats of bitsandbytes: the published values, and the 8-bit integers (codes)
// with which the formats nf4 and fp4 approximate them, so that products are exact integers. value = scale * unit *
// code.
//
// NF4 (Dettmers et al., 2023) has 16 quantiles of a normal distribution. The unit is chosen so that the integers
// approximate the quantiles best. The root mean square difference is 0.0017 of the scale, while rounding a weight to
// NF4 has an error of 0.04. All codes of FP4 are exact except the smallest, which is 1/96 instead of 1/192.
#pragma once

#include <cstdint>

namespace millrace {

inline constexpr float kNf4Unit = 1 / 112.03f;
inline constexpr int8_t kNf4Codes[16] = {-112, -78, -59, -44, -32, -21, -10, 0, 9, 18, 28, 38, 49, 63, 81, 112};
inline constexpr float kNf4Values[16] = {
    -1.0f,       -0.69619280f, -0.52507305f, -0.39491749f, -0.28444138f, -0.18477343f, -0.09105004f, 0.0f,
    0.07958030f, 0.16093020f,  0.24611230f,  0.33791524f,  0.44070983f,  0.56261700f,  0.72295684f,  1.0f};

inline constexpr float kFp4Unit = 1 / 96.0f;
inline constexpr int8_t kFp4Codes[16] = {0, 1, 64, 96, 32, 48, 16, 24, 0, -1, -64, -96, -32, -48, -16, -24};
inline constexpr float kFp4Values[16] = {0.0f, 1 / 192.0f,  2 / 3.0f,  1.0f,  1 / 3.0f,  0.5f,  1 / 6.0f,  0.25f,
                                         0.0f, -1 / 192.0f, -2 / 3.0f, -1.0f, -1 / 3.0f, -0.5f, -1 / 6.0f, -0.25f};

}  // namespace millrace
