#include "base/ordered_json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
template class std::vector<nlohmann::ordered_json>;
MILLRACE_ORDERED_JSON_TEXT();
