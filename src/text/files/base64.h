// Base64 (RFC 4648) decoding, for tiktoken ranks and the character maps inside tokenizer.json.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace millrace {

// Replaces `out`; false on any character outside the alphabet, or a wrong length. Padding is optional.
bool decode_base64(std::string_view text, std::vector<uint8_t>& out);

}  // namespace millrace
