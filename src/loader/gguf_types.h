// Tensor types of GGUF: name and block size of every assigned ggml type id and of millrace's own formats. Tensors of a
// type that no Format can decode are sized and listed, and are then rejected by type name. Ids never change.
#pragma once

#include <cstdint>
#include <string_view>

namespace millrace {

struct GgufType {
  uint32_t id;
  std::string_view name;  // "Q4_K"
  int block_values;       // 0: the id was removed; models that use it must be converted again
  int block_bytes;
};

const GgufType* find_gguf_type(uint32_t id);  // null if the id was never assigned

// Value types of GGUF metadata. Values never change.
enum class GgufValueType : uint32_t {
  u8 = 0,
  i8 = 1,
  u16 = 2,
  i16 = 3,
  u32 = 4,
  i32 = 5,
  f32 = 6,
  boolean = 7,
  string = 8,
  array = 9,
  u64 = 10,
  i64 = 11,
  f64 = 12
};

// Returns the bytes of one value; 0 for strings, arrays and unknown types.
int gguf_value_bytes(GgufValueType type);

// Returns the minimum bytes of one value on disk (8 for a string's length, 12 for an array's header); 0 for unknown
// types.
int gguf_value_least_bytes(GgufValueType type);

}  // namespace millrace
