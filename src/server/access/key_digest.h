// KeyDigest: all that the server keeps of an API key, its own and those that clients send. All digests have one length,
// so that comparing a key with all of them takes constant time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace millrace {

using KeyDigest = std::array<uint8_t, 32>;  // SHA-256

KeyDigest key_digest(std::string_view key);
bool same_digest(const KeyDigest& left, const KeyDigest& right);  // in constant time

// The key that a request's headers give. The HTTP layer makes it from the received bytes, which it then overwrites; no
// later code sees a key's text.
struct GivenKey {
  std::optional<KeyDigest> key;    // digest of the API key, under either header name
  std::optional<KeyDigest> other;  // without a key: of an Authorization header of another scheme, perhaps of a proxy
};
// `authorization`, `api_key`: the values of the headers Authorization and x-api-key; "": absent.
GivenKey read_given_key(std::string_view authorization, std::string_view api_key);

}  // namespace millrace
