// Base64 (RFC 4648) decoding, for tiktoken ranks and the character maps inside tokenizer.json.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

// Decodes `text` to `out`. Returns false if a character is outside the alphabet or the length is wrong. Padding is
// optional.
bool decode_base64(std::string_view text, std::vector<uint8_t>& out);

}  // namespace millrace
