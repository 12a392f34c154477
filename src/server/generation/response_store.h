// ResponseStore: responses of /v1/responses stored for previous_response_id and later retrieval. In memory, bounded by
// count and bytes; the least recently used response is evicted first. Thread-safe.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "server/json.h"

namespace millrace {

struct StoredResponse {
  Json response;
  Json messages;                // the conversation including this response, for chat templates, without instructions
  Json input = Json::array();   // its input items, oldest first
  Json deltas = Json::array();  // the sizes of the pieces in which each output item was streamed
};

class ResponseStore {
 public:
  ResponseStore(int64_t most, int64_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  bool keeps() const { return most_ > 0 && most_bytes_ > 0; }
  void put(const std::string& id, StoredResponse response);
  std::optional<StoredResponse> get(const std::string& id);
  bool erase(const std::string& id);

  int64_t count() const;
  int64_t bytes() const;

 private:
  struct Entry {
    std::string response, messages, input, deltas;  // serialized: smaller, and of known size
    std::list<std::string>::iterator use;
    int64_t bytes() const {
      return static_cast<int64_t>(response.size() + messages.size() + input.size() + deltas.size() + 256);
    }
  };
  void drop(std::unordered_map<std::string, Entry>::iterator entry);

  const int64_t most_, most_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, Entry> entries_;
  std::list<std::string> uses_;  // most recent first
  int64_t bytes_ = 0;
};

}  // namespace millrace
