#include "base/ordered_json.h"

template class nlohmann::basic_json<nlohmann::ordered_map>;
