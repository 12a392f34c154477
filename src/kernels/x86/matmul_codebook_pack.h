// Packing for the x86 kernels of codebooks (codebook_rows.h), compiled without their flags.
#pragma once

#include <cstdint>

namespace millrace {

struct Codebook;

bool takes_any_codebook(const Codebook& book);
int64_t codebook_rows_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_codebook_rows(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                        uint8_t* packed);
// Of one packed row, columns [begin, end), and zeros up to a multiple of 16.
void decode_codebook_row(const Codebook& book, const uint8_t* packed, int64_t row, int64_t cols, int64_t begin,
                         int64_t end, float* out);

bool takes_table16(const Codebook& book);
int64_t table16_bytes(const Codebook& book, int64_t rows, int64_t cols);
void pack_table16(const Codebook& book, const uint8_t* stored, int64_t cols, int64_t row_begin, int64_t row_end,
                  uint8_t* packed);

}  // namespace millrace
