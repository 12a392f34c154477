// nlohmann::ordered_json, compiled once in ordered_json.cc. Otherwise, every file that uses it would compile it, in two
// or three seconds.
#pragma once

#include <vector>

#include "base/json_library.h"

// Instantiations that read and write JSON. Other versions of the library may name them differently; for those, every
// file compiles its own instantiations.
#if NLOHMANN_JSON_VERSION_MAJOR == 3 && NLOHMANN_JSON_VERSION_MINOR == 11
#define MILLRACE_ORDERED_JSON_TEXT(declared)                                                              \
  declared template class nlohmann::detail::serializer<nlohmann::ordered_json>;                           \
  declared template class nlohmann::detail::json_sax_dom_parser<nlohmann::ordered_json>;                  \
  declared template class nlohmann::detail::json_sax_dom_callback_parser<nlohmann::ordered_json>;         \
  declared template class nlohmann::detail::lexer<nlohmann::ordered_json,                                 \
                                                  nlohmann::detail::iterator_input_adapter<const char*>>; \
  declared template class nlohmann::detail::parser<nlohmann::ordered_json,                                \
                                                   nlohmann::detail::iterator_input_adapter<const char*>>
#else
#define MILLRACE_ORDERED_JSON_TEXT(declared) static_assert(true)
#endif

extern template class nlohmann::basic_json<nlohmann::ordered_map>;
extern template class std::vector<nlohmann::ordered_json>;
MILLRACE_ORDERED_JSON_TEXT(extern);
