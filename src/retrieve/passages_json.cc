#include "retrieve/passages_json.h"

namespace millrace {

nlohmann::ordered_json passages_json(std::span<const SearchHit> passages) {
  auto out = nlohmann::ordered_json::array();
  for (const SearchHit& hit : passages)
    out.push_back({{"path", hit.chunk.path},
                   {"heading", hit.chunk.heading},
                   {"chunk", hit.chunk.ordinal},
                   {"begin", hit.chunk.begin},
                   {"end", hit.chunk.end},
                   {"score", hit.score},
                   {"text", hit.chunk.text}});
  return out;
}

}  // namespace millrace
